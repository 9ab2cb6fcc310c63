"""Where a folder holds its result, how a new one takes its place, and how it is opened meanwhile.

The new result takes the old one's place by two renames, with the old one beside it in between: whoever finds
no result looks there. So it is after a kill between the two as well.
"""

import time
from pathlib import Path

import numpy as np
import xarray as xr

from pausejax.analysis import schema, soundness
from pausejax.analysis.eval_times import with_eval_elapsed
from pausejax.results import manifest
from pausejax.results.folder import Folder
from pausejax.results.parts import part_names
from pausejax.results.snapshot import described, is_sealed
from pausejax.study.study import FORMAT

RESULT = "results.zarr"
REPLACED = f".{RESULT}.replaced"
"""The old result while the new one takes its place."""
_PAUSES = (0.01, 0.05, 0.2, 0.5)
"""Seconds between two attempts to open a result that is replaced just then."""


def held(folder: Folder) -> str | None:
    """Returns the name under which a folder holds its result; None if there is none."""
    for name in (RESULT, REPLACED):
        if folder.exists(f"{name}/{manifest.NAME}"):
            return name
    return RESULT if folder.exists(RESULT) else None


def replace(folder: Folder, partial: str) -> None:
    """Puts a store that is whole in the place of the result; the old one is there until the new one is."""
    if folder.exists(f"{RESULT}/{manifest.NAME}"):
        folder.remove(REPLACED, manifest.NAME)
        folder.move(RESULT, REPLACED, manifest.NAME)
    else:
        # What a killed process has left of a move under a URL: the old result may lie beside it.
        folder.remove(RESULT)
    folder.move(partial, RESULT, manifest.NAME)
    folder.remove(REPLACED, manifest.NAME)


def read(directory: str | Path) -> xr.Dataset:
    """Opens the result in a study's folder; values are read when they are asked for.

    They are of this result: once the study has been extended, reading them is an OSError, and where a file
    is damaged, a ValueError.

    Raises:
      FileNotFoundError: there is none, or its study is unfinished.
      ValueError: it is damaged; no value has been decoded.
      OSError: it has been replaced each time while it was opened.
    """
    folder = Folder(directory)
    for pause in _PAUSES:
        # Between the two looks of one question it may have come back to its place.
        if (name := held(folder) or held(folder)) is None:
            raise FileNotFoundError(f"{directory}: holds {_unfinished(folder)}")
        sealed = None
        try:
            sealed = manifest.read(folder, name)
            return _opened(folder, name, sealed)
        except _OtherFormat as error:
            raise ValueError(f"{directory}: {error}") from error
        except (KeyError, TypeError, ValueError, OSError) as error:
            reason = error
        if sealed and is_sealed(folder, name, sealed):
            break
        time.sleep(pause)
    else:
        if sealed:
            raise OSError(f"{directory}: {RESULT} is being extended; open it again")
    raise ValueError(
        f"{directory}: {RESULT} is damaged or no result of this release ({reason}); "
        "`pausejax run` with its spec repairs it"
    ) from reason


class _OtherFormat(ValueError):
    """A result that another release has laid out."""


def _opened(folder: Folder, name: str, sealed: manifest.Manifest) -> xr.Dataset:
    # A unit is a word: "days since 2000-01-01" makes no dates of numbers.
    result = described(folder, name, sealed, decode_times=False)
    if (written := result.attrs.get("format")) != FORMAT:
        raise _OtherFormat(
            f"holds a result of format {schema.brief(written or 1)}, this release reads {FORMAT}; "
            "read it with the release that wrote it, or run its spec again into another folder"
        )
    soundness.check(result)
    words = [key for key in result.coords if isinstance(result[key].dtype, np.dtypes.StringDType)]
    result = result.assign_coords({key: _of_one_length(result[key]) for key in words})
    return with_eval_elapsed(result)


def _of_one_length(words: xr.DataArray) -> xr.Variable:
    """Words as a simulation in memory has them, and as all libraries know them."""
    return xr.Variable(words.dims, np.array(words.values.tolist(), np.str_), words.attrs)


def _unfinished(folder: Folder) -> str:
    parts = len(part_names(folder))
    what = f"an unfinished study ({parts} batches of runs are done)" if parts else f"no result ({RESULT})"
    return f"{what}; `pausejax run SPEC --out` finishes it"
