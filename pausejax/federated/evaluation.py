"""Evaluation of many global models on one held-out test set."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.data.dataset import normalize
from pausejax.federated.models import Model
from pausejax.federated.training import cross_entropy


class HeldOut(NamedTuple):
    """Test images in batches, resident on the device; a short last batch is padded."""

    images: jax.Array
    """[batches, B, H·W·C], uint8."""
    labels: jax.Array
    """int32 [batches, B]; -1 pads."""
    pixel_mean: jax.Array
    pixel_std: jax.Array


def evaluate(
    model: Model, image_shape: tuple[int, ...], test: HeldOut, params: Any, lanes: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Accuracy (a fraction) and mean cross-entropy of each run's model, float32 [R] each.

    `lanes` models are evaluated side by side. A model whose loss is NaN has no accuracy: NaN.
    """
    count = jnp.sum(test.labels >= 0)

    def one_model(weights: Any) -> tuple[jax.Array, jax.Array]:
        def one_batch(batch: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rows, labels = batch
            images = normalize(rows.reshape(labels.shape + image_shape), test.pixel_mean, test.pixel_std)
            logits = model.apply(weights, images)
            losses = jnp.where(labels >= 0, cross_entropy(logits, jnp.maximum(labels, 0)), 0.0)
            return jnp.sum(jnp.argmax(logits, axis=-1) == labels), jnp.sum(losses)

        correct, loss = jax.lax.map(one_batch, (test.images, test.labels))
        mean_loss = jnp.sum(loss) / count
        accuracy = jnp.sum(correct) / count
        return jnp.where(jnp.isnan(mean_loss), jnp.nan, accuracy), mean_loss

    return jax.lax.map(one_model, params, batch_size=lanes if lanes > 1 else None)
