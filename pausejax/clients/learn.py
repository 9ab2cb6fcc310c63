"""Learning in a round, for all runs at once: local training, privacy, aggregation, evaluation."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.clients.conditions import Overlap, RoundClose
from pausejax.clients.inputs import CLIENT, SERVER_NOISE, Hyper, State, StaticConfig, UnfinishedWork, World
from pausejax.federated import evaluation
from pausejax.federated.algorithms import Arrivals
from pausejax.federated.batches import num_steps
from pausejax.federated.learning import Learning, Memory
from pausejax.federated.modules import Weights
from pausejax.federated.server import aggregate, evaluated_weights, step_server, weights_of_client
from pausejax.federated.training import Jobs, train
from pausejax.policies.base import Cohort


class LearningResult(NamedTuple):
    """Result of learning in a round, one row per run. In mode "bandit", models are None and losses are 0."""

    params: Any
    """Next global models, pytree [R, ...]."""
    memory: Any
    """Next states of servers and clients, `federated.learning.Memory`."""
    loss_of_members: jax.Array
    """float32 [R, n], mean minibatch loss of each of `RoundClose.members`; 0 without training."""
    loss_rms_of_members: jax.Array
    """float32 [R, n], root of the mean squared minibatch loss of each of `RoundClose.members`."""
    updates: jax.Array
    """float32 [R, n, d], the privatized updates if the policy needs them, else [R, n, 0]."""
    loss_of_slots: jax.Array
    """float32 [R, s], mean minibatch loss of the client in each slot of `RoundClose.aggregated`."""
    finite: jax.Array | None
    """bool [R], whether all weights of the model are finite; None in mode "bandit"."""
    work: UnfinishedWork | None
    """Work of clients that are still at work; None if the ending lets no client work past a round."""


def learn(
    config: StaticConfig, world: World, hyper: Hyper, state: State, keys: jax.Array, close: RoundClose
) -> LearningResult:
    """Trains the clients of a round, and aggregates the updates that arrive into the next models, (2).

    Args:
      config: the group's static values.
      world: the input arrays of the group's runs.
      hyper: hyper-parameters by name, float32 [R] each.
      state: the state before the round.
      keys: keys of each run in this round, [R].
      close: the clients whose training this round computes, and those whose update is aggregated.
    """
    runs, slots = close.to_train.members.shape
    if config.learning is None:
        nothing, updates = jnp.zeros((runs, slots)), jnp.zeros((runs, slots, 0))
        work = None
        if state.work and close.overlap:
            work = _join(state.work, close.overlap, nothing, nothing, updates)[-1]
        return LearningResult(state.params, state.memory, nothing, nothing, updates, nothing, None, work)
    learning = config.learning
    assert world.data is not None
    # Traced values do not change whether single updates are needed, so the first run's values are used.
    first = jax.tree.map(lambda leaf: leaf[0], hyper)
    has_combine = learning.build_aggregator(first | world.files).combine is not None
    needs_updates = config.build(first, world.files).needs_updates
    memory: Memory = state.memory
    there, weight = close.aggregated.members >= 0, close.aggregated.weights
    if close.factor is not None:
        weight = jnp.where(there, weight * close.factor, 0.0)
    # If rounds overlap, the jobs have other slots than `weight`. Their sum is then computed below.
    jobs = _jobs(world, state, keys, close.to_train, close.to_train.weights if close.overlap else weight)
    trained = train(
        learning,
        config.mechanism,
        world.data,
        world.partition,
        state.params,
        memory,
        hyper,
        world.files,
        jobs,
        keep_updates=needs_updates or has_combine or bool(state.work),
    )
    updates = trained.updates.reshape(runs, slots, trained.updates.shape[-1])
    loss, loss_rms = (x.reshape(runs, slots) for x in (trained.loss, trained.loss_rms))
    total, work, aggregated = trained.total, None, close.aggregated
    loss_of_slots = loss
    if state.work and close.overlap:
        loss_of_slots, loss, loss_rms, updates, work = _join(
            state.work, close.overlap, loss, loss_rms, updates
        )
        # Updates that are not aggregated may contain NaN. Their weight 0 does not remove it: 0 · NaN is NaN.
        total = jnp.sum(jnp.where(there[:, :, None], updates * weight[:, :, None], 0.0), axis=1)

    def mean_of(
        values: Hyper, key: jax.Array, total: jax.Array, updates: jax.Array, weight: jax.Array
    ) -> Any:
        mechanism, key = config.build_mechanism(values, world.files), jax.random.fold_in(key, SERVER_NOISE)
        return aggregate(learning, mechanism, values | world.files, key, total, updates, weight)

    mean = jax.vmap(mean_of)(hyper, keys, total, updates, weight)
    member = jnp.maximum(aggregated.members, 0)
    size = world.data.size[world.partition[:, None], member]
    share = jnp.take_along_axis(world.data_share, member, axis=1)
    arrived = Arrivals(
        weight=aggregated.weights,
        share=jnp.where(there, share, 0.0),
        steps=jnp.where(there, num_steps(learning.training, size).astype(jnp.float32), 0.0),
    )
    anyone = jnp.any(weight > 0, axis=1)
    weights, server = step_server(
        learning, state.params, mean, memory.server, hyper, world.files, arrived, anyone
    )
    if learning.keeps_statistics:
        weights = weights._replace(statistics=trained.statistics)
    have_trained = memory.trained
    if have_trained is not None:
        place = jnp.where(jobs.client >= 0, jobs.client, config.num_clients)
        have_trained = have_trained.at[jobs.run, place].set(True, mode="drop")
    finite = functools.reduce(
        jnp.logical_and,
        (jnp.all(jnp.isfinite(leaf.reshape(runs, -1)), axis=1) for leaf in jax.tree.leaves(weights)),
    )
    if close.overlap:
        updates = jnp.take_along_axis(updates, close.overlap.finished[:, :, None], axis=1)
    updates = updates if needs_updates else updates[:, :, :0]
    memory = Memory(trained.clients, server, have_trained)
    return LearningResult(weights, memory, loss, loss_rms, updates, loss_of_slots, finite, work)


def _join(
    unfinished: UnfinishedWork, overlap: Overlap, loss: jax.Array, loss_rms: jax.Array, updates: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, UnfinishedWork]:
    """Joins the losses and updates of earlier rounds' clients, which come first, with those of this round.

    Returns:
      Five values: the losses of all slots, [R, s]; the losses of finished clients, [R, n]; the root mean
      squares of their losses, [R, n]; the updates of all slots, [R, s, d]; the work that continues.
    """
    every = [
        jnp.concatenate([old, new], axis=1)
        for old, new in (
            (unfinished.loss, loss),
            (unfinished.loss_rms, loss_rms),
            (unfinished.update, updates),
        )
    ]
    work = UnfinishedWork(overlap.slots, loss=every[0], loss_rms=every[1], update=every[2])

    def stay(leaf: jax.Array) -> jax.Array:
        return jax.vmap(lambda values, slots: values[slots])(leaf, overlap.staying)

    finished = [jnp.take_along_axis(values, overlap.finished, axis=1) for values in every[:2]]
    return every[0], *finished, every[2], jax.tree.map(stay, work)


def _jobs(world: World, state: State, keys: jax.Array, to_train: Cohort, weight: jax.Array) -> Jobs:
    """Returns the training jobs of a round, one for each slot of each run, [R * n].

    `weight`, float32 [R, n], multiplies the update of each slot in the sum of the updates.
    """
    runs, slots = to_train.members.shape
    run = jnp.repeat(jnp.arange(runs), slots)
    client = to_train.members.reshape(-1)

    def job_keys(run: jax.Array, client: jax.Array) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(keys[run], CLIENT), client))

    batch_key, noise_key = jax.vmap(job_keys, out_axes=1)(run, jnp.maximum(client, 0))
    return Jobs(
        run=run,
        client=client,
        weight=weight.reshape(-1),
        batch_key=batch_key,
        noise_key=noise_key,
        number=state.bandit.counts[run, client] + 1,
    )


def is_evaluated(config: StaticConfig, round: jax.Array, last_round: jax.Array) -> jax.Array:
    """Returns whether the models are evaluated after a round, bool with the shape of `round`."""
    return (round % config.eval_every == 0) | (round == last_round)


def evaluate_if_due(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    round: jax.Array,
    last_round: jax.Array,
    learned: LearningResult,
) -> tuple[jax.Array, jax.Array]:
    """Computes the metric and the loss on the test set, [R] each; NaN in rounds without an evaluation.

    Args:
      config: the group's static values.
      world: the input arrays of the group's runs.
      hyper: hyper-parameters by name, float32 [R] each.
      round: int32 [R], t, which is equal for all runs.
      last_round: int32 scalar, the last round, which is always evaluated.
      learned: the result of learning in this round.
    """
    unknown = jnp.full(round.shape[0], jnp.nan)
    learning = config.learning
    if learning is None:
        return unknown, unknown
    assert world.test is not None
    # `loop.advance` plays the same round t of all runs, so the first run's t is that of all runs.
    due = is_evaluated(config, round[0], last_round)
    test, files, share = world.test, world.files, world.data_share

    def evaluate(learned: tuple[Weights, Memory]) -> tuple[jax.Array, jax.Array]:
        weights = evaluated_weights(learning, *learned, hyper, files, share)
        return evaluation.evaluate(learning, test, weights)

    with jax.named_scope("evaluation"):
        return jax.lax.cond(due, evaluate, lambda _: (unknown, unknown), (learned.params, learned.memory))


def local_loss(
    learning: Learning | None, world: World, hyper: Hyper, weights: Any, memory: Any, partition: Any
) -> Callable[[jax.Array], jax.Array]:
    """Returns a function from clients, int32 [c], to the mean loss on each client's data, float32 [c].

    The loss is that of the model from which the client would start. In mode "bandit", the losses are 0.
    """
    if learning is None or world.data is None:
        return lambda clients: jnp.zeros(clients.shape)

    def weights_of(client: jax.Array) -> Weights:
        return weights_of_client(learning, weights, memory, hyper | world.files, client)

    return functools.partial(evaluation.client_loss, learning, world.data, partition, weights_of)
