"""Bandit scheduling that minds generalization, BSFL (Ben-Ami, Cohen, Zhao 2025), whose g is (8)."""

import jax

from pausejax import bandit
from pausejax.policies.base import Policy
from pausejax.policies.pause import Selector, pause


def bandit_generalization(
    *,
    num_clients: int,
    clients_per_round: int,
    generalization_weight: jax.Array | float,
    generalization_exponent: jax.Array | float,
    clock: bandit.Clock = "paper",
    selector: Selector = "exact",
) -> Policy:
    """The set with the largest min ucb + α/m Σ g in every round: (14) without its privacy term and ζ.

    Args:
      num_clients: K.
      clients_per_round: m, at most K.
      generalization_weight: α.
      generalization_exponent: β.
      clock: "paper" scores round t with the terms of t - 1, "reference" with those of t.
      selector: "exact" or "brute"; both choose the same sets.

    Raises:
      ValueError: as `pause` does.
    """
    return pause(
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        generalization_weight=generalization_weight,
        generalization_exponent=generalization_exponent,
        privacy_weight=0.0,
        exploitation_gain=1.0,
        budget_decay=1.0,
        clock=clock,
        selector=selector,
    )
