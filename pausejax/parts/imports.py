"""Finds the modules that a module imports, in the text of their files."""

import ast
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

_COMPUTES_NAMES = re.compile(
    rb"\b(importlib|pkgutil|pydoc|runpy|entry_points|EntryPoint|__import__|__all__|exec|eval)\b"
)
_MOST_FOLDERS = 5000
_OF_A_STUDY = frozenset(("labels.npz", "results.zarr", "search.json"))


class OwnFinder(MetaPathFinder):
    """Finder of modules as they were when a study began. This file skips it: it looks for modules of now."""


def imported(
    base: Path,
    modules: Iterable[str],
    belongs: Callable[[str, Path], bool],
    places: Mapping[str, Path],
) -> dict[str, Path]:
    """Returns the modules that some modules import, directly or through other modules.

    Nothing is executed, so earlier imports of the process do not matter. Imports within functions count.
    Names that are computed at run time are not found.

    Args:
      base: the folder that Python searches first for modules.
      modules: dotted names of modules, relative to the folder or as Python finds them.
      belongs: function from a dotted name and a file to whether this module counts. Other modules are not
        read.
      places: files of some modules by name, even if Python would not find them.

    Returns:
      The file of each module by its dotted name, including `modules` and the parent packages.
    """
    found: dict[str, Path] = {}
    left = [*modules]
    folders = functools.cache(functools.partial(_folders, base))
    while left:
        name = left.pop()
        path = None
        if name not in found:
            path = places.get(name) or _file(name, folders(name.partition(".")[0]))
        if path and belongs(name, path.resolve()):
            found[name] = path.resolve()
            left += _names(path, name)
        if parent := name.rpartition(".")[0]:
            left.append(parent)
    return found


def may_compute_names(content: bytes) -> bool:
    """Returns whether a file may import modules whose names it computes, such as all modules of a folder."""
    return bool(_COMPUTES_NAMES.search(content))


def modules_below(folders: Iterable[Path]) -> dict[Path, set[str] | None]:
    """Returns the paths of the modules in some folders and below them; None for a folder that is too large.

    A path belongs to the first of the folders that reaches it. Copies of modules in a study's folder do not
    count.
    """
    below: dict[Path, set[str] | None] = {}
    seen: set[str] = set()
    for folder in folders:
        found = below[folder] = set()
        for count, (place, inside, files) in enumerate(os.walk(folder, followlinks=True)):
            if count == _MOST_FOLDERS:
                below[folder] = None
                break
            if place in seen:
                inside.clear()
                continue
            seen.add(place)
            copies = {"used"} if _OF_A_STUDY.intersection((*inside, *files)) else set()
            inside[:] = [one for one in inside if one.isidentifier() and one not in {"__pycache__", *copies}]
            found.update(os.path.join(place, one) for one in files if one.endswith(".py"))
    return below


def file_of_module(base: Path, module: str) -> Path | None:
    """Returns where Python would find a module, also if it is loaded; None if it would not. Executes nothing.

    Args:
      base: the folder that Python searches first for modules.
      module: the dotted name of the module.
    """
    return _file(module, _folders(base, module.partition(".")[0]))


def _file(name: str, folders: Iterable[Path]) -> Path | None:
    """Returns the file of a module, given the folders of its package; None if there is no such file."""
    inner = name.split(".")[1:]
    places = (path for folder in folders for path in places_of(folder.joinpath(*inner)))
    return next(filter(Path.is_file, places), None) or (_mapped(name) if inner else None)


def places_of(stem: Path) -> tuple[Path, Path]:
    """Returns where Python looks for a package or a module, given its path without an ending."""
    return stem / "__init__.py", stem.with_name(f"{stem.name}.py")


def _folders(base: Path, top: str) -> list[Path]:
    """Returns the folders of a package; for a module that is no package, its path without the ending .py."""
    beside = base / top
    if not top or (beside / "__init__.py").is_file() or (base / f"{top}.py").is_file():
        return [beside]
    try:
        found = spec_of(top)
    except (ImportError, ValueError):
        found = None
    if found and found.has_location and found.origin and not found.submodule_search_locations:
        return [Path(found.origin).with_suffix("")]
    elsewhere = list(map(Path, found.submodule_search_locations or ())) if found else []
    return elsewhere if found and found.has_location else [beside, *elsewhere]


def spec_of(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
    """Returns the spec of a module that Python would import now, whether or not it is loaded already."""
    return next(filter(None, (finder.find_spec(name, path, target) for finder in _finders())), None)


def _finders() -> list[Any]:
    # Python skips old finders, which lack `find_spec`.
    return [one for one in sys.meta_path if hasattr(one, "find_spec") and not isinstance(one, OwnFinder)]


def _mapped(name: str) -> Path | None:
    """Returns the file of a module in a package that an editable install maps to another folder."""
    finders = (one for one in _finders() if one is not PathFinder)
    try:
        top = spec_of(name.partition(".")[0])
        if top and top.has_location:  # a package in one folder, which has been searched
            return None
        found = next(filter(None, (finder.find_spec(name, None) for finder in finders)), None)
    except (AttributeError, ImportError, LookupError, ValueError):  # the finder needs the parent to be loaded
        return None
    return Path(found.origin) if found and found.has_location and found.origin else None


def _names(path: Path, module: str) -> Iterator[str]:
    """Yields the names that may be modules in the import statements of a file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # Python reports this when it imports the file
        return
    is_package = path.name == "__init__.py"
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            if start:
                yield start
            yield from (f"{start}.{alias.name}".lstrip(".") for alias in node.names)
        elif is_package and "__all__" in map(ast.unparse, _targets(node)):
            # `from package import *` imports the modules of the package that this list names.
            texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
            names = (text for text in texts if isinstance(text, str) and text.isidentifier())
            yield from (f"{module}.{text}" for text in names)


def _targets(node: ast.AST) -> list[ast.expr]:
    """Returns the expressions to which a statement assigns."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
