"""SA-PAUSE: PAUSE with the annealing of Algorithm 2 in place of the search over all sets (§IV)."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import jax

from pausejax import bandit, parts, selection
from pausejax.parts import Parameter
from pausejax.policies.base import Cohort, Policy, View, cohort, mask_of
from pausejax.policies.pause import PauseState, decision_terms, pause

AnnealingSteps = Annotated[int, Parameter(help="J", low=0, aliases=("J",), symbol="J")]
TemperatureDivisor = Annotated[
    bandit.Number, Parameter(help="κ", low=0, low_open=True, aliases=("kappa",), symbol="κ")
]
ANNEALING_STEPS = 500
TEMPERATURE_DIVISOR = 1.0


@parts.policy
def sa_pause(
    *,
    num_clients: int,
    clients_per_round: int,
    objective: bandit.Objective = bandit.Objective(),  # noqa: B008
    annealing_steps: AnnealingSteps = ANNEALING_STEPS,
    temperature_divisor: TemperatureDivisor = TEMPERATURE_DIVISOR,
    temperature_margin: Annotated[
        bandit.Number,
        Parameter(
            help="ω, margin of the temperature (19)", low=0, low_open=True, aliases=("omega",), symbol="ω"
        ),
    ] = 1e-3,
) -> Policy:
    """Anneals (14) in every round, from a new random set, and selects the best set that the walk has visited.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m, at most K.
      objective: α, β, γ, ζ, η and the clock of (14).
      annealing_steps: J, 0 or more.
      temperature_divisor: κ > 0.
      temperature_margin: ω >= 0.

    Raises:
      ValueError: the clock is unknown, J is no integer >= 0, clients_per_round is not in [1, num_clients], or
        an untraced number of the objective is out of its range.
    """
    return annealed(
        partial(selection.anneal, temperature_margin=temperature_margin),
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        objective=objective,
        annealing_steps=annealing_steps,
        temperature_divisor=temperature_divisor,
    )


def annealed(
    anneal: Callable[..., selection.Selection],
    *,
    num_clients: int,
    clients_per_round: int,
    objective: bandit.Objective,
    annealing_steps: int,
    temperature_divisor: bandit.Number,
) -> Policy:
    """Returns PAUSE with `anneal`, a function like `selection.anneal`, as selector."""
    if not isinstance(annealing_steps, int) or annealing_steps < 0:
        raise ValueError(f"annealing_steps: must be an integer >= 0, not {annealing_steps}")
    exact = pause(num_clients=num_clients, clients_per_round=clients_per_round, objective=objective)

    def select(key: jax.Array, state: PauseState, view: View) -> Cohort:
        chosen = anneal(
            key,
            *decision_terms(state, view, clients_per_round, objective),
            m=clients_per_round,
            steps=annealing_steps,
            temperature_divisor=temperature_divisor,
            **objective.weights,
            **mask_of(view),
        )
        return cohort(chosen.members, state.data_share)

    return exact._replace(select=select)
