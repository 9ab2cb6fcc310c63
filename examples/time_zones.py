"""An availability process of one's own: clients around the globe, each there for a part of its day."""

import jax
import jax.numpy as jnp

import pausejax
from pausejax.network import Availability


@pausejax.availability
def time_zones(
    *,
    num_clients: int,
    rounds_per_day: int = pausejax.Parameter(24, "rounds in which the earth turns once", low=1),
    awake: float = pausejax.Parameter(0.4, "part of its day that a client is there", low=0, high=1),
) -> Availability:
    """Client k's day begins k/K of a day after that of client 0."""
    zone = jnp.arange(num_clients, dtype=jnp.float32) / num_clients

    def step(key: jax.Array, state: tuple[()], round: jax.Array) -> tuple[tuple[()], jax.Array]:
        hour = (round % rounds_per_day).astype(jnp.float32) / rounds_per_day
        return state, (hour - zone) % 1.0 < awake

    return Availability(lambda key: (), step)
