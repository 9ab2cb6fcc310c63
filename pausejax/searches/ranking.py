"""Ranks settings by their scores: by constraints first, then by a metric or by fronts of several."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pausejax.analysis.choice import non_dominated
from pausejax.searches.goal import Score


class _Ranks(NamedTuple):
    """What decides the order of scores, the strongest first, [n] each."""

    violation: np.ndarray
    lacking: np.ndarray
    """Whether a metric is NaN."""
    front: np.ndarray
    """The number of the front among the scores that `violation` and `lacking` do not separate, from 0."""
    alone: np.ndarray
    """The crowding distance within the front; 0 for a goal with one metric."""


def order(scores: Sequence[Score]) -> np.ndarray:
    """Returns the indices of scores in the order of their rank, the best first, int [n].

    1. Scores with a smaller violation of the constraints come first.
    2. Among equal violations, scores without NaN come first.
    3. With one metric, the better value comes first. With several metrics, the smaller number of the front
       comes first, and within a front the larger crowding distance. A front contains only scores that rules
       1 and 2 do not separate.
    4. Remaining ties keep the given order.
    """
    if not scores:
        return np.zeros(0, int)
    ranks = _ranks(scores)
    return np.lexsort((np.arange(len(scores)), -ranks.alone, ranks.front, ranks.lacking, ranks.violation))


def leading(scores: Sequence[Score]) -> np.ndarray:
    """Returns the indices of the scores on the first front in the order of their rank, int [f].

    For a goal with one metric, these are the best score and its equals.
    """
    places = order(scores)
    if not places.size:
        return places
    ranks = _ranks(scores)
    keys = np.stack([ranks.violation, ranks.lacking, ranks.front])
    return places[(keys[:, places] == keys[:, places[:1]]).all(axis=0)]


def _ranks(scores: Sequence[Score]) -> _Ranks:
    values = np.array([score.values for score in scores], np.float64)
    lacking = np.any(np.isnan(values), axis=1)
    values = np.where(np.isnan(values), -np.inf, values)
    violation = np.array([score.violation for score in scores], np.float64)
    violation = np.where(np.isnan(violation), np.inf, violation)
    front, alone = np.zeros(len(scores), int), np.zeros(len(scores))
    if values.shape[1] == 1:
        front = np.unique(-values[:, 0], return_inverse=True)[1].ravel()
        return _Ranks(violation, lacking, front, alone)
    _, rivals = np.unique(np.stack([violation, lacking]), axis=1, return_inverse=True)
    by_rivals = np.argsort(rivals.ravel(), kind="stable")
    for group in np.split(by_rivals, np.cumsum(np.bincount(rivals.ravel()))[:-1]):
        if len(group) > 1:
            front[group], alone[group] = fronts(values[group])
    return _Ranks(violation, lacking, front, alone)


def fronts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each point the number of its front, from 0, and its crowding distance in this front.

    Both are defined as in NSGA-II (Deb et al. 2002).

    Args:
      values: the points, [n, d], without NaN; more is better.
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
    distances = np.zeros(len(values))
    for column in np.where(np.isfinite(values), values, np.finfo(float).min / 4).T:
        along = np.argsort(column, kind="stable")
        gaps = np.zeros(len(values))
        gaps[along[[0, -1]]] = np.inf
        width = column[along[-1]] - column[along[0]]
        if width > 0:
            gaps[along[1:-1]] = (column[along[2:]] - column[along[:-2]]) / width
        distances = distances + gaps
    return distances
