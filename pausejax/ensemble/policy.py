"""The interface of a policy that chooses which models of a pool to send: init / select / update.

The arms are models, and a round's feedback is their losses on the clients' newest samples. Every array has
the run as its LAST axis (R runs are simulated in step), and hyper-parameters are arrays [R].
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

PolicyState = Any


class Choice(NamedTuple):
    """What the server sends in one round."""

    sent: jax.Array
    """bool [K, R], the models that are transmitted, S_t."""
    mixing: jax.Array
    """float32 [K, R], the ensemble predicts the sum of mixing times prediction; 0 for models not sent."""
    plan: Any = None
    """What this policy's own `update`, `expected_loss` and `regret_bound` need to know of the draw."""


class Feedback(NamedTuple):
    """What the clients of C_t report, summed over them."""

    model_loss: jax.Array
    """float32 [K, R], summed losses of the models that were sent; 0 elsewhere."""
    ensemble_loss: jax.Array
    """float32 [R], summed loss of the ensemble."""
    gradient: jax.Array
    """float32 [K, R], summed derivative of the ensemble's loss in `mixing`; 0 for models not sent."""
    num_clients: jax.Array
    """int32 [R], |C_t|."""


class SelectFn(Protocol):
    def __call__(self, key: jax.Array, state: PolicyState) -> Choice:
        """Chooses this round's models; `key` is an array of R keys, this round's own."""


class EnsemblePolicy(NamedTuple):
    """Pure, jittable functions. A predicted loss is the squared error."""

    init: Callable[[], PolicyState]
    select: SelectFn
    update: Callable[[PolicyState, Choice, Feedback], PolicyState]
    expected_loss: Callable[[Choice, jax.Array, jax.Array], jax.Array]
    """(choice, predictions [K, n, R], targets [n, R]) to the ensemble's loss on each sample, [n, R], in
    expectation over the policy's own draw of the round: the conditional expectation in EFL-FG (10)."""
    regret_bound: Callable[[Choice, jax.Array, jax.Array], jax.Array] | None = None
    """(choice, round [], num_clients [R]) to this round's share of the bound against each model, [K, R]."""
    min_sent: int = 1
    """The fewest models that a round may send."""


def uniform(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Uniform draws in [0, 1), one block per run: [*shape, R] from R keys."""
    return jax.vmap(lambda k: jax.random.uniform(k, shape), out_axes=-1)(key)


def draw_index(key: jax.Array, probability: jax.Array) -> jax.Array:
    """One index per run, int32 [R], with the given probabilities [K, R]; never one of probability 0."""
    cumulative = jnp.cumsum(probability, axis=0)
    point = uniform(key)[None] * cumulative[-1:]
    last = jnp.max(jnp.where(probability > 0, jnp.arange(len(probability))[:, None], 0), axis=0)
    return jnp.minimum(jnp.sum(cumulative <= point, axis=0), last).astype(jnp.int32)


def squared_error(mixing: jax.Array, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """The ensemble's squared error on each sample, [n, R]; arguments [K, R], [K, n, R], [n, R]."""
    return jnp.square(jnp.sum(mixing[:, None] * predictions, axis=0) - targets)


def certain_loss(choice: Choice, predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """`expected_loss` of a policy that draws nothing."""
    return squared_error(choice.mixing, predictions, targets)
