"""Your own latency law: some latencies are very long, as in measured networks."""

import jax
import jax.numpy as jnp

import pausejax
from pausejax.network import Law


@pausejax.latency
def heavy_tail(
    *,
    num_clients: int,
    min_latency: float,
    tail_index: float = pausejax.Parameter(
        2.0, "shape of Pareto's law; the smaller, the longer the longest latencies", low=1, low_open=True
    ),
) -> Law:
    """Pareto's law.

    The latency of client k, counted from 0, is at least (k + 1) times the minimum latency.
    """
    fastest = min_latency * jnp.arange(1, num_clients + 1, dtype=jnp.float32)

    def sample(key: jax.Array) -> jax.Array:
        # 1 - u lies in (0, 1]
        return fastest * (1 - jax.random.uniform(key, (num_clients,))) ** (-1 / tail_index)

    return Law(sample)
