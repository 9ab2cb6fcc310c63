"""Defines the interface of a policy that selects the models of a pool to send: init / select / update.

The arms are models. The feedback of a round is the losses of models on the clients' newest samples. The LAST
axis of every array is that of the R runs, which are simulated in parallel. Hyper-parameters are arrays [R].
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

PolicyState = Any


class Choice(NamedTuple):
    """Choice of the models that the server sends in one round."""

    sent: jax.Array
    """bool [K, R], the models that are sent, S_t."""
    mixing: jax.Array
    """float32 [K, R], the weights of the models' predictions in the ensemble.

    The simulation replaces the weight of a model that is not sent with 0.
    """
    plan: Any = None
    """Data of the draw, which only the policy's `update`, `expected_loss` and `regret_bound` read."""


class Feedback(NamedTuple):
    """Feedback of C_t, the clients that report in a round, summed over these clients."""

    model_loss: jax.Array
    """float32 [K, R], summed losses of the models that were sent; 0 for models not sent."""
    ensemble_loss: jax.Array
    """float32 [R], summed loss of the ensemble."""
    gradient: jax.Array
    """float32 [K, R], summed derivatives of the ensemble's loss by `mixing`; 0 for models not sent."""
    num_clients: jax.Array
    """int32 [R], |C_t|."""


class SelectFn(Protocol):
    def __call__(self, key: jax.Array, state: PolicyState) -> Choice:
        """Chooses the round's models; `key` is an array of R random keys of this round."""


class EnsemblePolicy(NamedTuple):
    """Policy as a set of pure, jittable functions. The loss is the squared error."""

    init: Callable[[], PolicyState]
    select: SelectFn
    update: Callable[[PolicyState, Choice, Feedback], PolicyState]
    expected_loss: Callable[[Choice, jax.Array, jax.Array], jax.Array]
    """Function from (choice, predictions [K, n, R], targets [n, R]) to the ensemble's expected loss, [n, R].

    The expectation is over the policy's draw of the round, as in EFL-FG (10)."""
    regret_bound: Callable[[Choice, jax.Array, jax.Array], jax.Array] | None = None
    """Function from (choice, round [], num_clients [R]) to the round's summand of the regret bound, [K,
    R]."""
    min_sent: int = 0
    """The fewest models that a round sends. With a larger number fewer clients are simulated.

    In a round that sends fewer models, as many clients report as if `min_sent` models were sent.
    """


def uniform(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Returns uniform draws in [0, 1), float32 [*shape, R], from R keys."""
    return jax.vmap(lambda k: jax.random.uniform(k, shape), out_axes=-1)(key)


def draw_index(key: jax.Array, probability: jax.Array) -> jax.Array:
    """Draws one index per run, int32 [R], with probabilities [K, R]; never an index of probability 0."""
    cumulative = jnp.cumsum(probability, axis=0)
    point = uniform(key)[None] * cumulative[-1:]
    last = jnp.max(jnp.where(probability > 0, jnp.arange(len(probability))[:, None], 0), axis=0)
    return jnp.minimum(jnp.sum(cumulative <= point, axis=0), last).astype(jnp.int32)


def squared_error(mixing: jax.Array, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the ensemble's squared error on each sample, [n, R]; arguments [K, R], [K, n, R], [n, R]."""
    return jnp.square(jnp.sum(mixing[:, None] * predictions, axis=0) - targets)


def certain_loss(choice: Choice, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the ensemble's squared error on n samples, [n, R].

    It is the `expected_loss` of policies whose loss needs no expectation over a draw.
    """
    return squared_error(choice.mixing, predictions, targets)
