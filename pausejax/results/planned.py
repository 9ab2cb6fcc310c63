"""Writes and reads `labels.npz`, the labels of all planned runs of a study, with a digest.

With this file the finished runs of a study can be read before its end. Reading needs neither the user's own
files nor the data of the study. `unfinished.read` reads the runs.

The file also says which runs the processes leave out when they cut the plan into batches. The result may gain
runs while they play, if a smaller study ends in the folder. All of them must still make the same cut.
"""

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.quantities import Variable
from pausejax.results import exchange
from pausejax.results.exchange import LABELS
from pausejax.results.folder import Folder
from pausejax.results.labels import Labels
from pausejax.study.study import FORMAT, Kind, Plan

_COLUMN = "column."
_REST = "rest"
_LEFT_OUT = "left_out"


def write(folder: Folder, labels: Labels, left_out: Collection[str] = ()) -> None:
    """Writes the labels of a plan's runs into a study's folder, completely or not at all.

    Args:
      folder: the folder of the study.
      labels: the labels of all runs of the plan.
      left_out: identities of the runs that are left out when the plan is cut into batches.

    Raises:
      OSError: the file can't be written.
    """
    rest = {
        "kind": labels.kind.name,
        "mode": labels.mode,
        "rounds": labels.rounds,
        "eval_every": labels.eval_every,
        "variables": {name: variable._asdict() for name, variable in labels.variables.items()},
        "meanings": labels.meanings,
        "attributes": labels.attributes,
    }
    columns = {f"{_COLUMN}{name}": column for name, column in labels.columns.items()}
    marks = np.array([identity in left_out for identity in labels.identities], bool)
    arrays = {**columns, _REST: np.array(json.dumps(rest)), _LEFT_OUT: marks}
    folder.write_arrays(LABELS, arrays, compressed=True)


def runs(folder: Folder) -> Mapping[str, bool]:
    """Returns the identities of the planned runs, and whether each is left out when the plan is cut.

    Returns an empty mapping if the file is missing or damaged.
    """
    try:
        arrays = folder.read_arrays(LABELS)
        identities = arrays[f"{_COLUMN}identity"].tolist()
        return dict(zip(identities, arrays[_LEFT_OUT].tolist(), strict=True))
    except (KeyError, TypeError, ValueError, OSError):
        return {}


def left_out(plan: Plan, before: Mapping[str, bool], in_result: frozenset[str]) -> frozenset[str]:
    """Returns the identities of the runs that are left out when a plan is cut into batches.

    Args:
      plan: the plan.
      before: the runs that were planned before, as `runs` returns them. The cut of an equal plan is kept.
      in_result: identities of the runs in the result.
    """
    return in_result & marked(plan, before) if before.keys() == plan.known else in_result


def marked(plan: Plan, before: Mapping[str, bool]) -> frozenset[str]:
    """Returns the identities that processes which play an equal plan leave out; empty for another plan."""
    known = before if before.keys() == plan.known else {}
    return frozenset(identity for identity, left_out in known.items() if left_out)


def opened(directory: str | Path) -> xr.Dataset:
    """Opens a result by `exchange.read`. Warns if it lacks runs of a larger study planned in its folder.

    Args:
      directory: the path or URL of the folder.

    Raises:
      FileNotFoundError, ValueError, OSError: as `exchange.read`.
    """
    wanted = runs(Folder(directory))  # read first, because the result may be replaced by the larger one
    result = exchange.read(directory)
    if lacking := wanted.keys() - set(result["identity"].values.tolist()):
        has = f"this result has {len(wanted) - len(lacking)} of the {len(wanted)} runs of a larger study"
        more = "--partial (in Python: partial=True) reads all finished runs"
        warnings.warn(f"{directory}: {has}, which is unfinished. {more}", stacklevel=3)
    return result


def loaded(directory: str, plan: Plan) -> xr.Dataset:
    """Loads the result of a plan after this process has played the plan.

    Raises:
      FileNotFoundError, ValueError: as `exchange.read`.
      OSError: as `exchange.read`, or another process has ended another study in the folder.
    """
    result = exchange.settled(directory, lambda: opened(directory).load())
    if not holds(result, plan):
        other = "another process has ended another study in this folder"
        raise OSError(f"{directory}: {other}. pausejax.open reads its result")
    return result


def holds(result: xr.Dataset, plan: Plan) -> bool:
    """Returns whether a result has the runs of a plan and no others, with the same order and labels.

    Another process may have ended a larger study in the folder, or an equal one with other labels.
    """
    labels = zip(result["identity"].values.tolist(), result["policy"].values.tolist(), strict=True)
    return [*labels] == [(run.identity, run.policy) for run in plan.runs]


def read(folder: Folder, kinds: Sequence[Kind]) -> Labels:
    """Reads the labels of a plan's runs from a study's folder.

    Args:
      folder: the folder of the study.
      kinds: every kind of study.

    Raises:
      FileNotFoundError: the folder has no file `labels.npz`.
      OSError: the file can't be read.
      ValueError: the file is damaged, is of another release, or names no kind of study.
    """
    arrays = folder.read_arrays(LABELS)
    arrays.pop(_LEFT_OUT, None)
    try:
        rest: dict[str, Any] = json.loads(str(arrays.pop(_REST)))
        attributes = dict(rest["attributes"])
        if (written := attributes.get("format")) != FORMAT:
            raise ValueError(f"has format {schema.brief(written)}, but this release reads format {FORMAT}")
        return Labels(
            next(kind for kind in kinds if kind.name == rest["kind"]),
            rest["mode"],
            rest["rounds"],
            rest["eval_every"],
            {name: _variable(**fields) for name, fields in rest["variables"].items()},
            {name.removeprefix(_COLUMN): column for name, column in arrays.items()},
            rest["meanings"],
            attributes,
        )
    except (AttributeError, KeyError, RecursionError, StopIteration, TypeError, ValueError) as error:
        raise ValueError(f"{LABELS}: can't be read: {error}") from error


def _variable(dims: Sequence[str], dtype: str, fill: float, units: str, meaning: str) -> Variable:
    return Variable(tuple(dims), dtype, fill, units, meaning)
