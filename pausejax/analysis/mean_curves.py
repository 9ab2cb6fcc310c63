"""Curves over rounds or simulated time: means over seeds with their intervals, as a table."""

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.intervals import interval
from pausejax.analysis.metrics import RUNNING, metrics_of, recorded
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import records, split_settings

Against = Literal["round", "time"]
AGAINST: dict[str, Against] = {"round": "round", "elapsed": "time"}


class Samples(NamedTuple):
    """Curves of single runs at common rounds or times."""

    x: np.ndarray
    """Rounds, or simulated time in seconds; float or int [n]."""
    values: np.ndarray
    """Float [runs, n], multiplied by the metric's scale."""
    seeds: np.ndarray
    """Int [runs]."""


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
      result: as `pausejax.open` or `simulate` returns it.
      metric: a name out of `metrics_of(result)` that has a value after every round or evaluation.
      against: "round", or "elapsed" for simulated time, s. At each of some common times a run has the value
        of its last round, or evaluation, by then.
      smoothing: window of the trailing mean over evaluations; what is recorded every round is left as it is.
      points: how many common times the runs of a setting have.
      level: coverage of the intervals.

    Returns:
      A row for each setting and place: label, policy, every swept parameter, `x`, `mean`, `low`, `high` and
      `count` (seeds). One seed has no interval. Runs that diverged are left out of what a model learned; a
      setting of which none is left has NaN and a count of 0. Against time a setting begins where all of its
      runs have a value, and ends where its first run ends.

    Raises:
      ValueError: an unknown metric, one without a curve, or a result without simulated time.
    """
    known = metrics_of(result)
    if metric not in known:
        raise ValueError(f"metric {metric!r}: unknown here; known: {', '.join(known)}")
    if not has_curve(result, known[metric]):
        raise ValueError(f"metric {metric!r}: is one figure for a run and has no curve")
    if against not in AGAINST or (against == "elapsed" and "elapsed" not in result):
        raise ValueError(f"against = {against!r}: must be 'round', or 'elapsed' where a result has it")
    codes, table, labels = split_settings(result)
    frames = []
    for place, (label, row) in enumerate(zip(labels, records(table), strict=True)):
        runs = result.isel(run=np.flatnonzero(codes == place))
        x, values, seeds = samples(runs, known[metric]._replace(scale=1), AGAINST[against], smoothing, points)
        if not len(x):
            x, values = np.array([np.nan]), np.zeros((0, 1))
        mean, low, high, counts = interval(values.T, seeds, level=level)
        numbers = {"x": x, "mean": mean, "low": low, "high": high, "count": counts}
        frames.append(pd.DataFrame({"label": label, **row, **numbers}))
    return pd.concat(frames, ignore_index=True)


def has_curve(result: xr.Dataset, metric: Metric) -> bool:
    """Returns whether a metric has a value after every round or evaluation."""
    if metric.reduce not in RUNNING or metric.variable not in result:
        return False
    return result[metric.variable].dims[1:] in (("round",), ("eval",))


def without_diverged(runs: xr.Dataset) -> xr.Dataset:
    """Removes runs that diverged, because their learned metrics are in no mean."""
    if "diverged_round" not in runs:
        return runs
    return runs.isel(run=np.flatnonzero(runs["diverged_round"].values == 0))


def samples(
    runs: xr.Dataset, metric: Metric, against: Against = "round", smoothing: int = 1, points: int = 300
) -> Samples:
    """Returns a metric of some runs after every round or evaluation; runs without any value are left out.

    Args:
      runs: of a result; only the metric's variable, the seeds, divergence and times are read.
      metric: one for which `has_curve` is true.
      against: "round", or "time". At each common time a run has the value of its last round or evaluation
        so far.
      smoothing: window of the trailing mean over evaluations. Variables with a value for each round are not
        smoothed.
      points: how many common times.
    """
    runs = without_diverged(runs) if metric.learned else runs
    array = runs[metric.variable]
    values = metric.scale * RUNNING[metric.reduce](recorded(array.values, array.dims))
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
    """Computes the trailing mean over the last axis; the first points average what there is."""
    if window <= 1 or not values.shape[-1]:
        return values
    # Window by window: a difference of running sums would carry one infinite value on to the end.
    before = np.zeros((*values.shape[:-1], window - 1))
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([before, values], axis=-1), window, -1)
    return windows.sum(axis=-1) / np.minimum(np.arange(1, values.shape[-1] + 1), window)


def resample(times: np.ndarray, values: np.ndarray, points: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Reads curves of several runs at common times.

    Args:
      times: [runs, n], each run's own clock, ascending; NaN or infinite after its last round.
      values: [runs, n].
      points: how many common times.

    Returns:
      Times [points] that every run has reached and none has outlasted, and values [runs, points]: each run's
      last one by then, as tables have it. NaN ends a run's curve; a run without any value is left out.
    """
    known = np.isfinite(times) & ~np.isnan(values)
    curves = [(t[there], v[there]) for t, v, there in zip(times, values, known, strict=True) if there.any()]
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    begin = max(t[0] for t, _ in curves)
    grid = np.linspace(begin, max(min(t[-1] for t, _ in curves), begin), points)
    return grid, np.stack([v[np.searchsorted(t, grid, side="right") - 1] for t, v in curves])
