"""Implements EFL-FG: ensemble federated learning with a feedback graph (EFL-FG Algorithm 2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.ensemble import compensated
from pausejax.ensemble.compensated import Sum
from pausejax.ensemble.graph import dominating_set, feedback_graph
from pausejax.ensemble.policy import Choice, EnsemblePolicy, Feedback, draw_index


class EflFgState(NamedTuple):
    """State of EFL-FG. ln w and ln u are the two sums times minus the learning rate."""

    model_loss: Sum
    """[K, R], the sum of the importance-sampled losses, EFL-FG (6)."""
    ensemble_loss: Sum
    """[K, R], the sum of the importance-sampled losses of the ensembles, EFL-FG (8)."""
    graph: jax.Array
    """bool [K, K, R], the last round's graph; all true before the first round."""


class EflFgPlan(NamedTuple):
    graph: jax.Array
    """bool [K, K, R]; entry [k, j] says whether j is an out-neighbour of k."""
    dominating: jax.Array
    """bool [K, R], the members of the dominating set."""
    node: jax.Array
    """int32 [R], the drawn vertex I_t."""
    node_probability: jax.Array
    """float32 [K, R], p of EFL-FG (4)."""
    sent_probability: jax.Array
    """float32 [K, R], q of EFL-FG (7)."""
    ensembles: jax.Array
    """float32 [K, K, R]; row k holds the weights of EFL-FG (5) when vertex k is drawn."""


def _weigh(log_weight: jax.Array, graph: jax.Array) -> jax.Array:
    """Returns EFL-FG (5) for every vertex, [K, K, R]: w normalized over the vertex's out-neighbours.

    The weights sum to 1 for any size of w.
    """
    weight = jnp.where(graph, log_weight[None], -jnp.inf)
    weight = jnp.exp(weight - jnp.max(weight, axis=1, keepdims=True))
    return weight / jnp.sum(weight, axis=1, keepdims=True)


def efl_fg(
    *, parameters: jax.Array, budget: jax.Array, learning_rate: jax.Array, exploration_rate: jax.Array
) -> EnsemblePolicy:
    """Sends the out-neighbours of a vertex that is drawn from the feedback graph (EFL-FG Algorithm 2).

    Args:
      parameters: int32 [K], model sizes.
      budget: int32 [R], the budget B in parameters.
      learning_rate: float32 [R], η.
      exploration_rate: float32 [R], ξ in (0, 1).
    """
    num_models, num_runs = len(parameters), len(budget)

    def init() -> EflFgState:
        sums = compensated.zeros((num_models, num_runs))
        return EflFgState(sums, sums, jnp.ones((num_models, num_models, num_runs), bool))

    def select(key: jax.Array, state: EflFgState) -> Choice:
        log_weight = -learning_rate[None] * compensated.excess(state.model_loss)
        graph = feedback_graph(log_weight, state.graph, parameters, budget)
        dominating = dominating_set(graph)
        confidence = jnp.exp(-learning_rate[None] * compensated.excess(state.ensemble_loss))
        exploit = confidence / jnp.sum(confidence, axis=0, keepdims=True)
        member = dominating.astype(jnp.float32)
        explore = member / jnp.sum(member, axis=0, keepdims=True)
        probability = (1 - exploration_rate[None]) * exploit + exploration_rate[None] * explore
        node = draw_index(key, probability)
        ensembles = _weigh(log_weight, graph)
        row = node[None, None]
        plan = EflFgPlan(
            graph,
            dominating,
            node,
            probability,
            jnp.sum(jnp.where(graph, probability[:, None], 0.0), axis=0),
            ensembles,
        )
        return Choice(
            jnp.take_along_axis(graph, row, axis=0)[0], jnp.take_along_axis(ensembles, row, axis=0)[0], plan
        )

    def update(state: EflFgState, choice: Choice, feedback: Feedback) -> EflFgState:
        plan: EflFgPlan = choice.plan
        drawn = jnp.arange(num_models, dtype=jnp.int32)[:, None] == plan.node[None]
        estimate = jnp.where(choice.sent, feedback.model_loss / plan.sent_probability, 0.0)
        ensemble_estimate = jnp.where(drawn, feedback.ensemble_loss[None] / plan.node_probability, 0.0)
        return EflFgState(
            compensated.add(state.model_loss, estimate),
            compensated.add(state.ensemble_loss, ensemble_estimate),
            plan.graph,
        )

    def expected_loss(choice: Choice, predictions: jax.Array, targets: jax.Array) -> jax.Array:
        """Returns EFL-FG (32), [n, R]: the sum of the losses of all K ensembles, weighted by p."""
        ensembles = choice.plan.ensembles

        def add_model(j: jax.Array, total: jax.Array) -> jax.Array:
            return total + ensembles[:, j][:, None] * predictions[j][None]

        start = jnp.zeros((num_models, *targets.shape), jnp.float32)
        ensemble = lax.fori_loop(0, num_models, add_model, start)
        probability = choice.plan.node_probability
        return jnp.sum(probability[:, None] * jnp.square(ensemble - targets[None]), axis=0)

    def regret_bound(choice: Choice, round_number: jax.Array, num_clients: jax.Array) -> jax.Array:
        """Returns the summand of EFL-FG (11) for this round, [K, R].

        The first term of EFL-FG (11) is added at round 1.
        """
        plan: EflFgPlan = choice.plan
        inverse = jnp.sum(plan.ensembles / plan.sent_probability[None], axis=1)
        clients = jnp.square(num_clients.astype(jnp.float32))[None]
        rate, exploration = learning_rate[None], exploration_rate[None]
        term = exploration * (1 - rate / 2 * clients) + rate / 2 * (num_models + inverse) * clients
        neighbours = jnp.sum(plan.graph, axis=1)
        return term + jnp.where(round_number == 1, jnp.log(num_models * neighbours) / rate, 0.0)

    return EnsemblePolicy(init, select, update, expected_loss, regret_bound, min_sent=1)
