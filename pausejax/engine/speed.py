"""How fast the devices are, roughly: what a plan's rough times go by."""

import time

import jax
import jax.numpy as jnp


def matrix_product_rate(size: int = 768) -> float:
    """FLOP/s of a float32 matrix product on the default device, at its fastest of five times."""
    matrix = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        taken.append(time.perf_counter() - begun)
    return 2 * size**3 / min(taken)
