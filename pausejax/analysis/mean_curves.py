"""Curves over rounds or simulated time: means over seeds with intervals, as a table."""

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.intervals import interval
from pausejax.analysis.metrics import RUNNING, metrics_of, recorded
from pausejax.analysis.per_run import diverged
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import records, split_settings

Against = Literal["round", "time"]
AGAINST: dict[str, Against] = {"round": "round", "elapsed": "time"}


class Samples(NamedTuple):
    """Curves of single runs, all at the same rounds or times."""

    x: np.ndarray
    """Rounds, or simulated time in seconds; float or int [n]."""
    values: np.ndarray
    """Values of the metric, multiplied by its scale; float [runs, n]."""
    seeds: np.ndarray
    """Seed of each run, int [runs]."""


def curves(
    result: xr.Dataset,
    metric: str = "test_accuracy",
    *,
    against: Literal["round", "elapsed"] = "round",
    smoothing: int = 1,
    points: int = 200,
    level: float = 0.95,
) -> pd.DataFrame:
    """Computes the mean curve of every setting over its seeds, with Student's t intervals.

    Args:
      result: the result, as `pausejax.open` or `simulate` returns it.
      metric: a name in `metrics_of(result)`, of a metric with a value after every round or evaluation.
      against: "round", or "elapsed" for simulated time in seconds. With "elapsed", all runs of a setting have
        values at the same times. Each value is that after the last round or evaluation that has ended by this
        time.
      smoothing: number of evaluations that the trailing mean averages. Metrics with a value for every round
        are not smoothed.
      points: number of times at which the runs of a setting have values.
      level: coverage of the intervals.

    Returns:
      A table with a row for each setting and each round or time. Its columns are the label, the policy, every
      swept parameter, `x`, `mean`, `low`, `high` and `count` (number of seeds). One seed has no interval.
      Where a run has no value, for example after its last round, the mean is NaN, because a mean over the
      other runs would belong to a smaller group. Learned metrics leave out runs that diverged; a setting
      without any other run has NaN and a count of 0. Against time, the curve of a setting begins
      when all of its runs have a value. It ends when the first of its runs ends.

    Raises:
      ValueError: the metric is unknown or has no curve, the result has no simulated time, or `smoothing` or
        `points` is no integer of at least 1.
    """
    known = metrics_of(result)
    if metric not in known:
        raise ValueError(f"metric {metric!r}: must be one of {', '.join(known)}")
    if not has_curve(result, known[metric]):
        raise ValueError(f"metric {metric!r}: has only one value for each run, so it has no curve")
    if against not in AGAINST or (against == "elapsed" and "elapsed" not in result):
        raise ValueError(
            f"against = {against!r}: must be 'round', or 'elapsed' if the result has the variable elapsed"
        )
    for name, value in (("smoothing", smoothing), ("points", points)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} = {value!r}: must be an integer >= 1")
    codes, table, labels = split_settings(result)
    frames = []
    for place, (label, row) in enumerate(zip(labels, records(table), strict=True)):
        runs = result.isel(run=np.flatnonzero(codes == place))
        x, values, seeds = samples(runs, known[metric]._replace(scale=1), AGAINST[against], smoothing, points)
        if not len(x):
            x, values = np.array([np.nan]), np.zeros((0, 1))
        *means, counts = interval(values.T, seeds, level=level)
        lacking = np.isnan(values).any(axis=0)
        numbers = dict(zip(("mean", "low", "high"), np.where(lacking, np.nan, means), strict=True))
        numbers = {"x": x, **numbers, "count": counts}
        frames.append(pd.DataFrame({"label": label, **row, **numbers}))
    return pd.concat(frames, ignore_index=True)


def has_curve(result: xr.Dataset, metric: Metric) -> bool:
    """Returns whether a metric has a value after every round or evaluation."""
    if metric.reduce not in RUNNING or metric.variable not in result:
        return False
    return result[metric.variable].dims[1:] in (("round",), ("eval",))


def without_diverged(runs: xr.Dataset) -> xr.Dataset:
    """Returns the runs that did not diverge; means of learned metrics use only these runs.

    Raises:
      ValueError: the runs lack the variable `diverged_round`, which their study recorded.
    """
    return runs.isel(run=np.flatnonzero(~diverged(runs)))


def samples(
    runs: xr.Dataset, metric: Metric, against: Against = "round", smoothing: int = 1, points: int = 300
) -> Samples:
    """Returns a metric of some runs after every round or evaluation; leaves out runs without any value.

    Args:
      runs: runs of a result. Only the metric's variable, the seeds, the divergence and the times are read.
      metric: the metric; `has_curve` must be true for it.
      against: "round"; or "time" for values at the same simulated times: the value after the last round or
        evaluation that has ended by this time.
      smoothing: number of evaluations that the trailing mean averages. Variables with a value for each round
        are not smoothed.
      points: number of times.
    """
    runs = without_diverged(runs) if metric.learned else runs
    array = runs[metric.variable]
    values = metric.scale * RUNNING[metric.reduce](recorded(metric.variable, array.values))
    evaluated = array.dims[1] == "eval"
    values = smooth(values, smoothing) if evaluated else values
    rounds = runs["eval_round" if evaluated else "round"].values
    seeds = runs["seed"].values if "seed" in runs.coords else np.arange(runs.sizes["run"])
    known = ~np.isnan(values)
    if against == "round":
        there = known.any(axis=1)
        return Samples(rounds, values[there], seeds[there])
    times = runs["elapsed"].values[:, np.searchsorted(runs["round"].values, rounds)]
    there = (np.isfinite(times) & known).any(axis=1)
    return Samples(*resample(times[there], values[there], points), seeds[there])


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Computes the trailing mean over the last axis of values [..., n]; the shape stays the same.

    Each point averages up to `window` points. The first points average all points so far.
    """
    if window <= 1 or not values.shape[-1]:
        return values
    # Sums each window: differences of running sums would be NaN after the first infinite value.
    before = np.zeros((*values.shape[:-1], window - 1))
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([before, values], axis=-1), window, -1)
    return windows.sum(axis=-1) / np.minimum(np.arange(1, values.shape[-1] + 1), window)


def resample(times: np.ndarray, values: np.ndarray, points: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values of several runs at the same times.

    Args:
      times: times of the values of each run, [runs, n], ascending; NaN or infinite after its last round.
      values: values of each run, [runs, n].
      points: number of times.

    Returns:
      Times, [points], and the value of each run after the last round up to each time, [runs, points]. The
      curve of a run begins with its first value that is not NaN, and ends with the last one. The times begin
      when every curve has begun, and end when the first curve ends; if this is earlier, there are none. A run
      without any value is left out.
    """
    curves = []
    for t, v in zip(times, values, strict=True):
        known = np.flatnonzero(np.isfinite(t) & ~np.isnan(v))
        if known.size:
            curve = slice(known[0], known[-1] + 1)
            curves.append((t[curve], v[curve]))
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    begin = max(t[0] for t, _ in curves)
    end = min(t[-1] for t, _ in curves)
    grid = np.linspace(begin, end, points) if end > begin else np.full(int(end == begin), begin)
    return grid, np.stack([v[np.searchsorted(t, grid, side="right") - 1] for t, v in curves])
