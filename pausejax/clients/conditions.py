"""The network in a round: latencies, availability, failures, and which updates arrive."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.clients.inputs import (
    AVAILABILITY,
    FAILURE,
    LATENCY,
    RELEASE_LIMIT,
    Files,
    Hyper,
    Slots,
    StaticConfig,
    UnfinishedWork,
)
from pausejax.network import Work
from pausejax.parts import PartError
from pausejax.policies.base import Cohort


class NetworkDraw(NamedTuple):
    """State of the network in one round of one run, drawn at random.

    The draw depends on the seed, the round and the network's parameters, but not on the policy. So policies
    are compared on the same draws. There is one exception: a client without privacy budget is not available.
    """

    latency: jax.Array
    """float32 [K], latency, seconds."""
    available: jax.Array | None
    """bool [K], clients that can be selected; None if all clients can always be selected."""
    fails: jax.Array | None
    """bool [K], clients that fail during the round if selected; None if no client can fail."""
    availability: Any
    """Next state of the availability process."""


class Overlap(NamedTuple):
    """Slots of finished clients and of clients still at work, in each of R runs, if rounds overlap.

    There are s slots: first those of the clients from earlier rounds, then those of the cohort.
    """

    finished: jax.Array
    """int32 [R, n], the indices of the slots of `RoundClose.members`."""
    staying: jax.Array
    """int32 [R, max_at_work], first the indices of slots whose clients are still at work, then padding."""
    slots: Slots
    """[R, s], all slots after the round; client -1 in finished slots."""
    staleness: jax.Array
    """float32 [R], mean age in server steps of the updates that are aggregated, NaN if there are none."""
    lost: jax.Array
    """bool [R], whether more than n clients have finished, or more than `max_at_work` are still at work."""


class RoundClose(NamedTuple):
    """Duration of a round, and the updates that are aggregated and released, one row for each run.

    The cohort has n slots. If clients of earlier rounds may still be at work, their slots come before these
    n. There are s slots in total.
    """

    to_train: Cohort
    """[R, n], members of the cohort whose local training this round computes; -1 for other members.

    If rounds overlap, every member that does not fail is trained, and may deliver its update in a later
    round. Else only members whose update is aggregated are trained.
    """
    aggregated: Cohort
    """[R, s], clients whose update is aggregated; -1 for other clients. Weights sum to 1, or to 0 if no
    update is aggregated."""
    latency: jax.Array
    """float32 [R, n], seconds, latency of `members` as the server observes it."""
    members: jax.Array
    """int32 [R, n], clients whose latency the server observes; -1 pads.

    They are the cohort, or the clients that have finished if rounds overlap.
    """
    arrived: jax.Array | None
    """bool [R, n], `members` whose update is aggregated; None if no client can fail, be late or stay at
    work."""
    released: jax.Array
    """int32 [R, n], `members` that released an update, which spends privacy; -1 for other members."""
    failed: jax.Array | None
    """bool [R, n], `members` that failed; None if no client can fail."""
    duration: jax.Array
    """float32 [R], duration of the round, seconds."""
    factor: jax.Array | None = None
    """float32 [R, s], factor of each update in addition to its weight; None means 1."""
    overlap: Overlap | None = None
    """Slots of finished and of working clients; None if all clients finish before a round closes."""


def draw_network(
    config: StaticConfig,
    files: Files,
    round: jax.Array,
    key: jax.Array,
    hyper: Hyper,
    state: Any,
    releases: jax.Array,
) -> NetworkDraw:
    """Draws latencies, availability and failures of one round of one run.

    Args:
      config: the group's static values.
      files: the tables that parts read from files, float32 [rows, columns], by parameter name.
      round: int32 scalar, t.
      key: the key of this run and round, scalar.
      hyper: hyper-parameters of the run, scalars.
      state: the state of the availability process.
      releases: int32 [K], the number of updates that each client has released before this round.
    """
    latency = config.build_law(hyper, files).sample(jax.random.fold_in(key, LATENCY))
    availability = config.build_availability(hyper, files)
    available = fails = None
    if not availability.always:
        state, available = availability.step(jax.random.fold_in(key, AVAILABILITY), state, round)
    if config.limits_releases:
        left = releases.astype(jnp.float32) < hyper[RELEASE_LIMIT]
        available = left if available is None else available & left
    if config.failure_stage is not None:
        chance = jax.random.uniform(jax.random.fold_in(key, FAILURE), (config.num_clients,))
        fails = chance < hyper["failure_probability"]
    return NetworkDraw(latency, available, fails, state)


def without_workers(network: NetworkDraw, workers: jax.Array) -> NetworkDraw:
    """Marks the clients `workers`, int32 [max_at_work], as not available in the network of one run.

    Entries of `workers` that are -1 are padding.
    """
    idle = jnp.ones(network.latency.shape, bool)
    idle = idle.at[jnp.where(workers >= 0, workers, idle.size)].set(False, mode="drop")
    return network._replace(available=idle if network.available is None else idle & network.available)


def close_round(
    config: StaticConfig,
    files: Files,
    hyper: Hyper,
    cohort: Cohort,
    network: NetworkDraw,
    unfinished: UnfinishedWork | None,
) -> RoundClose:
    """Ends the round of one run: computes its duration and which updates arrive.

    Failed and late clients are removed from the cohort, and the other weights are rescaled, (2).

    A client that releases its update spends privacy and counts as a participant. If the server is trusted,
    a client releases its update if and only if the update is aggregated. Else `late` and `failure_stage`
    decide which clients release their update in this round:

        client                             releases its update
        its update is aggregated           always
        late or too many, does not fail    if late = "released"
        fails before the round closes      if failure_stage = "after_release"
        would fail after the round closes  if failure_stage = "after_release" and late = "released"
        still at work                      never

    Args:
      config: the group's static values.
      files: the tables that parts read from files, float32 [rows, columns], by parameter name.
      hyper: hyper-parameters of the run, scalars.
      cohort: the cohort, [n].
      network: the network in this round.
      unfinished: the work of clients from earlier rounds, [max_at_work]; None if no client can stay at work.

    Raises:
      PartError: clients can stay at work, and the cohort has another size than the ending requires.
    """
    work = _slots_of(cohort, network)
    if unfinished:
        assert cohort.total is not None  # `policies.check.checked` sets it
        if cohort.members.shape[0] != config.slots:
            raise PartError(
                f"{config.policy.part.where}: selects {cohort.members.shape[0]} clients a round. With "
                f"{config.ending.part.where} the policy must select {config.slots}"
            )
        # Updates of several cohorts may be aggregated together, so their weights must be comparable.
        work = work._replace(weight=cohort.weights * cohort.total)
        work = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), unfinished.slots, work)
    there = work.client >= 0
    # `Ending.close` gets times from the start of this round, also for clients of earlier rounds.
    made = config.build_ending(hyper, files).close(
        Work(work.client, latency=work.remaining, fails=work.fails, age=work.age)
    )
    # A round without a cohort lasts τ_min.
    duration = jnp.where(jnp.any(there), made.duration, hyper["min_latency"])
    if config.waits_for_all and network.fails is None:
        members = cohort.members
        return RoundClose(
            to_train=cohort,
            aggregated=cohort,
            latency=work.latency,
            members=members,
            arrived=None,
            released=members,
            failed=None,
            duration=duration,
            factor=made.factor,
        )
    done = there if made.done is None else made.done
    weights = jnp.where(made.counts, work.weight, 0.0)
    total = jnp.sum(weights)
    weights = weights / jnp.where(total > 0, total, 1.0)
    rest = Cohort(jnp.where(made.counts, work.client, -1), weights)
    released = made.counts
    if not config.trusts_server:
        # With late = "stopped" a late client stops when the round closes. With "released" it works on until
        # it has released its update.
        finishes_work = (work.remaining <= duration) & done
        if config.late == "released":
            finishes_work = there & done
            released = released | (finishes_work & ~work.fails)
        if config.failure_stage == "after_release":
            released = released | (there & work.fails & finishes_work)
    latency = work.latency
    if not (config.waits_for_all or unfinished):
        # The server observes the duration of the round as the latency of a late client.
        latency = jnp.minimum(latency, duration)
    found = RoundClose(
        to_train=rest,
        aggregated=rest,
        latency=latency,
        members=work.client,
        arrived=made.counts,
        released=jnp.where(released, work.client, -1),
        failed=None if network.fails is None else there & work.fails & done,
        duration=duration,
        factor=made.factor,
    )
    return _with_work(cohort, work, there & done, found) if unfinished else found


def _slots_of(cohort: Cohort, network: NetworkDraw) -> Slots:
    """Returns a slot for each client of a cohort that starts its work, [n]."""
    there = cohort.members >= 0
    latency = network.latency[jnp.maximum(cohort.members, 0)]
    fails = jnp.zeros_like(there)
    if network.fails is not None:
        fails = network.fails[jnp.maximum(cohort.members, 0)]
    return Slots(cohort.members, latency, latency, fails, jnp.zeros_like(cohort.members), cohort.weights)


def _with_work(cohort: Cohort, work: Slots, finishes: jax.Array, close: RoundClose) -> RoundClose:
    """Splits the slots of a round, [s], into finished slots and slots still at work."""
    slots, stays, arrives = (
        cohort.members.shape[0],
        (work.client >= 0) & ~finishes,
        close.aggregated.members >= 0,
    )
    finished = jnp.argsort(jnp.where(finishes, work.client, jnp.iinfo(jnp.int32).max))[:slots]
    # Slots that are still at work come first, in their order.
    staying = jnp.argsort(~stays, stable=True)[: work.client.shape[0] - slots]
    count = jnp.sum(arrives)
    age = jnp.sum(jnp.where(arrives, work.age, 0)).astype(jnp.float32)
    trains = (cohort.members >= 0) & ~work.fails[-slots:]
    return close._replace(
        to_train=Cohort(jnp.where(trains, cohort.members, -1), cohort.weights),
        latency=close.latency[finished],
        members=jnp.where(finishes, work.client, -1)[finished],
        arrived=arrives[finished],
        released=close.released[finished],
        failed=None if close.failed is None else close.failed[finished],
        overlap=Overlap(
            finished,
            staying,
            work._replace(
                client=jnp.where(stays, work.client, -1),
                remaining=work.remaining - close.duration,
                age=work.age + (count > 0).astype(jnp.int32),
            ),
            jnp.where(count > 0, age / jnp.maximum(count, 1).astype(jnp.float32), jnp.nan),
            (jnp.sum(finishes) > slots) | (jnp.sum(stays) > staying.size),
        ),
    )
