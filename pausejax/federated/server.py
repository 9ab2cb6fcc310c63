"""Computes the aggregation and the steps of all runs' servers, and the models that are evaluated."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from pausejax.federated.algorithms import Arrivals
from pausejax.federated.learning import ClientStates, Learning, Memory, ServerState, Values
from pausejax.federated.modules import Params, Weights
from pausejax.federated.optimizers import transformation
from pausejax.privacy import Mechanism


def init_weights(learning: Learning, weights: Weights, num_clients: int) -> Weights:
    """Returns the runs' global models before round 1, pytree [R, ...], from the models that `model.init`
    draws.

    If clients keep their own statistics, the statistics are repeated for every client, [R, K, ...].
    """
    if not learning.keeps_statistics:
        return weights
    return weights._replace(statistics=_of_clients(weights.statistics, num_clients))


def init_memory(learning: Learning, params: Params, hyper: Values, files: Values, num_clients: int) -> Memory:
    """Returns the initial states of every run's server and clients.

    Args:
      learning: the static description of learning.
      params: initial global models, pytree [R, ...].
      hyper: traced hyper-parameters by name, [R] each.
      files: tables that all runs share.
      num_clients: K, the number of clients.
    """

    def init(params: Params, values: Values) -> tuple[ServerState, ClientStates]:
        server, client = learning.build_algorithm(values | files).init(params)
        stepped = transformation(learning.server, values | files).init(params)
        persists = learning.training.persist_optimizer
        start = learning.build_algorithm(values | files).start(params, server, client)
        local = transformation(learning.training.optimizer, values | files)
        own = local.init(start) if persists else None
        return ServerState(stepped, server), ClientStates(own, client)

    server, clients = jax.vmap(init)(params, hyper)
    trained = None
    if learning.keeps_statistics or jax.tree.leaves(clients.algorithm):
        trained = jnp.zeros((hyper["learning_rate"].shape[0], num_clients), bool)
    return Memory(_of_clients(clients, num_clients), server, trained)


def aggregate(
    learning: Learning,
    mechanism: Mechanism,
    values: Values,
    key: jax.Array,
    total: jax.Array,
    rows: jax.Array,
    weight: jax.Array,
) -> jax.Array:
    """Combines the updates that have arrived in a round of one run into one update, float32 [d].

    Args:
      learning: the static description of learning.
      mechanism: the privacy mechanism, which adds noise to the mean if the server is trusted.
      values: traced hyper-parameters and tables of the run.
      key: the key of the noise, consumed.
      total: float32 [d], the weighted sum of the updates; used if the aggregator is the mean.
      rows: float32 [n, d], the single updates; used by all other aggregators.
      weight: float32 [n], aggregation weights; 0 in rows without an update.
    """
    combine = learning.build_aggregator(values).combine
    mean = total if combine is None else combine(rows, weight)
    return mean if mechanism.server is None else mechanism.server(key, mean, weight)


def step_server(
    learning: Learning,
    weights: Weights,
    mean: jax.Array,
    memory: ServerState,
    hyper: Values,
    files: Values,
    arrived: Arrivals,
    anyone: jax.Array,
) -> tuple[Weights, ServerState]:
    """Computes the next global models of all runs from their mean uploads, and the servers' next states.

    If no update arrives in a round, the model and the server's state do not change under any optimizer.
    Without this rule, momentum would move the parameters. Under every optimizer, the statistics change by the
    mean of the clients' changes. Noise can make a variance negative; such a variance is replaced by 0.

    Args:
      learning: the static description of learning.
      weights: the global models, pytree [R, ...].
      mean: mean uploads, float32 [R, d].
      memory: the servers' states, pytree [R, ...].
      hyper: traced hyper-parameters by name, [R] each.
      files: tables that all runs share.
      arrived: the clients whose uploads are in the mean, [R, n] each.
      anyone: bool [R], whether any update has arrived whose weight is above 0.
    """
    example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), learning.sent)
    upload: Weights = jax.vmap(ravel_pytree(example)[1])(mean)

    def step(
        params: Params, upload: Any, state: ServerState, values: Values, arrived: Arrivals, anyone: jax.Array
    ) -> tuple[Params, ServerState]:
        algorithm = learning.build_algorithm(values | files)
        update, after = algorithm.combine(upload, params, state.algorithm, arrived)
        server = transformation(learning.server, values | files)
        change, optimizer = server.update(jax.tree.map(jnp.negative, update), state.optimizer, params)
        stepped = jax.tree.map(jnp.add, params, change), ServerState(optimizer, after)
        return jax.tree.map(partial(jnp.where, anyone), stepped, (params, state))

    params, state = jax.vmap(step)(weights.params, upload.params, memory, hyper, arrived, anyone)
    if learning.keeps_statistics or not learning.model.has_statistics:
        return weights._replace(params=params), state
    # Noise does not change the constants of a model, such as a table of positions.
    leaves, structure = jax.tree.flatten(weights.statistics)
    changes = zip(learning.model.constant, leaves, jax.tree.leaves(upload.statistics), strict=True)
    moved = [leaf if is_constant else leaf + change for is_constant, leaf, change in changes]
    statistics = jax.tree.unflatten(structure, moved)
    statistics = jax.tree_util.tree_map_with_path(_possible, statistics)
    kept = jax.vmap(lambda *both, anyone: jax.tree.map(partial(jnp.where, anyone), *both))
    return Weights(params, kept(statistics, weights.statistics, anyone=anyone)), state


def evaluated_weights(
    learning: Learning, weights: Weights, memory: Memory, hyper: Values, files: Values, share: jax.Array
) -> Weights:
    """Returns the models to evaluate, [R, ...]. A client with the mean client state would start from them.

    The mean state is taken over all clients that have trained, weighted by their data shares. Integers,
    booleans and keys have no mean: those of the client with the largest share are taken. Before any client
    has trained, the mean state is the initial state.

    Args:
      learning: the static description of learning.
      weights: the global models, pytree [R, ...].
      memory: the states of servers and clients.
      hyper: traced hyper-parameters by name, [R] each.
      files: tables that all runs share.
      share: float32 [R, K], |D_k| / |D|.
    """
    trained, weight = memory.trained, share

    def start(params: Params, server: Any, client: Any, values: Values) -> Params:
        return learning.build_algorithm(values | files).start(params, server, client)

    if trained is not None:  # else the state of a client has no arrays
        weight = jnp.where(trained | ~jnp.any(trained, axis=1, keepdims=True), share, 0.0)
        weight = weight / jnp.sum(weight, axis=1, keepdims=True)
    client = jax.tree.map(partial(_mean_of_trained, weight), memory.clients.algorithm)
    params = jax.vmap(start)(weights.params, memory.server.algorithm, client, hyper)
    if not learning.keeps_statistics:
        return weights._replace(params=params)
    return Weights(params, jax.tree.map(partial(_weighted_sum, weight), weights.statistics))


def weights_of_client(
    learning: Learning, weights: Weights, memory: Memory, values: Values, client: jax.Array
) -> Weights:
    """Returns the model that one client of one run would use.

    It has the parameters from which the client would start, and the statistics that the client keeps.

    Args:
      learning: the static description of learning.
      weights: the run's global model. Its statistics are [K, ...] if clients keep their own.
      memory: the states of the run's server and clients.
      values: traced hyper-parameters and tables of the run.
      client: int32 scalar, the client.
    """

    def own(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[client], tree)

    algorithm = learning.build_algorithm(values)
    params = algorithm.start(weights.params, memory.server.algorithm, own(memory.clients.algorithm))
    return Weights(params, own(weights.statistics) if learning.keeps_statistics else weights.statistics)


def _of_clients(tree: Any, num_clients: int) -> Any:
    """Repeats arrays [R, ...] for every client, [R, K, ...]."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], num_clients, axis=1), tree)


def _mean_of_trained(weight: jax.Array, leaf: jax.Array) -> jax.Array:
    """Returns the mean of a state [R, K, ...] over the clients with weight, [R, ...]."""
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return jax.vmap(lambda one, client: one[client])(leaf, jnp.argmax(weight, axis=1))
    # The state of a client that has not trained may be infinite, as the smallest loss so far.
    counts = jnp.expand_dims(weight > 0, range(2, leaf.ndim))
    return _weighted_sum(weight, jnp.where(counts, leaf, jnp.zeros((), leaf.dtype)))


def _weighted_sum(weight: jax.Array, leaf: jax.Array) -> jax.Array:
    return jnp.einsum("rk,rk...->r...", weight, leaf, precision="highest")


def _possible(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
    return jnp.maximum(leaf, 0.0) if getattr(path[-1], "key", "") == "var" else leaf
