"""SA-PAUSE: PAUSE with the annealing of Algorithm 2 in the place of the search over all sets (§IV)."""

from collections.abc import Callable
from functools import partial

import jax

from pausejax import bandit, selection
from pausejax.policies.base import Cohort, Policy, View, cohort
from pausejax.policies.pause import PauseState, pause


def sa_pause(
    *,
    num_clients: int,
    clients_per_round: int,
    generalization_weight: jax.Array | float,
    generalization_exponent: jax.Array | float,
    privacy_weight: jax.Array | float,
    exploitation_gain: jax.Array | float,
    budget_decay: jax.Array | float,
    annealing_steps: int,
    temperature_divisor: jax.Array | float = 1.0,
    temperature_margin: jax.Array | float = 1e-3,
    clock: bandit.Clock = "paper",
) -> Policy:
    """Anneals (14) in every round, from a new random set, and plays the best set that it has seen.

    Args:
      num_clients: K.
      clients_per_round: m, at most K.
      generalization_weight: α.
      generalization_exponent: β.
      privacy_weight: γ.
      exploitation_gain: ζ.
      budget_decay: η.
      annealing_steps: J, 0 or more.
      temperature_divisor: κ > 0.
      temperature_margin: ω >= 0.
      clock: "paper" scores round t with the terms of t - 1, "reference" with those of t.

    Raises:
      ValueError: as `pause`, or unless J is a whole number from 0.
    """
    return annealed(
        partial(selection.anneal, temperature_margin=temperature_margin),
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        generalization_weight=generalization_weight,
        generalization_exponent=generalization_exponent,
        privacy_weight=privacy_weight,
        exploitation_gain=exploitation_gain,
        budget_decay=budget_decay,
        annealing_steps=annealing_steps,
        temperature_divisor=temperature_divisor,
        clock=clock,
    )


def annealed(
    anneal: Callable[..., selection.Selection],
    *,
    num_clients: int,
    clients_per_round: int,
    generalization_weight: jax.Array | float,
    generalization_exponent: jax.Array | float,
    privacy_weight: jax.Array | float,
    exploitation_gain: jax.Array | float,
    budget_decay: jax.Array | float,
    annealing_steps: int,
    temperature_divisor: jax.Array | float,
    clock: bandit.Clock,
) -> Policy:
    """PAUSE with `anneal`, a function like `selection.anneal`, as its selector; the rest as in `sa_pause`."""
    if not isinstance(annealing_steps, int) or annealing_steps < 0:
        raise ValueError(f"annealing_steps: {annealing_steps}; allowed: whole numbers from 0")
    m = clients_per_round
    weights = {"generalization_weight": generalization_weight, "privacy_weight": privacy_weight}
    exact = pause(
        num_clients=num_clients,
        clients_per_round=m,
        generalization_exponent=generalization_exponent,
        exploitation_gain=exploitation_gain,
        budget_decay=budget_decay,
        clock=clock,
        **weights,
    )

    def select(key: jax.Array, state: PauseState, view: View) -> Cohort:
        counts, mean_reward = state.bandit
        time = bandit.time_of_terms(view.round, clock)
        chosen = anneal(
            key,
            bandit.ucb(mean_reward, counts, time, m, exploitation_gain),
            bandit.generalization(counts, time, state.data_share, m, generalization_exponent),
            bandit.privacy_reward(counts, budget_decay),
            m=m,
            steps=annealing_steps,
            temperature_divisor=temperature_divisor,
            **weights,
        )
        return cohort(chosen.members, state.data_share)

    return exact._replace(select=select)
