"""One round of all runs of a group: select, train and privatize, aggregate, evaluate, update the policy."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import bandit, privacy
from pausejax.clients.learning import evaluate, learn, local_loss
from pausejax.clients.meeting import Met, meet_network, turn_out
from pausejax.clients.program import Hyper, Program, State, World, policy_key, round_key
from pausejax.clients.quantities import Seen
from pausejax.clients.quantities import record as record_quantities
from pausejax.clients.scoring import score_round
from pausejax.policies.base import Cohort, Feedback, View
from pausejax.policies.check import Fault, fault


class Record(NamedTuple):
    """What one round leaves in the result, [R] each unless said."""

    round_latency: jax.Array
    reward: jax.Array
    regret: jax.Array
    pseudo_regret: jax.Array
    regret_own_history: jax.Array
    max_leakage: jax.Array
    max_leakage_update: jax.Array
    selection_gap: jax.Array
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
    released: jax.Array | None = None
    """bool [R, n], which of the selected have released an update; None where all have."""
    fault: Fault | None = None
    """What is wrong with the cohort; None for the package's policies."""


class _Sight(NamedTuple):
    """What policies may look at in a round, one row per run."""

    round: jax.Array
    met: Met
    params: Any
    partition: jax.Array


def play_round(
    program: Program,
    world: World,
    hyper: Hyper,
    last_round: jax.Array,
    state: State,
    round: jax.Array,
) -> tuple[State, Record]:
    """Plays round t of all runs.

    Args:
      program: static.
      world: see `World`.
      hyper: see `Hyper`.
      last_round: int32 scalar; it is always evaluated.
      state: before the round.
      round: int32 [R], t of each run.
    """
    learning = program.learning

    keys = jax.vmap(round_key)(world.seed, round)
    meet = functools.partial(meet_network, program, world.files)
    met = jax.vmap(meet)(round, keys, hyper, state.availability)

    def view_of(sight: _Sight) -> View:
        loss = local_loss(learning, world, sight.params, sight.partition)
        return View(sight.round, sight.met.latency, loss, sight.met.available)

    def select(key: jax.Array, hyper: Hyper, policy_state: Any, sight: _Sight) -> Cohort:
        policy = program.build(hyper, world.files)
        cohort = policy.select(policy_key(program, key), policy_state, view_of(sight))
        ascending = jnp.argsort(jnp.where(cohort.members >= 0, cohort.members, program.num_clients))
        return jax.tree.map(lambda leaf: leaf[ascending], cohort)

    sight = _Sight(round, met, state.params, world.partition)
    cohort = jax.vmap(select)(keys, hyper, state.policy, sight)
    turnout = turn_out(program.failure_stage, cohort, met.fails)
    members, exists = cohort.members, cohort.members >= 0
    latency_reward = hyper["min_latency"][:, None] / met.latency

    member_latency = jnp.take_along_axis(met.latency, jnp.maximum(members, 0), axis=1)
    member_reward = hyper["min_latency"][:, None] / member_latency
    seen = jax.vmap(bandit.update)(state.bandit, turnout.counted, member_reward)

    if learning:
        params, optimizer, trained, finite = learn(program, world, hyper, state, keys, turnout.cohort)
        loss, loss_rms = (x.reshape(members.shape) for x in (trained.loss, trained.loss_rms))
        updates = trained.updates.reshape(*members.shape, trained.updates.shape[-1])
        # All runs of a call are as far from their next evaluation.
        due = (round[0] % program.eval_every == 0) | (round[0] == last_round)
        unknown = jnp.full(members.shape[0], jnp.nan)
        with jax.named_scope("evaluation"):
            metric, test_loss = jax.lax.cond(
                due,
                lambda params: evaluate(learning, world, params, optimizer.trained),
                lambda _: (unknown, unknown),
                params,
            )
        diverged = jnp.where((state.diverged == 0) & ~finite, round, state.diverged)
    else:
        params, optimizer, diverged = state.params, state.optimizer, state.diverged
        loss = loss_rms = jnp.zeros(members.shape)
        updates = jnp.zeros((*members.shape, 0))
        metric = test_loss = jnp.full(members.shape[0], jnp.nan)

    def learn_from(hyper: Hyper, policy_state: Any, sight: _Sight, feedback: Feedback) -> Any:
        policy = program.build(hyper, world.files)
        return policy.update(policy_state, view_of(sight), feedback)

    feedback = Feedback(
        turnout.counted, member_latency, member_reward, loss, loss_rms, updates, turnout.arrived
    )
    policy = jax.vmap(learn_from)(hyper, state.policy, sight, feedback)

    score = functools.partial(
        score_round,
        clients_per_round=program.clients_per_round,
        selection_gap=program.selection_gap,
    )
    completes = None
    if met.fails is not None and program.failure_stage == "before_release":
        completes = ~met.fails
    genie, scored, gap = jax.vmap(score)(
        round,
        program.objective(hyper),
        state.mean_reward,
        latency_reward,
        world.data_share,
        state.bandit,
        state.genie,
        members,
        met.available,
        completes,
    )
    leaked = jnp.max(
        privacy.leakage(seen.counts, hyper["privacy_budget"][:, None], hyper["budget_decay"][:, None]), axis=1
    )
    if learning and learning.in_the_clear:
        leaked = jnp.full_like(leaked, jnp.inf)
    clip = learning.training.clip if learning else "vector"
    recorded = {}
    if program.quantities:
        arrived = turnout.cohort.members >= 0
        what_was_seen = Seen(
            round=round,
            members=members,
            arrived=arrived,
            weights=turnout.cohort.weights,
            latency=met.latency,
            counts=seen.counts,
            mean_reward=seen.mean_reward,
            data_share=world.data_share,
            available=met.available,
            loss=jnp.where(arrived & (learning is not None), loss, jnp.nan),
            params=params.params if learning else None,
        )
        recorded = jax.vmap(functools.partial(record_quantities, program.quantities))(what_was_seen, hyper)
    faulty = functools.partial(fault, program.num_clients)
    record = Record(
        round_latency=jnp.max(jnp.where(exists, member_latency, hyper["min_latency"][:, None]), axis=1),
        **scored._asdict(),
        selection_gap=gap,
        max_leakage=leaked,
        max_leakage_update=privacy.update_leakage(leaked, learning.num_parameters if learning else 1, clip),
        train_loss=mean_loss(turnout.cohort, loss) if learning else jnp.full(members.shape[0], jnp.nan),
        test_metric=metric,
        test_loss=test_loss,
        diverged_round=diverged,
        selected=members,
        available_count=None if met.available is None else jnp.sum(met.available, axis=1, dtype=jnp.int32),
        failed_count=None
        if turnout.arrived is None
        else jnp.sum(exists & ~turnout.arrived, axis=1, dtype=jnp.int32),
        released=turnout.counted >= 0 if program.failure_stage == "before_release" else None,
        own=recorded,
        fault=jax.vmap(faulty)(cohort, met.available) if program.policy.part.outside else None,
    )
    after = State(seen, genie, state.mean_reward, met.availability, policy, params, optimizer, diverged)
    return after, record


def mean_loss(cohort: Cohort, loss: jax.Array) -> jax.Array:
    """The weighted mean loss of cohorts, [R, n] -> [R]; NaN for a cohort of nobody."""
    there = cohort.members >= 0
    mean = jnp.sum(jnp.where(there, cohort.weights * loss, 0.0), axis=1)
    return jnp.where(jnp.any(there, axis=1), mean, jnp.nan)
