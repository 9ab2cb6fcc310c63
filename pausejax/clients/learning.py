"""What clients learn in a round: local training, privacy and aggregation of all runs at once."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pausejax import privacy
from pausejax.clients.program import CLIENT, Hyper, Learning, Program, State, World
from pausejax.federated.training import Jobs, LocalTraining, Rates, client_loss, train


def learn(
    program: Program, world: World, hyper: Hyper, state: State, keys: jax.Array, cohort: Any
) -> tuple[Any, Any, Any, jax.Array]:
    """Local training, privacy and aggregation: the next global models of all runs, (2)."""
    learning, (runs, slots) = program.learning, cohort.members.shape
    assert learning is not None and world.data is not None
    run = jnp.repeat(jnp.arange(runs), slots)
    client = cohort.members.reshape(-1)

    def job_keys(run: jax.Array, client: jax.Array) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(keys[run], CLIENT), client))

    batch_key, noise_key = jax.vmap(job_keys, out_axes=1)(run, jnp.maximum(client, 0))
    participation = state.bandit.counts[run, client] + 1
    jobs = Jobs(
        run=run,
        client=client,
        weight=cohort.weights.reshape(-1),
        batch_key=batch_key,
        noise_key=noise_key,
        epsilon=privacy.epsilon_at(participation, hyper["privacy_budget"][run], hyper["budget_decay"][run]),
    )
    rates = rates_of(learning.training, hyper)
    needs_updates = program.build(jax.tree.map(lambda leaf: leaf[0], hyper)).needs_updates
    trained = train(
        learning.training,
        learning.model,
        learning.image_shape,
        learning.longest,
        world.data,
        world.partition,
        state.params,
        state.optimizer,
        rates,
        jobs,
        keep_updates=needs_updates,
    )
    params = jax.tree.map(jnp.add, state.params, trained.update)
    finite = functools.reduce(
        jnp.logical_and,
        (jnp.all(jnp.isfinite(leaf.reshape(runs, -1)), axis=1) for leaf in jax.tree.leaves(params)),
    )
    return params, trained.optimizer, trained, finite


def rates_of(training: LocalTraining, hyper: Hyper) -> Rates:
    """What local training reads of the traced hyper-parameters."""
    own = {name: hyper[name] for name in training.optimizer.traced}
    return Rates(hyper["learning_rate"], hyper["proximal_weight"], hyper["sensitivity"], own)


def local_loss(
    learning: Learning | None, world: World, params: Any, partition: jax.Array | None
) -> Callable[[jax.Array], jax.Array]:
    if learning is None or world.data is None or partition is None:
        return lambda clients: jnp.zeros(clients.shape)
    return functools.partial(
        client_loss, learning.model, learning.image_shape, learning.longest, world.data, partition, params
    )
