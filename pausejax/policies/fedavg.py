"""FedAvg with full participation (McMahan et al. 2017)."""

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Policy, View, cohort, first_of, memoryless


@parts.policy
def fedavg(*, num_clients: int) -> Policy:
    """Selects all available clients in every round, with weights in proportion to their data."""

    def select(key: jax.Array, state: Clients, view: View) -> Cohort:
        everyone = jnp.arange(num_clients, dtype=jnp.int32)
        return cohort(first_of(everyone, num_clients, view.available), state.data_share)

    return memoryless(select)
