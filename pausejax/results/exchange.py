"""Replaces a folder's result by a new one, and opens the result, also while it is replaced.

A replacement takes two moves: the old result is moved aside, then the new one takes its place. Between the
moves, and if the process is killed there, a reader finds the old result under its second name.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import xarray as xr

from pausejax.analysis import schema, soundness
from pausejax.analysis.eval_times import with_eval_elapsed
from pausejax.results import manifest, snapshot
from pausejax.results.folder import Folder
from pausejax.results.parts import part_names
from pausejax.results.snapshot import Replaced, described, is_sealed
from pausejax.study.study import FORMAT

_T = TypeVar("_T")
RESULT = "results.zarr"
LABELS = "labels.npz"
"""The file with the labels of all planned runs; finished runs are read with it before the end of a study."""
SEARCH = "search.json"
"""The file of a search's folder with the options of the search."""
REPLACED = f".{RESULT}.replaced"
"""The name of the old result while the new one takes its place."""
_HEADS = {".csv": b"panel,series,", ".json": b"vega"} | dict.fromkeys((".html", ".png", ".pdf", ".svg"), b"")
"""Bytes near the beginning of a page or chart, by the ending of its name."""
_PAUSES = (0.01, 0.05, 0.2, 0.5)
"""Seconds between attempts to open a result that is being replaced."""


def result_name(folder: Folder) -> str | None:
    """Returns the name under which a folder holds its result; None if there is none."""
    for name in (RESULT, REPLACED):
        if folder.exists(f"{name}/{manifest.NAME}"):
            return name
    return RESULT if folder.exists(RESULT) else None


def version(folder: Folder) -> str:
    """Returns the SHA-256 of the manifest of a folder's result; "" if there is none, or if it is damaged."""
    try:
        return manifest.read(folder, result_name(folder) or RESULT).sha256
    except ValueError:
        return ""


def settled(directory: str | Path, act: Callable[[], _T]) -> _T:
    """Calls a function that reads the result in a folder, again if the result is replaced meanwhile.

    Args:
      directory: the path or URL of the folder.
      act: the function. It may write a page of the result: the last call has read the last result.

    Returns:
      What the last call returned.

    Raises:
      OSError: other processes replaced the result during each call.
    """
    folder = Folder(directory)
    for _ in _PAUSES:
        before = version(folder)
        with contextlib.suppress(Replaced):
            found = act()
            if version(folder) == before:
                return found
    raise OSError(f"{directory}: other processes are extending {RESULT}. Open it again later")


def outdated(of: Folder, folder: Folder) -> list[str]:
    """Returns the names of the pages and charts in `folder` that are older than the result in `of`.

    They show the runs of an earlier result. For folders under a URL there are none.
    """
    sealed = Path(of.path(f"{RESULT}/{manifest.NAME}"))
    if not (of.is_local and folder.is_local and sealed.is_file()):
        return []
    found, end = [], sealed.stat().st_mtime_ns
    for path in sorted(Path(folder.path()).iterdir()):
        if path.suffix in _HEADS and path.is_file() and path.stat().st_mtime_ns < end:
            with path.open("rb") as file:
                if _HEADS[path.suffix] in file.read(100):
                    found.append(path.name)
    return found


def replace(folder: Folder, partial: str) -> None:
    """Replaces the result by a complete store. The old result can be read until the new one is in place."""
    if folder.exists(f"{RESULT}/{manifest.NAME}"):
        folder.remove(REPLACED, manifest.NAME)
        folder.move(RESULT, REPLACED, manifest.NAME)
    else:
        # A killed process may have left an incomplete move under a URL. The old result is then in REPLACED.
        folder.remove(RESULT)
    folder.move(partial, RESULT, manifest.NAME)
    folder.remove(REPLACED, manifest.NAME)


def read(directory: str | Path) -> xr.Dataset:
    """Opens the result in a study's folder. Values are read when they are used.

    All values are of the result that was opened. Reading a value raises an OSError if the study has been
    extended since, and a ValueError if its file is damaged.

    Raises:
      FileNotFoundError: the folder holds no result, or an unfinished study.
      ValueError: the result is damaged; no value has been decoded.
      OSError: another process replaced the result during each attempt to open it, or a file can't be read.
    """
    folder = Folder(directory)
    for pause in (*_PAUSES, *(() if folder.is_local else snapshot.PAUSES)):
        # `result_name` checks two names. The result may be renamed between these checks, so a second call is
        # needed.
        if (name := result_name(folder) or result_name(folder)) is None:
            raise FileNotFoundError(f"{directory}: holds {_unfinished(folder)}")
        sealed = None
        try:
            sealed = manifest.read(folder, name)
            return _opened(folder, name, sealed)
        except _OtherFormat as error:
            raise ValueError(f"{directory}: {error}") from error
        except (*manifest.GONE, Replaced, KeyError, TypeError, ValueError) as error:
            reason = error
        if sealed and is_sealed(folder, name, sealed):
            break
        time.sleep(pause)
    else:
        if sealed:
            raise OSError(f"{directory}: another process is extending {RESULT}. Open it again later")
        if not (folder.is_local or folder.exists(f"{RESULT}/{manifest.NAME}")):
            # Under a URL a result takes its place file by file, and its manifest is the last file.
            what = f"{RESULT} is incomplete. Another process is writing it, or was killed then"
            raise OSError(f"{directory}: {what}. Open it again later, or run the study's spec")
    raise ValueError(
        f"{directory}: {RESULT} is damaged, or another release wrote it ({reason}). "
        "The same `pausejax run` or `search` repairs it"
    ) from reason


class _OtherFormat(ValueError):
    """The result has the format of another release."""


def _opened(folder: Folder, name: str, sealed: manifest.Manifest) -> xr.Dataset:
    # Units are not decoded, because a unit such as "days since 2000-01-01" would convert numbers to dates.
    result = described(folder, name, sealed, decode_times=False)
    if (written := result.attrs.get("format")) != FORMAT:
        raise _OtherFormat(
            f"holds a result of format {schema.brief(written or 1)}, but this release reads format {FORMAT}. "
            "Read it with the release that wrote it, or run its spec again into another folder"
        )
    soundness.check(result)
    words = [key for key in result.coords if isinstance(result[key].dtype, np.dtypes.StringDType)]
    result = result.assign_coords({key: _of_one_length(result[key]) for key in words})
    return with_eval_elapsed(result)


def _of_one_length(words: xr.DataArray) -> xr.Variable:
    """Returns texts as NumPy strings of fixed length, as in the result of a simulation in memory."""
    return xr.Variable(words.dims, np.array(words.values.tolist(), np.str_), words.attrs)


def _unfinished(folder: Folder) -> str:
    parts = len(part_names(folder))
    what = f"an unfinished study ({parts} batches of runs are done)" if parts else f"no result ({RESULT})"
    finish = f"`pausejax run SPEC --out DIR` {'finishes' if parts else 'writes'} it"
    if not folder.exists(LABELS):
        return f"{what}. {finish}"
    return f"{what}. {finish}. --partial (in Python: partial=True) reads the finished runs"
