"""Your own availability process: clients around the globe, each available during a part of its day."""

import jax
import jax.numpy as jnp

import pausejax
from pausejax.network import Availability


@pausejax.availability
def time_zones(
    *,
    num_clients: int,
    rounds_per_day: int = pausejax.Parameter(24, "number of rounds in a day", low=1),
    awake: float = pausejax.Parameter(0.4, "share of its day in which a client is available", low=0, high=1),
) -> Availability:
    """The day of client k begins k/K of a day after the day of client 0."""
    zone = jnp.arange(num_clients, dtype=jnp.float32) / num_clients

    def step(key: jax.Array, state: tuple[()], round: jax.Array) -> tuple[tuple[()], jax.Array]:
        hour = (round % rounds_per_day).astype(jnp.float32) / rounds_per_day
        return state, (hour - zone) % 1.0 < awake

    return Availability(lambda key: (), step)
