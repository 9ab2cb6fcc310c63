"""The interface of every client-selection policy: three pure functions on pytrees.

A policy is to client selection what an `optax.GradientTransformation` is to optimization: a NamedTuple of
pure functions whose constructor takes the hyper-parameters. These may be Python numbers or traced scalars,
so one compiled program serves a whole sweep.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

PolicyState = Any


class Clients(NamedTuple):
    """What the server knows of the clients before the first round."""

    data_share: jax.Array
    """float32 [K], |D_k| / |D|; sums to 1."""
    expected_latency: jax.Array
    """float32 [K], E[τ_k] in seconds. Only a policy that is defined with this knowledge may read it."""


class View(NamedTuple):
    """What a policy may look at when it selects."""

    round: jax.Array
    """int32 scalar, t, the round that is about to be played; the first is 1."""
    latency: jax.Array
    """float32 [K], this round's latencies in seconds. Only a clairvoyant policy may read it."""
    local_loss: Callable[[jax.Array], jax.Array]
    """Maps client indices, int32 [c], to the mean loss on each one's data, [c], of the global model before
    the round, in `update` too."""
    available: jax.Array | None = None
    """bool [K], who may be selected; None where it is everyone in every round."""


class Cohort(NamedTuple):
    """The clients of one round. Slots beyond the cohort's size hold client -1 and weight 0."""

    members: jax.Array
    """int32 [n], distinct indices of available clients."""
    weights: jax.Array
    """float32 [n], aggregation weights, (2): >= 0, and they sum to 1, or to 0 for a cohort of nobody. Another
    sum ends the study when the round has been played."""


class Feedback(NamedTuple):
    """What the server has seen when the round is over; rows belong to `members`, pads are to be ignored."""

    members: jax.Array
    """int32 [n], in ascending order, the cohort's members, or where rounds overlap the clients that have
    finished; -1, in any place, for pads and for clients that nothing has left."""
    latency: jax.Array
    """float32 [n], seconds from the selection on; of a client that is too late, until the round ends."""
    reward: jax.Array
    """float32 [n], τ_min / τ_k, in (0, 1]."""
    loss: jax.Array
    """float32 [n], mean training loss over the client's minibatches (0 in bandit mode)."""
    loss_rms: jax.Array
    """float32 [n], root of the mean squared minibatch loss (0 in bandit mode)."""
    update: jax.Array
    """float32 [n, d], updates as they leave the clients; [n, 0] unless `Policy.needs_updates` is set."""
    arrived: jax.Array | None = None
    """bool [n], whose update has reached the server: losses and updates of the others are junk. None where
    nobody can fail, be late or stay at work."""


class InitFn(Protocol):
    def __call__(self, key: jax.Array, clients: Clients, /) -> PolicyState: ...


class SelectFn(Protocol):
    def __call__(self, key: jax.Array, state: PolicyState, view: View, /) -> Cohort:
        """Chooses the cohort of round `view.round`; `key` is this round's own and may be consumed."""


class UpdateFn(Protocol):
    def __call__(self, state: PolicyState, view: View, feedback: Feedback, /) -> PolicyState: ...


class Policy(NamedTuple):
    """A client-selection policy. All three functions are pure, jittable and vmappable."""

    init: InitFn
    select: SelectFn
    update: UpdateFn
    needs_updates: bool = False
    """Whether `update` reads `feedback.update` (it costs memory: [n, d] per run)."""
    needs_learning: bool = False
    """Whether it selects by losses or updates, so that a study without training has nothing for it."""


def cohort(members: jax.Array, data_share: jax.Array) -> Cohort:
    """Weights the members by their data, |D_k| / Σ|D_j| over the cohort, (2).

    Args:
      members: int32 [n], distinct; -1 pads.
      data_share: float32 [K].
    """
    share = jnp.where(members >= 0, data_share[members], 0.0)
    total = jnp.sum(share)
    return Cohort(members, share / jnp.where(total > 0, total, 1.0))


def first_of(order: jax.Array, m: int, available: jax.Array | None = None) -> jax.Array:
    """The first m clients of an order, or the first m of those who are available.

    Args:
      order: int32 [n], distinct clients, n >= m; -1 pads.
      m: clients to take.
      available: bool [K]; None for everyone, and then `order` has no pads.

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
    """`available` as a keyword argument of the selectors, or none where everyone is available."""
    return {} if view.available is None else {"available": view.available}


def memoryless(select: Callable[[jax.Array, Clients, View], Cohort]) -> Policy:
    """A policy that learns nothing from the rounds: its state is what it was told of the clients."""
    return Policy(
        init=lambda key, clients: clients, select=select, update=lambda state, view, feedback: state
    )


def slots_of_arrived(feedback: Feedback, num_clients: int) -> jax.Array:
    """The members whose losses and updates are known, int32 [n]; K, one past the last client, for others."""
    known = feedback.members >= 0
    if feedback.arrived is not None:
        known &= feedback.arrived
    return jnp.where(known, feedback.members, num_clients)
