"""Makes the arrays of samples on the device, gathers samples, and draws their order in a client's epochs."""

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
    """Training set and its partitions on the device, shared by all runs."""

    inputs: jax.Array
    """[N, D], raw inputs, flattened, in the data set's type.

    If inputs are sharded, each device holds ⌈N / devices⌉ consecutive rows.
    """
    targets: jax.Array
    """[N, ...], targets."""
    mean: jax.Array
    """float32 scalar, number that is subtracted from raw inputs."""
    std: jax.Array
    """float32 scalar, number by which centred inputs are divided."""
    order: jax.Array
    """int32 [P, N]: client k of partition p owns order[p, offset[p, k] : offset[p, k] + size[p, k]]."""
    offset: jax.Array
    """int32 [P, K], position in `order` of each client's first sample."""
    size: jax.Array
    """int32 [P, K], number of samples of each client."""


class EvaluationData(NamedTuple):
    """Test set on which the server evaluates global models, in batches.

    A short last batch is filled with the first samples. `data.held_out` draws the samples on which clients
    evaluate models.
    """

    inputs: jax.Array
    """[batches, B, D], raw inputs, flattened, in the data set's type."""
    targets: jax.Array
    """[batches, B, ...], targets."""
    exists: jax.Array
    """bool [batches, B], whether a row is a sample; False for a filled row."""
    mean: jax.Array
    std: jax.Array


def scale(dataset: Dataset) -> tuple[np.float32, np.float32]:
    """Returns the mean and the standard deviation by which raw inputs are standardized, float32 scalars."""
    mean, std = dataset.scale or (0.0, 1.0)
    return np.float32(mean), np.float32(std)


def training_data(
    inputs: np.ndarray,
    targets: np.ndarray,
    scale: tuple[np.float32, np.float32],
    partitions: Sequence[Partition],
) -> TrainingData:
    """Returns a training set, inputs [N, D] and targets [N, ...], with its partitions, on the host."""
    columns = ([p.order for p in partitions], [p.offsets for p in partitions], [p.sizes for p in partitions])
    # The arrays stay NumPy arrays until they are put on the devices.
    arrays: tuple[Any, ...] = (inputs, targets, *scale, *(np.stack(x).astype(np.int32) for x in columns))
    return TrainingData(*arrays)


def flat(inputs: np.ndarray) -> np.ndarray:
    """Reshapes inputs [N, ...] to [N, D], so that gathered rows are contiguous."""
    return inputs.reshape(len(inputs), -1)


def evaluation_data(dataset: Dataset, batch: int) -> EvaluationData:
    """Returns the whole test set on the host, in batches of almost equal size with at most `batch`
    samples."""
    inputs = dataset.test_inputs.reshape(len(dataset.test_inputs), -1)
    return _in_batches(inputs, dataset.test_targets, batch, *scale(dataset))


def few(test: EvaluationData, count: int, batch: int) -> EvaluationData:
    """Returns the first `count` samples of a test set on the host, in batches of at most `batch` samples."""
    there = np.asarray(test.exists).reshape(-1)

    def first(array: Any) -> np.ndarray:
        return np.asarray(array).reshape(-1, *array.shape[2:])[there][:count]

    return _in_batches(first(test.inputs), first(test.targets), batch, test.mean, test.std)


def _in_batches(inputs: np.ndarray, targets: np.ndarray, batch: int, *scale: Any) -> EvaluationData:
    count = len(inputs)
    batches = -(-count // batch)
    size = -(-count // batches)
    pad = batches * size - count

    def cut(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, array[:pad]]).reshape(batches, size, *array.shape[1:])

    exists = (np.arange(batches * size) < count).reshape(batches, size)
    arrays: tuple[Any, ...] = (cut(inputs), cut(targets), exists, *scale)
    return EvaluationData(*arrays)


def prepare(learning: Learning, rows: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    """Prepares raw flat inputs [..., D] for the network, [..., *shape]."""
    raw = rows.reshape(rows.shape[:-1] + learning.input_shape)
    if learning.preprocess is not None:
        return learning.preprocess(raw)
    return normalize(raw, mean, std) if learning.standardize else raw


def gather(learning: Learning, data: TrainingData, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the prepared inputs [B, ...] and targets [B, ...] of sample indices [B]."""
    rows = rows_of_owners(data.inputs, index) if learning.sharded else data.inputs.at[index].get(mode="clip")
    return prepare(learning, rows, data.mean, data.std), data.targets.at[index].get(mode="clip")


@jax.named_scope("exchange")
def rows_of_owners(share: jax.Array, index: jax.Array) -> jax.Array:
    """Fetches the rows [B, D] of sample indices [B] from the devices that hold them.

    Each device holds a share of the rows, [n, D]. All devices must call this function at the same time. Every
    device sends B rows to every other device. The receiver keeps a row only from the device that owns it.
    Rows are selected and never summed, so all types and bits are preserved.
    """
    own = share.shape[0]
    asked = jax.lax.all_gather(index, AXIS) - jax.lax.axis_index(AXIS) * own
    answers = share.at[jnp.clip(asked, 0, own - 1)].get(mode="promise_in_bounds")
    received = jax.lax.all_to_all(answers, AXIS, split_axis=0, concat_axis=0)
    return received.at[index // own, jnp.arange(index.shape[0])].get(mode="clip")


def num_steps(training: LocalTraining, size: jax.Array) -> jax.Array:
    """Returns the number of minibatch steps of a client with `size` samples, in the shape of `size`.

    The steps make up whole epochs, but are at most `max_steps`.
    """
    per_epoch = -(-size // training.batch_size)
    whole = per_epoch <= training.max_steps // training.local_epochs  # the product may not fit into int32
    return jnp.where(whole, per_epoch * training.local_epochs, training.max_steps)


def epoch_orders(key: jax.Array, size: jax.Array, longest: int, epochs: int) -> jax.Array:
    """Draws a permutation of 0 .. size - 1 for each epoch, int32 [epochs, longest].

    The entries from `size` on have no meaning. The permutations do not depend on `longest`, which depends on
    other runs of the group.
    """

    def one_epoch(epoch: jax.Array) -> jax.Array:
        draw = jax.random.uniform(jax.random.fold_in(key, epoch), (longest,))
        return jnp.argsort(jnp.where(jnp.arange(longest) < size, draw, 2.0)).astype(jnp.int32)

    return jax.vmap(one_epoch)(jnp.arange(epochs))
