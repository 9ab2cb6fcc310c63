"""Finds the modules that a module imports, in the text of their files, and executes them from this text."""

import ast
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from pausejax.parts.origin import of_others


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
    folders = functools.cache(functools.partial(_folders, base))
    while left:
        name = left.pop()
        top, *inner = name.split(".")
        for folder in folders(top):
            beside = folder.joinpath(*inner)
            for path in (beside / "__init__.py", beside.with_name(f"{beside.name}.py")):
                if name not in found and path.is_file() and belongs(name, path.resolve()):
                    found[name] = path.resolve()
                    left += _names(path, name)
        if parent := name.rpartition(".")[0]:
            left.append(parent)
    return found


def _folders(base: Path, top: str) -> list[Path]:
    """Returns the folders of a package; for a module that is no package, its path without the ending .py."""
    beside = base / top
    if not top or (beside / "__init__.py").is_file() or (base / f"{top}.py").is_file():
        return [beside]
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        found = None
    if found and found.has_location and found.origin and not found.submodule_search_locations:
        return [Path(found.origin).with_suffix("")]
    elsewhere = list(map(Path, found.submodule_search_locations or ())) if found else []
    return elsewhere if found and found.has_location else [beside, *elsewhere]


def is_beside(base: Path, name: str, path: Path) -> bool:
    """Returns whether a file is the one in which Python looks for a module in the folder `base`.

    A link counts as a module of another folder.
    """
    beside = base.joinpath(*name.split("."))
    return path in (beside.with_name(f"{beside.name}.py"), beside / "__init__.py")


class SourceFinder(MetaPathFinder):
    """Finder that executes the modules in one folder from their sources, and keeps what it has read.

    Python's own loader may execute old bytecode: it compares only the source's time in seconds and its size,
    and both can stay equal while a file is edited.

    Args:
      base: the folder.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self.contents: dict[Path, bytes] = {}
        """The content of each executed file."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of a module in the folder; None for other modules."""
        found = PathFinder.find_spec(name, path, target)
        if found and type(found.loader) is SourceFileLoader:
            file = Path(found.loader.path).resolve()
            if file.is_relative_to(self._base) and not of_others(file):
                found.loader = _Loader(name, found.loader.path, self.contents)
                return found
        return None


class _Loader(SourceFileLoader):
    """Loader that reads and writes no bytecode."""

    def __init__(self, name: str, path: str, contents: dict[Path, bytes]) -> None:
        super().__init__(name, path)
        self._contents = contents

    def path_stats(self, path: str) -> Any:
        """Raises an OSError: without a source's time, Python ignores bytecode."""
        raise OSError

    def get_data(self, path: str) -> bytes:
        """Returns the content of a file."""
        found = super().get_data(path)
        self._contents[Path(path).resolve()] = found
        return found


def is_outdated(module: ModuleType, path: Path) -> bool:
    """Returns whether a module's file was changed after Python imported it, as far as the bytecode tells."""
    spec = getattr(module, "__spec__", None)
    if spec is None or not spec.cached or sys.dont_write_bytecode or not os.access(spec.cached, os.W_OK):
        return False
    header = Path(spec.cached).read_bytes()[:16]
    flags, time, size = (int.from_bytes(header[place : place + 4], "little") for place in (4, 8, 12))
    now = path.stat()
    return not flags and (time, size) != (int(now.st_mtime) & 0xFFFFFFFF, now.st_size & 0xFFFFFFFF)


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
