"""Writes and checks a result's manifest, which holds the digest of every file; checks the chunks' codecs.

The checksums in the chunks cover the values only, not attributes, dimensions, data types and codecs. The
manifest is a file in the store. It covers all other files of the store, and ends with a digest of itself.

The manifest protects against damage, not against an attacker, who could write a manifest too. Some codecs
execute what they read. Therefore all codecs are checked before any value is decoded, and only the codecs of
this package's results are allowed. A store that is not in the format Zarr 3 is not opened.
"""

import contextlib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pausejax.atomic import IrregularFile
from pausejax.results.folder import Folder
from pausejax.results.sealed import digest_of

NAME = "manifest.json"
METADATA = "zarr.json"
_LARGEST_CHUNK = 2**32
GONE = (FileNotFoundError, NotADirectoryError, IrregularFile)
"""Errors of a file that is missing, or is no file. Any other OSError does not mean that a file is damaged."""
CODECS = frozenset({"bytes", "vlen-utf8", "blosc zstd", "crc32c"})


class Manifest(NamedTuple):
    """Manifest of a store: the digests of its files when it was completed."""

    files: Mapping[str, str]
    """SHA-256 of every file by its name in the store."""
    sha256: str
    """SHA-256 of `files`. Two stores with the same value have the same content."""

    @property
    def described(self) -> list[str]:
        """The files that describe the values: metadata, and the arrays of one dimension."""
        return [name for name in self.files if is_metadata(name) or name.count("/") < 3]


def seal(folder: Folder, store: str) -> None:
    """Writes the manifest of a complete store."""
    files = {name: digest(folder.read(f"{store}/{name}")) for name in _files(folder, store)}
    folder.write(f"{store}/{NAME}", json.dumps({"files": files, "sha256": digest_of(files)}).encode())


def read(folder: Folder, store: str) -> Manifest:
    """Reads the manifest of a store.

    Raises:
      ValueError: the manifest is missing or damaged.
      OSError: the manifest can't be read.
    """
    try:
        sealed = json.loads(folder.read(f"{store}/{NAME}"))
        found = Manifest(dict(sealed["files"]), sealed["sha256"])
        if digest_of(found.files) != found.sha256:
            raise ValueError("its content does not match its digest")
    except (KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError, *GONE) as error:
        raise ValueError(f"{store}/{NAME}: {error}") from error
    return found


def damaged(folder: Folder, store: str, sealed: Manifest, names: Iterable[str]) -> list[str]:
    """Returns the sorted names of the files that were changed, added or removed since the store was sealed.

    Args:
      folder: the folder of the study.
      store: the name of the store in the folder.
      sealed: the manifest of the store.
      names: the files whose content is compared. For other files only their existence is checked.

    Raises:
      ValueError: metadata name a codec that is not allowed, or the store has another format; no value has
        been decoded.
      OSError: a file can't be read.
    """
    files = set(_files(folder, store))
    for name in files:
        if name.rpartition("/")[2].startswith("."):
            raise ValueError(f"{store}/{name}: belongs to another format than Zarr 3")
    broken = files ^ sealed.files.keys()
    for name in broken - files:
        with contextlib.suppress(*GONE):  # a folder that can't be read seems empty
            folder.read(f"{store}/{name}")
    for name in files.intersection(names) - broken:
        content = folder.read(f"{store}/{name}")
        if digest(content) != sealed.files[name]:
            broken.add(name)
        elif is_metadata(name):
            _check_codecs(f"{store}/{name}", content)
    return sorted(broken)


def is_metadata(name: str) -> bool:
    """Returns whether a file of a store holds metadata rather than values."""
    return name.rpartition("/")[2] == METADATA


def digest(content: bytes) -> str:
    """Returns the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def _check_codecs(name: str, content: bytes) -> None:
    """Checks that metadata name only allowed codecs.

    Raises:
      ValueError: the metadata name another codec, or can't be read.
    """
    try:
        named = set(_codecs(json.loads(content)))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name}: {error}") from error
    if foreign := named - CODECS:
        raise ValueError(
            f"{name}: codecs must be among {', '.join(sorted(CODECS))}, not {min(foreign)!r}. Nothing was "
            "decoded"
        )


def check_chunks(folder: Folder, store: str, sealed: Manifest) -> None:
    """Checks that a store has all chunks of its arrays. A reader would allocate memory for missing chunks.

    Raises:
      KeyError, TypeError: the metadata have another form.
      ValueError: chunks are missing, or a chunk is too large.
    """
    described = json.loads(folder.read(f"{store}/{METADATA}"))["consolidated_metadata"]["metadata"]
    held = Counter(name.partition("/")[0] for name in sealed.files if not is_metadata(name))
    for name, array in described.items():
        shape, chunk = array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"]
        wanted = math.prod(-(-length // max(size, 1)) for length, size in zip(shape, chunk, strict=True))
        if wanted > held[name] or 8 * math.prod(chunk) > _LARGEST_CHUNK:
            raise ValueError(
                f"{store}/{name}: the shape {shape} needs {wanted} chunks of allowed size, but there are "
                f"{held[name]}"
            )


def _codecs(described: object) -> Iterator[str]:
    """Yields every codec that metadata name. The metadata may be those of an array or of a whole store."""
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
    return (name for name in folder.tree(store) if name != NAME and not _is_of_system(name))


def _is_of_system(name: str) -> bool:
    """Returns whether an operating system or an editor writes such a file into the folders that it shows.

    Hidden files of older formats of Zarr are not among them.
    """
    hidden = any(part.startswith(".") and not part.startswith(".z") for part in name.split("/"))
    return hidden or name.rpartition("/")[2] in ("Thumbs.db", "desktop.ini")
