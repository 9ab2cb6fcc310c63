"""Finds and executes users' files with parts, and sends them to other processes.

A study names these files in `use`: each entry is a path from the spec's folder, or a module. Executing a file
registers its parts in the study's own layer, a registry on top of the package's parts. If the file imports a
module from its own folder, the module's content is hashed and sent too. Modules of one's own in other folders
are hashed, and not sent.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pausejax.parts.digest import digest_of
from pausejax.parts.imports import file_of_module, imported, may_compute_names, modules_below, places_of
from pausejax.parts.isolation import OwnModules
from pausejax.parts.origin import NEEDED, file_of, in_package, is_of_user, of_others, place_of
from pausejax.parts.part import Part, PartError, first_line
from pausejax.parts.registry import Parts, collecting, registered_parts
from pausejax.parts.source import Source, source_of, unlike, written
from pausejax.parts.visits import alone

ENTRY_POINTS = "pausejax.extensions"


class Layer(Parts):
    """Registry with the parts of one study's own files, on top of the parts of the package."""

    def __init__(self, beneath: Parts, sources: Sequence[Source]) -> None:
        super().__init__(beneath)
        self.sources = tuple(sources)

    def __reduce__(self) -> Any:
        # A function can't be sent to a process that has not executed its file. So the files are sent.
        others = [(part, _digest_of(part)) for part in registered_parts().own() if not in_package(part.file)]
        # A study that uses a part without a digest is refused.
        sent = [(part, digest) for part, digest in others if digest]
        return _unpack, (self.sources, sent, self.contents)

    @property
    def contents(self) -> dict[tuple[str, str], str]:
        """Digests of the libraries' files that define parts of this layer, by category and name."""
        return {(part.category, part.name): part.content for part in self.own() if part.content}


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


class _Entry(NamedTuple):
    """Entry of `use` that has been executed."""

    layer: Layer
    own: OwnModules
    reached: Mapping[str, Path]
    """The modules that its files import, as `_reached` finds them."""
    below: Mapping[Path, set[str] | None]
    """The modules below some folders, if the files may compute names of modules; else empty."""

    def is_current(self, base: Path, module: str, is_copy: bool) -> bool:
        """Returns whether the entry would be the same if it were executed now."""
        if not self.layer.sources[0].is_current(base):
            return False
        if is_copy:  # nobody adds files to a copy
            return True
        if None in self.below.values() or modules_below(self.below) != self.below:
            return False
        with self.own.in_place():  # the file may have extended `sys.path`
            return _reached(base, module, self.reached) == self.reached


# Loaded entries by entry, file and search path. If the files are unchanged, the layer is used again with its
# compiled programs.
_LOADED: dict[tuple[str, ...], _Entry] = {}


@alone()
def _load_one(entry: str, folder: str, elsewhere: Mapping[str, Path] | None = None) -> Layer:
    """Loads an entry of `use`, or returns the layer of the last time if nothing has changed.

    Args:
      entry: the entry.
      folder: the folder from which a relative path starts.
      elsewhere: for a copy from another process: the user's modules in other folders. A folder that the file
        adds to `sys.path` relative to its own place is missing beside the copy.
    """
    base, module, path = _find(entry, Path(folder))
    base = base.resolve()
    key = (entry, str(path), *sys.path, *map(str, (elsewhere or {}).values()))
    before = _LOADED.get(key)
    if before and before.is_current(base, module, elsewhere is not None):
        return before.layer
    own, collected, reached, below = _execute(entry, base, module, elsewhere or {})
    source = source_of(entry, base, module, own, reached)
    if before and source == before.layer.sources[0]:
        # It was executed only to learn which modules it imports now.
        _LOADED[key] = before._replace(reached=reached, below=below)
        return before.layer
    layer = Layer(registered_parts(), [source])
    for part in collected.own():
        layer.add(dataclasses.replace(part, is_of_use=True, surroundings=own.in_place))
    _LOADED[key] = _Entry(layer, own, reached, below)
    return layer


def _find(entry: str, folder: Path) -> tuple[Path, str, Path]:
    """Finds the module of an entry; returns the folder to import it from, its name there, and its file."""
    if entry.endswith(".py"):
        path = (folder / entry).resolve()
        if not path.is_file():
            raise PartError(f"use: {entry}: there is no file {path}")
        return path.parent, path.stem, path
    found = file_of_module(folder, entry) if all(entry.split(".")) else None
    if found is None:
        beside = folder.joinpath(*entry.split("."))
        raise PartError(
            f"use: {entry}: there is no module of this name, nor {beside}.py. Write a file's name with .py"
        )
    up = len(entry.split(".")) + (found.name == "__init__.py")
    return found.parents[up - 1], entry, found


