"""Computes confidence intervals of the means of many samples; missing values are left out."""

from typing import NamedTuple

import numpy as np
import pandas as pd


class Interval(NamedTuple):
    """Means with their intervals.

    A mean without values is NaN. An interval of fewer than two values is NaN.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray
    """Number of values of each mean."""


def interval(samples: np.ndarray, seeds: np.ndarray | None = None, *, level: float = 0.95) -> Interval:
    """Computes means and Student's t intervals over the last axis.

    Args:
      samples: the values, [..., runs]; NaN is left out.
      seeds: seed of each run, [runs]. Runs with the same seed are averaged first. None: all runs are
        independent.
      level: coverage of the intervals, between 0 and 1.
    """
    rows = np.moveaxis(np.asarray(samples), -1, 0)
    if not len(rows):
        nothing = np.full(rows.shape[1:], np.nan)
        return Interval(nothing, nothing, nothing, np.zeros(nothing.shape, int))
    together = np.zeros(len(rows), int)
    seeds = None if seeds is None or len(np.unique(seeds)) == len(seeds) else seeds
    return Interval(*(part[0] for part in group_intervals(rows, together, seeds, level=level)))


def group_intervals(
    values: np.ndarray, groups: np.ndarray, seeds: np.ndarray | None = None, *, level: float = 0.95
) -> Interval:
    """Computes means and Student's t intervals of groups of runs, [groups, ...].

    The bootstrap is not used, because its coverage with few seeds is too small. With 3 seeds, its nominal 95
    % interval contains the true mean in about 75 % of cases.

    Args:
      values: values of the runs, [runs, ...]; NaN is left out.
      groups: group of each run, int [runs]; groups are numbered from 0 without gaps.
      seeds: seed of each run, [runs]. Runs of a group with the same seed are averaged first, because they are
        not independent. None: all runs are independent.
      level: coverage of the intervals, between 0 and 1.

    Raises:
      ValueError: the level is out of range.
    """
    from scipy import special  # not scipy.stats, which takes a second to load

    if not 0 < level < 1:
        raise ValueError(f"level = {level}: must be > 0 and < 1")
    shape = values.shape[1:]
    flat = pd.DataFrame(values.reshape(len(values), int(np.prod(shape))).astype(np.float64))
    if seeds is not None:
        flat = flat.groupby([groups, seeds]).mean()
        groups = flat.index.get_level_values(0).to_numpy()
    each = flat.groupby(groups)
    mean, variance, counts = (
        part.to_numpy().reshape(len(part), *shape) for part in (each.mean(), each.var(), each.count())
    )
    with np.errstate(invalid="ignore"):
        freedom = np.where(counts > 1, counts - 1, np.nan)
        half_width = special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance / np.maximum(counts, 1))
        half_width = np.where(np.isfinite(mean), half_width, np.nan)
        return Interval(mean, mean - half_width, mean + half_width, counts)
