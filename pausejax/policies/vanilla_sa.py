"""Vanilla-SA: PAUSE with annealing over all swaps, the paper's baseline for its tailored graph (§IV-B)."""

from pausejax import bandit, parts, selection
from pausejax.policies.base import Policy
from pausejax.policies.sa_pause import (
    ANNEALING_STEPS,
    TEMPERATURE_DIVISOR,
    AnnealingSteps,
    TemperatureDivisor,
    annealed,
)


@parts.policy
def vanilla_sa(
    *,
    num_clients: int,
    clients_per_round: int,
    objective: bandit.Objective = bandit.Objective(),  # noqa: B008
    annealing_steps: AnnealingSteps = ANNEALING_STEPS,
    temperature_divisor: TemperatureDivisor = TEMPERATURE_DIVISOR,
) -> Policy:
    """Anneals like `sa_pause`, but every swap is a neighbour, and C = 2α + γ + 1 has no margin ω.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m, at most K.
      objective: α, β, γ, ζ, η and the clock of (14).
      annealing_steps: J, 0 or more.
      temperature_divisor: κ > 0.

    Raises:
      ValueError: an argument is out of its range, or the clock is unknown.
    """
    return annealed(
        selection.vanilla_anneal,
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        objective=objective,
        annealing_steps=annealing_steps,
        temperature_divisor=temperature_divisor,
    )
