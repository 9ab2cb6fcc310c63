"""Converts the models that a result keeps to vectors of weights, for each run and client, and back."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from pausejax.federated.learning import ClientStates, Learning, Memory, ServerState, Values
from pausejax.federated.modules import Weights, passed_on
from pausejax.federated.server import evaluated_weights, weights_of_client


class Vectors(NamedTuple):
    """Final models of runs as vectors; the order of the weights is that of the leaves of `Weights`."""

    final_model: np.ndarray
    """float32 [runs, weights], the models that the test set evaluates."""
    client_models: np.ndarray | None
    """float32 [runs, K, own weights], the weights that differ between clients; None if there are none."""


def vectors(
    learning: Learning, weights: Weights, memory: Memory, hyper: Any, files: Any, share: np.ndarray
) -> Vectors:
    """Returns the final models of some runs as vectors, on the host.

    The models are computed run by run. So a model is bit for bit independent of the other runs of its batch.

    Args:
      learning: the static description of learning.
      weights: the global models, pytree [R, ...] with R >= runs.
      memory: the states of servers and clients, [R, ...].
      hyper: traced hyper-parameters by name, [runs] each.
      files: tables that all runs share.
      share: float32 [runs, K], |D_k| / |D|.
    """
    runs = len(share)
    if memory.trained is None and _starts_unchanged(learning):
        leaves = (np.asarray(leaf)[:runs].reshape(runs, -1) for leaf in jax.tree.leaves(weights))
        return Vectors(np.concatenate(list(leaves), axis=1), None)
    models, clients = [], []
    for one in of_runs(weights, memory, hyper, share):
        model, own = vectors_of_run(learning, *one, files)
        models.append(np.asarray(model))
        clients.append(np.asarray(own))
    return Vectors(np.stack(models), np.stack(clients) if clients[0].size else None)


def of_runs(
    weights: Weights, memory: Memory, hyper: Any, share: np.ndarray
) -> list[tuple[Weights, Memory, Values, np.ndarray]]:
    """Splits weights, memory, hyper-parameters and shares, [R, ...] each, into one tuple for each run, on the
    host.

    States of optimizers are left out, since no model depends on them.
    """

    def to_host(leaf: Any) -> Any:
        return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)

    lasting = Memory(
        ClientStates(None, memory.clients.algorithm),
        ServerState(None, memory.server.algorithm),
        memory.trained,
    )
    host = jax.tree.map(to_host, (weights, lasting))
    return [
        (*jax.tree.map(lambda leaf, run=run: leaf[run], (*host, hyper)), share[run])
        for run in range(len(share))
    ]


@functools.partial(jax.jit, static_argnums=0)
def vectors_of_run(
    learning: Learning, weights: Weights, memory: Memory, values: Values, share: jax.Array, files: Values
) -> tuple[jax.Array, jax.Array]:
    """Returns the vectors of one run.

    The first is that of the evaluated model, [n]. The second is of every client's own weights, [K, m].
    """

    def alone(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[None], tree)

    evaluated = evaluated_weights(learning, alone(weights), alone(memory), alone(values), files, share[None])
    model = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(evaluated)])
    kept = is_own(learning)

    def own_of(client: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(weights_of_client(learning, weights, memory, values | files, client))
        own = [leaf.reshape(-1) for leaf, is_kept in zip(leaves, kept, strict=True) if is_kept]
        return jnp.concatenate([jnp.zeros(0), *own])

    return model, jax.vmap(own_of)(jnp.arange(share.shape[0]))


def is_own(learning: Learning) -> list[bool]:
    """Returns, for each leaf of `Weights`, whether it may differ between the clients of a run.

    Parameters may differ if the algorithm's `start` computes them from the client's state. Batch norm's
    statistics may differ if clients keep them.
    """
    weights, jaxpr = _shapes(learning), _start(learning)
    reached = set(jaxpr.invars[: len(jax.tree.leaves(learning.states[1]))])
    for equation in jaxpr.eqns:
        if any(not isinstance(var, Literal) and var in reached for var in equation.invars):
            reached.update(equation.outvars)
    params = [not isinstance(var, Literal) and var in reached for var in jaxpr.outvars]
    return params + [learning.keeps_statistics] * len(jax.tree.leaves(weights.statistics))


def _starts_unchanged(learning: Learning) -> bool:
    """Returns whether the algorithm's `start` returns the global model."""
    first = len(jax.tree.leaves(learning.states[1]))
    returned = passed_on(_start(learning))
    return returned == list(range(first, first + len(returned)))


def _start(learning: Learning) -> Any:
    """Returns the jaxpr of the algorithm's `start`.

    Its inputs are the client's state, the parameters, the server's state and the traced values.
    """
    server, client = learning.states

    def start(client: Any, params: Any, server: Any, values: Values) -> list[jax.Array]:
        return jax.tree.leaves(learning.build_algorithm(values).start(params, server, client))

    values = learning.shapes_of(learning.algorithm)
    return jax.make_jaxpr(start)(client, _shapes(learning).params, server, values).jaxpr


def lengths(learning: Learning) -> tuple[int, int]:
    """Returns the lengths of the vectors of a run's model and of one client's own weights."""
    sizes = [leaf.size for leaf in jax.tree.leaves(_shapes(learning))]
    return sum(sizes), sum(size for size, own in zip(sizes, is_own(learning), strict=True) if own)


def weights_of(
    learning: Learning, model: np.ndarray, clients: np.ndarray | None
) -> tuple[Weights, Weights | None]:
    """Converts the vectors of one run to the run's weights and the weights of its clients, [K, ...].

    Leaves that all clients share are repeated without a copy. The second value is None if no leaf differs
    between clients.

    Args:
      learning: the static description of learning.
      model: float32 [n], the weights; a longer vector ends with padding.
      clients: float32 [K, m], the weights that differ between clients; longer vectors end with padding.
    """
    like, structure = jax.tree.flatten(_shapes(learning))
    whole = _cut(model, like)
    weights = jax.tree.unflatten(structure, whole)
    kept = is_own(learning)
    if clients is None or not any(kept):
        return weights, None
    own = iter(_cut(clients, [leaf for leaf, is_kept in zip(like, kept, strict=True) if is_kept]))
    of_all = [
        next(own) if is_kept else np.broadcast_to(leaf, (len(clients), *leaf.shape))
        for leaf, is_kept in zip(whole, kept, strict=True)
    ]
    return weights, jax.tree.unflatten(structure, of_all)


def _cut(vector: np.ndarray, like: Sequence[jax.ShapeDtypeStruct]) -> list[np.ndarray]:
    """Cuts vectors [..., n] into arrays [..., *shape] of some shapes."""
    ends = np.cumsum([leaf.size for leaf in like])
    return [
        vector[..., end - leaf.size : end].reshape((*vector.shape[:-1], *leaf.shape))
        for leaf, end in zip(like, ends.tolist(), strict=True)
    ]


def _shapes(learning: Learning) -> Weights:
    weights: Weights = jax.eval_shape(learning.model.init, jax.random.key(0))
    return weights
