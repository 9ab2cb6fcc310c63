"""Uniform random selection (McMahan et al. 2017)."""

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Policy, View, cohort, memoryless


@parts.policy
def random(*, num_clients: int, clients_per_round: int) -> Policy:
    """Draws m of the K clients uniformly without replacement, anew each round."""

    def select(key: jax.Array, state: Clients, view: View) -> Cohort:
        drawn = jax.random.permutation(key, num_clients)[:clients_per_round]
        return cohort(jnp.sort(drawn).astype(jnp.int32), state.data_share)

    return memoryless(select)
