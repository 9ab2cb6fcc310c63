"""A statistical lower bound on the ε of any mechanism, computed from samples of its releases."""

import numpy as np
from scipy import stats

_CANDIDATES = 200


def epsilon_lower_bound(scores: np.ndarray, neighbour_scores: np.ndarray, confidence: float = 0.999) -> float:
    """Estimates a lower bound of ε from the scores of releases of two inputs.

    An ε-private release has P[score >= s] <= e^ε P[score' >= s] for every threshold s and every score. The
    threshold is chosen on the first half of the samples. The bound is computed from the second half by
    Clopper-Pearson intervals. With probability `confidence`, the true ε is not below the bound.

    Args:
      scores: [n], scores of releases of one input. The log-likelihood ratio of the two inputs gives the
        largest bound.
      neighbour_scores: [n'], scores of releases of the other input, computed by the same function.
      confidence: the confidence of the bound, in (0, 1).

    Returns:
      A lower bound of ε, at least 0.

    Raises:
      ValueError: confidence is not in (0, 1), or there are fewer than two samples of either input.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: must be > 0 and < 1, not {confidence}")
    if min(len(scores), len(neighbour_scores)) < 2:
        raise ValueError(
            f"scores, neighbour_scores: must have 2 samples or more each, not {len(scores)} and "
            f"{len(neighbour_scores)}"
        )
    choosing, testing = np.array_split(np.asarray(scores, np.float64), 2)
    other_choosing, other_testing = np.array_split(np.asarray(neighbour_scores, np.float64), 2)
    # Many releases can have the same score up to rounding, so thresholds lie a little below the samples.
    spread = np.ptp(choosing)
    thresholds = np.quantile(choosing, np.linspace(0, 1, _CANDIDATES)) - 1e-4 * spread
    best = thresholds[np.argmax(_bounds(choosing, other_choosing, thresholds, confidence))]
    return float(_bounds(testing, other_testing, np.array([best]), confidence)[0])


def _bounds(
    scores: np.ndarray, neighbour_scores: np.ndarray, thresholds: np.ndarray, confidence: float
) -> np.ndarray:
    """Returns the lower bound on ε at each threshold s, at least 0: ln(P[score >= s] / P[score' >= s]).

    The numerator is replaced by the lower end of its confidence interval, the denominator by the upper end.
    """
    hits, other_hits = (
        len(sample) - np.searchsorted(np.sort(sample), thresholds) for sample in (scores, neighbour_scores)
    )
    misses, other_misses = len(scores) - hits, len(neighbour_scores) - other_hits
    doubt = (1 - confidence) / 2
    # If all samples agree, the interval is one-sided, because beta laws need positive parameters.
    least = np.where(hits > 0, stats.beta.ppf(doubt, np.maximum(hits, 1), misses + 1), 0.0)
    most = np.where(
        other_misses > 0, stats.beta.ppf(1 - doubt, other_hits + 1, np.maximum(other_misses, 1)), 1.0
    )
    return np.log(np.maximum(least / most, 1.0))
