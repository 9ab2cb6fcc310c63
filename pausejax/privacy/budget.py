"""Per-round privacy budgets and the ledger of what each client has leaked, (6) and (7).

A client's ledger is its participation count alone: the i-th participation spends
ε_i = ε̄ (e^η - 1) e^{-ηi}, and these sum to ε̄ (1 - e^{-ηT}) < ε̄ after T of them (Theorem 2).
"""

import jax
import jax.numpy as jnp


def epsilon_at(
    participation: jax.Array, privacy_budget: jax.Array | float, budget_decay: jax.Array | float
) -> jax.Array:
    """ε_i of a client's i-th participation.

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
    """Σ_{i<=T} ε_i = ε̄ (1 - e^{-ηT}) of clients that took part `counts` = T times; float32, never above ε̄."""
    decay, times = jnp.asarray(budget_decay, jnp.float32), jnp.asarray(counts, jnp.float32)
    return privacy_budget * -jnp.expm1(-decay * times)


def update_leakage(per_release: jax.Array, num_parameters: int, clip: str) -> jax.Array:
    """The leakage for the whole update vector behind a ledger entry.

    Clipping by coordinate protects each of the d coordinates with ε_i, so the vector leaks d·ε_i by
    composition; clipping the vector in L1 protects it as a whole (Theorem 1).
    """
    return per_release * num_parameters if clip == "coordinate" else per_release
