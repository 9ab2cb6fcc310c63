"""Makes the record of one round of all runs, from which the result is built."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax import regret
from pausejax.clients.conditions import NetworkDraw, RoundClose
from pausejax.clients.inputs import Hyper, State, StaticConfig, World
from pausejax.clients.learn import LearningResult
from pausejax.clients.quantities import Snapshot
from pausejax.clients.quantities import record as record_quantities
from pausejax.policies.base import Cohort
from pausejax.policies.check import Fault, fault


class Record(NamedTuple):
    """Recorded values of one round of R runs; each is float32 [R] unless stated otherwise."""

    round_latency: jax.Array
    """Duration of the round, seconds."""
    reward: jax.Array | None
    """Reward (9). Reward, regrets and gap are None if the round does not wait for all clients."""
    regret: jax.Array | None
    pseudo_regret: jax.Array | None
    regret_own_history: jax.Array | None
    max_releases: jax.Array
    """int32 [R], largest number of updates that a client has released so far."""
    selection_gap: jax.Array | None
    train_loss: jax.Array
    test_metric: jax.Array
    test_loss: jax.Array
    diverged_round: jax.Array
    """int32 [R], first round after which a run's model diverged; 0 if there is none."""
    selected: jax.Array
    """int32 [R, n], selected clients; -1 pads."""
    available_count: jax.Array | None = None
    """int32 [R], number of available clients; None if all clients are always available."""
    own: dict[str, jax.Array] = {}  # noqa: RUF012, never written to
    """Quantities that the user has registered, by name, float32 [R]."""
    failed_count: jax.Array | None = None
    """int32 [R], number of selected clients that failed in the round; None if no client can fail."""
    late_count: jax.Array | None = None
    """int32 [R], number of selected clients that came too late; None if no client can be late."""
    released: jax.Array | None = None
    """int32 [R, n], clients that released an update in this round, -1 pads.

    None if all selected clients released an update.
    """
    arrived: jax.Array | None = None
    """int32 [R, n], clients whose update is aggregated, -1 pads; None if no client can stay at work."""
    staleness: jax.Array | None = None
    """float32 [R], mean age of the aggregated updates in server steps, NaN if there are none; None if no
    client can stay at work."""
    lost: jax.Array | None = None
    """bool [R], whether a user's ending has lost clients that were at work; None for other endings."""
    fault: Fault | None = None
    """Code of an error in the cohort of a user's policy; None for the package's policies."""


def record_round(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    round: jax.Array,
    network: NetworkDraw,
    cohort: Cohort,
    close: RoundClose,
    learned: LearningResult,
    evaluated: tuple[jax.Array, jax.Array],
    regrets: regret.Regrets | None,
    gap: jax.Array | None,
    after: State,
) -> Record:
    """Makes the record of a round. Arrays have a row for each run, except the shared arrays of `world`."""
    learning, overlap = config.learning, close.overlap
    unknown = jnp.full(round.shape[0], jnp.nan)
    faulty = functools.partial(fault, config.num_clients)
    return Record(
        round_latency=_duration(config, network, close, after),
        **(regrets._asdict() if regrets else dict.fromkeys(regret.Regrets._fields)),
        selection_gap=gap,
        max_releases=jnp.max(after.bandit.counts, axis=1),
        train_loss=mean_loss(close.aggregated, learned.loss_of_slots) if learning else unknown,
        test_metric=evaluated[0],
        test_loss=evaluated[1],
        diverged_round=after.diverged,
        selected=cohort.members,
        available_count=_count(network.available),
        failed_count=_count(close.failed),
        late_count=_count(_late(config, close)),
        released=close.released if _may_not_release(config) else None,
        arrived=_arrived(close) if overlap else None,
        staleness=overlap.staleness if overlap else None,
        own=_quantities(config, world, hyper, round, network, close, learned, after),
        lost=overlap.lost if overlap and config.ending.part.outside else None,
        fault=jax.vmap(faulty)(cohort, network.available) if config.policy.part.outside else None,
    )


def _duration(config: StaticConfig, network: NetworkDraw, close: RoundClose, after: State) -> jax.Array:
    """Returns the durations of the rounds, [R].

    It is NaN, which ends the study, if a user's law gives NaN for any client. Regrets depend on the clients
    that are not selected too.
    """
    if not config.law.part.outside:
        return close.duration
    fine = ~jnp.isnan(network.latency) & jnp.isfinite(after.mean_reward)
    return jnp.where(jnp.all(fine, axis=1), close.duration, jnp.nan)


def mean_loss(cohort: Cohort, loss: jax.Array) -> jax.Array:
    """Returns the weighted mean loss of cohorts, [R, n] -> [R]; NaN for an empty cohort."""
    there = cohort.members >= 0
    mean = jnp.sum(jnp.where(there, cohort.weights * loss, 0.0), axis=1)
    return jnp.where(jnp.any(there, axis=1), mean, jnp.nan)


def _late(config: StaticConfig, close: RoundClose) -> jax.Array | None:
    """Returns which members came too late, bool [R, n]; None if no client can be late.

    If rounds overlap, the members are the clients that have finished. An ending from outside the package may
    drop their updates.
    """
    never = config.waits_for_all or (config.max_at_work and not config.ending.part.outside)
    if never or close.arrived is None:
        return None
    late = (close.members >= 0) & ~close.arrived
    return late if close.failed is None else late & ~close.failed


def _arrived(close: RoundClose) -> jax.Array:
    """Returns the members of a round whose update is aggregated, int32 [R, n]; -1 pads."""
    return close.members if close.arrived is None else jnp.where(close.arrived, close.members, -1)


def _count(who: jax.Array | None) -> jax.Array | None:
    return None if who is None else jnp.sum(who, axis=1, dtype=jnp.int32)


def _may_not_release(config: StaticConfig) -> bool:
    return config.failed_release_nothing or not config.waits_for_all


def _quantities(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    round: jax.Array,
    network: NetworkDraw,
    close: RoundClose,
    learned: LearningResult,
    after: State,
) -> dict[str, jax.Array]:
    """Returns the quantities that the user has registered, by name, float32 [R]."""
    if not config.quantities:
        return {}
    arrived, weights = close.aggregated.members >= 0, close.aggregated.weights
    if close.overlap:
        finished = close.overlap.finished
        arrived, weights = (jnp.take_along_axis(x, finished, axis=1) for x in (arrived, weights))
    snapshot = Snapshot(
        round=round,
        members=close.members,
        arrived=arrived,
        weights=weights,
        latency=network.latency,
        counts=after.bandit.counts,
        mean_reward=after.bandit.mean_reward,
        data_share=world.data_share,
        available=network.available,
        loss=jnp.where(arrived & (config.learning is not None), learned.loss_of_members, jnp.nan),
        params=learned.params.params if config.learning else None,
    )
    return jax.vmap(functools.partial(record_quantities, config.quantities))(snapshot, hyper)
