"""Your own aggregator: the geometric median (Pillutla et al. 2022)."""

import jax
import jax.numpy as jnp

import pausejax
from pausejax.federated.aggregators import Aggregator


@pausejax.aggregator
def geometric_median(
    *,
    median_steps: int = pausejax.Parameter(8, "number of steps of Weiszfeld's algorithm", low=1, high=100),
    nearest: float = pausejax.Parameter(
        1e-6, "smaller distances are replaced by this distance", low=0, low_open=True
    ),
) -> Aggregator:
    """Returns the point with the smallest weighted sum of distances to all updates."""

    def combine(updates: jax.Array, weights: jax.Array) -> jax.Array:
        # A row of weight 0 may contain NaN, and 0 · NaN is NaN.
        updates = jnp.where((weights > 0)[:, None], updates, 0.0)

        def step(_: int, centre: jax.Array) -> jax.Array:
            distance = jnp.sqrt(jnp.sum((updates - centre[None]) ** 2, axis=1))
            near = weights / jnp.maximum(distance, nearest)
            return near @ updates / jnp.maximum(jnp.sum(near), 1e-30)

        return jax.lax.fori_loop(0, median_steps, step, weights @ updates)

    return Aggregator(combine)
