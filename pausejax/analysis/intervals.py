"""Confidence intervals of means, many samples at a time, missing values left out."""

from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """Means with their intervals; NaN where there is nothing, or too little, to go by."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray
    """How many values each mean is over."""


def interval(samples: np.ndarray, *, level: float = 0.95) -> Interval:
    """Computes the mean and Student's t interval over the last axis.

    Resampling a few seeds covers too rarely: at 3 seeds the nominal 95 % of the bootstrap are some 75 %.

    Args:
      samples: [..., n]; NaN is left out.
      level: coverage, between 0 and 1.

    Raises:
      ValueError: the level is out of range.
    """
    if not 0 < level < 1:
        raise ValueError(f"level = {level}: must be between 0 and 1")
    samples = np.asarray(samples, np.float64)
    present = ~np.isnan(samples)
    count = present.sum(axis=-1)
    freedom = np.where(count > 1, count - 1, np.nan)
    with np.errstate(invalid="ignore"):
        mean = np.where(present, samples, 0).sum(axis=-1) / np.where(count > 0, count, np.nan)
        variance = np.nansum((samples - mean[..., None]) ** 2, axis=-1) / freedom
        half_width = np.where(np.isfinite(mean), student_half_width(variance, count, level), np.nan)
        return Interval(mean, mean - half_width, mean + half_width, count)


def student_half_width(variance: np.ndarray, count: np.ndarray | int, level: float = 0.95) -> np.ndarray:
    """Half-width of Student's t interval of means over `count` values; NaN with fewer than two."""
    from scipy import special  # not scipy.stats, which takes a second to load

    freedom = np.where(np.asarray(count) > 1, np.asarray(count) - 1, np.nan)
    return special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance / np.maximum(count, 1))
