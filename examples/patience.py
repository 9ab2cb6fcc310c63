"""Your own ending: the server waits for a share of the cohort, and then for a fixed time."""

import jax.numpy as jnp

import pausejax
from pausejax.network import Close, Ending, Work


@pausejax.ending
def patience(
    *,
    waited_share: float = pausejax.Parameter(
        0.5, "share of the cohort for which the server waits", low=0, high=1
    ),
    grace: float = pausejax.Parameter(
        0.5, "time that the other clients have after this share has delivered, seconds", low=0, units="s"
    ),
) -> Ending:
    """The round ends `grace` seconds after a share of the cohort has delivered, or when all clients have."""

    def close(work: Work) -> Close:
        there = work.client >= 0
        delivers = there & ~work.fails
        arrivals = jnp.sort(jnp.where(delivers, work.latency, jnp.inf))
        needed = jnp.ceil(waited_share * jnp.sum(there, dtype=jnp.float32)).astype(jnp.int32)
        waited = jnp.where(needed > 0, arrivals[jnp.maximum(needed - 1, 0)], 0.0)
        slowest = jnp.max(jnp.where(there, work.latency, 0.0))
        duration = jnp.minimum(waited + grace, slowest)
        return Close(duration, delivers & (work.latency <= duration))

    return Ending(close)
