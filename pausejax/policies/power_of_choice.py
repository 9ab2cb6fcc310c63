"""Power-of-Choice: the candidates with the largest local loss (Cho, Wang, Joshi 2020)."""

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Policy, View, first_of, memoryless
from pausejax.policies.candidates import NUM_CANDIDATES, NumCandidates, number_asked


@parts.policy
def power_of_choice(
    *, num_clients: int, clients_per_round: int, num_candidates: NumCandidates = NUM_CANDIDATES
) -> Policy:
    """Draws candidates by data share without replacement and selects the m with the largest local losses.

    As in the paper, members have equal weights in the mean, because the draw already uses the data shares.
    The candidates' losses reach the server without noise, and the privacy ledger does not count them.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m.
      num_candidates: d in the paper, from m to K. 0 means 2m, but at most K.

    Raises:
      ValueError: num_candidates is out of its range.
    """
    twice = min(2 * clients_per_round, num_clients)
    asked = number_asked(num_candidates, twice, clients_per_round, num_clients)

    def select(key: jax.Array, state: Clients, view: View) -> Cohort:
        # Adding Gumbel noise to log-probabilities and sorting draws without replacement.
        race = jnp.log(state.data_share) + jax.random.gumbel(key, (num_clients,))
        candidates = first_of(jnp.argsort(-race), asked, view.available)
        loss = view.local_loss(jnp.maximum(candidates, 0))
        worst_first = candidates[jnp.argsort(-loss, stable=True)]
        members = first_of(worst_first, clients_per_round, view.available)
        if view.available is None:
            return Cohort(members, jnp.full(clients_per_round, 1 / clients_per_round, jnp.float32))
        there = (members >= 0).astype(jnp.float32)
        return Cohort(members, there / jnp.maximum(jnp.sum(there), 1))

    return memoryless(select)._replace(needs_learning=True)
