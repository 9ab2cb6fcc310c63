"""Writes and reads `labels.npz`, the labels of all planned runs of a study, with a digest.

With this file the finished runs of a study can be read before its end. Reading needs neither the user's own
files nor the data of the study. `unfinished.read` reads the runs.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pausejax.analysis import schema
from pausejax.analysis.quantities import Variable
from pausejax.results.exchange import LABELS
from pausejax.results.folder import Folder
from pausejax.results.labels import Labels
from pausejax.study.study import FORMAT, Kind

_COLUMN = "column."
_REST = "rest"


def write(folder: Folder, labels: Labels) -> None:
    """Writes the labels of a plan's runs into a study's folder, completely or not at all.

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
    folder.write_arrays(LABELS, {**columns, _REST: np.array(json.dumps(rest))}, compressed=True)


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
