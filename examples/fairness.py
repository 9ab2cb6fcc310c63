"""Your own quantities, which are recorded in every round and are variables of the result."""

import jax
import jax.numpy as jnp

import pausejax
from pausejax.clients.quantities import Snapshot


@pausejax.quantity(maximize=True, label="Jain's index")
def jain_index(seen: Snapshot) -> jax.Array:
    """Fairness of participation so far (Jain et al. 1984).

    The index is 1 if all clients took part equally often, and 1/K if only one client took part.
    """
    counts = seen.counts.astype(jnp.float32)
    return jnp.square(jnp.sum(counts)) / (counts.size * jnp.sum(jnp.square(counts)))


@pausejax.quantity(units="s", reduce="mean", maximize=False)
def waiting_time(seen: Snapshot) -> jax.Array:
    """Mean time in seconds for which the members of a round wait for the slowest member."""
    latency = jnp.where(seen.members >= 0, seen.latency[seen.members], -jnp.inf)
    there = jnp.isfinite(latency)
    waits = jnp.where(there, jnp.max(latency) - latency, 0.0)
    return jnp.sum(waits) / jnp.maximum(jnp.sum(there), 1).astype(jnp.float32)
