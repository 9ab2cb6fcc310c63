"""Privacy budgets of participations, and the ledger of each client's leakage, (6) and (7).

A client's ledger is its participation count alone. The i-th participation spends ε_i = ε̄ (e^η - 1) e^{-ηi}.
After T participations, the sum is ε̄ (1 - e^{-ηT}) < ε̄ (Theorem 2).
"""

import jax
import jax.numpy as jnp

from pausejax.privacy.mechanism import Clip, check_clip


def epsilon_at(
    participation: jax.Array, privacy_budget: jax.Array | float, budget_decay: jax.Array | float
) -> jax.Array:
    """Computes ε_i of a client's i-th participation.

    Args:
      participation: i >= 1, int, any shape.
      privacy_budget: ε̄ > 0, the most that a client may ever leak.
      budget_decay: η > 0.

    Returns:
      float32 of the shape of `participation`.
    """
    budget_decay = jnp.asarray(budget_decay, jnp.float32)
    past = jnp.asarray(participation - 1, jnp.float32)
    # (e^η - 1) e^{-ηi} = (1 - e^{-η}) e^{-η(i - 1)}, which does not overflow.
    return privacy_budget * -jnp.expm1(-budget_decay) * jnp.exp(-budget_decay * past)


def leakage(
    counts: jax.Array, privacy_budget: jax.Array | float, budget_decay: jax.Array | float
) -> jax.Array:
    """Computes Σ_{i<=T} ε_i = ε̄ (1 - e^{-ηT}) for clients with T = `counts` participations; float32, <= ε̄."""
    decay, times = jnp.asarray(budget_decay, jnp.float32), jnp.asarray(counts, jnp.float32)
    return privacy_budget * -jnp.expm1(-decay * times)


def update_leakage(ledger: jax.Array, num_parameters: int, clip: Clip) -> jax.Array:
    """Computes the leakage of the whole update vector from the `ledger`, Σ ε_i.

    The result has the shape of `ledger`. Clipping by coordinate protects each of the d coordinates with ε_i,
    so the vector leaks d·ε_i by composition. Clipping the vector in L1 protects the whole vector with ε_i
    (Theorem 1).

    Raises:
      ValueError: `clip` is unknown.
    """
    check_clip(clip)
    return ledger * jnp.float32(num_parameters) if clip == "coordinate" else ledger
