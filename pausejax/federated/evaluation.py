"""Evaluation of many global models on one held-out test set, and of one model on its clients' data."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from pausejax.federated.batches import HeldOut, TrainingData, gather, prepare
from pausejax.federated.learning import Learning
from pausejax.federated.modules import Weights


def evaluate(learning: Learning, test: HeldOut, weights: Weights) -> tuple[jax.Array, jax.Array]:
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
      weights_of: function from a client, int32 scalar, to the weights from which it would start.
      clients: int32 [c], the clients.

    Returns:
      float32 [c], the mean loss of each client.
    """

    def one_client(client: jax.Array) -> jax.Array:
        size = data.size[partition, client]
        position = jnp.arange(learning.longest)
        index = data.order.at[partition, data.offset[partition, client] + position].get(mode="clip")
        inputs, targets = gather(learning, data, index)
        outputs, _ = learning.model.apply(*weights_of(client), inputs, key=None, training=False)
        losses = learning.task.loss(outputs, targets)
        return jnp.sum(jnp.where(position < size, losses, 0.0)) / size.astype(jnp.float32)

    return jax.lax.map(one_client, clients)
