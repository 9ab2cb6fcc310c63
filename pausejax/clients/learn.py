"""Learning in a round, for all runs at once: local training, privacy, aggregation, evaluation."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import privacy
from pausejax.clients.program import CLIENT, Files, Hyper, Program, State, World
from pausejax.federated import evaluation
from pausejax.federated.learning import (
    Learning,
    Memory,
    Rates,
    init_memory,
    init_weights,
    mean_statistics,
    step_server,
)
from pausejax.federated.modules import Weights
from pausejax.federated.training import Jobs, train
from pausejax.policies.base import Cohort


class Learned(NamedTuple):
    """The result of learning in a round, one row per run. In mode "bandit" models stay None, losses are 0."""

    params: Any
    """The next global models, as in `State`."""
    optimizer: Any
    """The next optimizer states, as in `State`."""
    loss: jax.Array
    """float32 [R, n], mean minibatch loss of each member; 0 if its update did not arrive."""
    loss_rms: jax.Array
    """float32 [R, n], as in `policies.base.Feedback`."""
    updates: jax.Array
    """float32 [R, n, d], the privatized updates if the policy needs them, else [R, n, 0]."""
    finite: jax.Array | None
    """bool [R], whether all weights of the model are finite; None in mode "bandit"."""


def begin(
    learning: Learning, weights: Weights, hyper: Hyper, files: Files, num_clients: int
) -> tuple[Weights, Memory]:
    """Makes the global models and optimizer states before round 1 from initial models, pytree [R, ...]."""
    memory = init_memory(learning, weights.params, rates_of(learning, hyper, files), num_clients)
    return init_weights(learning, weights, num_clients), memory


def learn(
    program: Program, world: World, hyper: Hyper, state: State, keys: jax.Array, cohort: Cohort
) -> Learned:
    """Trains the clients of a round, and aggregates their updates into the next global models, (2).

    Args:
      program: the group's static values.
      world: see `World`.
      hyper: see `Hyper`.
      state: the state before the round.
      keys: keys of each run in this round, [R].
      cohort: clients whose update arrives, [R, n].
    """
    if program.learning is None:
        nothing = jnp.zeros(cohort.members.shape)
        updates = jnp.zeros((*cohort.members.shape, 0))
        return Learned(state.params, state.optimizer, nothing, nothing, updates, None)
    learning, (runs, slots) = program.learning, cohort.members.shape
    assert world.data is not None
    jobs = _jobs(world, hyper, state, keys, cohort)
    rates = rates_of(learning, hyper, world.files)
    needs_updates = program.build(jax.tree.map(lambda leaf: leaf[0], hyper), world.files).needs_updates
    memory: Memory = state.optimizer
    trained = train(
        learning,
        world.data,
        world.partition,
        state.params,
        memory.clients,
        rates,
        jobs,
        keep_updates=needs_updates,
    )
    arrived = jnp.any(cohort.members >= 0, axis=1)
    weights, server = step_server(learning, state.params, trained.update, memory.server, rates, arrived)
    have_trained = memory.trained
    if have_trained is not None:
        weights = weights._replace(statistics=trained.statistics)
        place = jnp.where(jobs.client >= 0, jobs.client, program.num_clients)
        have_trained = have_trained.at[jobs.run, place].set(True, mode="drop")
    finite = functools.reduce(
        jnp.logical_and,
        (jnp.all(jnp.isfinite(leaf.reshape(runs, -1)), axis=1) for leaf in jax.tree.leaves(weights)),
    )
    loss, loss_rms = (x.reshape(runs, slots) for x in (trained.loss, trained.loss_rms))
    updates = trained.updates.reshape(runs, slots, trained.updates.shape[-1])
    memory = Memory(trained.optimizer, server, have_trained)
    return Learned(weights, memory, loss, loss_rms, updates, finite)


def _jobs(world: World, hyper: Hyper, state: State, keys: jax.Array, cohort: Cohort) -> Jobs:
    """Returns the local trainings of a round, one for each slot of each run, [R * n]."""
    runs, slots = cohort.members.shape
    run = jnp.repeat(jnp.arange(runs), slots)
    client = cohort.members.reshape(-1)

    def job_keys(run: jax.Array, client: jax.Array) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(keys[run], CLIENT), client))

    batch_key, noise_key = jax.vmap(job_keys, out_axes=1)(run, jnp.maximum(client, 0))
    release = state.bandit.counts[run, client] + 1
    return Jobs(
        run=run,
        client=client,
        weight=cohort.weights.reshape(-1),
        batch_key=batch_key,
        noise_key=noise_key,
        epsilon=privacy.epsilon_at(release, hyper["privacy_budget"][run], hyper["budget_decay"][run]),
    )


def evaluate_if_due(
    program: Program, world: World, round: jax.Array, last_round: jax.Array, learned: Learned
) -> tuple[jax.Array, jax.Array]:
    """Computes the metric and the loss on the test set, [R] each; NaN in rounds without an evaluation.

    Args:
      program: the group's static values.
      world: see `World`.
      round: int32 [R], t of each run.
      last_round: int32 scalar, the last round, which is always evaluated.
      learned: the result of learning in this round.
    """
    unknown = jnp.full(round.shape[0], jnp.nan)
    learning = program.learning
    if learning is None:
        return unknown, unknown
    assert world.test is not None
    # All runs of a call are due in the same step, even if their rounds t differ, so the first run decides.
    due = (round[0] % program.eval_every == 0) | (round[0] == last_round)
    test, trained = world.test, learned.optimizer.trained

    def evaluate(weights: Weights) -> tuple[jax.Array, jax.Array]:
        return evaluation.evaluate(learning, test, mean_statistics(weights, world.data_share, trained))

    with jax.named_scope("evaluation"):
        return jax.lax.cond(due, evaluate, lambda _: (unknown, unknown), learned.params)


def rates_of(learning: Learning, hyper: Hyper, files: Files) -> Rates:
    """Collects the traced hyper-parameters, each [R], and the files that learning reads."""
    both = learning.training.optimizer, learning.server
    own, servers = ({name: hyper[name] for name in part.traced if name not in files} for part in both)
    tables = {name: files[name] for part in both for name in part.traced if name in files}
    return Rates(hyper["learning_rate"], hyper["proximal_weight"], hyper["sensitivity"], own, servers, tables)


def local_loss(
    learning: Learning | None, world: World, weights: Any, partition: jax.Array | None
) -> Callable[[jax.Array], jax.Array]:
    """Returns a function from clients, int32 [c], to one run's mean loss on each one's data, float32 [c].

    In mode "bandit" the losses are 0.
    """
    if learning is None or world.data is None or partition is None:
        return lambda clients: jnp.zeros(clients.shape)
    return functools.partial(evaluation.client_loss, learning, world.data, partition, weights)
