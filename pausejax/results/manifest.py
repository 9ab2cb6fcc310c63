"""What every file of a result hashes to, and which codecs it may name.

Zarr's own checksums cover the values; attributes, dimensions, data types and codecs they do not. The
manifest lies inside the store, covers each of its files, and ends with a digest of itself. It guards against
damage. Who can write into a folder can write a manifest too, so codecs are looked at before anything is
decoded: only those that results are written with are allowed, since some codecs run what they read.
"""

import hashlib
import json
from collections.abc import Iterator

from pausejax.results.folder import Folder

NAME = "manifest.json"
CODECS = frozenset({"zstd", "shuffle"})


def seal(folder: Folder, store: str) -> None:
    """Writes the manifest of a store that is complete."""
    files = {name: _digest(folder, f"{store}/{name}") for name in _files(folder, store)}
    text = json.dumps(files, sort_keys=True)
    sealed = json.dumps({"files": files, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    folder.write(f"{store}/{NAME}", sealed.encode())


def damaged(folder: Folder, store: str, names: Iterator[str] | None = None) -> list[str]:
    """The files that are not what they were when the store was sealed, or that have come or gone since.

    Args:
      folder: of the study.
      store: the store in it.
      names: the files to read; all of them if not given. Whether others are there is looked at all the same.

    Raises:
      ValueError: there is no manifest that is whole.
      OSError: it can't be read.
    """
    try:
        sealed = json.loads(folder.read(f"{store}/{NAME}"))
        files = sealed["files"]
        text = json.dumps(files, sort_keys=True)
        if hashlib.sha256(text.encode()).hexdigest() != sealed["sha256"]:
            raise ValueError("does not have its digest")
    except (KeyError, TypeError, UnicodeDecodeError, ValueError, FileNotFoundError) as error:
        raise ValueError(f"{store}/{NAME}: {error}") from None
    there = set(_files(folder, store))
    changed = there ^ set(files)
    read = set(files if names is None else names) & there & set(files)
    return sorted(changed | {name for name in read if _digest(folder, f"{store}/{name}") != files[name]})


def described(folder: Folder, store: str) -> Iterator[str]:
    """The files without which no value has a meaning: metadata, and the arrays of one dimension."""
    for name in _files(folder, store):
        if is_metadata(name) or "." not in name.rpartition("/")[2]:
            yield name


def is_metadata(name: str) -> bool:
    """Whether a file of a store describes arrays and is none."""
    return name.rpartition("/")[2].startswith(".")


def check_codecs(folder: Folder, store: str) -> None:
    """Refuses a store that names a codec which results are not written with.

    Raises:
      ValueError: it does, or its metadata can't be read.
    """
    for name in filter(is_metadata, _files(folder, store)):
        try:
            named = set(_codecs(json.loads(folder.read(f"{store}/{name}"))))
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ValueError(f"{store}/{name}: {error}") from None
        if foreign := named - CODECS:
            raise ValueError(f"{store}/{name}: names the codec {min(foreign)!r}; nothing was decoded")


def _codecs(described: object) -> Iterator[str]:
    if isinstance(described, dict):
        for key, value in described.items():
            if key == "id":
                yield str(value)
            elif key == "codecs":
                yield "codecs of another format"
            yield from _codecs(value)
    elif isinstance(described, list):
        for value in described:
            yield from _codecs(value)


def _files(folder: Folder, store: str) -> Iterator[str]:
    for name in folder.names(store):
        if name == NAME:
            continue
        inner = folder.names(f"{store}/{name}") if not is_metadata(name) else []
        if inner and inner != [name]:
            yield from (f"{name}/{file}" for file in inner)
        else:
            yield name


def _digest(folder: Folder, name: str) -> str:
    return hashlib.sha256(folder.read(name)).hexdigest()
