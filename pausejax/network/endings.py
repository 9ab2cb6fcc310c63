"""When a round closes, and whose update counts: wait for all, for a time, or for the first to deliver."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.parts import Parameter

Number = jax.Array | float


class Work(NamedTuple):
    """A cohort at work, slot by slot."""

    client: jax.Array
    """Int32 [n]; -1: nobody."""
    latency: jax.Array
    """Float32 [n], when each would deliver, s after the round began."""
    fails: jax.Array
    """Bool [n], who fails in mid-round: it delivers nothing, and the server knows by then."""


class Close(NamedTuple):
    """How a round closes."""

    duration: jax.Array
    """Float32 scalar, s; anything for a cohort of nobody."""
    counts: jax.Array
    """Bool [n], whose update is aggregated."""


class Ending(NamedTuple):
    """When rounds close; its function is pure and jittable."""

    close: Callable[[Work], Close]
    chooses: int | None = None
    """How many clients the policy selects; None: `clients_per_round`."""
    waits_for_all: bool = False
    """Whether the slowest of the cohort always ends a round, which is what regrets are defined for."""


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


def _latest(work: Work, waited: jax.Array) -> jax.Array:
    """When the last of some slots delivers, or fails; 0 if there are none."""
    return jnp.max(jnp.where(waited, work.latency, 0.0))
