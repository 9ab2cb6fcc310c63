"""Vanilla-SA: PAUSE annealed over all swaps, the paper's yardstick for the tailored graph (§IV-B)."""

import jax

from pausejax import bandit, selection
from pausejax.policies.base import Policy
from pausejax.policies.sa_pause import annealed


def vanilla_sa(
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
    clock: bandit.Clock = "paper",
) -> Policy:
    """`sa_pause` with any swap as a neighbour and C = 2α + γ + 1, which has no margin ω.

    Arguments and errors as for `sa_pause`.
    """
    return annealed(
        selection.vanilla_anneal,
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
