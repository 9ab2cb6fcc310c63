"""Implements online FedBoost (Hamer, Mohri, Suresh, ICML 2020), as the EFL-FG paper uses it (§IV)."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.ensemble import compensated
from pausejax.ensemble.compensated import Sum
from pausejax.ensemble.policy import Choice, EnsemblePolicy, Feedback, certain_loss, uniform

Sampling = Literal["uniform", "weighted", "count"]
_LEAST_PROBABILITY = 1e-6
"""The least γ of a model. It keeps the weights α / γ finite."""


def inclusion_probability(cost: jax.Array, expected_cost: jax.Array, share: jax.Array) -> jax.Array:
    """Returns γ_k = min(1, C·share_k), with C such that Σ γ_k c_k equals the expected cost.

    Args:
      cost: float32 [K], c_k, the cost of each model.
      expected_cost: float32 [R], the expected cost of a round; if it covers all models, every γ is 1.
      share: float32 [K, R], the relative probabilities of the models, not negative.

    Returns:
      float32 [K, R], γ.
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

    # Each pass except the last sets γ = 1 for at least one more model, so there are at most K + 1 passes.
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
    """Builds a policy that draws each model independently, with a limit on the expected cost.

    Each round sends model k with probability γ_k, independently of the other models. The expected cost of a
    round is a share of the budget; the cost of a round may exceed the budget. The weights of the sent models
    are α_k / γ_k. The prediction is unbiased, but the weights need not sum to 1. If no model is sent, the
    prediction is 0. The weights are learned by mirror descent with entropy: α_k ∝ α_k exp(-η δ_k). Here δ is
    the clients' mean gradient. It is 0 for models that were not sent.

    Args:
      parameters: int32 [K], model sizes.
      budget: int32 [R], the budget B in parameters.
      learning_rate: float32 [R], η.
      spending: float32 [R] or a number, the expected cost of a round over the budget, in (0, 1].
      sampling: the rule for γ. `"uniform"`: γ is equal for all models. `"weighted"`: γ is in proportion to α,
        at most 1. `"count"`: γ = `spending` · B / K for models of any cost, with B in units of the largest
        model. Then `spending` · B models are sent in expectation.
      normalized: whether the weights of the sent models are divided by their sum, as in EFL-FG (1). The
        prediction is then biased, and `expected_loss` is the loss incurred by the drawn models.
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
        """Returns the loss of the mean prediction plus the variance of the draw, [n, R].

        The variance of independent inclusions is Σ (α_k f_k)² (1 - γ_k) / γ_k.
        """
        mixture, gamma = choice.plan
        mean = jnp.sum(mixture[:, None] * predictions, axis=0)
        spread = jnp.square(mixture) * (1 - gamma) / gamma
        return jnp.square(mean - targets) + jnp.sum(spread[:, None] * jnp.square(predictions), axis=0)

    return EnsemblePolicy(init, select, update, certain_loss if normalized else expected_loss)
