"""A latency law of one's own: a round is now and then very long, as measured networks have it."""

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
        2.0, "the smaller, the longer the stragglers", low=1, low_open=True
    ),
) -> Law:
    """Pareto's law; the k-th client is never faster than (k + 1) minimum latencies."""
    fastest = min_latency * jnp.arange(1, num_clients + 1, dtype=jnp.float32)

    def sample(key: jax.Array) -> jax.Array:
        # 1 - u lies in (0, 1]
        return fastest * (1 - jax.random.uniform(key, (num_clients,))) ** (-1 / tail_index)

    return Law(sample)
