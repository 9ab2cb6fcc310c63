"""Confidence intervals of means, many samples at a time, missing values left out."""

from typing import Literal, NamedTuple, get_args

import numpy as np

Method = Literal["t", "bootstrap", "percentile"]
METHODS: tuple[str, ...] = get_args(Method)

# Resampled values that are held at a time.
_RESAMPLED = 10_000_000


class Interval(NamedTuple):
    """Means with their intervals; NaN where there is nothing, or too little, to go by."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray
    """How many values each mean is over."""


def interval(
    samples: np.ndarray,
    *,
    method: Method = "t",
    level: float = 0.95,
    resamples: int = 9999,
    random_seed: int = 0,
) -> Interval:
    """Mean and confidence interval over the last axis.

    Args:
      samples: [..., n]; NaN is left out.
      method: "t": Student's; "bootstrap": bias-corrected and accelerated (BCa, Efron 1987); "percentile":
        the plain bootstrap.
      level: coverage, between 0 and 1.
      resamples: of the bootstrap.
      random_seed: of the bootstrap; the same resampling serves every sample of one size.

    Raises:
      ValueError: an unknown method, or a level or count out of range.
    """
    if method not in METHODS:
        raise ValueError(f"method = {method!r}: must be one of {', '.join(METHODS)}")
    if not 0 < level < 1:
        raise ValueError(f"level = {level}: must be between 0 and 1")
    if resamples < 1:
        raise ValueError(f"resamples = {resamples}: must be >= 1")
    samples = np.asarray(samples, np.float64)
    present = ~np.isnan(samples)
    count = present.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        mean = np.where(present, samples, 0).sum(axis=-1) / np.where(count > 0, count, np.nan)
        if method == "t":
            return Interval(mean, *_student(samples, mean, count, level), count)
    low, high = np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    for size in np.unique(count[count >= 2]):
        places = np.nonzero(count == size)
        # NaN sorts last, and the order within a sample is of no account.
        rows = np.sort(samples[places], axis=-1)[:, :size]
        low[places], high[places] = _bootstrap(rows, method, level, resamples, random_seed)
    return Interval(mean, low, high, count)


def student_half_width(variance: np.ndarray, count: np.ndarray | int, level: float = 0.95) -> np.ndarray:
    """Half-width of Student's t interval of means over `count` values; NaN with fewer than two."""
    from scipy import special  # not scipy.stats, which takes a second to load

    freedom = np.where(np.asarray(count) > 1, np.asarray(count) - 1, np.nan)
    return special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance / np.maximum(count, 1))


def _student(
    samples: np.ndarray, mean: np.ndarray, count: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    freedom = np.where(count > 1, count - 1, np.nan)
    variance = np.nansum((samples - mean[..., None]) ** 2, axis=-1) / freedom
    half_width = student_half_width(variance, count, level)
    half_width = np.where(np.isfinite(mean), half_width, np.nan)
    return mean - half_width, mean + half_width


def _bootstrap(
    rows: np.ndarray, method: str, level: float, resamples: int, random_seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds for rows [r, n] without NaN."""
    from scipy import stats

    low, high = rows.mean(axis=1), rows.mean(axis=1)
    # BCa divides by the spread; a sample that has none is its own interval. An infinite one has none at all.
    varied = np.flatnonzero(np.isfinite(rows).all(axis=1) & (rows[:, 0] < rows[:, -1]))
    infinite = ~np.isfinite(rows).all(axis=1)
    low[infinite] = high[infinite] = np.nan
    step = max(_RESAMPLED // (rows.shape[1] * resamples), 1)
    for first in range(0, len(varied), step):
        block = varied[first : first + step]
        found = stats.bootstrap(
            (rows[block],),
            np.mean,
            axis=-1,
            vectorized=True,
            confidence_level=level,
            n_resamples=resamples,
            method="BCa" if method == "bootstrap" else "percentile",
            rng=np.random.default_rng(random_seed),
        ).confidence_interval
        low[block], high[block] = found
    return low, high
