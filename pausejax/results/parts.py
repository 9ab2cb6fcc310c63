"""Reads and writes parts: files of finished runs with a checksum and a record of how the runs were made."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Sequence

import numpy as np

from pausejax.analysis.made import Record
from pausejax.results import blocks
from pausejax.results.blocks import Source
from pausejax.results.folder import Folder
from pausejax.study.simulation import Arrays

PARTS = "parts"
PLAYING = ".playing"
"""The lock that all processes share that simulate runs for the folder. Without them it is tidied up."""
_MADE = ".made"
"""The name of the record of how a part's runs were made. No variable has such a name."""
_PART = re.compile(r"[0-9a-f]{16}\.npz")


@contextlib.contextmanager
def playing(folder: Folder) -> Iterator[None]:
    """Holds the lock `PLAYING`, so that other processes do not remove this process's checkpoints."""
    with folder.lock(PLAYING, shared=True):
        yield


def write_part(
    folder: Folder, identities: Sequence[str], arrays: Arrays, record: Record | None = None
) -> str:
    """Writes finished runs as a part, completely or not at all, and returns the file's name.

    Args:
      folder: the folder of the study.
      identities: the identities of the runs.
      arrays: the recorded arrays by variable; the first axis is that of the runs.
      record: the record of how the runs were made.

    Raises:
      OSError: the file can't be written; no file remains then.
    """
    name = part_name(identities)
    made = {} if record is None else {_MADE: np.array(json.dumps(record, sort_keys=True))}
    content = {"identity": np.array(identities), **made, **arrays}
    with playing(folder):
        try:
            folder.write_arrays(name, content)
        except IsADirectoryError:  # a folder has the part's name
            folder.remove(name)
            folder.write_arrays(name, content)
    return name


def part_name(identities: Sequence[str]) -> str:
    """Returns the name of the part with some runs, in order."""
    return f"{PARTS}/{hashlib.sha256(''.join(identities).encode()).hexdigest()[:16]}.npz"


def read_part(folder: Folder, name: str) -> Arrays:
    """Returns the recorded arrays of a part's runs, by variable.

    Raises:
      FileNotFoundError: there is no such part.
      OSError: the part can't be read.
      ValueError: the part is damaged.
    """
    return _read(folder, name)[2]


def source(identities: Sequence[str], folder: Folder) -> Source:
    """Returns a written part with some runs, in order, as a source. The part is checked when it is loaded."""
    name = part_name(identities)
    return Source(tuple(identities), {}, lambda: read_part(folder, name), file=name)


def part_names(folder: Folder) -> list[str]:
    """Returns the names of all parts in a folder."""
    return [f"{PARTS}/{name}" for name in filter(_PART.fullmatch, folder.names(PARTS))]


def _read(folder: Folder, name: str) -> tuple[tuple[str, ...], tuple[Record, ...], Arrays]:
    """Returns the identities of a part's runs, the record of how they were made, and their arrays."""
    arrays = folder.read_arrays(name)
    identities, made = arrays.pop("identity"), arrays.pop(_MADE, None)
    return tuple(identities.tolist()), () if made is None else (json.loads(str(made)),), arrays


def examine(folder: Folder, name: str) -> Source:
    """Reads a part to check that it is intact, and returns it as a source.

    Raises:
      OSError: the part can't be read.
      ValueError: the part is damaged.
    """
    identities, records, arrays = _read(folder, name)
    return Source(
        identities, blocks.shapes_of(arrays), lambda: _read(folder, name)[2], records=records, file=name
    )
