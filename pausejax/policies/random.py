"""Uniform random selection (McMahan et al. 2017)."""

import jax

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Policy, View, cohort, first_of, memoryless


@parts.policy
def random(*, num_clients: int, clients_per_round: int) -> Policy:
    """Draws m of the available clients uniformly without replacement, in every round."""

    def select(key: jax.Array, state: Clients, view: View) -> Cohort:
        shuffled = jax.random.permutation(key, num_clients)
        return cohort(first_of(shuffled, clients_per_round, view.available), state.data_share)

    return memoryless(select)
