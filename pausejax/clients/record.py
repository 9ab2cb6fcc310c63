"""What one round of all runs leaves in the result."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax import privacy, regret
from pausejax.clients.conditions import NetworkDraw, RoundClose
from pausejax.clients.learn import Learned
from pausejax.clients.program import Hyper, Program, State, World
from pausejax.clients.quantities import Snapshot
from pausejax.clients.quantities import record as record_quantities
from pausejax.policies.base import Cohort, Feedback
from pausejax.policies.check import Fault, fault


class Record(NamedTuple):
    """What one round leaves in the result, [R] each unless said."""

    round_latency: jax.Array
    reward: jax.Array | None
    """With the regrets: None unless the round waits for all."""
    regret: jax.Array | None
    pseudo_regret: jax.Array | None
    regret_own_history: jax.Array | None
    max_leakage: jax.Array
    max_leakage_update: jax.Array
    selection_gap: jax.Array | None
    train_loss: jax.Array
    test_metric: jax.Array
    test_loss: jax.Array
    diverged_round: jax.Array
    """int32, as `State.diverged`."""
    selected: jax.Array
    """int32 [R, n], -1 pads."""
    available_count: jax.Array | None = None
    """int32, clients available in the round; None where it is always everyone."""
    own: dict[str, jax.Array] = {}  # noqa: RUF012, never written to
    """Quantities of the user's, by name."""
    failed_count: jax.Array | None = None
    """int32, selected clients that failed in mid-round; None where nobody can."""
    late_count: jax.Array | None = None
    """int32, selected clients that would have delivered, and came too late; None where nobody can."""
    released: jax.Array | None = None
    """bool [R, n], which of the selected have released an update; None where all have."""
    fault: Fault | None = None
    """What is wrong with the cohort; None for the package's policies."""


def record_round(
    program: Program,
    world: World,
    hyper: Hyper,
    round: jax.Array,
    network: NetworkDraw,
    cohort: Cohort,
    close: RoundClose,
    feedback: Feedback,
    learned: Learned,
    evaluated: tuple[jax.Array, jax.Array],
    regrets: regret.Regrets | None,
    gap: jax.Array | None,
    after: State,
) -> Record:
    """Puts together what a round leaves; everything that it is made of has a row per run."""
    learning, valid = program.learning, cohort.members >= 0
    leaked = jnp.max(
        privacy.leakage(
            after.bandit.counts, hyper["privacy_budget"][:, None], hyper["budget_decay"][:, None]
        ),
        axis=1,
    )
    if learning and learning.in_the_clear:
        leaked = jnp.full_like(leaked, jnp.inf)
    clip = learning.training.clip if learning else "vector"
    unknown = jnp.full(round.shape[0], jnp.nan)
    faulty = functools.partial(fault, program.num_clients)
    return Record(
        round_latency=close.duration,
        **(regrets._asdict() if regrets else dict.fromkeys(regret.Regrets._fields)),
        selection_gap=gap,
        max_leakage=leaked,
        max_leakage_update=privacy.update_leakage(leaked, learning.num_parameters if learning else 1, clip),
        train_loss=mean_loss(close.cohort, learned.loss) if learning else unknown,
        test_metric=evaluated[0],
        test_loss=evaluated[1],
        diverged_round=after.diverged,
        selected=cohort.members,
        available_count=_available(network),
        failed_count=_count(close.failed),
        late_count=_count(_late(program, valid, close)),
        released=close.released >= 0 if _may_not_release(program) else None,
        own=_quantities(program, world, hyper, round, network, cohort, close, learned, after),
        fault=jax.vmap(faulty)(cohort, network.available) if program.policy.part.outside else None,
    )


def mean_loss(cohort: Cohort, loss: jax.Array) -> jax.Array:
    """Returns the weighted mean loss of cohorts, [R, n] -> [R]; NaN for a cohort of nobody."""
    there = cohort.members >= 0
    mean = jnp.sum(jnp.where(there, cohort.weights * loss, 0.0), axis=1)
    return jnp.where(jnp.any(there, axis=1), mean, jnp.nan)


def _available(network: NetworkDraw) -> jax.Array | None:
    return None if network.available is None else jnp.sum(network.available, axis=1, dtype=jnp.int32)


def _late(program: Program, valid: jax.Array, close: RoundClose) -> jax.Array | None:
    """Who would have delivered, and does not count; None where the round waits for all."""
    if program.waits_for_all or close.arrived is None:
        return None
    late = valid & ~close.arrived
    return late if close.failed is None else late & ~close.failed


def _count(who: jax.Array | None) -> jax.Array | None:
    return None if who is None else jnp.sum(who, axis=1, dtype=jnp.int32)


def _may_not_release(program: Program) -> bool:
    return program.failure_stage == "before_release" or not program.waits_for_all


def _quantities(
    program: Program,
    world: World,
    hyper: Hyper,
    round: jax.Array,
    network: NetworkDraw,
    cohort: Cohort,
    close: RoundClose,
    learned: Learned,
    after: State,
) -> dict[str, jax.Array]:
    """The quantities of users' own, by name."""
    if not program.quantities:
        return {}
    arrived = close.cohort.members >= 0
    snapshot = Snapshot(
        round=round,
        members=cohort.members,
        arrived=arrived,
        weights=close.cohort.weights,
        latency=network.latency,
        counts=after.bandit.counts,
        mean_reward=after.bandit.mean_reward,
        data_share=world.data_share,
        available=network.available,
        loss=jnp.where(arrived & (program.learning is not None), learned.loss, jnp.nan),
        params=learned.params.params if program.learning else None,
    )
    return jax.vmap(functools.partial(record_quantities, program.quantities))(snapshot, hyper)
