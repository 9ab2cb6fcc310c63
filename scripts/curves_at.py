"""Holds helpers of several scripts: accuracy at a simulated time, means in tables, lines with points."""

import dataclasses

import numpy as np
import xarray as xr

from pausejax.analysis import intervals
from pausejax.plotting.data import Series


def accuracy_at(runs: xr.Dataset, time: float) -> np.ndarray:
    """Returns each run's latest test accuracy at a simulated time, [runs]; NaN before the first
    evaluation."""
    times = runs["elapsed"].values[:, runs["eval_round"].values - 1]
    last = (times <= time).sum(axis=1) - 1
    accuracy = np.take_along_axis(runs["test_accuracy"].values, np.maximum(last, 0)[:, None], axis=1)[:, 0]
    return np.where(last >= 0, accuracy, np.nan)


def plus_minus(samples: np.ndarray, mean: str = ".1f", half_width: str = ".1f") -> str:
    """Formats a mean over seeds with the half-width of its 95 % t interval; one seed has no interval."""
    found = intervals.interval(samples)
    half = f" ± {found.high - found.mean:{half_width}}" if len(samples) > 1 else ""
    return f"{found.mean:{mean}}{half}"


def marked(line: Series) -> tuple[Series, Series]:
    """Returns a line without its band, and its points with intervals as bars."""
    return dataclasses.replace(line, low=None, high=None), dataclasses.replace(line, label="", mark="point")
