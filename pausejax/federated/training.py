"""Local training of many clients of many runs at once.

Every selected client of every run is a job. Jobs are sorted by their number of steps and cut into chunks of
`lanes`; each chunk is one vmapped training loop whose trip count is that of its longest job. A job's numbers
depend on itself alone, never on its neighbours, and a run's updates are summed in an order that depends on
that run alone.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from pausejax import parts
from pausejax.data.dataset import normalize
from pausejax.federated.models import Model
from pausejax.federated.optimizers import adam
from pausejax.parts import Bound
from pausejax.privacy import Clip, privatize

Params = Any

ADAM = parts.bind(parts.find("optimizer", adam.__name__), {})


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """What shapes the training program: a change of any of these compiles anew."""

    batch_size: int = 20
    local_epochs: int = 1
    max_steps: int = 100
    optimizer: Bound = ADAM
    """Builds an optax transformation without its learning rate from what is traced."""
    persist_optimizer: bool = False
    proximal: bool = False
    private: bool = True
    clip: Clip = "coordinate"
    lanes: int = 16
    """Jobs trained side by side."""
    eval_lanes: int = 1
    """Global models evaluated side by side."""
    eval_batch: int = 500
    """About so many test images at a time."""


class TrainingData(NamedTuple):
    """The training set and its partitions, resident on the device and shared by all runs."""

    images: jax.Array
    """uint8 [N, H·W·C]."""
    labels: jax.Array
    """int32 [N]."""
    pixel_mean: jax.Array
    """float32 scalar."""
    pixel_std: jax.Array
    """float32 scalar."""
    order: jax.Array
    """int32 [P, N]: client k of partition p owns order[p, offset[p, k] : offset[p, k] + size[p, k]]."""
    offset: jax.Array
    """int32 [P, K]."""
    size: jax.Array
    """int32 [P, K]."""


class Jobs(NamedTuple):
    """Clients to train, one a row; J of them."""

    run: jax.Array
    """int32 [J], whose global model to start from and whose update to add to."""
    client: jax.Array
    """int32 [J]; -1: nothing to do."""
    weight: jax.Array
    """float32 [J], aggregation weights, (2)."""
    batch_key: jax.Array
    """key [J] of the minibatch order."""
    noise_key: jax.Array
    """key [J] of the privacy noise."""
    epsilon: jax.Array
    """float32 [J], ε_i of this participation."""


class Rates(NamedTuple):
    """Traced hyper-parameters of local training, float32 [R] each."""

    learning_rate: jax.Array
    proximal_weight: jax.Array
    sensitivity: jax.Array
    optimizer: dict[str, jax.Array]
    """The local optimizer's own, by name."""


class Trained(NamedTuple):
    """What one round of local training leaves behind."""

    update: Params
    """Pytree [R, ...]: the weighted sum of the (privatized) updates."""
    loss: jax.Array
    """float32 [J], mean minibatch training loss."""
    loss_rms: jax.Array
    """float32 [J], root mean square of the minibatch losses."""
    optimizer: Any
    """Persistent optimizer states, pytree [R·K, ...], or None."""
    updates: jax.Array
    """float32 [J, d], the released updates one by one, or [J, 0]."""


