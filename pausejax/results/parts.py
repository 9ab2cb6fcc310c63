"""Chunks of finished runs, one file each: whole or not there, with a checksum and how they were made."""

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
"""Shared by all processes that simulate runs for the folder: only without them it is tidied up."""
_MADE = ".made"
"""How the runs of a part were made; no variable has such a name."""
_PART = re.compile(r"[0-9a-f]{16}\.npz")


@contextlib.contextmanager
def playing(folder: Folder) -> Iterator[None]:
    """Tells other processes that this one has batches in flight: they leave its checkpoints alone."""
    with folder.lock(PLAYING, shared=True):
        yield


def write_part(
    folder: Folder, identities: Sequence[str], arrays: Arrays, record: Record | None = None
) -> str:
    """Puts finished runs into the folder, and returns the file's name; a file that is there is there whole.

    Args:
      folder: of the study.
      identities: of the runs.
      arrays: leading axis the runs.
      record: how they were made.

    Raises:
      OSError: no space left, or the like; nothing is left behind then.
    """
    name = part_name(identities)
    made = {} if record is None else {_MADE: np.array(json.dumps(record, sort_keys=True))}
    with playing(folder):
        try:
            folder.write_arrays(name, identity=np.array(identities), **made, **arrays)
        except IsADirectoryError:  # somebody's damage
            folder.remove(name)
            folder.write_arrays(name, identity=np.array(identities), **made, **arrays)
    return name


def part_name(identities: Sequence[str]) -> str:
    """Names the part with some runs, in order."""
    return f"{PARTS}/{hashlib.sha256(''.join(identities).encode()).hexdigest()[:16]}.npz"


def read_part(folder: Folder, name: str) -> Arrays:
    """Reads what the runs of a part have left.

    Raises:
      FileNotFoundError: there is no such part.
      OSError: it can't be read.
      ValueError: it is damaged.
    """
    return _read(folder, name)[2]


def source(identities: Sequence[str], folder: Folder) -> Source:
    """Returns the part with some runs, in order, which has been written; it is checked as it is loaded."""
    name = part_name(identities)
    return Source(tuple(identities), {}, lambda: read_part(folder, name), file=name)


def part_names(folder: Folder) -> list[str]:
    """Returns the files of a folder that are parts."""
    return [f"{PARTS}/{name}" for name in filter(_PART.fullmatch, folder.names(PARTS))]


def _read(folder: Folder, name: str) -> tuple[tuple[str, ...], tuple[Record, ...], Arrays]:
    """Returns the identities of a part's runs, how they were made, and their arrays."""
    arrays = folder.read_arrays(name)
    identities, made = arrays.pop("identity"), arrays.pop(_MADE, None)
    return tuple(identities.tolist()), () if made is None else (json.loads(str(made)),), arrays


def examine(folder: Folder, name: str) -> Source:
    """Reads a part, to see that it is intact.

    Raises:
      OSError: it can't be read.
      ValueError: it is damaged.
    """
    identities, records, arrays = _read(folder, name)
    return Source(
        identities, blocks.shapes_of(arrays), lambda: _read(folder, name)[2], records=records, file=name
    )
