"""The best setting by one metric, the runner-up, and the Pareto front by several metrics."""

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
    """Finds the setting with the best mean of a metric; ties go to the first of these settings.

    Means leave out runs without a value, such as runs whose model diverged. Settings are ranked by the share
    of such runs first, the smallest share first, and by the mean second. Without this rule, a setting could
    win because its bad runs have no value.

    The best of many settings is partly the best by chance. Its interval does not correct for this selection.

    Args:
      result: a result, or its `finals`.
      metric: a name in `metrics_of(result)`.
      over: what is averaged: "seed", "policy", or axes by name or symbol.
      per: "policy" or names of axes; the best setting is found for each of their values.
      where: values by parameter; only runs with these values are compared. Default: all runs.
      maximize: whether a larger value is better; default: as the table of metrics says.
      level: coverage of the interval.

    Returns:
      A data set with `mean`, `low`, `high`, `count` and more, as `analysis.mean_ci` returns it. Without
      `per`, it has one setting and no dimension `setting`. With `per`, it has one setting for each group.

    Raises:
      ValueError: a metric, axis or direction is unknown, no setting has a value, or the metric can't compare
        the settings. Cumulative regrets under different rewards and accuracies on different data are
        examples.
    """
    result = with_divergence(select(result, where), [metric])
    sign = 1 if direction(result, metric, maximize) else -1
    means = mean_ci(result, metric, over=over, level=level)
    groups = full_names(result, per, "per")
    for name in groups:
        if name not in means.coords:
            raise ValueError(f"per = {name!r}: must not be named in `over` too")
    refuse_unlike(result, metric, result[metric].values, groups)
    score = np.where(np.isnan(means["mean"].values), -np.inf, sign * means["mean"].values)
    if not np.isfinite(means["mean"].values).any():
        raise ValueError(f"metric {metric!r}: no setting has a finite mean")
    codes, first = group_by(means, groups)
    order = np.lexsort((np.arange(len(score)), -score, share_left_out(means)))
    winners = np.full(len(first), -1)
    # Writes from the worst setting to the best, so that the best overwrites all others.
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
    """Finds the settings on the Pareto front of the means of several metrics.

    A setting is beaten if another setting is at least as good in every metric and better in one metric. All
    equal settings stay on the front. A setting without a value of some metric is left out. Only settings with
    the smallest share of runs without a value are compared.

    Args:
      result: a result, or its `finals`.
      metrics: names in `metrics_of(result)`, or a table from names to whether a larger value is better.
        Default: the objectives of the study. They are accuracy, latency and leakage in mode "training", and
        imbalance, latency and leakage in mode "bandit".
      over: what is averaged: "seed", "policy", or axes by name or symbol.
      where: values by parameter; only runs with these values are compared. Default: all runs.
      level: coverage of the intervals.

    Returns:
      A data set with `mean`, `low`, `high` and more over `setting` and `metric`, as `analysis.mean_ci`
      returns it. Settings are sorted by the first metric, the best first.

    Raises:
      ValueError: a metric or direction is unknown, no metric is given, or a metric can't compare the
        settings.
    """
    result = select(result, where)
    if metrics is None:
        metrics = objectives_in(result)
    given = dict(metrics) if isinstance(metrics, Mapping) else dict.fromkeys(metrics)
    if not given:
        raise ValueError("metrics: must name one metric or more, but names none")
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
    """The best setting of a result by one metric, and the runner-up; each is a data set that
    `analysis.mean_ci` returns."""

    metric: str
    best: xr.Dataset
    runner_up: xr.Dataset | None
    """The best of all other settings; None if none of them has a finite value."""
    difference: xr.Dataset | None
    """The best minus the runner-up, paired by seed; None if they have no seed in common."""
    settings: int
    """Number of settings that were compared: those in which a run has a value of the metric."""
    without_value: int
    """Number of further settings, in which no run has a value."""


def verdict(result: xr.Dataset, metric: str = "", *, level: float = 0.95) -> Verdict:
    """Finds the best setting, the runner-up, and their difference paired by seed.

    If the interval of the difference includes 0, these seeds do not show which of the two settings is better.
    The best of many settings is partly the best by chance. Its interval does not correct for this selection.

    Args:
      result: a result, or its `finals`.
      metric: a name in `metrics_of(result)`; default: the metric by which the study's table ranks settings.
      level: coverage of the intervals.

    Raises:
      ValueError: as in `best`.
    """
    metric = metric or schema.read(result, "ranking")
    whole = with_divergence(result, [metric])
    codes, _, labels = split_settings(whole)
    winner = best(whole, metric, level=level)
    lacking = int(np.isnan(mean_ci(whole, metric)["mean"].values).sum())
    compared = len(labels) - lacking
    others = whole.isel(run=codes != labels.index(winner["label"].item()))
    if not others.sizes["run"] or not np.isfinite(mean_ci(others, metric)["mean"].values).any():
        return Verdict(metric, winner, None, None, compared, lacking)
    second = best(others, metric, level=level)
    try:
        sides = _side(whole, winner), _side(whole, second)
        difference = paired_difference(whole, *sides, metric, level=level).isel(setting=0)
    except ValueError:  # no seed in common
        difference = None
    return Verdict(metric, winner, second, difference, compared, lacking)


def _side(result: xr.Dataset, setting: xr.Dataset) -> dict[str, Any]:
    """Returns the policy and the values of the swept axes of a setting, by name."""
    names = [name for name in ("policy", *axes_of(result)) if has(setting, name)]
    return {name: setting[name].values.item() for name in names}


def share_left_out(means: xr.Dataset) -> np.ndarray:
    """Returns the share of each setting's runs that the means of `mean_ci` leave out, float [settings]."""
    return (means["left_out"] / means["runs"]).values


def weighed_means(means: Sequence[xr.Dataset]) -> np.ndarray:
    """Returns the means of the metrics that a Pareto front compares, [settings, metrics].

    A setting has NaN if its share of runs without a value is larger than the smallest share of any setting.
    """
    lost = np.max([share_left_out(found) for found in means], axis=0)
    values = np.stack([found["mean"].values for found in means], axis=1)
    return np.where((lost == lost.min(initial=1))[:, None], values, np.nan)


def non_dominated(values: np.ndarray, maximize: Sequence[bool]) -> np.ndarray:
    """Returns which points no other point beats, bool [n].

    Equal points do not beat each other. The entry of a point with NaN is False. For a front of f points in d
    dimensions the time is O(n f d), and no table of n² entries is made.

    Args:
      values: the points, [n, d].
      maximize: whether a larger value is better in each dimension, [d].
    """
    values = np.asarray(values, np.float64)
    complete = ~np.isnan(values).any(axis=1)
    costs = np.where(np.asarray(maximize), -values, values)[complete]
    # The points are distinct and in lexicographic order, so a point comes after all points that beat it.
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
        # All points differ. So a point that is as good as another in every dimension is better in some
        # dimension. No point beats itself.
        beaten = np.all(rivals[:, None] <= block, axis=2)
        own = np.arange(len(block))
        beaten[len(front) + own, own] = False
        kept[first : first + _BLOCK] = ~beaten.any(axis=0)
        front = np.concatenate([front, block[~beaten.any(axis=0)]])
    return kept
