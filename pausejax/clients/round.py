"""One round of all runs of a group: select, train and privatize, aggregate, evaluate, update the policy."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import bandit, regret
from pausejax.clients.conditions import NetworkDraw, close_round, draw_network, without_workers
from pausejax.clients.inputs import Hyper, State, StaticConfig, World, policy_key, round_key
from pausejax.clients.learn import LearningResult, evaluate_if_due, is_evaluated, learn, local_loss
from pausejax.clients.record import Record, record_round
from pausejax.policies.base import Cohort, Feedback, View


class PolicyInputs(NamedTuple):
    """Inputs of the policies in a round, one row for each run."""

    round: jax.Array
    network: NetworkDraw
    """The drawn network, in which clients that are still at work are not available."""
    params: Any
    memory: Any
    partition: jax.Array


def play_round(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    last_round: jax.Array,
    state: State,
    round: jax.Array,
) -> tuple[State, Record]:
    """Plays round t of all runs, and returns the next state and the record of the round.

    Args:
      config: the group's static values.
      world: the input arrays of the group's runs.
      hyper: hyper-parameters by name, float32 [R] each.
      last_round: int32 scalar, the last round, which is always evaluated.
      state: the state before the round.
      round: int32 [R], t, which is equal for all runs.
    """
    keys = jax.vmap(round_key)(world.seed, round)
    draw = functools.partial(draw_network, config, world.files)
    drawn = jax.vmap(draw)(round, keys, hyper, state.availability, state.bandit.counts)
    # Clients at work can't be selected again, so they are not available. Their work does not change the draw.
    selectable = drawn
    if state.work:
        selectable = jax.vmap(without_workers)(drawn, state.work.slots.client)
    inputs = PolicyInputs(round, selectable, state.params, state.memory, world.partition)

    # Select the cohort, and find which updates arrive.
    select = functools.partial(select_cohort, config, world)
    cohort = jax.vmap(select)(keys, hyper, state.policy, inputs)
    close = jax.vmap(functools.partial(close_round, config, world.files))(hyper, cohort, drawn, state.work)

    # Update releases and mean rewards, in the same way for every policy.
    latency_reward = hyper["min_latency"][:, None] / drawn.latency
    reward = hyper["min_latency"][:, None] / close.latency
    history = jax.vmap(bandit.update)(state.bandit, close.released, reward)

    # Train, aggregate and evaluate; mode "bandit" skips these steps.
    learned = learn(config, world, hyper, state, keys, close)
    evaluated = evaluate_if_due(config, world, hyper, round, last_round, learned)

    # Update the policy.
    feedback = Feedback(
        members=close.released,
        latency=close.latency,
        reward=reward,
        loss=learned.loss_of_members,
        loss_rms=learned.loss_rms_of_members,
        update=learned.updates,
        arrived=close.arrived,
    )
    update = functools.partial(update_policy, config, world)
    policy = jax.vmap(update)(hyper, state.policy, inputs, feedback)

    oracle, regrets, gap = state.oracle, None, None
    if config.waits_for_all:
        oracle, regrets, gap = score_round(config, world, hyper, state, inputs, cohort, latency_reward)
    after = State(
        bandit=history,
        work=learned.work,
        oracle=oracle,
        mean_reward=state.mean_reward,
        availability=drawn.availability,
        policy=policy,
        params=learned.params,
        memory=learned.memory,
        diverged=first_divergence(
            state, round, learned, evaluated[1], is_evaluated(config, round, last_round)
        ),
    )
    record = record_round(
        config,
        world,
        hyper,
        round,
        inputs.network,
        cohort,
        close,
        learned,
        evaluated,
        regrets,
        gap,
        after,
    )
    return after, record


def select_cohort(
    config: StaticConfig, world: World, key: jax.Array, hyper: Hyper, policy_state: Any, inputs: PolicyInputs
) -> Cohort:
    """Selects the cohort of one run by its policy; members [n] are ascending, with -1 at the end."""
    policy = config.build(hyper, world.files)
    cohort = policy.select(policy_key(config, key), policy_state, view_of(config, world, hyper, inputs))
    ascending = jnp.argsort(jnp.where(cohort.members >= 0, cohort.members, config.num_clients))
    return cohort._replace(members=cohort.members[ascending], weights=cohort.weights[ascending])


def update_policy(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    policy_state: Any,
    inputs: PolicyInputs,
    feedback: Feedback,
) -> Any:
    """Returns the next state of one run's policy, given the feedback on its cohort."""
    policy = config.build(hyper, world.files)
    return policy.update(policy_state, view_of(config, world, hyper, inputs), feedback)


