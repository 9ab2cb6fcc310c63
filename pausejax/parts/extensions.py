"""Finds and executes users' files with parts, and sends them to other processes.

A study names these files in `use`: each entry is a path from the spec's folder, or a module. Executing a file
registers its parts in the study's own layer, a registry on top of the package's parts. If the file imports a
module from its own folder, the module's content is hashed and sent too. Modules of one's own in other folders
are hashed, and not sent.
"""

import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pausejax.parts.digest import digest_of
from pausejax.parts.imports import SourceFinder, beginning, imported, is_beside, old_bytecode
from pausejax.parts.origin import in_package, of_others, place_of
from pausejax.parts.part import Part, PartError, first_line
from pausejax.parts.registry import Parts, collecting, registered_parts
from pausejax.parts.source import Source, digest_of_file, unlike, written

ENTRY_POINTS = "pausejax.extensions"


class Layer(Parts):
    """Registry with the parts of one study's own files, on top of the parts of the package."""

    def __init__(self, beneath: Parts, sources: Sequence[Source]) -> None:
        super().__init__(beneath)
        self.sources = tuple(sources)

    def __reduce__(self) -> Any:
        # A function can't be sent to a process that has not executed its file. So the files are sent.
        others = tuple(part for part in registered_parts().own() if not in_package(part.file))
        return _unpack, (self.sources, others)


def load(entries: Sequence[str], folder: Path) -> Layer:
    """Executes the entries of `use`, and returns a layer with their parts on top of all registered parts.

    Args:
      entries: files (with the ending .py) or modules.
      folder: the folder from which relative paths start, and in which modules are looked for first.

    Raises:
      PartError: an entry can't be found or executed, or it registers an invalid part.
    """
    _load_entry_points()
    layers = [_load_one(entry, str(folder.resolve())) for entry in entries]
    return _over(layers)


def _over(layers: Sequence[Layer]) -> Layer:
    whole = Layer(registered_parts(), [source for layer in layers for source in layer.sources])
    for layer in layers:
        whole.merge(layer)
    return whole


# Loaded layers by entry and path. A layer whose files are unchanged is used again, with its compiled
# programs.
_LOADED: dict[tuple[str, str], Layer] = {}


def _load_one(entry: str, folder: str) -> Layer:
    base, module, path = _find(entry, Path(folder))
    base, known = base.resolve(), _LOADED.get((entry, str(path)))
    # A module that the file imports may lie beside the file only since it was executed.
    if known and known.sources[0].is_current(base, _reached(base, module).values()):
        return known
    with collecting() as collected:
        source, held = _execute(entry, base, module)
    layer = Layer(registered_parts(), [source])
    # Modules that the session has imported itself are not executed. Their import has registered their parts.
    before = [part for part in registered_parts().own() if Path(part.file).resolve() in held.values()]
    for part in (*before, *collected.own()):
        layer.add(dataclasses.replace(part, is_of_use=True))
    _LOADED[entry, str(path)] = layer
    return layer


def _find(entry: str, folder: Path) -> tuple[Path, str, Path]:
    """Finds the module of an entry; returns the folder to import it from, its name there, and its file."""
    if entry.endswith(".py"):
        path = (folder / entry).resolve()
        if not path.is_file():
            raise PartError(f"use: {entry}: there is no file {path}")
        return path.parent, path.stem, path
    beside = folder.joinpath(*entry.split("."))
    for path in (beside / "__init__.py", beside.with_suffix(".py")):
        if path.is_file():
            return folder, entry, path
    try:
        found = importlib.util.find_spec(entry)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin:
        raise PartError(
            f"use: {entry}: there is no module of this name, nor {beside}.py. Write a file's name with .py"
        )
    path = Path(found.origin)
    up = len(entry.split(".")) + (path.name == "__init__.py")
    return path.parents[up - 1], entry, path


def _execute(entry: str, base: Path, module: str) -> tuple[Source, Mapping[str, Path]]:
    """Imports a module anew, with the modules that it imports.

    Returns:
      The source, and the files of the modules that the session has imported itself, by name. These modules
      were not executed.
    """
    _forget(entry, module)
    reached = _reached(base, module)
    if not (file := reached.get(module, base)).is_relative_to(base):
        raise PartError(f"use: {entry}: is a link to {file}. Name this file")
    beside = {name: path for name, path in reached.items() if is_beside(base, name, path)}
    _forget_helpers(entry, module, beside)
    before, folders = set(sys.modules), [*sys.path]
    sys.path.insert(0, str(base))
    finder = SourceFinder()
    sys.meta_path.insert(0, finder)
    try:
        importlib.invalidate_caches()
        importlib.import_module(module)
    except PartError as error:
        raise PartError(f"use: {error}") from error
    except (Exception, SystemExit) as error:
        raise PartError(f"use: {entry}: {place_of(error, base, module)}{first_line(error)}") from error
    finally:
        sys.meta_path.remove(finder)
        loaded = {name: _file(sys.modules[name]) for name in {*sys.modules} - before}
        # The file may have extended `sys.path`, so that more modules are found now.
        reached |= _reached(base, module)
        within = {name: path for name, path in loaded.items() if path and path.is_relative_to(base)}
        reached |= {name: path for name, path in within.items() if _belongs(base, module, name, path)}
        # A package without `__init__.py` is not executed.
        packages = {name.rpartition(".")[0] for name in reached} & {*sys.modules} - before
        _OURS.update(reached.keys() & finder.modules, packages)
        sys.path[:] = folders  # else the file would change what other files of `use` import
    # What was executed counts, because a file may have changed since.
    contents = {path: finder.contents.get(path) or path.read_bytes() for path in sorted({*reached.values()})}
    held = {name: path for name, path in reached.items() if name in before}
    _refuse_outdated(entry, base, held)
    files = {p.relative_to(base).as_posix(): text for p, text in contents.items() if p.is_relative_to(base)}
    elsewhere = {name: path for name, path in reached.items() if not path.is_relative_to(base)}
    digests = {name: hashlib.sha256(contents[path]).hexdigest() for name, path in elsewhere.items()}
    return Source(entry, module, files, elsewhere, digests), held


