"""Finds the modules that a module imports, in the text of the modules' files."""

import ast
import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path


def imported(base: Path, module: str, belongs: Callable[[str, Path], bool]) -> dict[str, Path]:
    """Returns the modules that a module imports, directly or through other modules.

    Nothing is executed, so earlier imports of the process do not matter. Imports within functions count.
    Names that are computed at run time are not found.

    Args:
      base: the folder that Python searches first for modules.
      module: the dotted name of the module, relative to the folder.
      belongs: function from a dotted name and a file to whether this module counts. Other modules are not
        read.

    Returns:
      The file of each module by its dotted name, including the module itself and the parent packages.
    """
    found: dict[str, Path] = {}
    left = [module]
    folder = functools.cache(functools.partial(_folder, base))
    while left:
        name = left.pop()
        beside = folder(name.partition(".")[0]).joinpath(*name.split("."))
        for path in (beside / "__init__.py", beside.parent / f"{beside.name}.py"):
            if name not in found and path.is_file() and belongs(name, path.resolve()):
                found[name] = path.resolve()
                left += _names(path, name)
        if parent := name.rpartition(".")[0]:
            left.append(parent)
    return found


def _folder(base: Path, top: str) -> Path:
    """Returns the folder in which Python finds a module, or a package of modules."""
    if (base / top / "__init__.py").is_file() or (base / f"{top}.py").is_file():
        return base
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return base
    if found is None or not found.origin or not found.has_location:
        return base
    path = Path(found.origin)
    return path.parents[1] if path.name == "__init__.py" else path.parent


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
