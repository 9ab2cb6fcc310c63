"""Builds the feedback graph (EFL-FG Algorithm 1) and its dominating set by greedy set cover.

All functions process R runs at once, and the LAST axis is that of the runs. The graph of K models is a mask
[K, K, R] whose entry [k, j] says whether j is an out-neighbour of k. Elementwise operations then fill whole
vector registers. The same code under `vmap`, whose first axis is that of the runs, takes three times as long
on a CPU.
"""

import jax
import jax.numpy as jnp
from jax import lax

_MAX_LOG_RATIO = 50.0
"""The largest logarithm of a ratio of weights. Larger ratios are replaced by e^50."""


def feedback_graph(
    log_weight: jax.Array, previous: jax.Array, parameters: jax.Array, budget: jax.Array
) -> jax.Array:
    """Returns the greedy out-neighbourhoods of EFL-FG Algorithm 1, for every vertex and run.

    The neighbourhood of vertex k starts as {k}. The algorithm adds one model at a time: the model with the
    largest weight over resulting cost, EFL-FG (3). The cost must stay within the budget, and the weight must
    not exceed that of the previous round's neighbourhood, EFL-FG (2). Both neighbourhoods are weighed with
    this round's weights, as the proof of EFL-FG Lemma 2 needs. Ties go to the lowest index.

    Args:
      log_weight: float32 [K, R], ln w up to a constant per run.
      previous: bool [K, K, R], the last round's graph. Before the first round all entries are true, so the
        weights of the first round are not limited.
      parameters: int32 [K], model sizes; integers, so that sums are exact.
      budget: int32 [R], the budget in parameters; at least the largest model, (a3).

    Returns:
      bool [K, K, R]; entry [k, j] says whether j is in the out-neighbourhood of k.
    """
    num_models, num_runs = log_weight.shape
    size, heavy = parameters[None, :, None], log_weight[None]
    index = jnp.arange(num_models, dtype=jnp.int32)[None, :, None]

    def append(state: tuple) -> tuple:
        graph, cost, intact, _ = state
        total = cost + size
        # Until a new model is added, all models of the previous neighbourhood are allowed.
        keeps_weight = (previous & intact) | (heavy <= _heaviest_newcomer(graph, previous, heavy))
        candidate = ~graph & (total <= budget[None, None]) & keeps_weight
        score = jnp.where(candidate, heavy - jnp.log(total.astype(jnp.float32)), -jnp.inf)
        best = jnp.max(score, axis=1, keepdims=True)
        found = best > -jnp.inf
        chosen = jnp.min(jnp.where(score == best, index, num_models), axis=1, keepdims=True)
        graph |= found & (index == chosen)
        cost += jnp.where(found, parameters[chosen], 0)
        intact &= ~found | jnp.take_along_axis(previous, chosen, axis=1)
        return graph, cost, intact, jnp.any(found)

    loops = jnp.broadcast_to(jnp.eye(num_models, dtype=bool)[:, :, None], previous.shape)
    cost = jnp.broadcast_to(parameters[:, None, None], (num_models, 1, num_runs))
    # A vertex is in its own previous neighbourhood, so at the start no member is new.
    start = (loops, cost, jnp.ones((num_models, 1, num_runs), bool), jnp.array(True))
    return lax.while_loop(lambda state: state[3], append, start)[0]


def _heaviest_newcomer(graph: jax.Array, previous: jax.Array, log_weight: jax.Array) -> jax.Array:
    """Returns the largest ln w, [K, 1, R], that a new model of a neighbourhood may have by EFL-FG (2).

    A new model is a model that is not in the previous neighbourhood. Models in both neighbourhoods cancel:
    the weight of the new models must not exceed the weight of the missing models. So rounding never excludes
    a member of a neighbourhood that is rebuilt in another order. It also never admits a model whose weight is
    lost in the sum. Weights are relative to the heaviest missing model, so they do not all underflow.

    Args:
      graph: bool [K, K, R], the neighbourhoods so far.
      previous: bool [K, K, R].
      log_weight: float32 [1, K, R].
    """
    missing = previous & ~graph
    heaviest = jnp.max(jnp.where(missing, log_weight, -jnp.inf), axis=1, keepdims=True)
    log_ratio = log_weight - jnp.where(heaviest > -jnp.inf, heaviest, 0.0)
    weight = jnp.exp(jnp.minimum(log_ratio, _MAX_LOG_RATIO))
    signed = jnp.where(previous == graph, 0.0, jnp.where(previous, weight, -weight))
    left = jnp.sum(signed, axis=1, keepdims=True)
    return jnp.where(left > 0, heaviest + jnp.log(jnp.where(left > 0, left, 1.0)), -jnp.inf)


def dominating_set(graph: jax.Array) -> jax.Array:
    """Returns a dominating set by greedy set cover.

    The algorithm repeatedly adds the vertex whose out-neighbourhood covers the most uncovered vertices. Ties
    go to the lowest index.

    Args:
      graph: bool [K, K, R], with every self-loop, so that a cover exists.

    Returns:
      bool [K, R], the members of the set; every vertex is an out-neighbour of a member.
    """
    num_models, _, num_runs = graph.shape
    covers = _pack(graph)
    index = jnp.arange(num_models, dtype=jnp.int32)[:, None]

    def cover(state: tuple) -> tuple:
        uncovered, members = state
        gain = jnp.sum(lax.population_count(covers & uncovered[None]), axis=1, dtype=jnp.int32)
        best = jnp.max(gain, axis=0, keepdims=True)
        first = jnp.min(jnp.where(gain == best, index, num_models), axis=0, keepdims=True)
        chosen = (index == first) & (best > 0)
        reached = jnp.max(jnp.where(chosen[:, None], covers, jnp.uint32(0)), axis=0)
        return uncovered & ~reached, members | chosen

    everyone = _pack(jnp.ones((1, num_models, num_runs), bool))[0]
    start = (everyone, jnp.zeros((num_models, num_runs), bool))
    return lax.while_loop(lambda state: jnp.any(state[0] != 0), cover, start)[1]


def _pack(graph: jax.Array) -> jax.Array:
    """Packs rows into bit sets: bool [K, J, R] to uint32 [K, ceil(J / 32), R]."""
    rows, columns, num_runs = graph.shape
    words = -(-columns // 32)
    padded = jnp.pad(graph, ((0, 0), (0, words * 32 - columns), (0, 0))).reshape(rows, words, 32, num_runs)
    bit = (jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32))[None, None, :, None]
    return jnp.sum(jnp.where(padded, bit, jnp.uint32(0)), axis=2, dtype=jnp.uint32)
