"""What every file of a result hashes to, and which codecs it may name.

Checksums in the chunks cover the values; attributes, dimensions, data types and codecs they do not. The
manifest lies inside the store, covers each of its files, and ends with a digest of itself. It guards against
damage. Who can write into a folder can write a manifest too, so codecs are looked at before anything is
decoded: only those that results are written with are allowed, since some codecs run what they read. What
does not look like Zarr 3 is not opened at all.
"""

import hashlib
import json
from collections.abc import Iterator

from pausejax.results.folder import Folder

NAME = "manifest.json"
METADATA = "zarr.json"
CODECS = frozenset({"bytes", "vlen-utf8", "blosc zstd", "crc32c"})


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
        if is_metadata(name) or name.count("/") < 3:
            yield name


def is_metadata(name: str) -> bool:
    """Whether a file of a store describes arrays and is none."""
    return name.rpartition("/")[2] == METADATA


def check_codecs(folder: Folder, store: str) -> None:
    """Refuses a store that names a codec which results are not written with.

    Raises:
      ValueError: it does, or its metadata can't be read.
    """
    for name in _files(folder, store):
        if name.rpartition("/")[2].startswith("."):
            raise ValueError(f"{store}/{name}: is of another format")
        if not is_metadata(name):
            continue
        try:
            named = set(_codecs(json.loads(folder.read(f"{store}/{name}"))))
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ValueError(f"{store}/{name}: {error}") from None
        if foreign := named - CODECS:
            raise ValueError(f"{store}/{name}: names the codec {min(foreign)!r}; nothing was decoded")


def _codecs(described: object) -> Iterator[str]:
    """Every codec that metadata name: those of an array, and in the store's own of all of its arrays."""
    if isinstance(described, dict):
        for key, value in described.items():
            if key in ("codecs", "storage_transformers"):
                yield from (_codec(codec) for codec in (value if isinstance(value, list) else [value]))
            elif key == "data_type" and not isinstance(value, str):
                yield f"data type {value}"
            elif key != "attributes":
                yield from _codecs(value)
    elif isinstance(described, list):
        for value in described:
            yield from _codecs(value)


def _codec(codec: object) -> str:
    if not isinstance(codec, dict):
        return str(codec)
    settings = codec.get("configuration")
    variant = settings.get("cname") if isinstance(settings, dict) else None
    return f"{codec.get('name')} {variant}" if variant else str(codec.get("name"))


def _files(folder: Folder, store: str) -> Iterator[str]:
    return (name for name in folder.tree(store) if name != NAME)


def _digest(folder: Folder, name: str) -> str:
    return hashlib.sha256(folder.read(name)).hexdigest()
