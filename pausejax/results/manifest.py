"""What every file of a result hashes to, and which codecs it may name.

Checksums in the chunks cover the values; attributes, dimensions, data types and codecs they do not. The
manifest lies inside the store, covers each of its files, and ends with a digest of itself. It guards against
damage. Who can write into a folder can write a manifest too, so codecs are looked at before anything is
decoded: only those that results are written with are allowed, since some codecs run what they read. What
does not look like Zarr 3 is not opened at all.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pausejax.results.folder import Folder
from pausejax.results.sealed import digest_of

NAME = "manifest.json"
METADATA = "zarr.json"
_LARGEST_CHUNK = 2**32
CODECS = frozenset({"bytes", "vlen-utf8", "blosc zstd", "crc32c"})


class Manifest(NamedTuple):
    """What a store held when it was sealed."""

    files: Mapping[str, str]
    """SHA-256 of every file by its name in the store."""
    sha256: str
    """Of all of it: two stores with the same one hold the same."""

    @property
    def described(self) -> list[str]:
        """The files without which no value has a meaning: metadata, and the arrays of one dimension."""
        return [name for name in self.files if is_metadata(name) or name.count("/") < 3]


def seal(folder: Folder, store: str) -> None:
    """Writes the manifest of a store that is complete."""
    files = {name: digest(folder.read(f"{store}/{name}")) for name in _files(folder, store)}
    folder.write(f"{store}/{NAME}", json.dumps({"files": files, "sha256": digest_of(files)}).encode())


def read(folder: Folder, store: str) -> Manifest:
    """Reads the manifest of a store.

    Raises:
      ValueError: there is none that is whole.
      OSError: it can't be read.
    """
    try:
        sealed = json.loads(folder.read(f"{store}/{NAME}"))
        found = Manifest(dict(sealed["files"]), sealed["sha256"])
        if digest_of(found.files) != found.sha256:
            raise ValueError("does not have its digest")
    except (KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError, FileNotFoundError) as error:
        raise ValueError(f"{store}/{NAME}: {error}") from error
    return found


def damaged(folder: Folder, store: str, sealed: Manifest, names: Iterable[str]) -> list[str]:
    """The files that are not what they were when the store was sealed, or that have come or gone since.

    Args:
      folder: of the study.
      store: the store in it.
      sealed: its manifest.
      names: the files to read. Whether others are there is looked at all the same.

    Raises:
      ValueError: one of them names a codec that results are not written with, or the store is of another
        format; nothing has been decoded.
      OSError: a file can't be read.
    """
    files = set(_files(folder, store))
    for name in files:
        if name.rpartition("/")[2].startswith("."):
            raise ValueError(f"{store}/{name}: is of another format")
    broken = files ^ sealed.files.keys()
    for name in files.intersection(names) - broken:
        content = folder.read(f"{store}/{name}")
        if digest(content) != sealed.files[name]:
            broken.add(name)
        elif is_metadata(name):
            _check_codecs(f"{store}/{name}", content)
    return sorted(broken)


def is_metadata(name: str) -> bool:
    """Returns whether a file of a store describes arrays and is none."""
    return name.rpartition("/")[2] == METADATA


def digest(content: bytes) -> str:
    """Returns SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def _check_codecs(name: str, content: bytes) -> None:
    """Refuses metadata that name a codec which results are not written with.

    Raises:
      ValueError: they do, or they can't be read.
    """
    try:
        named = set(_codecs(json.loads(content)))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name}: {error}") from error
    if foreign := named - CODECS:
        raise ValueError(f"{name}: names the codec {min(foreign)!r}; nothing was decoded")


def check_chunks(folder: Folder, store: str, sealed: Manifest) -> None:
    """Refuses a store whose arrays promise more than lies there: a hole would be filled with memory.

    Raises:
      KeyError, TypeError: its metadata have another form.
      ValueError: chunks are missing, or one is too large.
    """
    described = json.loads(folder.read(f"{store}/{METADATA}"))["consolidated_metadata"]["metadata"]
    held = Counter(name.partition("/")[0] for name in sealed.files if not is_metadata(name))
    for name, array in described.items():
        shape, chunk = array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"]
        wanted = math.prod(-(-length // max(size, 1)) for length, size in zip(shape, chunk, strict=True))
        if wanted > held[name] or 8 * math.prod(chunk) > _LARGEST_CHUNK:
            raise ValueError(f"{store}/{name}: promises {shape} in {wanted} chunks and has {held[name]}")


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
