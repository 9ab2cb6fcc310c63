"""Fastest in expectation: a baseline that knows only the latency law (PAUSE paper, §V-A)."""

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Policy, View, cohort, first_of, memoryless


@parts.policy
def fastest(*, clients_per_round: int) -> Policy:
    """Selects the m clients with the smallest expected latency; ties go to the lowest index."""

    def select(key: jax.Array, state: Clients, view: View) -> Cohort:
        order = jnp.argsort(state.expected_latency, stable=True)
        return cohort(first_of(order, clients_per_round, view.available), state.data_share)

    return memoryless(select)
