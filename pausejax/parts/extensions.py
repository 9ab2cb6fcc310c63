"""Parts from users' files: found, executed, hashed, and sent to where a study is simulated.

A study names them in `use`: files, by their path from the spec's folder, or modules. Executing one registers
its parts in a layer of the study's own. What it imports from its own folder belongs to it: its content is
hashed and travels as well.
"""

import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pausejax.parts.part import Part, PartError
from pausejax.parts.registry import Parts, collecting, everything

ENTRY_POINTS = "pausejax.extensions"


class UseError(ValueError):
    """A file or module of `use` that can't be loaded; one line."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One entry of `use`: a module with every file of its folder that it needs."""

    entry: str
    """As the spec has it."""
    module: str
    """Name of the module, from the folder in which its files lie."""
    files: Mapping[str, bytes]
    """Path from that folder -> content."""

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over names and contents."""
        return _digest(self.files)


def _digest(files: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(f"{name} {len(files[name])};".encode())
        found.update(files[name])
    return found.hexdigest()


class Layer(Parts):
    """The parts of one study's own files over those of the package."""

    def __init__(self, beneath: Parts, sources: Sequence[Source]) -> None:
        super().__init__(beneath)
        self.sources = tuple(sources)

    def __reduce__(self) -> Any:
        # Functions of a file that another process has not executed can't be sent to it: the file can.
        others = tuple(part for part in everything().own() if not _in_package(part.file))
        return _unpack, (self.sources, others)


def load(entries: Sequence[str], folder: Path) -> Layer:
    """Executes what `use` names and returns its parts over all others.

    Args:
      entries: files (with the ending .py) or modules.
      folder: where relative paths start, and where modules are looked for first.

    Raises:
      UseError: one can't be found or executed, or a part in it can't be one.
    """
    _load_entry_points()
    layers = [_load_one(entry, str(folder.resolve())) for entry in entries]
    return _over(layers)


def _over(layers: Sequence[Layer]) -> Layer:
    whole = Layer(everything(), [source for layer in layers for source in layer.sources])
    for layer in layers:
        try:
            whole.merge(layer)
        except PartError as error:
            raise UseError(str(error)) from None
    return whole


# By content, so that the same file gives the same functions: programs compiled for them serve again.
_LOADED: dict[tuple[str, str], Layer] = {}


def _load_one(entry: str, folder: str) -> Layer:
    base, module, path = _find(entry, Path(folder))
    known = _LOADED.get((entry, str(path)))
    if known and known.sources[0].digest == _digest(_contents(base, known.sources[0].files)):
        return known
    with collecting() as collected:
        files = _execute(entry, base, module)
    layer = Layer(everything(), [Source(entry, module, files)])
    layer.merge(collected)
    _LOADED[entry, str(path)] = layer
    return layer


def _find(entry: str, folder: Path) -> tuple[Path, str, Path]:
    """The folder that a module is imported from, its name there, and its file."""
    if entry.endswith(".py"):
        path = (folder / entry).resolve()
        if not path.is_file():
            raise UseError(f"use: {entry}: there is no file {path}")
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
        raise UseError(
            f"use: {entry}: there is no such module, nor {beside}.py; a file is named with its .py"
        )
    path = Path(found.origin)
    up = len(entry.split(".")) + (path.name == "__init__.py")
    return path.parents[up - 1], entry, path


def _execute(entry: str, base: Path, module: str) -> dict[str, bytes]:
    """Imports a module anew, and all that it imports from its folder; what files that took."""
    _forget(entry, base, module)
    before = set(sys.modules)
    sys.path.insert(0, str(base))
    try:
        importlib.invalidate_caches()
        importlib.import_module(module)
    except PartError as error:
        raise UseError(f"use: {error}") from None
    except Exception as error:
        raise UseError(f"use: {entry}: {_where(error, base)}{type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(str(base))
    new = [sys.modules[name] for name in set(sys.modules) - before if name in sys.modules]
    inside = set()
    for found in [*new, sys.modules[module]]:
        if (path := _file(found)) and path.is_relative_to(base):
            inside.add(path)
            _OURS.add(found.__name__)
    return {str(path.relative_to(base)): path.read_bytes() for path in sorted(inside)}


# Names of modules that came from users' files. Others of the process are not ours to replace.
_OURS: set[str] = set()


def _forget(entry: str, base: Path, module: str) -> None:
    """Drops what a file imported when it was executed before, so that it is read again.

    Raises:
      UseError: the file has the name of a module of others.
    """
    top = module.partition(".")[0]
    beside = entry.endswith(".py")
    if beside and (top in sys.stdlib_module_names or (top in sys.modules and top not in _OURS)):
        raise UseError(f"use: {entry}: a module named {top} is in use already; give the file another name")
    for name in list(sys.modules):
        file = _file(sys.modules[name])
        stale = name.partition(".")[0] == top and top in _OURS
        if stale or (name in _OURS and file and file.is_relative_to(base)):
            del sys.modules[name]
    _OURS.add(top)


def _file(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if name else None


def _where(error: Exception, base: Path) -> str:
    """The last line within the user's files that an error came through."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: "
    inside = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(base)]
    return f"line {inside[-1].lineno}: " if inside else ""


def _contents(base: Path, names: Iterator[str] | Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: (base / name).read_bytes() for name in names if (base / name).is_file()}


def _load_entry_points() -> None:
    """Imports what installed packages offer; they register for the whole process, once."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.module in sys.modules:
            continue
        try:
            point.load()
        except Exception as error:
            raise UseError(
                f"extension {point.name} ({point.value}): {type(error).__name__}: {error}"
            ) from None


def _unpack(sources: Sequence[Source], others: Sequence[Part]) -> Layer:
    """A layer in another process: its files are written down there and executed."""
    for part in others:
        if part.name not in everything().of(part.category):
            everything().add(part)
    layers = []
    for source in sources:
        folder = Path(tempfile.mkdtemp(prefix="pausejax-use-"))
        for name, content in source.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        entry = source.entry if not source.entry.endswith(".py") else f"{source.module}.py"
        found = _load_one(entry, str(folder))
        layers.append(Layer(everything(), [source]))
        layers[-1].merge(found)
    return _over(layers)


@functools.cache
def _package() -> Path:
    return Path(__file__).resolve().parents[1]


def _in_package(file: str) -> bool:
    return Path(file).is_relative_to(_package())


def digest_of(part: Part) -> str:
    """The digest of a part from outside the package: of its file, or of a notebook's cell; else ""."""
    if _in_package(part.file):
        return ""
    path = Path(part.file)
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(inspect.getsource(part.function).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file's content.

    Raises:
      OSError: it can't be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
