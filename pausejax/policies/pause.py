"""PAUSE: the bandit that weighs latency, generalization and privacy (Peleg et al., Algorithm 1)."""

from typing import Annotated, Literal, NamedTuple, get_args

import jax

from pausejax import bandit, parts, selection
from pausejax.parts import Parameter
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, mask_of

Selector = Literal["exact", "brute"]
SELECTORS: tuple[str, ...] = get_args(Selector)


class PauseState(NamedTuple):
    bandit: bandit.BanditState
    data_share: jax.Array
    """float32 [K], |D_k| / |D|."""


@parts.policy
def pause(
    *,
    num_clients: int,
    clients_per_round: int,
    objective: bandit.Objective = bandit.Objective(),  # noqa: B008
    selector: Annotated[Selector, Parameter(help="method that finds the argmax of (14)")] = "exact",
) -> Policy:
    """Selects the argmax of (14) in every round.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m, at most K.
      objective: α, β, γ, ζ, η and the clock of (14).
      selector: "exact" (`best_set`) or "brute" (`brute_force`, small K only); both choose the same sets.

    Raises:
      ValueError: the clock or selector is unknown, clients_per_round is not in [1, num_clients], or an
        untraced number of the objective is out of its range.
    """
    if selector not in SELECTORS:
        raise ValueError(f"selector: must be one of {', '.join(SELECTORS)}, not {selector!r}")
    m = clients_per_round
    if not 1 <= m <= num_clients:
        raise ValueError(f"clients_per_round: must be from 1 to num_clients = {num_clients}, not {m}")
    objective.check()
    choose = selection.best_set if selector == "exact" else selection.brute_force

    def init(key: jax.Array, clients: Clients) -> PauseState:
        return PauseState(bandit.init(num_clients), clients.data_share)

    def select(key: jax.Array, state: PauseState, view: View) -> Cohort:
        ucb, g, p = decision_terms(state, view, m, objective)
        score = bandit.score(g, p, m, **objective.weights)
        return cohort(choose(ucb, score, m, **mask_of(view)).members, state.data_share)

    def update(state: PauseState, view: View, feedback: Feedback) -> PauseState:
        return state._replace(bandit=bandit.update(state.bandit, feedback.members, feedback.reward))

    return Policy(init, select, update)


def decision_terms(
    state: PauseState, view: View, m: int, objective: bandit.Objective
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes the terms ucb, g and p of (14) for the selection of a round, float32 [K] each."""
    counts, mean_reward = state.bandit
    time = bandit.time_of_terms(view.round, objective.clock)
    ucb = bandit.ucb(mean_reward, counts, time, m, objective.exploitation_gain)
    return ucb, *bandit.terms(counts, time, state.data_share, m, objective)