def _execute(
    entry: str, base: Path, module: str, places: Mapping[str, Path]
) -> tuple[OwnModules, Parts, Mapping[str, Path], Mapping[Path, set[str] | None]]:
    """Imports a module. Returns its own modules, its parts, and `reached` and `below` of its `_Entry`.

    Raises:
      PartError: the module can't be executed, or a file has the name of a module of Python or of a library.
    """
    reached = _reached(base, module, (), places)
    if not (file := reached.get(module, base)).is_relative_to(base):
        raise PartError(f"use: {entry}: is a link to {file}. Name this file")
    _refuse_taken(entry, base, module, reached)
    own, folder = OwnModules(base, functools.partial(_belongs, base, module), reached, places), os.getcwd()
    with own.in_place(), collecting(own.contents) as collected:
        try:
            importlib.import_module(module)
        except PartError as error:
            raise PartError(f"use: {error}") from error
        except (Exception, SystemExit) as error:
            raise PartError(f"use: {entry}: {place_of(error, base, module)}{first_line(error)}") from error
    if os.getcwd() != folder:  # relative paths of the study, such as --out, start from this folder
        os.chdir(folder)
        raise PartError(
            f"use: {entry}: changes the working folder. Begin its paths with Path(__file__).parent"
        )
    with own.in_place():  # the file may have changed `sys.path`, so that other modules are found now
        reached, below = _reached(base, module, own.files, places), {}
        if any(map(may_compute_names, own.contents.values())):
            on_path = {
                path for path in map(Path, sys.path) if path.is_dir() and not of_others(path.resolve())
            }
            below = modules_below(sorted({base, *on_path, *(file.parent for file in own.contents)}))
    if own.shared:
        raise PartError(
            f"use: {entry}: the package {own.shared[0]} also has modules of a library. Rename the folder"
        )
    return own, collected, reached, below


def _reached(
    base: Path, module: str, more: Iterable[str], places: Mapping[str, Path] | None = None
) -> dict[str, Path]:
    """Returns the files of a module and of the user's modules that it imports, by the modules' names.

    Args:
      base: the folder that Python searches first.
      module: the dotted name of the module.
      more: names of further modules. The file imports them, perhaps by names that it computes.
      places: files of some modules by name, even if Python would not find them.
    """
    return imported(base, (module, *more), functools.partial(_belongs, base, module), places or {})


def _belongs(base: Path, module: str, name: str, path: Path) -> bool:
    """Returns whether a module is of the user, or of the package that holds the entry `module` of `use`."""
    same_package = name.partition(".")[0] == module.partition(".")[0]
    return (same_package and path.is_relative_to(base)) or is_of_user(name, path)


def _refuse_taken(entry: str, base: Path, module: str, reached: Mapping[str, Path]) -> None:
    """Refuses files with the name of a module of Python or of a library. Python would import that module.

    Raises:
      PartError: a file has such a name.
    """
    for name in sorted(NEEDED):
        package, single = places_of(base / name)
        for path in filter(Path.is_file, (package, single)):
            # A package may be the library itself, because the user develops it. A single file never is.
            known = file_of(sys.modules.get(name)) if path == package else ""
            if not (of_others(path.resolve()) or (known and Path(known).resolve() == path.resolve())):
                where = "" if name == module else f"{path.relative_to(base)}: "
                wrong = f"pausejax would import this file instead of the library {name}. Rename the file"
                raise PartError(f"use: {entry}: {where}{wrong}")
    for name, path in reached.items():
        other = file_of(sys.modules.get(name))
        of_python = name in sys.builtin_module_names or (name == module and name in sys.stdlib_module_names)
        if of_python or (other and not _belongs(base, module, name, Path(other).resolve())):
            file = "" if name == module else f"{path.name}: "
            wrong = f"a module named {name} is in use already, from {other or 'Python'}"
            raise PartError(f"use: {entry}: {file}{wrong}. Rename the file")


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


def _digest_of(part: Part) -> str:
    """Returns the digest of a part; "" if it can't have one."""
    with contextlib.suppress(PartError):
        return digest_of(part)
    return ""


def _unpack(
    sources: Sequence[Source],
    others: Sequence[tuple[Part, str]],
    contents: Mapping[tuple[str, str], str],
) -> Layer:
    """Rebuilds a layer in another process: writes its files to a folder and executes them."""
    wrong = "or a module that it uses, has another content on this machine"
    for part, digest in others:
        known = registered_parts().of(part.category).get(part.name)
        here = _digest_of(part)
        # Other processes import the functions of modules, and get copies of those of a notebook.
        is_copy = part.function.__module__ == "__main__"
        if (known and known.content != part.content) or (here != digest and not is_copy):
            raise PartError(f"{part.category} {part.name}: {part.file}, {wrong}")
        if known is None or _digest_of(known) != here:
            registered_parts().add(part)
    layers = []
    for source in sources:
        entry = source.entry if not source.entry.endswith(".py") else f"{source.module}.py"
        found = _load_one(entry, str(written(source)), source.elsewhere)
        for name in unlike(source, found.sources[0]):
            wrong = f"{name} has another content on this machine, or is not imported there"
            raise PartError(f"use: {source.entry}: {wrong}")
        layers.append(Layer(registered_parts(), [source]))
        layers[-1].merge(found)
    layer = _over(layers)
    for (category, name), content in contents.items():
        if layer.get(category, name).content != content:
            raise PartError(f"{category} {name}: {layer.get(category, name).file}, {wrong}")
    return layer