# For each module that the session has imported itself: its spec, and the digest of its file at the first use.
# A reload makes a new spec.
_HELD: dict[str, tuple[Any, str]] = {}


def _reached(base: Path, *modules: str) -> dict[str, Path]:
    """Returns the files of some modules and of the user's modules that they import, by the modules' names."""
    return imported(base, modules, functools.partial(_belongs, base, modules[0]))


def _belongs(base: Path, module: str, name: str, path: Path) -> bool:
    """Returns whether a module is of the user, or of the package that holds the entry `module` of `use`."""
    same_package = name.partition(".")[0] == module.partition(".")[0]
    return (path.is_relative_to(base) and same_package) or not of_others(path)


def _refuse_outdated(entry: str, base: Path, modules: Mapping[str, Path]) -> None:
    """Refuses modules that the session has imported and that may be outdated.

    Raises:
      PartError: Python has imported a module from another file. Or the file of a module, or of one that it
        imports, has changed since this process began, or another file has taken its place.
    """
    for name, path in modules.items():
        if (other := _file(sys.modules.get(name))) not in (None, path):
            raise _in_use(entry, path, name, other)
    for name, path in (_reached(base, *modules) if modules else {}).items():
        changed = path.stat().st_ctime > beginning()
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if name in modules:
            digest = digest_of_file(path)
            if name not in _HELD or _HELD[name][0] is not spec:
                _HELD[name] = spec, digest
            changed |= _HELD[name][1] != digest
        if changed:
            raise PartError(
                f"use: {entry}: {path} may have changed since Python imported {name}. Restart Python (a "
                f"notebook's kernel)"
            )
        if name in modules and (cached := old_bytecode(spec, path)):
            raise PartError(f"use: {entry}: {path}: Python has executed old bytecode. Remove {cached}")


def _forget_helpers(entry: str, module: str, reached: Mapping[str, Path]) -> None:
    """Removes the modules that a user's file imports from `sys.modules`: their files may have changed since.

    Raises:
      PartError: a module of such a name has been imported from another folder.
    """
    for name, path in reached.items():
        loaded = sys.modules.get(name)
        if loaded is None or name == module or of_others(path):
            continue
        other = _file(loaded)
        if other == path:
            _remove(name)
        elif other or name in sys.builtin_module_names:
            raise _in_use(entry, path, name, other)


def _in_use(entry: str, path: Path, name: str, other: Path | None) -> PartError:
    wrong = f"a module named {name} is in use already, from {other or 'Python'}. Rename the file"
    return PartError(f"use: {entry}: {path.name}: {wrong}")


# Names of modules that came from users' files. `_forget` removes no other modules.
_OURS: set[str] = set()


def _forget(entry: str, module: str) -> None:
    """Removes the modules of users' files from `sys.modules`, so that Python reads them again.

    This also removes modules of the same name from other folders.

    Raises:
      PartError: the file has the name of a module that is not from a user's file.
    """
    top = module.partition(".")[0]
    beside = entry.endswith(".py")
    if beside and (top in sys.stdlib_module_names or (top in sys.modules and top not in _OURS)):
        raise PartError(f"use: {entry}: a module named {top} is in use already. Rename the file")
    for name in _OURS & {*sys.modules}:
        _remove(name)
    _OURS.add(top)


def _remove(module: str) -> None:
    """Removes a module from `sys.modules` and from its package, and the modules of this package.

    A new package would lack its old modules. `from package import module` finds the attribute of the package.
    """
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{module}.")]:
        removed, (package, _, last) = sys.modules.pop(name), name.rpartition(".")
        if (holder := sys.modules.get(package)) and getattr(holder, last, None) is removed:
            delattr(holder, last)


def _file(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if name else None


@functools.cache
def _load_entry_points() -> None:
    """Imports the entry points of installed packages, once; their parts are registered for the process."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.module in sys.modules:
            continue
        try:
            point.load()
        except Exception as error:
            raise PartError(
                f"extension {point.name} ({point.value}): {type(error).__name__}: {error}"
            ) from error


def _unpack(sources: Sequence[Source], others: Sequence[Part]) -> Layer:
    """Rebuilds a layer in another process: writes its files to a folder and executes them."""
    for part in others:
        known = registered_parts().of(part.category).get(part.name)
        if known is None or digest_of(known) != digest_of(part):
            registered_parts().add(part)
    layers = []
    for source in sources:
        entry = source.entry if not source.entry.endswith(".py") else f"{source.module}.py"
        found = _load_one(entry, str(written(source)))
        for name in unlike(source, found.sources[0]):
            raise PartError(f"use: {source.entry}: the module {name} has another content on this machine")
        layers.append(Layer(registered_parts(), [source]))
        layers[-1].merge(found)
    return _over(layers)
