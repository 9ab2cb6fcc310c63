"""The interface of every client-selection policy: three pure functions on pytrees.

Like an `optax.GradientTransformation`, a policy is a NamedTuple of pure functions. The function that makes a
policy takes the hyper-parameters. Hyper-parameters may be Python numbers or traced scalars, so one compiled
program serves a whole sweep.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

PolicyState = Any


class Clients(NamedTuple):
    """Knowledge of the server about the clients before the first round."""

    data_share: jax.Array
    """float32 [K], |D_k| / |D|; sums to 1."""
    expected_latency: jax.Array
    """float32 [K], E[τ_k] in seconds. Only policies whose definition assumes this knowledge may read it."""


class View(NamedTuple):
    """Values that a policy may read when it selects."""

    round: jax.Array
    """int32 scalar, t, the current round; the first round is 1."""
    latency: jax.Array
    """float32 [K], latencies of this round, seconds. Only a clairvoyant policy may read them."""
    local_loss: Callable[[jax.Array], jax.Array]
    """Function from client indices, int32 [c], to the mean loss on each client's data, [c]. In `select` and
    in `update`, this is the loss of the global model before the round."""
    available: jax.Array | None = None
    """bool [K], clients that may be selected; None if all clients may be selected in every round."""


class Cohort(NamedTuple):
    """Clients of one round. Slots beyond the cohort's size hold client -1 and weight 0."""

    members: jax.Array
    """int32 [n], distinct indices of available clients."""
    weights: jax.Array
    """float32 [n], aggregation weights, (2).

    They are >= 0 and sum to 1, or to 0 for an empty cohort. Another sum ends the study with an error.
    """
    total: jax.Array | None = None
    """float32 scalar > 0, the sum of the weights before they were scaled to sum 1, for example Σ |D_j| / |D|.

    None means the number of members. If rounds overlap, updates of several cohorts are aggregated together,
    with weights in proportion to `total` times `weights`.
    """


class Feedback(NamedTuple):
    """Observations of the server after a round, one row for each of `members`; rows of pads have no
    meaning."""

    members: jax.Array
    """int32 [n], members of the cohort in ascending order; if rounds overlap, the clients that have finished.

    An entry of -1, at any index, is a pad or a client that has released nothing.
    """
    latency: jax.Array
    """float32 [n], seconds from the selection to the delivery; for a late client, to the round's end."""
    reward: jax.Array
    """float32 [n], τ_min / τ_k, in (0, 1]."""
    loss: jax.Array
    """float32 [n], mean training loss over the client's minibatches (0 in bandit mode)."""
    loss_rms: jax.Array
    """float32 [n], root of the mean squared minibatch loss (0 in bandit mode)."""
    update: jax.Array
    """float32 [n, d], updates after the clients' privacy noise; [n, 0] if `Policy.needs_updates` is false."""
    arrived: jax.Array | None = None
    """bool [n], clients whose update has reached the server. Losses and updates of other clients have no
    meaning. None if no client can fail, be late or stay at work."""


class InitFn(Protocol):
    def __call__(self, key: jax.Array, clients: Clients, /) -> PolicyState: ...


class SelectFn(Protocol):
    def __call__(self, key: jax.Array, state: PolicyState, view: View, /) -> Cohort:
        """Selects the cohort of round `view.round`; `key` belongs to this round and may be consumed."""


class UpdateFn(Protocol):
    def __call__(self, state: PolicyState, view: View, feedback: Feedback, /) -> PolicyState: ...


class Policy(NamedTuple):
    """Client-selection policy. All three functions are pure, jittable and vmappable."""

    init: InitFn
    select: SelectFn
    update: UpdateFn
    needs_updates: bool = False
    """Whether `update` reads `feedback.update`, which takes memory for n · d floats in each run."""
    needs_learning: bool = False
    """Whether the policy selects by losses or updates, which exist only in mode "training"."""


def cohort(members: jax.Array, data_share: jax.Array) -> Cohort:
    """Returns the cohort of some members, with weights |D_k| / Σ|D_j| over the cohort, (2).

    Its `total` is Σ|D_j| / |D|.

    Args:
      members: int32 [n], distinct clients; -1 pads.
      data_share: float32 [K], |D_k| / |D|.
    """
    share = jnp.where(members >= 0, data_share[members], 0.0)
    total = jnp.sum(share)
    return Cohort(members, share / jnp.where(total > 0, total, 1.0), total)


def first_of(order: jax.Array, m: int, available: jax.Array | None = None) -> jax.Array:
    """Returns the first m available clients of an order.

    Args:
      order: int32 [n], distinct clients, n >= m; -1 pads.
      m: the number of clients to take.
      available: bool [K], available clients; None if all are available, and then `order` has no pads.

    Returns:
      int32 [m], ascending; -1 pads at the end.
    """
    if available is None:
        return jnp.sort(order[:m]).astype(jnp.int32)
    there = (order >= 0) & available[order]
    beyond = available.shape[0]
    first = jnp.where(there, order, beyond)[jnp.argsort(~there, stable=True)][:m]
    ascending = jnp.sort(first).astype(jnp.int32)
    return jnp.where(ascending < beyond, ascending, -1)


def mask_of(view: View) -> dict[str, jax.Array]:
    """Returns `available` as a keyword argument for selectors; no argument if all clients are available."""
    return {} if view.available is None else {"available": view.available}


def memoryless(select: Callable[[jax.Array, Clients, View], Cohort]) -> Policy:
    """Returns a policy whose state never changes; the state is the given `Clients`."""
    return Policy(
        init=lambda key, clients: clients, select=select, update=lambda state, view, feedback: state
    )


def slots_of_arrived(feedback: Feedback, num_clients: int) -> jax.Array:
    """Returns the members whose losses and updates are known, int32 [n]; K in place of all other members."""
    known = feedback.members >= 0
    if feedback.arrived is not None:
        known &= feedback.arrived
    return jnp.where(known, feedback.members, num_clients)
