"""Evaluates many global models on the server's test set, and one run's model on its clients' data."""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from pausejax.federated.batches import EvaluationData, TrainingData, gather, prepare
from pausejax.federated.learning import Learning, Memory, Values
from pausejax.federated.modules import Weights
from pausejax.federated.server import weights_of_client


def evaluate(learning: Learning, test: EvaluationData, weights: Weights) -> tuple[jax.Array, jax.Array]:
    """Computes the task's metric and mean loss of each run's model, float32 [R] each.

    `eval_lanes` models are evaluated in parallel. If the loss of a model is NaN, its metric is NaN too.

    Raises:
      AssertionError: inputs, targets and `exists` are not in the same batches (when traced).
    """
    chex.assert_equal_shape_prefix([test.inputs, test.targets, test.exists], 2)
    chex.assert_type(test.exists, bool)
    count = jnp.sum(test.exists).astype(jnp.float32)

    def one_model(weights: Weights) -> tuple[jax.Array, jax.Array]:
        def one_batch(batch: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rows, targets, exists = batch
            inputs = prepare(learning, rows, test.mean, test.std)
            outputs, _ = learning.model.apply(*weights, inputs, key=None, training=False)
            metric = learning.task.metric(outputs, targets).astype(jnp.float32)
            losses = learning.task.loss(outputs, targets)
            return jnp.sum(jnp.where(exists, metric, 0.0)), jnp.sum(jnp.where(exists, losses, 0.0))

        metric, loss = jax.lax.map(one_batch, (test.inputs, test.targets, test.exists))
        mean_loss = jnp.sum(loss) / count
        summary = learning.task.summary(jnp.sum(metric) / count)
        return jnp.where(jnp.isnan(mean_loss), jnp.nan, summary), mean_loss

    lanes = learning.training.eval_lanes
    return jax.lax.map(one_model, weights, batch_size=lanes if lanes > 1 else None)


def client_loss(
    learning: Learning,
    data: TrainingData,
    partition: jax.Array,
    weights_of: Callable[[jax.Array], Weights],
    clients: jax.Array,
) -> jax.Array:
    """Computes the mean loss of one run's model on all the data of each client.

    Args:
      learning: the static description of learning.
      data: the training set.
      partition: int32 scalar, the index of the run's partition.
      weights_of: function from a client, int32 scalar, to the weights from which the client would start.
      clients: int32 [c], the clients.

    Returns:
      float32 [c], the mean loss of each client.
    """

    def one_client(client: jax.Array) -> jax.Array:
        outputs, targets, exists = _of_client(
            learning, data, partition, weights_of(client), client, learning.longest
        )
        losses = learning.task.loss(outputs, targets)
        size = data.size[partition, client].astype(jnp.float32)
        return jnp.sum(jnp.where(exists, losses, 0.0)) / size

    return jax.lax.map(one_client, clients)


@functools.partial(jax.jit, static_argnums=(0, 1))
def client_metric(
    learning: Learning,
    longest: int,
    data: TrainingData,
    weights: Weights,
    memory: Memory,
    values: Values,
    files: Values,
) -> jax.Array:
    """Computes the task's metric for each client of one run, on the client's samples.

    The metric is that of the model that the client would use.

    Args:
      learning: the static description of learning, static.
      longest: the largest number of samples of a client, static.
      data: the samples, with one partition.
      weights: the run's global model. Its statistics are [K, ...] if clients keep their own.
      memory: the states of the run's server and clients.
      values: traced hyper-parameters of the run, by name.
      files: tables that all runs share.

    Returns:
      float32 [K]; NaN for a client without samples. If a client's loss or metric is NaN, its metric is the
      worst infinity, so that no summary over the clients leaves it out.
    """
    worst = -jnp.inf if learning.task.higher_is_better else jnp.inf

    def one_client(client: jax.Array) -> jax.Array:
        own = weights_of_client(learning, weights, memory, values | files, client)
        outputs, targets, exists = _of_client(learning, data, jnp.int32(0), own, client, longest)
        size = data.size[0, client].astype(jnp.float32)
        metric = learning.task.metric(outputs, targets).astype(jnp.float32)
        losses = learning.task.loss(outputs, targets)
        mean, loss = (jnp.sum(jnp.where(exists, one, 0.0)) / size for one in (metric, losses))
        summary = learning.task.summary(mean)
        summary = jnp.where(jnp.isnan(loss) | jnp.isnan(summary), worst, summary)
        return jnp.where(size > 0, summary, jnp.nan)

    return jax.lax.map(one_client, jnp.arange(data.size.shape[1]))


def _of_client(
    learning: Learning,
    data: TrainingData,
    partition: jax.Array,
    weights: Weights,
    client: jax.Array,
    longest: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns a model's outputs for a client's samples, [longest, ...], the targets, and which rows exist.

    The other rows repeat the client's samples.
    """
    size = data.size[partition, client]
    position = jnp.arange(longest)
    own = data.offset[partition, client] + position % jnp.maximum(size, 1)
    index = data.order.at[partition, own].get(mode="clip")
    inputs, targets = gather(learning, data, index)
    outputs, _ = learning.model.apply(*weights, inputs, key=None, training=False)
    return outputs, targets, position < size
