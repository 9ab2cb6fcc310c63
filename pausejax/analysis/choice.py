"""The best setting by one metric, beside the next best, and the settings that no other beats on several."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.comparing import refuse_unlike
from pausejax.analysis.means import mean_ci, paired_difference
from pausejax.analysis.metrics import direction
from pausejax.analysis.per_run import with_divergence
from pausejax.analysis.quantities import objectives_in
from pausejax.analysis.selecting import select
from pausejax.analysis.settings import axes_of, full_names, group_by, has, split_settings

_BLOCK = 256


def best(
    result: xr.Dataset,
    metric: str = "test_accuracy",
    *,
    over: str | Sequence[str] = "seed",
    per: str | Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    maximize: bool | None = None,
    level: float = 0.95,
) -> xr.Dataset:
    """Finds the setting with the best mean; of equal ones the first.

    Runs without a value, such as those whose model diverged, are in no mean. A setting that has some ranks
    after all that have none, and after those with a smaller share of them: its mean is that of lucky ones.

    The best of many settings is partly lucky: its interval is the one it would have had on its own.

    Args:
      result: a result, or its `finals`.
      metric: a name out of `metrics_of(result)`.
      over: what is averaged, as in `mean_ci`.
      per: "policy" or axes: the best setting for each of their values.
      where: the runs to choose from, as in `select`.
      maximize: which way is better; by default what the table of metrics says.
      level: of the interval.

    Returns:
      As `mean_ci`: one setting (no dimension) without `per`, else one for each group.

    Raises:
      ValueError: an unknown metric, axis or direction, no setting with a value, or settings that this metric
        can't compare: cumulative regrets under unlike rewards, accuracies on unlike data.
    """
    result = with_divergence(select(result, where), [metric])
    sign = 1 if direction(result, metric, maximize) else -1
    means = mean_ci(result, metric, over=over, level=level)
    groups = full_names(result, per, "per")
    for name in groups:
        if name not in means.coords:
            raise ValueError(f"per = {name!r}: has been averaged over")
    refuse_unlike(result, metric, result[metric].values, groups)
    score = np.where(np.isnan(means["mean"].values), -np.inf, sign * means["mean"].values)
    if not np.isfinite(means["mean"].values).any():
        raise ValueError(f"metric {metric!r}: no setting has a value")
    codes, first = group_by(means, groups)
    order = np.lexsort((np.arange(len(score)), -score, share_left_out(means)))
    winners = np.full(len(first), -1)
    # From the worst to the best, so that the best is what remains.
    winners[codes[order[::-1]]] = order[::-1]
    return means.isel(setting=winners if groups else int(winners[0]))


def pareto(
    result: xr.Dataset,
    metrics: Sequence[str] | Mapping[str, bool] | None = None,
    *,
    over: str | Sequence[str] = "seed",
    where: Mapping[str, Any] | None = None,
    level: float = 0.95,
) -> xr.Dataset:
    """Finds the settings whose means no other setting beats: as good in every metric and better in one.

    Equal settings are all kept; one without a value in some metric is not. Settings are weighed if they have
    the smallest share of runs without a value, which is mostly none.

    Args:
      result: a result, or its `finals`.
      metrics: names out of `metrics_of(result)`, or a table of names that says whether more is better. By
        default accuracy, latency and leakage; in mode "bandit" latency, imbalance and leakage.
      over: what is averaged, as in `mean_ci`.
      where: the runs to choose from, as in `select`.
      level: of the intervals.

    Returns:
      Data set over `setting` and `metric`, as `mean_ci`, sorted by the first metric, the best first.

    Raises:
      ValueError: an unknown metric or direction, none at all, or settings that one of them can't compare.
    """
    result = select(result, where)
    if metrics is None:
        metrics = objectives_in(result)
    given = dict(metrics) if isinstance(metrics, Mapping) else dict.fromkeys(metrics)
    if not given:
        raise ValueError("metrics: none given; name at least one")
    maximize = [direction(result, name, way) for name, way in given.items()]
    whole = with_divergence(result, list(given))
    for name in given:
        refuse_unlike(whole, name, whole[name].values, ask="")
    parts = [mean_ci(whole, name, over=over, level=level) for name in given]
    joined = xr.concat(parts, xr.IndexVariable("metric", list(given)), combine_attrs="drop_conflicts")
    joined = joined.transpose("setting", "metric").assign_coords(maximize=("metric", maximize))
    chosen = np.flatnonzero(non_dominated(weighed_means(parts), maximize))
    leading = joined["mean"].values[chosen, 0] * (-1 if maximize[0] else 1)
    return joined.isel(setting=chosen[np.argsort(leading, kind="stable")])


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
    """Finds the best setting, the runner-up, and their difference paired by seed.

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
    codes, table, labels = split_settings(whole)
    winner = best(whole, metric, level=level)
    others = whole.isel(run=codes != labels.index(winner["label"].item()))
    if not others.sizes["run"] or not np.isfinite(mean_ci(others, metric)["mean"].values).any():
        return Verdict(metric, winner, None, None, len(table))
    second = best(others, metric, level=level)
    try:
        sides = _side(whole, winner), _side(whole, second)
        difference = paired_difference(whole, *sides, metric, level=level).isel(setting=0)
    except ValueError:  # no seed in common
        difference = None
    return Verdict(metric, winner, second, difference, len(table))


def _side(result: xr.Dataset, setting: xr.Dataset) -> dict[str, Any]:
    """Returns a setting as `paired_difference` takes it."""
    names = [name for name in ("policy", *axes_of(result)) if has(setting, name)]
    return {name: setting[name].values.item() for name in names}


def share_left_out(means: xr.Dataset) -> np.ndarray:
    """Returns the share of a setting's runs that the means leave out; `mean_ci` counts these runs."""
    return (means["left_out"] / means["runs"]).values


def weighed_means(means: Sequence[xr.Dataset]) -> np.ndarray:
    """Returns the means of metrics that a front weighs, [settings, metrics].

    Settings with a larger share of runs without a value than the best setting have NaN.
    """
    lost = np.max([share_left_out(found) for found in means], axis=0)
    values = np.stack([found["mean"].values for found in means], axis=1)
    return np.where((lost == lost.min(initial=1))[:, None], values, np.nan)


def non_dominated(values: np.ndarray, maximize: Sequence[bool]) -> np.ndarray:
    """Finds the points that no other point beats, bool [n]; equal points are all kept, those with NaN never.

    O(n f d) for a front of f points in d dimensions, without a table of n².

    Args:
      values: [n, d].
      maximize: [d], whether more is better.
    """
    values = np.asarray(values, np.float64)
    complete = ~np.isnan(values).any(axis=1)
    costs = np.where(np.asarray(maximize), -values, values)[complete]
    # Distinct and in lexicographic order: whoever beats a point comes before it.
    points, place = np.unique(costs, axis=0, return_inverse=True)
    found = np.zeros(len(values), bool)
    found[complete] = _front(points)[place.reshape(-1)]
    return found


def _front(points: np.ndarray) -> np.ndarray:
    kept = np.zeros(len(points), bool)
    front = points[:0]
    for first in range(0, len(points), _BLOCK):
        block = points[first : first + _BLOCK]
        rivals = np.concatenate([front, block])
        # All points differ, so as good everywhere is better somewhere; nobody beats himself.
        beaten = np.all(rivals[:, None] <= block, axis=2)
        own = np.arange(len(block))
        beaten[len(front) + own, own] = False
        kept[first : first + _BLOCK] = ~beaten.any(axis=0)
        front = np.concatenate([front, block[~beaten.any(axis=0)]])
    return kept
