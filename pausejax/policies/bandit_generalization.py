"""Bandit scheduling with a generalization term, BSFL (Ben-Ami, Cohen, Zhao 2025); the term is (8)."""

from pausejax import bandit, parts
from pausejax.policies.base import Policy
from pausejax.policies.pause import pause


@parts.policy
def bandit_generalization(
    *,
    num_clients: int,
    clients_per_round: int,
    generalization_weight: bandit.GeneralizationWeight = bandit.Objective.generalization_weight,
    generalization_exponent: bandit.GeneralizationExponent = bandit.Objective.generalization_exponent,
    clock: bandit.TermsClock = bandit.Objective.clock,
) -> Policy:
    """Selects the set with the largest min ucb + α/m Σ g in every round: (14) without its privacy term and ζ.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m, at most K.
      generalization_weight: α.
      generalization_exponent: β.
      clock: "paper" scores round t with the terms of t - 1, "reference" with those of t.

    Raises:
      ValueError: the clock is unknown, clients_per_round is not in [1, num_clients], or α or β is out of
        range.
    """
    objective = bandit.Objective(
        generalization_weight=generalization_weight,
        generalization_exponent=generalization_exponent,
        privacy_weight=0.0,
        exploitation_gain=1.0,
        clock=clock,
    )
    return pause(num_clients=num_clients, clients_per_round=clients_per_round, objective=objective)
