"""Successive halving: who goes on at a rung, by what all who came there have shown.

The stopping rule of ASHA (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning") for
settings that arrive in batches: those of a batch are recorded together and then judged together, so that
no setting goes on because it came first.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pausejax.analysis.choice import non_dominated


class Shown(NamedTuple):
    """What a setting has shown at a rung, as means over its seeds."""

    values: tuple[float, ...]
    """Of the objectives, more is better; NaN is worst."""
    violation: float = 0.0
    """By how much it breaks the constraints, summed; 0: it keeps them."""


def order(shown: Sequence[Shown]) -> np.ndarray:
    """The places of some settings, best first; of equal ones the earlier comes first.

    Those that keep the constraints come before those that do not; among the former, fronts of
    non-dominated ones in their order, within a front those that are more alone first.
    """
    if not shown:
        return np.zeros(0, int)
    values = np.array([setting.values for setting in shown], np.float64)
    values = np.where(np.isnan(values), -np.inf, values)
    violation = np.array([setting.violation for setting in shown], np.float64)
    violation = np.where(np.isnan(violation), np.inf, violation)
    if values.shape[1] == 1:
        return np.lexsort((np.arange(len(shown)), -values[:, 0], violation))
    front, alone = fronts(values)
    return np.lexsort((np.arange(len(shown)), -alone, front, violation))


def fronts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each point's front, from 0, and its crowding distance there (Deb et al. 2002, NSGA-II).

    Args:
      values: [n, d], more is better, without NaN.
    """
    front, alone = np.full(len(values), -1), np.zeros(len(values))
    level = 0
    while (left := np.flatnonzero(front < 0)).size:
        best = left[non_dominated(values[left], [True] * values.shape[1])]
        front[best] = level
        alone[best] = _crowding(values[best])
        level += 1
    return front, alone


def _crowding(values: np.ndarray) -> np.ndarray:
    found = np.zeros(len(values))
    for column in np.where(np.isfinite(values), values, np.finfo(float).min / 4).T:
        along = np.argsort(column, kind="stable")
        gaps = np.zeros(len(values))
        gaps[along[[0, -1]]] = np.inf
        width = column[along[-1]] - column[along[0]]
        if width > 0:
            gaps[along[1:-1]] = (column[along[2:]] - column[along[:-2]]) / width
        found = found + gaps
    return found


class Halving:
    """What has been shown at each rung but the last, where everybody has arrived."""

    def __init__(self, rungs: int, reduction: float) -> None:
        """Of those at a rung one in `reduction` goes on, rounded up."""
        self._reduction = reduction
        self._shown: list[list[Shown]] = [[] for _ in range(rungs - 1)]

    def go_on(self, rung: int, arrived: Sequence[Shown]) -> list[bool]:
        """Records what a batch has shown at a rung, and says who of it goes on."""
        before = len(self._shown[rung])
        self._shown[rung] += arrived
        count = math.ceil(len(self._shown[rung]) / self._reduction)
        kept = set(order(self._shown[rung])[:count].tolist())
        return [before + place in kept for place in range(len(arrived))]
