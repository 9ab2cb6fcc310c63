"""CS-UCB: client scheduling by upper confidence bounds on speed (Xia, Quek, Guo, Wen, Yang, Zhu 2020)."""

import jax
import jax.numpy as jnp

from pausejax import bandit, parts
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, first_of
from pausejax.policies.pause import PauseState


@parts.policy
def cs_ucb(
    *, num_clients: int, clients_per_round: int, clock: bandit.TermsClock = bandit.Objective.clock
) -> Policy:
    """Selects the m clients with the largest μ̄_k + sqrt((m + 1) log(t) / T_k); ties go to the lowest index.

    The policy is the paper's version for i.i.d. balanced data. The reward is τ_min / τ_k, as everywhere in
    this package. This set maximizes both the sum and the minimum of the bounds.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m.
      clock: "paper" scores round t with log(t - 1), "reference" with log(t).

    Raises:
      ValueError: the clock is unknown.
    """
    bandit.check_clock(clock)

    def init(key: jax.Array, clients: Clients) -> PauseState:
        return PauseState(bandit.init(num_clients), clients.data_share)

    def select(key: jax.Array, state: PauseState, view: View) -> Cohort:
        time = bandit.time_of_terms(view.round, clock)
        ucb = bandit.ucb(state.bandit.mean_reward, state.bandit.counts, time, clients_per_round)
        order = jnp.argsort(-ucb, stable=True)
        return cohort(first_of(order, clients_per_round, view.available), state.data_share)

    def update(state: PauseState, view: View, feedback: Feedback) -> PauseState:
        return state._replace(bandit=bandit.update(state.bandit, feedback.members, feedback.reward))

    return Policy(init, select, update)
