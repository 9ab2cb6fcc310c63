"""FedCS: selection under a deadline by a server that knows the latencies (Nishio and Yonetani 2019)."""

from typing import Annotated

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.parts import Parameter
from pausejax.policies.base import Clients, Cohort, Policy, View, cohort, first_of, memoryless
from pausejax.policies.candidates import NUM_CANDIDATES, NumCandidates, number_asked


@parts.policy
def fedcs(
    *,
    num_clients: int,
    clients_per_round: int,
    deadline: Annotated[
        jax.Array | float,
        Parameter(help="FedCS: longest duration of a round, seconds", low=0, low_open=True, units="s"),
    ] = 1.0,
    num_candidates: NumCandidates = NUM_CANDIDATES,
) -> Policy:
    """Selects the fastest m of random candidates that would meet the deadline.

    Candidates are available clients. The fastest candidate is selected even if it misses the deadline. The
    paper states a greedy rule for sequential uploads. In this package uploads are parallel, and then the
    greedy rule selects the same clients as this policy.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m.
      deadline: the longest duration of a round, seconds.
      num_candidates: the number of random candidates, from m to K; 0 means all K.

    Raises:
      ValueError: num_candidates is out of its range.
    """
    asked = number_asked(num_candidates, num_clients, clients_per_round, num_clients)

    def select(key: jax.Array, state: Clients, view: View) -> Cohort:
        candidates = first_of(jax.random.permutation(key, num_clients), asked, view.available)
        latency = view.latency[candidates]
        if view.available is not None:
            latency = jnp.where(candidates >= 0, latency, jnp.inf)
        fastest = jnp.argsort(latency, stable=True)[:clients_per_round]
        in_time = (latency[fastest] <= deadline) | (jnp.arange(clients_per_round) == 0)
        return cohort(jnp.where(in_time, candidates[fastest], -1), state.data_share)

    return memoryless(select)
