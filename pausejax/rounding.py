"""Rounds float32 results independently of the surrounding code, and compares sums of rounded durations."""

import jax
import jax.numpy as jnp
import numpy as np


def rounded(product: jax.Array | np.ndarray) -> jax.Array:
    """Returns a product rounded to float32 before anything is added to it; -inf becomes the least float32.

    Depending on the surrounding code, a compiler may fuse x * y + z into one operation that rounds once. The
    value of a client would then depend on the number of runs in parallel. The maximum with the least float32
    prevents the fusion.
    """
    return jnp.maximum(product, jnp.finfo(jnp.float32).min)


def tree_sum(x: jax.Array) -> jax.Array:
    """Sums x, [n, ...] -> [...], by halving the first axis repeatedly, always in the same order.

    In a fixed order of additions, rounding is monotone: raising an entry never lowers the sum. `jnp.sum`
    guarantees no order.
    """
    while x.shape[0] > 1:
        half = (x.shape[0] + 1) // 2
        upper = x[half:]
        if x.shape[0] % 2:
            upper = jnp.concatenate([upper, jnp.zeros((1, *x.shape[1:]), x.dtype)])
        x = x[:half] + upper
    return x[0]


SPACING = 2.0**-22
"""Twice the relative spacing of float32. A stored mean, or a stored sum of durations, has no larger error."""


def reaches(elapsed: np.ndarray, limit: float) -> np.ndarray:
    """Returns whether simulated times are `limit` or more, up to the rounding of durations to float32.

    Ten rounds of 0.7 s last 6.9999999 s, because 0.7 is rounded; they reach 7 s. NaN reaches nothing.
    """
    return np.asarray(elapsed, np.float64) >= limit * (1 - SPACING)


def within(values: np.ndarray, limit: float | np.ndarray) -> np.ndarray:
    """Returns whether simulated times or leakages are `limit` or less, up to their rounding to float32.

    Nine rounds of 0.1 s last 0.90000001 s, which is within 0.9 s. NaN is within no limit.
    """
    return np.asarray(values, np.float64) <= np.asarray(limit, np.float64) * (1 + SPACING)
