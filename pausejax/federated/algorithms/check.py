"""Checks federated algorithms. The checks run when an algorithm is traced."""

from typing import Any

import jax
import jax.numpy as jnp

from pausejax.federated.algorithms.base import Algorithm, Arrivals, Local, State
from pausejax.federated.modules import Params
from pausejax.parts import Part, PartError
from pausejax.parts.check import expect_type, types_of


def checked_algorithm(algorithm: Any, part: Part) -> Algorithm:
    """Returns the algorithm with functions that check the shapes and types of their results.

    Raises:
      PartError: `algorithm` is not an `Algorithm`. Its functions raise it for a result of wrong shape or
        type.
    """
    expect_type(part, algorithm, Algorithm, "pausejax.federated.algorithms.Algorithm")

    def like(what: str, made: Any, example: Any) -> Any:
        if types_of(made) != types_of(example):
            raise PartError(
                f"{part.where}: {what} must keep the names, shapes and types of its arrays: "
                f"{_words(example)}, not {_words(made)}"
            )
        return jax.tree.map(jnp.asarray, made)

    def pair(what: str, made: Any) -> tuple[Any, Any]:
        if not isinstance(made, tuple) or len(made) != 2:
            raise PartError(f"{part.where}: {what} must return two values, not {type(made).__name__}")
        return made

    def init(params: Params) -> tuple[State, State]:
        with part.blamed("init"):
            return jax.tree.map(jnp.asarray, pair("init", algorithm.init(params)))

    def start(params: Params, server: State, client: State) -> Params:
        with part.blamed("start"):
            return like("what start returns", algorithm.start(params, server, client), params)

    def gradient(gradient: Params, local: Local) -> Params:
        with part.blamed("gradient"):
            return like("what gradient returns", algorithm.gradient(gradient, local), gradient)

    def upload(local: Local) -> tuple[Any, State]:
        with part.blamed("upload"):
            sent, client = pair("upload", algorithm.upload(local))
        for leaf in jax.tree.leaves(sent):
            if jnp.result_type(leaf) != jnp.float32:
                raise PartError(f"{part.where}: upload must return float32, not {jnp.result_type(leaf)}")
        return sent, like("the client's next state", client, local.client)

    def combine(mean: Any, params: Params, server: State, arrived: Arrivals) -> tuple[Params, State]:
        with part.blamed("combine"):
            update, after = pair("combine", algorithm.combine(mean, params, server, arrived))
        return like("the update", update, params), like("the server's next state", after, server)

    return Algorithm(init, start, gradient, upload, combine)


def _words(tree: Any) -> str:
    """Returns the names, types and shapes of at most five arrays of a tree."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = [f"{jax.tree_util.keystr(path)} {jnp.result_type(x)} {list(jnp.shape(x))}" for path, x in leaves]
    return ", ".join(named[:5]) + (" …" if len(named) > 5 else "") if named else "nothing"
