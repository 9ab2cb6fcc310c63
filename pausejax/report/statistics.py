"""Seed statistics of a result: which runs belong together, means, intervals, curves on a common clock."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis.intervals import student_half_width
from pausejax.analysis.settings import group, labels, records, runs_table, symbols


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
    settings = records(table.iloc[first])
    named = zip(labels(settings, symbols(result)), settings, members, strict=True)
    return [Line(label, setting["policy"], result.isel(run=positions)) for label, setting, positions in named]


def band(samples: np.ndarray) -> Band:
    """Mean and half-width of the 95 % t interval over axis 0 (the runs)."""
    samples = np.asarray(samples, np.float64)
    count = samples.shape[0]
    mean = samples.mean(axis=0)
    if count < 2:
        return Band(mean, np.full_like(mean, np.nan))
    return Band(mean, student_half_width(samples.var(axis=0, ddof=1), count))


def finite_runs(runs: xr.Dataset) -> xr.Dataset:
    """Returns the runs whose model stayed finite."""
    if "diverged_round" not in runs:
        return runs
    return runs.isel(run=np.flatnonzero(runs["diverged_round"].values == 0))


def without_diverged(runs: xr.Dataset) -> xr.Dataset:
    """Removes diverged runs; where all have diverged, removes evaluations from the first divergence on."""
    kept = finite_runs(runs)
    if kept.sizes["run"]:
        return kept
    broken = ~np.isfinite(runs["test_loss"].values).all(axis=0)
    return runs.isel(eval=slice(0, int(np.argmax(broken)) if broken.any() else None))


def evaluation_times(runs: xr.Dataset) -> np.ndarray:
    """Simulated time of each evaluation, [runs, eval], s."""
    return runs["elapsed"].values[:, runs["eval_round"].values - 1]


def accuracy_at(runs: xr.Dataset, time: float) -> np.ndarray:
    """Each run's latest test accuracy at a simulated time, [runs]; NaN before its first evaluation."""
    times = evaluation_times(runs)
    last = (times <= time).sum(axis=1) - 1
    accuracy = np.take_along_axis(runs["test_accuracy"].values, np.maximum(last, 0)[:, None], axis=1)[:, 0]
    return np.where(last >= 0, accuracy, np.nan)
