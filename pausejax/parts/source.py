"""Defines the content of one entry of `use`: files, modules, and their digests."""

import atexit
import dataclasses
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pausejax.parts.files import digest_of_file
from pausejax.parts.imports import places_of
from pausejax.parts.isolation import OwnModules
from pausejax.parts.part import PartError


@dataclasses.dataclass(frozen=True)
class Source:
    """One entry of `use`: a module with every file of its folder that it needs."""

    entry: str
    """The entry as the spec writes it."""
    module: str
    """Name of the module, relative to the folder that holds its files."""
    files: Mapping[str, bytes]
    """Content of each file by its path, relative to the same folder."""
    elsewhere: Mapping[str, Path]
    """Files of the user's modules in other folders, by module name. The module imports them."""
    digests: Mapping[str, str]
    """SHA-256 of each file of `elsewhere`, by module name."""

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over the module's name, and over the names and contents of all files and modules.

        Two entries may reach the same files, such as two modules that import each other.
        """
        elsewhere = {name: one.encode() for name, one in self.digests.items()}
        return _digest({"": self.module.encode(), **self.files, **elsewhere})

    def is_current(self, base: Path) -> bool:
        """Returns whether the files in the folder `base`, and the modules elsewhere, are unchanged."""
        files = {name: base / name for name in self.files}
        if not all(path.is_file() for path in (*files.values(), *self.elsewhere.values())):
            return False
        same = {name: path.read_bytes() for name, path in files.items()} == self.files
        return same and digests_of(self.elsewhere) == self.digests


# The content of each compiled module when a study first read it.
_COMPILED: dict[Path, bytes] = {}


def source_of(entry: str, base: Path, module: str, own: OwnModules, reached: Mapping[str, Path]) -> Source:
    """Returns the content of an entry: of all modules that it has imported or that its functions import."""
    modules = {**reached, **{name: path.resolve() for name, path in own.files.items()}}
    places = {path: path.resolve() for path in (*own.files.values(), *_links(base, modules))}
    for name, path in modules.items():
        if not path.is_file():
            raise PartError(f"use: {entry}: the module {name} is in an archive: {path}. Unpack it")
        if path not in own.contents:
            own.contents[path] = path.read_bytes()
        if path.suffix != ".py" and _COMPILED.setdefault(path, own.contents[path]) != own.contents[path]:
            wrong = f"{path} has changed. Python imports a compiled module once: restart Python"
            raise PartError(f"use: {entry}: {wrong}")
    own.close(modules)
    contents = {path: own.contents[path] for path in modules.values()}
    # A link counts as a file too, because it decides which file is imported.
    places |= {path: path for path in contents}
    files = {
        place.relative_to(base).as_posix(): contents[path]
        for place, path in sorted(places.items())
        if place.is_relative_to(base) and path.is_relative_to(base)
    }
    elsewhere = {name: path for name, path in modules.items() if not path.is_relative_to(base)}
    digests = {name: hashlib.sha256(contents[path]).hexdigest() for name, path in elsewhere.items()}
    return Source(entry, module, files, elsewhere, digests)


def _links(base: Path, modules: Mapping[str, Path]) -> Iterator[Path]:
    """Yields the paths under which Python finds modules in a folder. Some are links to the modules' files."""
    for name, path in modules.items():
        for place in places_of(base.joinpath(*name.split("."))):
            if place.is_file() and place.resolve() == path:
                yield place


def unlike(source: Source, here: Source) -> list[str]:
    """Returns the files and modules whose content differs on this machine, or that only one of the two has.

    A module that is one of the files of `source` may be in another folder here, with the same content.

    Args:
      source: the entry on the machine that sends it.
      here: the same entry on this machine.
    """
    sent, found = (
        {name: hashlib.sha256(content).hexdigest() for name, content in one.files.items()}
        for one in (source, here)
    )
    lost = [n for n, digest in sent.items() if digest not in {*found.values(), *here.digests.values()}]
    more = [n for n, digest in found.items() if digest not in sent.values()]
    more += [n for n, d in here.digests.items() if n not in source.digests and d not in sent.values()]
    return lost + more + [name for name, digest in source.digests.items() if here.digests.get(name) != digest]


def _digest(files: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(f"{name} {len(files[name])};".encode())
        found.update(files[name])
    return found.hexdigest()


def digests_of(modules: Mapping[str, Path]) -> dict[str, str]:
    """Returns the SHA-256 of each module's file, by the module's name."""
    return {name: digest_of_file(path) for name, path in sorted(modules.items())}


# Folders by entry and content. A plan that arrives again is unpacked to the same functions.
_WRITTEN: dict[tuple[str, str], Path] = {}


def written(source: Source) -> Path:
    """Writes a source's files into a temporary folder and returns the folder.

    The folder is deleted when this process ends. A second call for the source returns the same folder.
    """
    key = (source.entry, source.digest)
    if key not in _WRITTEN:
        folder = Path(tempfile.mkdtemp(prefix="pausejax-use-")).resolve()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, content in source.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        _WRITTEN[key] = folder
    return _WRITTEN[key]
