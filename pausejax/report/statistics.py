"""Seed statistics of a result: which runs belong together, means, intervals, curves on a common clock."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis.intervals import student_half_width
from pausejax.analysis.settings import group, label, runs_table, symbols


class Line(NamedTuple):
    """Runs that differ in their seed alone: one line of a picture, one row of a table."""

    label: str
    policy: str
    runs: xr.Dataset


class Band(NamedTuple):
    """A seed average with its 95 % interval."""

    mean: np.ndarray
    half_width: np.ndarray
    """Student's t over the runs; NaN with fewer than two."""


def lines(result: xr.Dataset) -> list[Line]:
    """Splits a result by policy and axis values, in the order in which they first appear."""
    table = runs_table(result).drop(columns="seed")
    codes, first = group(table, list(table.columns))
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes, minlength=len(first)))[:-1])
    settings, written = table.iloc[first].to_dict("records"), symbols(result)
    return [
        Line(label(setting, written), setting["policy"], result.isel(run=positions))
        for setting, positions in zip(settings, members, strict=True)
    ]


def band(samples: np.ndarray) -> Band:
    """Mean and half-width of the 95 % t interval over axis 0 (the runs)."""
    samples = np.asarray(samples, np.float64)
    count = samples.shape[0]
    mean = samples.mean(axis=0)
    if count < 2:
        return Band(mean, np.full_like(mean, np.nan))
    return Band(mean, student_half_width(samples.var(axis=0, ddof=1), count))


def healthy(runs: xr.Dataset) -> xr.Dataset:
    """The runs whose model stayed finite; the others would spoil every mean."""
    if "diverged_round" not in runs:
        return runs
    return runs.isel(run=np.flatnonzero(runs["diverged_round"].values == 0))


def learned(runs: xr.Dataset) -> xr.Dataset:
    """What accuracy can be averaged: the healthy runs, or all of them up to the first divergence."""
    kept = healthy(runs)
    if kept.sizes["run"]:
        return kept
    broken = ~np.isfinite(runs["test_loss"].values).all(axis=0)
    return runs.isel(eval=slice(0, int(np.argmax(broken)) if broken.any() else None))


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Trailing moving average over the last axis; the first points average what there is."""
    if window <= 1:
        return values
    total = np.cumsum(values, axis=-1, dtype=np.float64)
    ahead = total.copy()
    ahead[..., window:] -= total[..., :-window]
    return ahead / np.minimum(np.arange(1, values.shape[-1] + 1), window)


def on_common_clock(
    times: np.ndarray, values: np.ndarray, points: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Curves of several runs, read off at common times.

    Args:
      times: [runs, n], each run's own clock, ascending; NaN after its last round.
      values: [runs, n].
      points: how many common times.

    Returns:
      Times [points] that every run has reached and none has outlasted, and values [runs, points] by linear
      interpolation. NaN ends a run's curve; a run without any value is left out.
    """
    curves = [
        (t[there], v[there]) for t, v in zip(times, values, strict=True) if (there := ~np.isnan(t + v)).any()
    ]
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    begin = max(t[0] for t, _ in curves)
    grid = np.linspace(begin, max(min(t[-1] for t, _ in curves), begin), points)
    return grid, np.stack([np.interp(grid, t, v) for t, v in curves])


def evaluation_times(runs: xr.Dataset) -> np.ndarray:
    """Simulated time of each evaluation, [runs, eval], s."""
    return runs["elapsed"].values[:, runs["eval_round"].values - 1]


def accuracy_at(runs: xr.Dataset, time: float) -> np.ndarray:
    """Each run's latest test accuracy at a simulated time, [runs]; NaN before its first evaluation."""
    times = evaluation_times(runs)
    last = (times <= time).sum(axis=1) - 1
    accuracy = np.take_along_axis(runs["test_accuracy"].values, np.maximum(last, 0)[:, None], axis=1)[:, 0]
    return np.where(last >= 0, accuracy, np.nan)
