"""Rules that end a round: after all deliveries, at a deadline, or after the first m deliveries."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.parts import Parameter

Number = jax.Array | float


class Work(NamedTuple):
    """Clients at work in a round, one in each slot. Clients of earlier rounds come first, then the cohort."""

    client: jax.Array
    """Int32 [n], client in each slot; -1 for an empty slot."""
    latency: jax.Array
    """Float32 [n], time at which each client would deliver, seconds after the start of the round."""
    fails: jax.Array
    """Bool [n], clients that fail in the round.

    After the latency of such a client, the server knows that the client delivers nothing.
    """
    age: jax.Array
    """Int32 [n], number of server steps since each client was selected; 0 for the cohort."""


class Close(NamedTuple):
    """Decision of an ending about a round: its duration, whose updates count, and who no longer works."""

    duration: jax.Array
    """Float32 scalar, duration of the round, seconds; any number for an empty cohort."""
    counts: jax.Array
    """Bool [n], whether the client's update is aggregated.

    Other clients that are done and do not fail are late, whatever their latency. Under `late = "stopped"`
    late clients have sent nothing. With an ending that drops updates which have arrived, take
    `late = "released"`.
    """
    done: jax.Array | None = None
    """Bool [n], clients that no longer work after the round; None if no client works any longer. At most
    `Ending.waiting` clients may still work."""
    factor: jax.Array | None = None
    """Float32 [n], factor of each update's weight, in [0, 1]; None means 1."""


class Ending(NamedTuple):
    """Rule for the end of rounds; its function is pure and jittable."""

    close: Callable[[Work], Close]
    chooses: int | None = None
    """Number of clients that the policy selects; None means `clients_per_round`."""
    waits_for_all: bool = False
    """Whether the slowest client of the cohort always ends a round; regrets are defined only then."""
    waiting: int = 0
    """Largest number of clients that may still be at work when a round closes."""


@parts.ending
def all() -> Ending:
    """Ends the round when the slowest client of the cohort is done, as in the PAUSE paper."""

    def close(work: Work) -> Close:
        there = work.client >= 0
        return Close(_latest(work, there), there & ~work.fails)

    return Ending(close, waits_for_all=True)


@parts.ending
def deadline(
    *,
    round_deadline: Annotated[
        Number,
        Parameter(help="deadline: longest duration of a round, seconds", low=0, low_open=True, units="s"),
    ] = 1.0,
) -> Ending:
    """Ends the round at a deadline, or when all clients have delivered.

    Updates of late clients do not count.
    """

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
        int,
        Parameter(help="first: number of clients selected in addition to m; at most K are selected", low=0),
    ] = 2,
) -> Ending:
    """Ends the round when m of the selected clients have delivered.

    The policy selects m + `extra_clients` clients, but at most K. This is the over-selection of Bonawitz et
    al. 2019. If fewer than m clients deliver, the round lasts as long as the slowest client.
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
        int, Parameter(help="buffered: number of clients that train at one time, m to K; 0: 2 m", low=0)
    ] = 0,
    staleness_exponent: Annotated[
        Number,
        Parameter(help="buffered: exponent e of the weight (1 + s)^-e of an update of age s", low=0),
    ] = 0.5,
) -> Ending:
    """The server steps whenever m updates have arrived; updates may start from older models: FedBuff.

    The ending follows Nguyen et al. 2022. Every round selects m clients, and closes when the m earliest of
    all clients at work have delivered. While fewer than `concurrency` clients are at work, a round waits for
    fewer than m deliveries, or for none. A client at work can't be selected.

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
        # A round without a new client waits for m clients, because a round that waits for no client lasts no
        # time. The cohort is in the last slots.
        anyone = jnp.any(there[waiting:])
        number = jnp.where(anyone, jnp.sum(there) - waiting, clients_per_round)
        done = there & (rank < number)
        factor = (1.0 + work.age.astype(jnp.float32)) ** -staleness_exponent
        return Close(_latest(work, done), done & ~work.fails, done, factor)

    return Ending(close, waiting=waiting)


def _latest(work: Work, waited: jax.Array) -> jax.Array:
    """Returns the time at which the last of the slots `waited` delivers or fails; 0 if there are no slots."""
    return jnp.max(jnp.where(waited, work.latency, 0.0))
