"""What a federated algorithm is: five functions for one client and one server, vmapped by the round."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.federated.modules import Params

Number = jax.Array | float
State = Any


class Local(NamedTuple):
    """A client during its training, or after its last step."""

    params: Params
    """Where it is, float32 leaves."""
    start: Params
    """Where it was before its first step."""
    server: State
    """The algorithm's state of the server before the round, which every client receives."""
    client: State
    """The algorithm's state of this client before the round."""
    step: jax.Array
    """int32 scalar, steps that it has taken."""
    steps: jax.Array
    """int32 scalar, steps that it takes in this round, >= 1."""
    learning_rate: jax.Array
    """float32 scalar."""


class Arrivals(NamedTuple):
    """The clients whose uploads make up the mean; float32 [n] each, 0 where nothing arrived."""

    weight: jax.Array
    """Aggregation weights (2), which sum to 1 if any upload arrived."""
    share: jax.Array
    """|D_k| / |D|, the client's share of all data."""
    steps: jax.Array
    """Its local steps."""


def stateless(params: Params) -> tuple[State, State]:
    """Keeps nothing from round to round."""
    return (), ()


def global_model(params: Params, server: State, client: State) -> Params:
    """Starts at the global model."""
    return params


def unchanged(gradient: Params, local: Local) -> Params:
    """Follows the gradient."""
    return gradient


def difference(local: Local) -> tuple[Params, State]:
    """Sends what training has changed."""
    return jax.tree.map(jnp.subtract, local.params, local.start), local.client


def mean_update(mean: Any, params: Params, server: State, arrived: Arrivals) -> tuple[Params, State]:
    """Takes the mean upload for the update."""
    return mean, server


class Algorithm(NamedTuple):
    """A federated algorithm as pure, jittable functions; the defaults together are FedAvg.

    All are written for one client or one server. A client's state advances only if its upload arrives, and
    the server's only if any does.
    """

    init: Callable[[Params], tuple[State, State]] = stateless
    """Maps the initial model to the server's state and that of every client."""
    start: Callable[[Params, State, State], Params] = global_model
    """Maps the global model, the server's and a client's state to where the client starts. What is evaluated
    is where a client with the mean state of all that have trained would start."""
    gradient: Callable[[Params, Local], Params] = unchanged
    """Maps a minibatch's gradient to what the local optimizer is given."""
    upload: Callable[[Local], tuple[Any, State]] = difference
    """Maps a client after its training to what it sends, any pytree of float32, and its next state."""
    combine: Callable[[Any, Params, State, Arrivals], tuple[Params, State]] = mean_update
    """Maps the mean upload, the global model and the server's state to the update that the server optimizer
    is given, and the server's next state."""
