"""Reads and writes parts. A part is a file of finished runs with a checksum.

It also has the provenance of the runs: the command, devices and versions of the process that made them.
"""

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence

import numpy as np

from pausejax.analysis.made import Provenance
from pausejax.results import blocks
from pausejax.results.blocks import ExpectedRuns, StoredRuns
from pausejax.results.folder import Folder
from pausejax.study.simulation import Arrays

PARTS = "parts"
PLAYING = ".playing"
"""The lock that is shared by all processes that simulate runs for the folder.

The folder is tidied up when no process holds this lock.
"""
MARK = ".mark-"
"""Prefix of the files that `marked` writes. Those of killed processes go when no process plays."""
_IDENTITY = "identity"
"""The key in a part for the identities of its runs."""
_MADE = ".made"
"""The key in a part for the provenance of its runs. No variable has such a name."""
_PART = re.compile(r"[0-9a-f]{16}\.npz")


@contextlib.contextmanager
def playing(folder: Folder) -> Iterator[None]:
    """Holds the lock `PLAYING`, so that other processes do not remove this process's checkpoints."""
    with folder.lock(PLAYING, shared=True):
        yield


@contextlib.contextmanager
def marked(folder: Folder) -> Iterator[str]:
    """Puts a file into a folder during the context. Other nodes recognize the folder by this file.

    Yields:
      The name of the mark, a file.
    """
    name = f"{MARK}{uuid.uuid4().hex}"
    folder.write(name, b"")
    try:
        yield name
    finally:
        with contextlib.suppress(OSError):
            folder.remove(name)


def is_played(folder: Folder) -> bool:
    """Returns whether some process holds the lock `PLAYING`; False if the folder's system has no locks."""
    if not (folder.is_local and folder.exists(PLAYING)):
        return False
    if (file := folder.lease(PLAYING)) is None:
        return True
    os.close(file)
    return False


def write_part(
    folder: Folder, identities: Sequence[str], arrays: Arrays, provenance: Provenance | None = None
) -> str:
    """Writes finished runs as a part, completely or not at all, and returns the file's name.

    Args:
      folder: the folder of the study.
      identities: the identities of the runs.
      arrays: the recorded arrays by variable; the first axis is that of the runs.
      provenance: the command, devices and versions with which the runs were made.

    Raises:
      OSError: the file can't be written; no file remains then.
    """
    name = part_name(identities)
    made = {} if provenance is None else {_MADE: np.array(json.dumps(provenance, sort_keys=True))}
    content = {_IDENTITY: np.array(identities), **made, **arrays}
    with playing(folder):
        try:
            folder.write_arrays(name, content)
        except IsADirectoryError:  # a folder has the part's name
            folder.remove(name)
            folder.write_arrays(name, content)
    return name


def part_name(identities: Sequence[str]) -> str:
    """Returns the file name of the part that holds the runs with these identities, in this order."""
    return f"{PARTS}/{hashlib.sha256(''.join(identities).encode()).hexdigest()[:16]}.npz"


def read_part(folder: Folder, name: str, expected: ExpectedRuns) -> Arrays:
    """Returns the arrays of a part's runs, with every variable of their study.

    Raises:
      FileNotFoundError: there is no such part.
      OSError: the part can't be read.
      ValueError: the part is damaged.
    """
    return expected.complete(_read(folder, name)[2])


def stored_in_part(identities: Sequence[str], folder: Folder, expected: ExpectedRuns) -> StoredRuns:
    """Returns the runs with these identities, which one part holds.

    The file is checked when its arrays are loaded.
    """
    name = part_name(identities)
    return StoredRuns(tuple(identities), {}, lambda: read_part(folder, name, expected), file=name)


def part_names(folder: Folder) -> list[str]:
    """Returns the names of all parts in a folder."""
    return [f"{PARTS}/{name}" for name in filter(_PART.fullmatch, folder.names(PARTS))]


def _read(folder: Folder, name: str) -> tuple[tuple[str, ...], tuple[Provenance, ...], Arrays]:
    """Returns the identities of a part's runs, their provenance, and their arrays."""
    arrays = folder.read_arrays(name)
    if _IDENTITY not in arrays:
        raise ValueError(f"{name}: holds no finished runs")
    identities, made = tuple(map(str, arrays.pop(_IDENTITY))), arrays.pop(_MADE, None)
    if name != part_name(identities):
        raise ValueError(f"{name}: holds other runs than its name says")
    return identities, () if made is None else (json.loads(str(made)),), arrays


def examine(folder: Folder, name: str, expected: ExpectedRuns) -> StoredRuns:
    """Reads a part to check that it is intact, and returns its runs.

    Raises:
      OSError: the part can't be read.
      ValueError: the part is damaged, or it holds runs of the study without the study's variables.
    """
    identities, provenance, arrays = _read(folder, name)
    shapes = {}
    if not expected.identities.isdisjoint(identities):  # the variables of other studies are not known here
        shapes = blocks.shapes_of(_fitting(name, expected, arrays, len(identities)))
    return StoredRuns(identities, shapes, lambda: read_part(folder, name, expected), provenance, name)


def _fitting(name: str, expected: ExpectedRuns, arrays: Arrays, runs: int) -> Arrays:
    """Returns the arrays of a part by the variables of a study.

    Raises:
      ValueError: an array of the study is missing, or has other dimensions or another type.
    """
    try:
        arrays = expected.complete(arrays)
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(f"{name}: must hold all variables that the study records") from error
    for key, variable in expected.variables.items():
        if key in expected.kind.optional and key not in arrays:
            continue
        array = arrays.get(key, np.zeros(0))
        fits = array.ndim == 1 + len(variable.dims) and len(array) == runs
        if not fits or array.dtype.kind != np.dtype(variable.dtype).kind:
            raise ValueError(f"{name}: {key}: must have the type and dimensions that the study records")
    return arrays
