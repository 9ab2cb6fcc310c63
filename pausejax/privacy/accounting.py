"""Computes the leakage of one client's releases in pure ε, (ε, δ) and Rényi differential privacy.

A release is a Laplace mechanism with noise multiplier 1/ε_i. With coordinate clipping, a release is one such
mechanism for each coordinate. All numbers are on the host, in float64.
"""

from typing import Literal, get_args

import numpy as np

from pausejax.privacy.mechanism import Clip, check_clip

Method = Literal["renyi", "pld"]
METHODS: tuple[str, ...] = get_args(Method)
_TINY = 1e-100


def pure_epsilon(
    participations: int,
    privacy_budget: float,
    budget_decay: float,
    *,
    num_parameters: int = 1,
    clip: Clip = "coordinate",
) -> float:
    """Computes ε of a client's T whole updates: the sum of its ε_i, times d if coordinates are clipped.

    Args:
      participations: T >= 0.
      privacy_budget: ε̄ > 0.
      budget_decay: η > 0.
      num_parameters: d, the number of coordinates of an update.
      clip: "coordinate" composes the d coordinates; "vector" counts an update as one release.

    Raises:
      ValueError: an argument is out of its range.
    """
    spent = _schedule(participations, privacy_budget, budget_decay)
    return float(spent.sum()) * _copies(num_parameters, clip)


def renyi_epsilon(
    participations: int,
    privacy_budget: float,
    budget_decay: float,
    *,
    order: float,
    num_parameters: int = 1,
    clip: Clip = "coordinate",
) -> float:
    """Computes the Rényi divergence bound of a client's releases at one order (Mironov 2017, proposition 6).

    Args:
      participations: T >= 0.
      privacy_budget: ε̄ > 0.
      budget_decay: η > 0.
      order: the order, above 1.
      num_parameters: d, the number of coordinates of an update.
      clip: "coordinate" composes the d coordinates; "vector" counts an update as one release.

    Raises:
      ValueError: an argument is out of its range.
    """
    if not 1 < order < np.inf:
        raise ValueError(f"order: must be > 1 and finite, not {order}")
    spent = _schedule(participations, privacy_budget, budget_decay)
    share, gain = (order - 1) / (2 * order - 1), (order - 1) * spent
    # Both are log((1 - share) e^gain + share e^{-order ε}). Near order 1 the first one loses no digits.
    small = np.log1p((1 - share) * np.expm1(np.minimum(gain, 1)) + share * np.expm1(-order * spent))
    large = np.logaddexp(np.log(1 - share) + gain, np.log(share) - order * spent)
    # Rounding can make a tiny divergence negative.
    divergence = np.maximum(np.where(gain < 1, small, large), 0.0)
    return float(divergence.sum() / (order - 1)) * _copies(num_parameters, clip)


def approximate_epsilon(
    participations: int,
    privacy_budget: float,
    budget_decay: float,
    *,
    delta: float,
    num_parameters: int = 1,
    clip: Clip = "coordinate",
    method: Method = "renyi",
) -> float:
    """Computes ε of the (ε, δ)-privacy of a client's releases with `dp-accounting`.

    The result is at most the pure ε.

    Args:
      participations: T >= 0.
      privacy_budget: ε̄ > 0.
      budget_decay: η > 0.
      delta: δ, in (0, 1).
      num_parameters: d, the number of coordinates of an update.
      clip: "coordinate" composes the d coordinates; "vector" counts an update as one release.
      method: "renyi" is fast at any d; "pld" (privacy loss distributions) is tighter, and takes a minute for
        some thousand coordinates.

    Raises:
      ValueError: an argument is out of its range.
      ModuleNotFoundError: `dp-accounting` is not installed.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta: must be > 0 and < 1, not {delta}")
    if method not in METHODS:
        raise ValueError(f"method: must be one of {', '.join(METHODS)}, not {method!r}")
    spent = _schedule(participations, privacy_budget, budget_decay)
    copies = _copies(num_parameters, clip)
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "(ε, δ) accounting needs dp-accounting. Install it: pip install 'pausejax[accounting]'"
        ) from error
    accountant = RdpAccountant() if method == "renyi" else PLDAccountant()
    # The noise of the last releases may be too large for a float. Such releases are composed by addition.
    tiny = spent < _TINY
    for epsilon in spent[~tiny]:
        accountant.compose(dp_accounting.LaplaceDpEvent(1 / epsilon), copies)
    together = float(accountant.get_epsilon(delta)) + float(spent[tiny].sum()) * copies
    return min(float(spent.sum()) * copies, together)


def _schedule(participations: int, privacy_budget: float, budget_decay: float) -> np.ndarray:
    """Returns ε_i for each of a client's first T = `participations` participations, float64 [T]."""
    if participations < 0:
        raise ValueError(f"participations: must be >= 0, not {participations}")
    for name, value in (("privacy_budget", privacy_budget), ("budget_decay", budget_decay)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name}: must be positive and finite, not {value}")
    # (e^η - 1) e^{-ηi} = (1 - e^{-η}) e^{-η(i - 1)}, which does not overflow.
    return privacy_budget * -np.expm1(-budget_decay) * np.exp(-budget_decay * np.arange(participations))


def _copies(num_parameters: int, clip: Clip) -> int:
    """Returns the number of Laplace mechanisms, each with ε_i, of which one release consists."""
    if num_parameters < 1:
        raise ValueError(f"num_parameters: must be >= 1, not {num_parameters}")
    check_clip(clip)
    return num_parameters if clip == "coordinate" else 1
