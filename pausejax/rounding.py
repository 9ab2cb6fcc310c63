"""float32 arithmetic whose rounding depends on the numbers alone, not on the code or the runs beside it."""

import jax
import jax.numpy as jnp
import numpy as np


def rounded(product: jax.Array | np.ndarray) -> jax.Array:
    """The product itself, rounded to float32 before anything is added to it; -inf becomes the least float32.

    Compilers turn x * y + z into one operation that rounds once, or don't, as the code around it falls: what
    a client is worth would then depend on how many runs lie side by side. They can't reach through a maximum.
    """
    return jnp.maximum(product, jnp.finfo(jnp.float32).min)


def tree_sum(x: jax.Array) -> jax.Array:
    """Sums over the first axis by halving it, always in the same way.

    In a fixed order of additions rounding is monotone: raising an entry never lowers the sum. `jnp.sum`
    promises no order.
    """
    while x.shape[0] > 1:
        half = (x.shape[0] + 1) // 2
        upper = x[half:]
        if x.shape[0] % 2:
            upper = jnp.concatenate([upper, jnp.zeros((1, *x.shape[1:]), x.dtype)])
        x = x[:half] + upper
    return x[0]