def view_of(config: StaticConfig, world: World, hyper: Hyper, inputs: PolicyInputs) -> View:
    """Returns the view of one run's policy; losses are computed only if the policy reads them."""
    loss = local_loss(config.learning, world, hyper, inputs.params, inputs.memory, inputs.partition)
    return View(inputs.round, inputs.network.latency, loss, inputs.network.available)


def first_divergence(
    state: State, round: jax.Array, learned: LearningResult, test_loss: jax.Array, evaluated: jax.Array
) -> jax.Array:
    """Returns the first round after which each run's model diverged, int32 [R]; 0 if it did not diverge.

    A model diverged if one of its weights is not finite, or if its loss on the test set is NaN. A loss can be
    NaN at finite weights: numbers inside the model overflow, or a client's personal layers have NaN.

    Args:
      state: the state before the round.
      round: int32 [R], t.
      learned: the result of learning in this round.
      test_loss: float32 [R], the loss on the test set; NaN in a round without an evaluation.
      evaluated: bool [R], whether the round has an evaluation.
    """
    if learned.finite is None:
        return state.diverged
    broken = ~learned.finite | (evaluated & jnp.isnan(test_loss))
    return jnp.where((state.diverged == 0) & broken, round, state.diverged)


def score_round(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    state: State,
    inputs: PolicyInputs,
    cohort: Cohort,
    latency_reward: jax.Array,
) -> tuple[jax.Array, regret.Regrets, jax.Array]:
    """Scores a round of all runs against the oracle, which knows the expected speeds μ.

    Returns:
      The oracle's participation counts after this round, int32 [R, K]; the reward and regrets, [R] each; and
      by how much the cohort misses the maximum of (14), float32 [R]. This gap is NaN if it is not recorded
      or if a client is unexplored.
    """
    completes = None
    if inputs.network.fails is not None and config.failed_release_nothing:
        completes = ~inputs.network.fails

    def score(
        round: jax.Array,
        objective: bandit.Objective,
        expected_reward: jax.Array,
        latency_reward: jax.Array,
        data_share: jax.Array,
        history: bandit.BanditState,
        oracle: jax.Array,
        members: jax.Array,
        available: jax.Array | None,
        completes: jax.Array | None,
    ) -> tuple[jax.Array, regret.Regrets, jax.Array]:
        time, m = bandit.time_of_terms(round, objective.clock), config.clients_per_round
        oracle, regrets = regret.step(
            oracle,
            history.counts,
            members,
            time,
            mean_reward=expected_reward,
            latency_reward=latency_reward,
            data_share=data_share,
            clients_per_round=m,
            objective=objective,
            available=available,
            completes=completes,
        )
        if not config.selection_gap:
            return oracle, regrets, jnp.float32(jnp.nan)
        return (
            oracle,
            regrets,
            regret.selection_gap(m, time, objective, data_share, history, members, available),
        )

    return jax.vmap(score)(
        inputs.round,
        config.objective(hyper),
        state.mean_reward,
        latency_reward,
        world.data_share,
        state.bandit,
        state.oracle,
        cohort.members,
        inputs.network.available,
        completes,
    )
