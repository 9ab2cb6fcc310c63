"""Curves over rounds or simulated time: means over seeds with their intervals, as a table."""

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.intervals import interval
from pausejax.analysis.metrics import RUNNING, metrics_of, recorded
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import group, labels, records, runs_table, symbols


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
    if not has_curve(result, known[metric].variable, known[metric].reduce):
        raise ValueError(f"metric {metric!r}: is one figure for a run and has no curve")
    if against not in ("round", "elapsed") or (against == "elapsed" and "elapsed" not in result):
        raise ValueError(f"against = {against!r}: must be 'round', or 'elapsed' where a result has it")
    table = runs_table(result).drop(columns="seed")
    codes, first = group(table, list(table.columns))
    settings = records(table.iloc[first])
    sampled = [
        _samples(result.isel(run=np.flatnonzero(codes == place)), known[metric], smoothing)
        for place in range(len(first))
    ]
    frames = []
    for label, setting, one in zip(labels(settings, symbols(result)), settings, sampled, strict=True):
        x, values, seeds = one.rounds, one.values, one.seeds
        if against == "elapsed":
            there = (np.isfinite(one.times) & ~np.isnan(values)).any(axis=1)
            (x, values), seeds = resample(one.times[there], values[there], points), seeds[there]
        if not len(x):
            x, values, seeds = np.array([np.nan]), np.zeros((0, 1)), np.zeros(0)
        found = interval(per_seed(values, seeds).T, level=level)
        numbers = {"x": x, "mean": found.mean, "low": found.low, "high": found.high, "count": found.counts}
        frames.append(pd.DataFrame({"label": label, **setting, **numbers}))
    return pd.concat(frames, ignore_index=True)


def has_curve(result: xr.Dataset, variable: str, reduce: str) -> bool:
    """Returns whether a variable under a reduction has a value after every round or evaluation."""
    if reduce not in RUNNING or variable not in result:
        return False
    return result[variable].dims[1:] in (("round",), ("eval",))


def per_seed(values: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Averages the runs of each seed, [runs, ...] -> [seeds, ...]; NaN in one of them is NaN in the mean."""
    distinct, owner = np.unique(seeds, return_inverse=True)
    if len(distinct) == len(seeds):
        return values
    summed = np.zeros((len(distinct), *values.shape[1:]))
    np.add.at(summed, owner, values)
    return summed / np.bincount(owner).reshape(-1, *(1,) * (values.ndim - 1))


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


class _Samples(NamedTuple):
    rounds: np.ndarray
    """[n]"""
    times: np.ndarray
    """s, [runs, n]; NaN where a run has no value, and everywhere in a result without simulated time."""
    values: np.ndarray
    """[runs, n]"""
    seeds: np.ndarray
    """[runs]"""


def _samples(runs: xr.Dataset, metric: Metric, smoothing: int) -> _Samples:
    array = runs[metric.variable]
    values = RUNNING[metric.reduce](recorded(array.values, array.dims))
    if metric.learned and "diverged_round" in runs:
        values = np.where(runs["diverged_round"].values[:, None] > 0, np.nan, values)
    evaluated = array.dims[1] == "eval"
    values = smooth(values, smoothing) if evaluated else values
    rounds = runs["eval_round" if evaluated else "round"].values
    times = np.full(values.shape, np.nan)
    if "elapsed" in runs:
        times = runs["elapsed"].values[:, np.searchsorted(runs["round"].values, rounds)]
    return _Samples(rounds, np.where(np.isnan(values), np.nan, times), values, runs["seed"].values)
