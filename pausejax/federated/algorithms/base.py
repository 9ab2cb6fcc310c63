"""The interface of federated algorithms: five functions for one client and one server, used under vmap."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.federated.modules import Params

Number = jax.Array | float
State = Any


class Local(NamedTuple):
    """Client during its training, or after its last step."""

    params: Params
    """Current parameters of the client, float32 leaves."""
    start: Params
    """Parameters of the client before its first step."""
    server: State
    """Server state of the algorithm before the round, which every client receives."""
    client: State
    """State of this client in the algorithm before the round."""
    step: jax.Array
    """int32 scalar, number of steps that the client has taken."""
    steps: jax.Array
    """int32 scalar, number of steps that the client takes in this round, >= 1."""
    learning_rate: jax.Array
    """float32 scalar, local learning rate."""


class Arrivals(NamedTuple):
    """Numbers of the clients whose uploads are in the mean; float32 [n] each, 0 in rows without an upload."""

    weight: jax.Array
    """Aggregation weights (2). They sum to 1 if any upload arrived, and lack the ending's `Close.factor`."""
    share: jax.Array
    """Share |D_k| / |D| of all data that each client has."""
    steps: jax.Array
    """Number of local steps of each client."""


def stateless(params: Params) -> tuple[State, State]:
    """Returns empty states of the server and of a client."""
    return (), ()


def global_model(params: Params, server: State, client: State) -> Params:
    """Returns the global model, from which a client starts its training."""
    return params


def unchanged(gradient: Params, local: Local) -> Params:
    """Returns the gradient unchanged."""
    return gradient


def difference(local: Local) -> tuple[Params, State]:
    """Returns the change of the parameters in training as the upload, and the unchanged client state."""
    return jax.tree.map(jnp.subtract, local.params, local.start), local.client


def mean_update(mean: Any, params: Params, server: State, arrived: Arrivals) -> tuple[Params, State]:
    """Returns the mean upload as the update of the global model, and the unchanged server state."""
    return mean, server


class Algorithm(NamedTuple):
    """Federated algorithm as pure, jittable functions; the defaults together are FedAvg.

    Each function is written for one client or one server. A client's state changes only if its upload
    arrives, and the server's state changes only if any upload arrives.
    """

    init: Callable[[Params], tuple[State, State]] = stateless
    """Function from the initial model to the initial states of the server and of each client."""
    start: Callable[[Params, State, State], Params] = global_model
    """Function from the global model, the server's state and a client's state to the parameters from which
    the client starts. The evaluated model is the start of a client with the mean state of all clients that
    have trained. Integers, booleans and keys are those of the trained client with the largest data share."""
    gradient: Callable[[Params, Local], Params] = unchanged
    """Function from a minibatch's gradient and the client to the gradient for the local optimizer."""
    upload: Callable[[Local], tuple[Any, State]] = difference
    """Function from a client after its training to its upload, any pytree of float32, and its next state."""
    combine: Callable[[Any, Params, State, Arrivals], tuple[Params, State]] = mean_update
    """Function from the mean upload, the global model, the server's state and the arrived clients.

    It returns the update for the server optimizer and the server's next state.
    """
