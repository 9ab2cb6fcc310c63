"""PAUSE: the bandit that weighs latency, generalization and privacy (Peleg et al., Algorithm 1)."""

from typing import Literal, NamedTuple, get_args

import jax

from pausejax import bandit, selection
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort

Selector = Literal["exact", "brute"]
SELECTORS: tuple[str, ...] = get_args(Selector)


class PauseState(NamedTuple):
    bandit: bandit.BanditState
    data_share: jax.Array
    """float32 [K], |D_k| / |D|."""


def pause(
    *,
    num_clients: int,
    clients_per_round: int,
    generalization_weight: jax.Array | float,
    generalization_exponent: jax.Array | float,
    privacy_weight: jax.Array | float,
    exploitation_gain: jax.Array | float,
    budget_decay: jax.Array | float,
    clock: bandit.Clock = "paper",
    selector: Selector = "exact",
) -> Policy:
    """Chooses the argmax of (14) in every round.

    Args:
      num_clients: K.
      clients_per_round: m, at most K.
      generalization_weight: α.
      generalization_exponent: β.
      privacy_weight: γ.
      exploitation_gain: ζ.
      budget_decay: η.
      clock: "paper" scores round t with the terms of t - 1, "reference" with those of t.
      selector: "exact" (`best_set`) or "brute" (`brute_force`, small K only); both choose the same sets.

    Raises:
      ValueError: for an unknown clock or selector, unless 1 <= clients_per_round <= num_clients, or for a
        negative number (where it is not traced).
    """
    if clock not in bandit.CLOCKS:
        raise ValueError(f"clock: unknown clock {clock!r}; allowed: {', '.join(bandit.CLOCKS)}")
    if selector not in SELECTORS:
        raise ValueError(f"selector: unknown selector {selector!r}; allowed: {', '.join(SELECTORS)}")
    m = clients_per_round
    if not 1 <= m <= num_clients:
        raise ValueError(f"clients_per_round: {m} out of {num_clients} clients; allowed: 1 to num_clients")
    numbers = {
        "generalization_weight": generalization_weight,
        "generalization_exponent": generalization_exponent,
        "privacy_weight": privacy_weight,
        "exploitation_gain": exploitation_gain,
        "budget_decay": budget_decay,
    }
    for name, number in numbers.items():
        if not isinstance(number, jax.core.Tracer) and not number >= 0:
            raise ValueError(f"{name}: {number}; allowed: 0 or more")
    choose = selection.best_set if selector == "exact" else selection.brute_force

    def init(key: jax.Array, clients: Clients) -> PauseState:
        return PauseState(bandit.init(num_clients), clients.data_share)

    def select(key: jax.Array, state: PauseState, view: View) -> Cohort:
        counts, mean_reward = state.bandit
        time = bandit.time_of_terms(view.round, clock)
        ucb = bandit.ucb(mean_reward, counts, time, m, exploitation_gain)
        score = bandit.score(
            bandit.generalization(counts, time, state.data_share, m, generalization_exponent),
            bandit.privacy_reward(counts, budget_decay),
            m,
            generalization_weight=generalization_weight,
            privacy_weight=privacy_weight,
        )
        return cohort(choose(ucb, score, m).members, state.data_share)

    def update(state: PauseState, view: View, feedback: Feedback) -> PauseState:
        return state._replace(bandit=bandit.update(state.bandit, feedback.members, feedback.reward))

    return Policy(init, select, update)
