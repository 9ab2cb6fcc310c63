"""FedBoost in its online form (Hamer, Mohri, Suresh, ICML 2020; as the EFL-FG paper runs it, §IV)."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.ensemble import compensated
from pausejax.ensemble.compensated import Sum
from pausejax.ensemble.policy import Choice, EnsemblePolicy, Feedback, certain_loss, uniform

Sampling = Literal["uniform", "weighted", "count"]
_LEAST_PROBABILITY = 1e-6
"""Keeps the weights α / γ finite where the sampling would give up a model."""


def inclusion_probability(cost: jax.Array, expected_cost: jax.Array, share: jax.Array) -> jax.Array:
    """γ_k = min(1, C·share_k), with C such that the expected cost Σ γ_k c_k is as wanted.

    Args:
      cost: float32 [K].
      expected_cost: float32 [R]; where it covers all models, every γ is 1.
      share: float32 [K, R], not negative.

    Returns:
      float32 [K, R].
    """
    cost = cost[:, None]
    wanted = expected_cost[None]

    def saturate(state: tuple) -> tuple:
        full, _, _ = state
        left = wanted - jnp.sum(jnp.where(full, cost, 0.0), axis=0, keepdims=True)
        rest = jnp.sum(jnp.where(full, 0.0, cost * share), axis=0, keepdims=True)
        gamma = jnp.where(full, 1.0, share * (left / jnp.where(rest > 0, rest, 1.0)))
        exceeds = gamma >= 1
        return exceeds, gamma, jnp.any(exceeds & ~full)

    # Each pass that goes on marks at least one more model as certain, so there are at most K + 1 passes.
    start = (jnp.zeros(share.shape, bool), share, jnp.array(True))
    gamma = lax.while_loop(lambda state: state[2], saturate, start)[1]
    return jnp.clip(gamma, _LEAST_PROBABILITY, 1.0)


def fedboost(
    *,
    parameters: jax.Array,
    budget: jax.Array,
    learning_rate: jax.Array,
    spending: jax.Array | float,
    sampling: Sampling,
    normalized: bool = False,
) -> EnsemblePolicy:
    """Builds the policy.

    Each round sends model k with probability γ_k, independently; the expected cost is a share of the budget,
    and a round may exceed it. The ensemble predicts with α_k / γ_k for the models sent, which is unbiased and
    need not sum to 1; if none is sent it predicts 0. Mirror descent with entropy: α_k ∝ α_k exp(-η δ_k), δ
    the clients' mean gradient, which is 0 for models that they did not get.

    Args:
      parameters: int32 [K], model sizes.
      budget: int32 [R], in parameters.
      learning_rate: float32 [R], η.
      spending: float32 [R] or a number, the expected cost of a round over the budget, in (0, 1].
      sampling: γ in proportion to 1 (`"uniform"`) or to α (`"weighted"`), capped at 1; `"count"`: γ = B / K
        whatever the models cost, so that B models are sent in expectation (times `spending`).
      normalized: whether the weights of the models sent are divided by their sum, as EFL-FG (1) demands. Then
        the ensemble is biased, and `expected_loss` is the loss incurred by the models that were drawn.
    """
    num_models, num_runs = len(parameters), len(budget)
    scale = jnp.max(parameters).astype(jnp.float32)
    cost = jnp.asarray(parameters, jnp.float32) / scale
    expected_cost = spending * (jnp.asarray(budget, jnp.float32) / scale)
    if sampling == "count":
        fixed = jnp.broadcast_to(
            jnp.clip(expected_cost / num_models, _LEAST_PROBABILITY, 1.0), (num_models, num_runs)
        )
    else:
        fixed = inclusion_probability(cost, expected_cost, jnp.ones((num_models, num_runs)))

    def init() -> Sum:
        return compensated.zeros((num_models, num_runs))

    def select(key: jax.Array, state: Sum) -> Choice:
        mixture = jax.nn.softmax(-learning_rate[None] * compensated.excess(state), axis=0)
        gamma = inclusion_probability(cost, expected_cost, mixture) if sampling == "weighted" else fixed
        sent = uniform(key, (num_models,)) < gamma
        mixing = jnp.where(sent, mixture / gamma, 0.0)
        if normalized:
            total = jnp.sum(mixing, axis=0, keepdims=True)
            mixing = mixing / jnp.where(total > 0, total, 1.0)
        return Choice(sent, mixing, (mixture, gamma))

    def update(state: Sum, choice: Choice, feedback: Feedback) -> Sum:
        clients = feedback.num_clients.astype(jnp.float32)
        return compensated.add(state, feedback.gradient / clients[None])

    def expected_loss(choice: Choice, predictions: jax.Array, targets: jax.Array) -> jax.Array:
        """The mean's loss plus the variance of independent inclusions, Σ (α_k f_k)² (1 - γ_k) / γ_k."""
        mixture, gamma = choice.plan
        mean = jnp.sum(mixture[:, None] * predictions, axis=0)
        spread = jnp.square(mixture) * (1 - gamma) / gamma
        return jnp.square(mean - targets) + jnp.sum(spread[:, None] * jnp.square(predictions), axis=0)

    return EnsemblePolicy(init, select, update, certain_loss if normalized else expected_loss, min_sent=0)
