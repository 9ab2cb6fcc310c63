"""Defines baseline policies for a comparison with EFL-FG, besides FedBoost."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax.ensemble import compensated
from pausejax.ensemble.compensated import Sum
from pausejax.ensemble.policy import Choice, EnsemblePolicy, Feedback, certain_loss, draw_index


def fixed(mixing: jax.Array) -> EnsemblePolicy:
    """Builds a policy that sends the same ensemble in every round.

    Args:
      mixing: float32 [K, R], the weights of the models; models of weight 0 are not sent.
    """
    choice = Choice(mixing > 0, mixing)
    return EnsemblePolicy(
        lambda: (), lambda key, state: choice, lambda state, *_: state, certain_loss, min_sent=1
    )


def best_expert(*, stream_loss: jax.Array, num_runs: int) -> EnsemblePolicy:
    """Sends the single model with the smallest mean loss on the whole stream.

    A server could know this model only at the end of the stream.

    Args:
      stream_loss: float32 [K], the mean loss of each model on the stream.
      num_runs: R, the number of runs.
    """
    best = jnp.arange(len(stream_loss)) == jnp.argmin(stream_loss)
    return fixed(jnp.broadcast_to(best[:, None], (len(best), num_runs)).astype(jnp.float32))


def uniform_affordable(*, parameters: jax.Array, budget: jax.Array) -> EnsemblePolicy:
    """Sends the cheapest models that together fit into the budget, with equal weights.

    Ties go to the lowest index.

    Args:
      parameters: int32 [K], model sizes.
      budget: int32 [R], the budget in parameters.
    """
    order = jnp.argsort(parameters, stable=True)
    rank = jnp.argsort(order, stable=True)
    affordable = (jnp.cumsum(parameters[order])[rank][:, None] <= budget[None]).astype(jnp.float32)
    return fixed(affordable / jnp.sum(affordable, axis=0, keepdims=True))


def all_experts(*, num_models: int, learning_rate: jax.Array) -> EnsemblePolicy:
    """Sends all models, without a budget.

    The weights are exponential in the sums of all losses, by EFL-FG (1) and EFL-FG (9a) with q = 1.

    Args:
      num_models: K, the number of models.
      learning_rate: float32 [R], η.
    """
    num_runs = len(learning_rate)

    def init() -> Sum:
        return compensated.zeros((num_models, num_runs))

    def select(key: jax.Array, state: Sum) -> Choice:
        mixing = jax.nn.softmax(-learning_rate[None] * compensated.excess(state), axis=0)
        return Choice(jnp.ones((num_models, num_runs), bool), mixing)

    def update(state: Sum, choice: Choice, feedback: Feedback) -> Sum:
        return compensated.add(state, feedback.model_loss)

    return EnsemblePolicy(init, select, update, certain_loss, min_sent=1)


class _Exp3Plan(NamedTuple):
    model: jax.Array
    probability: jax.Array


def exp3(*, num_models: int, learning_rate: jax.Array, exploration_rate: jax.Array) -> EnsemblePolicy:
    """Sends one model per round by EXP3 (Auer et al. 2003), which learns from importance-sampled losses.

    Args:
      num_models: K, the number of models.
      learning_rate: float32 [R], η.
      exploration_rate: float32 [R], ξ in (0, 1): the share of uniform draws.
    """
    num_runs = len(learning_rate)

    def init() -> Sum:
        return compensated.zeros((num_models, num_runs))

    def select(key: jax.Array, state: Sum) -> Choice:
        exploit = jax.nn.softmax(-learning_rate[None] * compensated.excess(state), axis=0)
        probability = (1 - exploration_rate[None]) * exploit + exploration_rate[None] / num_models
        model = draw_index(key, probability)
        sent = jnp.arange(num_models, dtype=jnp.int32)[:, None] == model[None]
        return Choice(sent, sent.astype(jnp.float32), _Exp3Plan(model, probability))

    def update(state: Sum, choice: Choice, feedback: Feedback) -> Sum:
        estimate = jnp.where(choice.sent, feedback.model_loss / choice.plan.probability, 0.0)
        return compensated.add(state, estimate)

    def expected_loss(choice: Choice, predictions: jax.Array, targets: jax.Array) -> jax.Array:
        error = jnp.square(predictions - targets[None])
        return jnp.sum(choice.plan.probability[:, None] * error, axis=0)

    return EnsemblePolicy(init, select, update, expected_loss, min_sent=1)