def num_steps(training: LocalTraining, size: jax.Array) -> jax.Array:
    """Minibatch steps of a client with `size` samples: whole epochs, cut at `max_steps`."""
    per_epoch = -(-size // training.batch_size)
    return jnp.minimum(per_epoch * training.local_epochs, training.max_steps)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Per-sample loss, [B]."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def gather(data: TrainingData, image_shape: tuple[int, ...], index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Normalized images [B, H, W, C] and labels [B] of sample indices [B]."""
    pixels = data.images.at[index].get(mode="clip").reshape(index.shape + image_shape)
    images = normalize(pixels, data.pixel_mean, data.pixel_std)
    return images, data.labels.at[index].get(mode="clip")


def epoch_orders(key: jax.Array, size: jax.Array, longest: int, epochs: int) -> jax.Array:
    """A fresh permutation of 0 .. size - 1 for each epoch, int32 [epochs, longest]; the tail is junk.

    The permutations do not depend on `longest`, which other runs of the group decide.
    """

    def one_epoch(epoch: jax.Array) -> jax.Array:
        draw = jax.random.uniform(jax.random.fold_in(key, epoch), (longest,))
        return jnp.argsort(jnp.where(jnp.arange(longest) < size, draw, 2.0)).astype(jnp.int32)

    return jax.vmap(one_epoch)(jnp.arange(epochs))


class _Progress(NamedTuple):
    params: Params
    optimizer: Any
    loss: jax.Array
    squared_loss: jax.Array


def train(
    training: LocalTraining,
    model: Model,
    image_shape: tuple[int, ...],
    longest: int,
    data: TrainingData,
    partition: jax.Array,
    params: Params,
    optimizer: Any,
    rates: Rates,
    jobs: Jobs,
    *,
    keep_updates: bool = False,
) -> Trained:
    """Trains all jobs from their runs' global models and sums the released updates by run.

    Args:
      training: the static settings.
      model: `apply(params, images)`.
      image_shape: (H, W, C).
      longest: the largest number of samples that any client owns.
      data: the training set.
      partition: int32 [R], which partition each run uses.
      params: pytree [R, ...], the global models.
      optimizer: pytree [R·K, ...] of the clients' optimizer states if they persist, else None.
      rates: traced hyper-parameters by run.
      jobs: [J].
      keep_updates: also return every released update.
    """
    num_jobs, num_clients = jobs.run.shape[0], data.size.shape[1]
    lanes = min(training.lanes, num_jobs)
    chunks = -(-num_jobs // lanes)
    num_parameters = sum(leaf[0].size for leaf in jax.tree.leaves(params))
    example = jax.tree.map(lambda leaf: leaf[0], params)
    unravel = ravel_pytree(example)[1]

    epochs = min(training.local_epochs, training.max_steps)
    size = jnp.where(jobs.client >= 0, data.size[partition[jobs.run], jobs.client], 0)
    steps = num_steps(training, size)
    rank = jnp.argsort(-steps, stable=True)
    padded = jnp.concatenate([rank, jnp.full(chunks * lanes - num_jobs, num_jobs, rank.dtype)])

    def one_step(step: jax.Array, lane: "_Lane", progress: _Progress, orders: jax.Array) -> _Progress:
        per_epoch = jnp.maximum(-(-lane.size // training.batch_size), 1)
        epoch, within = step // per_epoch, step % per_epoch
        position = within * training.batch_size + jnp.arange(training.batch_size)
        valid = position < lane.size
        local = orders.at[jnp.minimum(epoch, epochs - 1), position].get(mode="clip")
        index = data.order.at[lane.partition, lane.offset + local].get(mode="clip")
        images, labels = gather(data, image_shape, index)
        count = jnp.maximum(jnp.sum(valid), 1)

        def loss_of(weights: Params) -> jax.Array:
            losses = cross_entropy(model.apply(weights, images), labels)
            return jnp.sum(jnp.where(valid, losses, 0.0)) / count

        loss, gradient = jax.value_and_grad(loss_of)(progress.params)
        if training.proximal:
            gradient = jax.tree.map(
                lambda g, w, start: g + lane.rates.proximal_weight * (w - start),
                gradient,
                progress.params,
                lane.params,
            )
        active = step < lane.steps
        change, state = training.optimizer.build(**lane.rates.optimizer).update(gradient, progress.optimizer)
        rate = lane.rates.learning_rate
        # A choice, not a factor of 0: a client that is done must not meet its neighbours' infinities.
        weights = jax.tree.map(lambda w, u: jnp.where(active, w - rate * u, w), progress.params, change)
        if training.persist_optimizer:
            state = jax.tree.map(lambda new, old: jnp.where(active, new, old), state, progress.optimizer)
        loss = jnp.where(active, loss, 0.0)
        return _Progress(weights, state, progress.loss + loss, progress.squared_loss + loss**2)

    def start(lane: "_Lane") -> tuple[_Progress, jax.Array]:
        fresh = training.optimizer.build(**lane.rates.optimizer).init(lane.params)
        state = fresh if lane.optimizer is None else lane.optimizer
        orders = epoch_orders(lane.batch_key, lane.size, longest, epochs)
        return _Progress(lane.params, state, jnp.float32(0), jnp.float32(0)), orders

    def release(lane: "_Lane", progress: _Progress) -> jax.Array:
        before, after = ravel_pytree(lane.params)[0], ravel_pytree(progress.params)[0]
        if not training.private:
            return after - before
        return privatize(lane.noise_key, after - before, lane.epsilon, lane.rates.sensitivity, training.clip)

    def one_chunk(carry: tuple[jax.Array, Any], rows: jax.Array) -> tuple[tuple[jax.Array, Any], Any]:
        total, states = carry
        safe = jnp.minimum(rows, num_jobs - 1)
        run, client = jobs.run[safe], jobs.client[safe]
        exists = (rows < num_jobs) & (client >= 0)
        owner = run * num_clients + jnp.maximum(client, 0)
        lane = _Lane(
            params=jax.tree.map(lambda leaf: leaf[run], params),
            optimizer=jax.tree.map(lambda leaf: leaf[owner], states),
            rates=jax.tree.map(lambda leaf: leaf[run], rates),
            partition=partition[run],
            offset=data.offset[partition[run], client],
            size=jnp.where(exists, size[safe], 0),
            steps=jnp.where(exists, steps[safe], 0),
            batch_key=jobs.batch_key[safe],
            noise_key=jobs.noise_key[safe],
            epsilon=jobs.epsilon[safe],
        )
        progress, orders = jax.vmap(start)(lane)
        progress = jax.lax.fori_loop(
            0,
            jnp.max(lane.steps),
            lambda step, p: jax.vmap(one_step, (None, 0, 0, 0))(step, lane, p, orders),
            progress,
        )
        released = jax.vmap(release)(lane, progress)
        weight = jnp.where(exists, jobs.weight[safe], 0.0)
        # A pad must add nothing even where its garbage is not finite.
        contribution = jnp.where(exists[:, None], released * weight[:, None], 0.0)
        total = total.at[run].add(contribution)
        if states is not None:
            slot = jnp.where(exists, owner, jnp.iinfo(jnp.int32).max)
            states = jax.tree.map(
                lambda old, new: old.at[slot].set(new, mode="drop"), states, progress.optimizer
            )
        taken = jnp.maximum(lane.steps, 1)
        loss, squared = progress.loss / taken, progress.squared_loss / taken
        return (total, states), (loss, jnp.sqrt(squared), released if keep_updates else released[:, :0])

    num_runs = partition.shape[0]
    carry = (jnp.zeros((num_runs, num_parameters), jnp.float32), optimizer)
    (total, optimizer), outputs = jax.lax.scan(one_chunk, carry, padded.reshape(chunks, lanes))
    loss, loss_rms, updates = (
        jnp.zeros((num_jobs, *out.shape[2:]), out.dtype)
        .at[padded]
        .set(out.reshape(chunks * lanes, *out.shape[2:]), mode="drop")
        for out in outputs
    )
    return Trained(jax.vmap(unravel)(total), loss, loss_rms, optimizer, updates)


class _Lane(NamedTuple):
    """One job with everything that it needs at hand."""

    params: Params
    optimizer: Any
    rates: Rates
    partition: jax.Array
    offset: jax.Array
    size: jax.Array
    steps: jax.Array
    batch_key: jax.Array
    noise_key: jax.Array
    epsilon: jax.Array


def client_loss(
    model: Model,
    image_shape: tuple[int, ...],
    longest: int,
    data: TrainingData,
    partition: jax.Array,
    params: Params,
    clients: jax.Array,
) -> jax.Array:
    """Mean loss of one model on all the data of each client, float32 [c] for int32 [c] clients."""

    def one_client(client: jax.Array) -> jax.Array:
        size = data.size[partition, client]
        position = jnp.arange(longest)
        index = data.order.at[partition, data.offset[partition, client] + position].get(mode="clip")
        images, labels = gather(data, image_shape, index)
        losses = cross_entropy(model.apply(params, images), labels)
        return jnp.sum(jnp.where(position < size, losses, 0.0)) / size

    return jax.lax.map(one_client, clients)


def init_optimizer(
    training: LocalTraining, params: Params, values: dict[str, jax.Array], num_clients: int
) -> Any:
    """Fresh states of every client of every run, pytree [R·K, ...]; None if they do not persist."""
    if not training.persist_optimizer:
        return None
    state = jax.vmap(lambda params, values: training.optimizer.build(**values).init(params))(params, values)
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, num_clients, axis=0), state)
