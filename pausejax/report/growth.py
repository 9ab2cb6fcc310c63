"""By which law a cumulative quantity grows: the data choose among three."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Growth(NamedTuple):
    """The law that fits a curve best."""

    law: str
    """In words, fitted numbers in it where they mean something."""
    rounds: np.ndarray
    """Those that it was fitted on."""
    fitted: np.ndarray
    error: float
    """Root mean square of the relative error."""


_POINTS = 60
# With fewer rounds nothing tells the laws apart.
_ROUNDS = 1000


def growth(rounds: np.ndarray, mean: np.ndarray) -> Growth | None:
    """Fits a + b log n, a + b √n and c n^p over the last decade of rounds, and keeps the best.

    Each has two numbers to fit, and rounds evenly spread over log n count by their relative error, so that
    the smallest error is a fair choice. The others may be close: it describes the rounds it saw, no more.

    Args:
      rounds: [n], ascending, from 1.
      mean: [n], cumulative; NaN where no run was.

    Returns:
      The best law; None with fewer than 1,000 rounds, or for a curve that is not positive and growing there.
    """
    there = np.isfinite(mean)
    rounds, mean = rounds[there], mean[there]
    if not rounds.size or rounds[-1] < _ROUNDS:
        return None
    places = np.searchsorted(rounds, np.geomspace(rounds[-1] / 10, rounds[-1], _POINTS).round())
    n, value = rounds[np.unique(places)].astype(np.float64), mean[np.unique(places)].astype(np.float64)
    if value[0] <= 0 or value[-1] <= value[0]:
        return None
    found = [
        _linear("a + b log n", n, value, np.log),
        _linear("a + b √n", n, value, np.sqrt),
        _power(n, value),
    ]
    return min(found, key=lambda one: one.error)


def _linear(law: str, n: np.ndarray, value: np.ndarray, shape: Callable[[np.ndarray], np.ndarray]) -> Growth:
    slope, level = np.polyfit(shape(n), value, 1, w=1 / value)
    return _fit(law, n, value, level + slope * shape(n))


def _power(n: np.ndarray, value: np.ndarray) -> Growth:
    exponent, level = np.polyfit(np.log(n), np.log(value), 1)
    return _fit(f"∝ n^{exponent:.2f}", n, value, np.exp(level + exponent * np.log(n)))


def _fit(law: str, n: np.ndarray, value: np.ndarray, fitted: np.ndarray) -> Growth:
    return Growth(law, n, fitted, float(np.sqrt(np.mean((fitted / value - 1) ** 2))))
