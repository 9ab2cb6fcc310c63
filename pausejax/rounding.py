"""Rounds float32 results in a way that depends only on the operands, not on the code or on other runs."""

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
