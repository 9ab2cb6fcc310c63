"""Settings that a search has tried, and what they have come to."""

from typing import Any, NamedTuple

import numpy as np

from pausejax.searches.goal import Score
from pausejax.searches.space import Setting


class Trial(NamedTuple):
    """A setting that was tried."""

    number: int
    setting: Setting
    score: Score
    figures: np.ndarray
    """Its seeds' figures at the horizon, float64 [seeds, figures]."""
    rounds: int
    """That its runs have played, summed over them."""
    short: bool
    """Whether some of its runs played all their rounds before the simulated time of the comparison."""


class Row(NamedTuple):
    """A trial as plain data."""

    number: int
    policy: str
    values: dict[str, Any]
    """Of what the search chose; parameters of other policies are left out."""
    rounds: int
    """That its runs have played, summed over them."""
    figures: dict[str, float | None]
    """At the horizon, averaged over its seeds; None where one has no value."""
    broken: bool
    """Whether it breaks a constraint."""
