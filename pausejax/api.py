"""The library's face: a study as one function call, and results as labelled data sets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pausejax import kinds
from pausejax.data.host import Sources
from pausejax.engine import local
from pausejax.engine.engine import Progress
from pausejax.engine.tracking import Tracker
from pausejax.results import store
from pausejax.study.plan import make_plan


def simulate(
    policies: Sequence[str | Mapping[str, Any]] | str = "pause",
    *,
    seeds: int | Sequence[int] = 1,
    rounds: int = 200,
    eval_every: int = 10,
    mode: str = "training",
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
    tracker: Tracker | None = None,
    **parameters: Any,
) -> xr.Dataset:
    """Simulates a study and returns its result; nothing is written to disk.

    Args:
      policies: names, or tables like a spec's `[[policy]]`: `{"name": "fedavg", "private": False}`.
      seeds: a count, or the seeds themselves.
      rounds: rounds per run.
      eval_every: rounds between evaluations on the test set.
      mode: "training", or "bandit" for selection and latency alone.
      data_dir: folder of prepared data sets; the embedded ones need none.
      progress: called after each segment with the number of rounds × runs it has advanced.
      tracker: told of every chunk of runs that has been finished; see `pausejax.engine.tracking`.
      **parameters: any parameter of a spec by its name or symbol; a list makes an axis, and so does a
        range: `simulate(alpha={"log_uniform": [1, 100]}, sampling={"n": 64})`. Other keys of a spec too:
        `zip`, `selection_gap`, `stop_at_latency`, `use`.

    Returns:
      The data set that `pausejax run` writes: dims run, round, eval, slot, client.

    Raises:
      SpecError: (a ValueError) for mistakes in the arguments, before any compute.
    """
    given = isinstance(policies, Sequence) and not isinstance(policies, str)
    tables = list(policies) if given else [policies]
    document: dict[str, Any] = {
        "seeds": _plain(seeds),
        "rounds": _plain(rounds),
        "eval_every": _plain(eval_every),
        "mode": mode,
        "policy": [_plain(table) if isinstance(table, Mapping) else {"name": table} for table in tables],
    }
    # Which section a parameter belongs to, the parts of the study say.
    document |= {key: _plain(value) for key, value in parameters.items()}
    study = kinds.parse(document, source="simulate", flat=True)
    return local.run(make_plan(study), Sources(data_dir), progress, tracker)


def _plain(value: Any) -> Any:
    """NumPy scalars, arrays, ranges and tuples, at any depth, as the scalars and lists that a spec holds."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | range) else value


def open(directory: str | Path) -> xr.Dataset:
    """Opens the result that `pausejax run` left in a folder.

    Raises:
      FileNotFoundError: there is none.
    """
    return store.read(directory)
