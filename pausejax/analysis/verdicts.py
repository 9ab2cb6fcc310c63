"""The best setting beside the next best: is it better, or was it luckier?"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.choice import best
from pausejax.analysis.means import mean_ci, paired_difference
from pausejax.analysis.per_run import with_divergence
from pausejax.analysis.settings import axes_of, group, has, runs_table


class Verdict(NamedTuple):
    """The best setting of a result by one metric, each as `mean_ci` gives it for one setting."""

    metric: str
    best: xr.Dataset
    runner_up: xr.Dataset | None
    """The best of the others; None where no other has a finite value."""
    difference: xr.Dataset | None
    """The best minus the runner-up, over the seeds of both; None where they share none."""
    settings: int
    """How many there are to choose from."""


def verdict(result: xr.Dataset, metric: str = "", *, level: float = 0.95) -> Verdict:
    """The best setting, the runner-up, and their difference paired by seed.

    An interval of the difference that holds 0 says that these seeds do not tell the two apart. Of many
    settings the best is partly the luckiest: its own interval does not know that it was chosen.

    Args:
      result: a result, or its `finals`.
      metric: a name out of `metrics_of(result)`; by default the one by which the table of a study ranks.
      level: of the intervals.

    Raises:
      ValueError: as `best`.
    """
    metric = metric or schema.read(result, "ranking")
    whole = with_divergence(result, [metric])
    table = runs_table(whole).drop(columns="seed")
    codes, first = group(table, list(table.columns))
    winner = best(whole, metric, level=level)
    others = whole.isel(run=np.flatnonzero(codes != codes[_runs_of(whole, winner)[0]]))
    if not others.sizes["run"] or not np.isfinite(mean_ci(others, metric)["mean"].values).any():
        return Verdict(metric, winner, None, None, len(first))
    second = best(others, metric, level=level)
    try:
        sides = _side(whole, winner), _side(whole, second)
        difference = paired_difference(whole, *sides, metric, level=level).isel(setting=0)
    except ValueError:  # no seed in common
        difference = None
    return Verdict(metric, winner, second, difference, len(first))


def _side(result: xr.Dataset, setting: xr.Dataset) -> dict[str, Any]:
    """A setting as `paired_difference` takes it."""
    names = [name for name in ("policy", *axes_of(result)) if has(setting, name)]
    return {name: setting[name].values.item() for name in names}


def _runs_of(result: xr.Dataset, setting: xr.Dataset) -> np.ndarray:
    """The places of a setting's runs."""
    mine = np.ones(result.sizes["run"], bool)
    for name in ("policy", *axes_of(result)):
        present = has(result, name)
        alike = present & (result[name].values == setting[name].values.item())
        mine &= alike if has(setting, name) else ~present
    return np.flatnonzero(mine)
