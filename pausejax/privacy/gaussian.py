"""Exact (ε, δ)-privacy of releases with Gaussian noise, on the host, in float64."""

import numpy as np
from scipy.special import log_ndtr

_BISECTIONS = 80


def gaussian_epsilon(releases: np.ndarray, noise_multiplier: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Computes ε of T Gaussian releases of one client at a given δ.

    T releases with noise multiplier σ are as private as one release with σ/√T. The (ε, δ) of one release is
    known in closed form (Balle and Wang 2018, Theorem 8). Amplification by sampling is not included.

    Args:
      releases: T >= 0, int.
      noise_multiplier: σ of the noise over the sensitivity, > 0; broadcasts against the other arguments.
      delta: δ, in (0, 1).

    Returns:
      float32 of the broadcast shape; 0 where T = 0.
    """
    both = np.stack(np.broadcast_arrays(noise_multiplier, delta), axis=-1).astype(np.float64)
    # A study has few distinct combinations of releases and mechanism. Each combination is computed once.
    mechanisms, of_run = np.unique(both.reshape(-1, 2), axis=0, return_inverse=True)
    counts, of_round = np.unique(releases, return_inverse=True)
    table = _epsilon(counts[None, :].astype(np.float64), mechanisms[:, :1], mechanisms[:, 1:])
    return table[of_run.reshape(both.shape[:-1]), of_round.reshape(np.shape(releases))].astype(np.float32)


def _epsilon(releases: np.ndarray, noise_multiplier: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Returns ε of a number of Gaussian releases at δ by bisection, in float64; the arguments are
    broadcast."""
    some = np.maximum(releases, 1)
    spread = noise_multiplier / np.sqrt(some)
    # Concentrated differential privacy bounds ε from above: ρ + 2 √(ρ ln 1/δ), ρ = 1 / 2σ².
    rho = 1 / (2 * spread**2)
    low, high = np.zeros_like(rho), rho + 2 * np.sqrt(rho * np.log(1 / delta))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        private = _log_delta(middle, spread) <= np.log(delta)
        low, high = np.where(private, low, middle), np.where(private, middle, high)
    return np.where(releases > 0, high, 0.0)


def _log_delta(epsilon: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Computes ln δ of one Gaussian release at ε: δ = Φ(1/2σ - εσ) - e^ε Φ(-1/2σ - εσ), σ = `spread`."""
    near = log_ndtr(1 / (2 * spread) - epsilon * spread)
    far = epsilon + log_ndtr(-1 / (2 * spread) - epsilon * spread)
    with np.errstate(divide="ignore"):
        return near + np.log(-np.expm1(np.minimum(far - near, 0.0)))
