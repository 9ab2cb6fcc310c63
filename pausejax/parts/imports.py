"""Finds the modules of a folder that a module imports, in the text of the modules' files."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path


def imported(base: Path, module: str, belongs: Callable[[str, Path], bool]) -> dict[str, Path]:
    """Returns the modules of a folder that a module imports, directly or through other modules.

    Nothing is executed, so earlier imports of the process do not matter. Imports within functions count.
    Names that are computed at run time are not found.

    Args:
      base: the folder from which modules are imported.
      module: the dotted name of the module, relative to the folder.
      belongs: function from a dotted name and a file to whether this module counts. Other modules are not
        read.

    Returns:
      The file of each module by its dotted name, including the module itself and the parent packages.
    """
    found: dict[str, Path] = {}
    left = [module]
    while left:
        name = left.pop()
        beside = base.joinpath(*name.split("."))
        for path in (beside / "__init__.py", beside.parent / f"{beside.name}.py"):
            if name not in found and path.is_file() and belongs(name, path.resolve()):
                found[name] = path.resolve()
                left += _names(path, name)
        if parent := name.rpartition(".")[0]:
            left.append(parent)
    return found


def _names(path: Path, module: str) -> Iterator[str]:
    """Yields the names that may be modules in the import statements of a file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # Python reports this when it imports the file
        return
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            if start:
                yield start
            yield from (f"{start}.{alias.name}".lstrip(".") for alias in node.names)
