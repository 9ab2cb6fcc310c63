"""One round of all runs of a group: select, train and privatize, aggregate, evaluate, update the policy."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pausejax import bandit, network, privacy
from pausejax.clients.learning import evaluate, learn, local_loss
from pausejax.clients.program import (
    LATENCY,
    Hyper,
    Program,
    Record,
    State,
    World,
    network_of,
    policy_key,
    round_key,
)
from pausejax.clients.scoring import score_round
from pausejax.policies.base import Feedback, View


def play_round(
    program: Program,
    world: World,
    hyper: Hyper,
    mean_reward: jax.Array,
    last_round: jax.Array,
    state: State,
    round: jax.Array,
) -> tuple[State, Record]:
    learning = program.learning

    def select(
        key: jax.Array, hyper: Hyper, policy_state: Any, params: Any, partition: jax.Array
    ) -> tuple[Any, jax.Array]:
        law = network_of(program, hyper, world.trace)
        latency = network.sample(program.latency, jax.random.fold_in(key, LATENCY), law)
        view = View(round, latency, local_loss(learning, world, params, partition))
        cohort = program.build(hyper).select(policy_key(program, key), policy_state, view)
        ascending = jnp.argsort(jnp.where(cohort.members >= 0, cohort.members, program.num_clients))
        return jax.tree.map(lambda leaf: leaf[ascending], cohort), latency

    keys = jax.vmap(round_key, (0, None))(world.seed, round)
    cohort, latency = jax.vmap(select)(keys, hyper, state.policy, state.params, world.partition)
    members, exists = cohort.members, cohort.members >= 0
    latency_reward = hyper["min_latency"][:, None] / latency

    member_latency = jnp.take_along_axis(latency, jnp.maximum(members, 0), axis=1)
    member_reward = hyper["min_latency"][:, None] / member_latency
    seen = jax.vmap(bandit.update)(state.bandit, members, member_reward)

    if learning:
        params, optimizer, trained, finite = learn(program, world, hyper, state, keys, cohort)
        loss, loss_rms = (x.reshape(members.shape) for x in (trained.loss, trained.loss_rms))
        updates = trained.updates.reshape(*members.shape, trained.updates.shape[-1])
        due = (round % program.eval_every == 0) | (round == last_round)
        unknown = jnp.full(members.shape[0], jnp.nan)
        accuracy, test_loss = jax.lax.cond(
            due,
            lambda params: evaluate(learning, world, params, seen.counts),
            lambda _: (unknown, unknown),
            params,
        )
        diverged = jnp.where((state.diverged == 0) & ~finite, round, state.diverged)
    else:
        params, optimizer, diverged = state.params, state.optimizer, state.diverged
        loss = loss_rms = jnp.zeros(members.shape)
        updates = jnp.zeros((*members.shape, 0))
        accuracy = test_loss = jnp.full(members.shape[0], jnp.nan)

    def learn_from(
        hyper: Hyper,
        policy_state: Any,
        latency: jax.Array,
        params: Any,
        partition: jax.Array,
        feedback: Feedback,
    ) -> Any:
        view = View(round, latency, local_loss(learning, world, params, partition))
        return program.build(hyper).update(policy_state, view, feedback)

    feedback = Feedback(members, member_latency, member_reward, loss, loss_rms, updates)
    policy = jax.vmap(learn_from)(hyper, state.policy, latency, state.params, world.partition, feedback)

    score = functools.partial(
        score_round,
        round,
        clock=program.clock,
        clients_per_round=program.clients_per_round,
        selection_gap=program.selection_gap,
    )
    genie, scored, gap = jax.vmap(score)(
        hyper, mean_reward, latency_reward, world.data_share, state.bandit, state.genie, members
    )
    leaked = jnp.max(
        privacy.leakage(seen.counts, hyper["privacy_budget"][:, None], hyper["budget_decay"][:, None]), axis=1
    )
    if learning and learning.in_the_clear:
        leaked = jnp.full_like(leaked, jnp.inf)
    clip = learning.training.clip if learning else "vector"
    record = Record(
        round_latency=jnp.max(jnp.where(exists, member_latency, 0.0), axis=1),
        **scored._asdict(),
        selection_gap=gap,
        max_leakage=leaked,
        max_leakage_update=privacy.update_leakage(leaked, learning.num_parameters if learning else 1, clip),
        train_loss=jnp.sum(jnp.where(exists, cohort.weights * loss, 0.0), axis=1)
        if learning
        else jnp.full(members.shape[0], jnp.nan),
        test_accuracy=accuracy,
        test_loss=test_loss,
        diverged_round=diverged,
        selected=members,
    )
    return State(seen, genie, policy, params, optimizer, diverged), record
