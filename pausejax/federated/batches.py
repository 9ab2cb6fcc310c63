"""Samples on the device: where they lie, how they are gathered, and in which order a client takes them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.data.dataset import Dataset, normalize
from pausejax.data.partition import Partition
from pausejax.devices import AXIS
from pausejax.federated.learning import Learning, LocalTraining


class TrainingData(NamedTuple):
    """The training set and its partitions, resident on the device and shared by all runs."""

    inputs: jax.Array
    """[N, D] raw inputs, flat, in their own type; of sharded ones each device has the next ⌈N / devices⌉."""
    targets: jax.Array
    """[N, ...]."""
    mean: jax.Array
    """float32 scalar."""
    std: jax.Array
    """float32 scalar."""
    order: jax.Array
    """int32 [P, N]: client k of partition p owns order[p, offset[p, k] : offset[p, k] + size[p, k]]."""
    offset: jax.Array
    """int32 [P, K]."""
    size: jax.Array
    """int32 [P, K]."""


class HeldOut(NamedTuple):
    """The test set in batches, resident on the device; a short last batch is padded."""

    inputs: jax.Array
    """[batches, B, D] raw inputs, flat, in their own type."""
    targets: jax.Array
    """[batches, B, ...]."""
    exists: jax.Array
    """bool [batches, B]; False pads."""
    mean: jax.Array
    std: jax.Array


def scale(dataset: Dataset) -> tuple[np.float32, np.float32]:
    """What raw inputs are centred by and divided by, float32 scalars."""
    mean, std = dataset.scale or (0.0, 1.0)
    return np.float32(mean), np.float32(std)


def training_data(
    inputs: np.ndarray,
    targets: np.ndarray,
    scale: tuple[np.float32, np.float32],
    partitions: Sequence[Partition],
) -> TrainingData:
    """A training set, [N, D] and [N, ...], with its partitions, on the host."""
    columns = ([p.order for p in partitions], [p.offsets for p in partitions], [p.sizes for p in partitions])
    # NumPy arrays, until they are put on the devices.
    arrays: tuple[Any, ...] = (inputs, targets, *scale, *(np.stack(x).astype(np.int32) for x in columns))
    return TrainingData(*arrays)


def flat(inputs: np.ndarray) -> np.ndarray:
    """[N, ...] to [N, D]: gathered rows are then contiguous."""
    return inputs.reshape(len(inputs), -1)


def held_out(dataset: Dataset, batch: int) -> HeldOut:
    """The whole test set on the host, in batches of at most `batch` and as equal as can be."""
    inputs = dataset.test_inputs.reshape(len(dataset.test_inputs), -1)
    return _in_batches(inputs, dataset.test_targets, batch, *scale(dataset))


def few(test: HeldOut, count: int, batch: int) -> HeldOut:
    """The first samples of a test set on the host, in batches of at most `batch`."""
    there = np.asarray(test.exists).reshape(-1)

    def first(array: Any) -> np.ndarray:
        return np.asarray(array).reshape(-1, *array.shape[2:])[there][:count]

    return _in_batches(first(test.inputs), first(test.targets), batch, test.mean, test.std)


def _in_batches(inputs: np.ndarray, targets: np.ndarray, batch: int, *scale: Any) -> HeldOut:
    count = len(inputs)
    batches = -(-count // batch)
    size = -(-count // batches)
    pad = batches * size - count

    def cut(array: np.ndarray) -> np.ndarray:
        padded = np.pad(array, ((0, pad), *((0, 0),) * (array.ndim - 1)))
        return padded.reshape(batches, size, *array.shape[1:])

    arrays: tuple[Any, ...] = (cut(inputs), cut(targets), cut(np.ones(count, bool)), *scale)
    return HeldOut(*arrays)


def prepare(learning: Learning, rows: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    """Raw flat inputs [..., D] as the network sees them, [..., *shape]."""
    raw = rows.reshape(rows.shape[:-1] + learning.input_shape)
    if learning.preprocess is not None:
        return learning.preprocess(raw)
    return normalize(raw, mean, std) if learning.standardize else raw


def gather(learning: Learning, data: TrainingData, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prepared inputs [B, ...] and targets [B, ...] of sample indices [B]."""
    rows = rows_of_owners(data.inputs, index) if learning.sharded else data.inputs.at[index].get(mode="clip")
    return prepare(learning, rows, data.mean, data.std), data.targets.at[index].get(mode="clip")


@jax.named_scope("exchange")
def rows_of_owners(share: jax.Array, index: jax.Array) -> jax.Array:
    """Rows [B, D] of sample indices [B] from the devices that own them, [n, D] each; all ask at once.

    Everyone answers everyone with as many rows, and whoever has asked takes those of the owners: a choice, no
    sum, so that every type and every bit arrives as it is.
    """
    own = share.shape[0]
    asked = jax.lax.all_gather(index, AXIS) - jax.lax.axis_index(AXIS) * own
    answers = share.at[jnp.clip(asked, 0, own - 1)].get(mode="promise_in_bounds")
    received = jax.lax.all_to_all(answers, AXIS, split_axis=0, concat_axis=0)
    return received.at[index // own, jnp.arange(index.shape[0])].get(mode="clip")


def num_steps(training: LocalTraining, size: jax.Array) -> jax.Array:
    """Minibatch steps of a client with `size` samples: whole epochs, cut at `max_steps`."""
    per_epoch = -(-size // training.batch_size)
    return jnp.minimum(per_epoch * training.local_epochs, training.max_steps)


def epoch_orders(key: jax.Array, size: jax.Array, longest: int, epochs: int) -> jax.Array:
    """A fresh permutation of 0 .. size - 1 for each epoch, int32 [epochs, longest]; the tail is junk.

    The permutations do not depend on `longest`, which other runs of the group decide.
    """

    def one_epoch(epoch: jax.Array) -> jax.Array:
        draw = jax.random.uniform(jax.random.fold_in(key, epoch), (longest,))
        return jnp.argsort(jnp.where(jnp.arange(longest) < size, draw, 2.0)).astype(jnp.int32)

    return jax.vmap(one_epoch)(jnp.arange(epochs))
