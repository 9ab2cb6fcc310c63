"""When a round closes, and whose update counts: wait for all, for a time, or for the first to deliver."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.parts import Parameter

Number = jax.Array | float


class Work(NamedTuple):
    """The clients at work in a round, slot by slot: first those of earlier rounds, then the cohort."""

    client: jax.Array
    """Int32 [n]; -1: nobody."""
    latency: jax.Array
    """Float32 [n], when each would deliver, s after the round began."""
    fails: jax.Array
    """Bool [n], who fails in mid-round: it delivers nothing, and the server knows by then."""
    age: jax.Array
    """Int32 [n], steps of the server since each was selected; 0 for the cohort."""


class Close(NamedTuple):
    """How a round closes."""

    duration: jax.Array
    """Float32 scalar, s; anything for a cohort of nobody."""
    counts: jax.Array
    """Bool [n], whose update is aggregated."""
    done: jax.Array | None = None
    """Bool [n], who works no longer when the round has closed; None: nobody does. With `Ending.waiting` it
    must leave at most so many at work."""
    factor: jax.Array | None = None
    """Float32 [n], what the weight of an update is multiplied by, in [0, 1]; None: 1."""


class Ending(NamedTuple):
    """When rounds close; its function is pure and jittable."""

    close: Callable[[Work], Close]
    chooses: int | None = None
    """How many clients the policy selects; None: `clients_per_round`."""
    waits_for_all: bool = False
    """Whether the slowest of the cohort always ends a round, which is what regrets are defined for."""
    waiting: int = 0
    """How many clients may still be at work when a round closes."""


@parts.ending
def all() -> Ending:
    """The round lasts as long as the slowest of the cohort: the paper's."""

    def close(work: Work) -> Close:
        there = work.client >= 0
        return Close(_latest(work, there), there & ~work.fails)

    return Ending(close, waits_for_all=True)


@parts.ending
def deadline(
    *,
    round_deadline: Annotated[
        Number, Parameter(help="deadline: the longest that a round lasts", low=0, low_open=True, units="s")
    ] = 1.0,
) -> Ending:
    """The round ends at a deadline, or when all have delivered; who is late does not count."""

    def close(work: Work) -> Close:
        there = work.client >= 0
        duration = jnp.minimum(_latest(work, there), round_deadline)
        return Close(duration, there & ~work.fails & (work.latency <= duration))

    return Ending(close)


@parts.ending
def first(
    *,
    clients_per_round: int,
    num_clients: int,
    extra_clients: Annotated[
        int, Parameter(help="first: clients that are selected beyond those that count", low=0)
    ] = 2,
) -> Ending:
    """More clients are selected than count: the round ends when the first m have delivered.

    The policy selects m + `extra_clients` clients, at most K: the over-selection of Bonawitz et al. 2019. If
    fewer than m deliver, the round lasts as long as the slowest.
    """

    def close(work: Work) -> Close:
        there = work.client >= 0
        delivers = there & ~work.fails
        # Ties go to the lower slot.
        order = jnp.argsort(jnp.where(delivers, work.latency, jnp.inf), stable=True)
        rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.size))
        counts = delivers & (rank < clients_per_round)
        enough = jnp.sum(delivers) >= clients_per_round
        return Close(_latest(work, jnp.where(enough, counts, there)), counts)

    return Ending(close, chooses=min(clients_per_round + extra_clients, num_clients))


@parts.ending
def buffered(
    *,
    clients_per_round: int,
    num_clients: int,
    concurrency: Annotated[
        int, Parameter(help="buffered: clients at work at a time, at least m; 0: 2 m", low=0)
    ] = 0,
    staleness_exponent: Annotated[
        Number, Parameter(help="buffered: an update of age s counts (1 + s)^-exponent", low=0)
    ] = 0.5,
) -> Ending:
    """The server steps whenever m updates have arrived, from models that may be old: FedBuff.

    Nguyen et al. 2022. Every round selects m clients, and closes with the m earliest of all that are at
    work. Until `concurrency` clients are, a round closes at once. A client at work can't be selected.

    Raises:
      ValueError: `concurrency` is below m or above K.
    """
    concurrency = concurrency or min(2 * clients_per_round, num_clients)
    if not clients_per_round <= concurrency <= num_clients:
        allowed = f"from clients_per_round = {clients_per_round} to num_clients = {num_clients}"
        raise ValueError(f"concurrency = {concurrency}: must be {allowed}")
    waiting = concurrency - clients_per_round

    def close(work: Work) -> Close:
        there = work.client >= 0
        # Ties go to the lower slot, which is the older update.
        rank = jnp.argsort(jnp.argsort(jnp.where(there, work.latency, jnp.inf), stable=True))
        # Without a new client it waits for m, so that time goes on. The cohort has the last slots.
        anyone = jnp.any(there[waiting:])
        number = jnp.where(anyone, jnp.sum(there) - waiting, clients_per_round)
        done = there & (rank < number)
        factor = (1.0 + work.age.astype(jnp.float32)) ** -staleness_exponent
        return Close(_latest(work, done), done & ~work.fails, done, factor)

    return Ending(close, waiting=waiting)


def _latest(work: Work, waited: jax.Array) -> jax.Array:
    """When the last of some slots delivers, or fails; 0 if there are none."""
    return jnp.max(jnp.where(waited, work.latency, 0.0))
