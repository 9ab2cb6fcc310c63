"""Tasks of learning: the loss for training, and the metric on the test set."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pausejax import parts
from pausejax.data.dataset import Dataset
from pausejax.parts import Part, PartError
from pausejax.parts.check import expect_type


def _mean(mean: jax.Array) -> jax.Array:
    return mean


class Task(NamedTuple):
    """Task with a loss and a metric for each sample.

    The loss is averaged over minibatches. Loss and metric are averaged over the test set. Both should treat
    each sample alone, because a short batch is filled with other samples.
    """

    output_shape: Callable[[Dataset], tuple[int, ...]]
    """Function that returns the shape of the network's output for one sample; the last entry is the model's
    `num_outputs`, which is 1 for the shape ()."""
    loss: Callable[[jax.Array, jax.Array], jax.Array]
    """Function from outputs [B, ...] and targets [B, ...] to float32 [B]."""
    metric: Callable[[jax.Array, jax.Array], jax.Array]
    """Function from outputs [B, ...] and targets [B, ...] to numbers or booleans [B]."""
    metric_name: str = "test_metric"
    """Name of the result's variable for the metric."""
    unit: str = "1"
    meaning: str = "metric on the test set"
    higher_is_better: bool = True
    loss_unit: str = "nat"
    summary: Callable[[jax.Array], jax.Array] = _mean
    """Function from the mean of the metric over the test set, a scalar, to the recorded value."""


@parts.task
def classification() -> Task:
    """One class per sample: cross-entropy, and the fraction of correct classes. Targets: int [N]."""

    def output_shape(dataset: Dataset) -> tuple[int, ...]:
        if dataset.train_targets.ndim != 1:
            raise ValueError(f"targets must be classes of shape [N], not {dataset.train_targets.shape}")
        return (dataset.classes,)

    return Task(
        output_shape=output_shape,
        loss=cross_entropy,
        metric=lambda logits, labels: jnp.argmax(logits, axis=-1) == labels,
        metric_name="test_accuracy",
        meaning="share of the test set that is classified correctly",
    )


@parts.task
def regression() -> Task:
    """Squared error, and the root of its mean over the test set. Targets: float [N] or [N, n].

    The loss of a sample is its squared error, averaged over the sample's n targets. The metric has the unit
    of the targets.
    """
    return Task(
        output_shape=lambda dataset: (dataset.train_targets[0].size,),
        loss=squared_error,
        metric=squared_error,
        metric_name="test_rmse",
        meaning="root mean square error on the test set",
        higher_is_better=False,
        loss_unit="1",
        summary=jnp.sqrt,
    )


@parts.task
def next_token() -> Task:
    """Language modelling: every position predicts its target token.

    Inputs and targets are int [N, L]. A position with target -1 is ignored.

    The loss of a sequence is the mean cross-entropy over its positions. The metric of a sequence is the
    fraction of positions that are predicted correctly. All sequences have the same weight, whatever their
    numbers of positions are.

    Raises:
      ValueError: a sequence of the data set has no position with a target.
    """

    def output_shape(dataset: Dataset) -> tuple[int, ...]:
        for what, targets in (("training", dataset.train_targets), ("test", dataset.test_targets)):
            empty = np.flatnonzero((targets < 0).reshape(len(targets), -1).all(axis=1))
            if empty.size:
                raise ValueError(f"{what} sequence {empty[0]} has no token (all targets are -1). Remove it")
        return *dataset.train_targets.shape[1:], _vocabulary(dataset)

    def over_positions(values: jax.Array, targets: jax.Array) -> jax.Array:
        counts = targets >= 0
        total = jnp.sum(jnp.where(counts, values, jnp.zeros_like(values)), axis=-1)
        return total / jnp.maximum(jnp.sum(counts, axis=-1), 1).astype(values.dtype)

    return Task(
        output_shape=output_shape,
        loss=lambda logits, targets: over_positions(cross_entropy(logits, jnp.maximum(targets, 0)), targets),
        metric=lambda logits, targets: over_positions(
            (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32), targets
        ),
        metric_name="test_accuracy",
        meaning="share of a sequence's tokens that are predicted correctly, mean over the test sequences",
    )


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Computes the loss of each sample, [...], in nats, for logits [..., classes] and int labels [...]."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Computes each sample's mean squared error, [B], for outputs [B, n] and targets [B] or [B, n]."""
    return jnp.mean(jnp.square(outputs - targets.reshape(outputs.shape)), axis=-1)


def build(part: Part, values: dict[str, object]) -> Task:
    """Builds the task of a part.

    Raises:
      PartError: the task can't be built.
    """
    try:
        made = part.build(**values)
    except PartError:
        raise
    except Exception as error:
        raise PartError(f"{part.where}: can't be built: {error}") from error
    expect_type(part, made, Task, "pausejax.federated.tasks.Task")
    return made


def output_shape(part: Part, task: Task, dataset: Dataset) -> tuple[int, ...]:
    """Returns the shape of the outputs that a task needs for a sample, after checks by shapes alone.

    Raises:
      PartError: the task does not fit the data set, its loss or metric is not one number for each sample, or
        its summary is not one number.
    """
    try:
        shape = tuple(task.output_shape(dataset))
        outputs = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
        targets = jax.ShapeDtypeStruct((2, *dataset.train_targets.shape[1:]), dataset.train_targets.dtype)
        found = {name: jax.eval_shape(getattr(task, name), outputs, targets) for name in ("loss", "metric")}
        summary = jax.eval_shape(task.summary, jax.ShapeDtypeStruct((), jnp.float32))
    except Exception as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise PartError(f"{part.where}: does not fit data set {dataset.name}: {line}") from error
    for name, value in found.items():
        if getattr(value, "shape", None) != (2,):
            raise PartError(f"{part.where}: its {name} must return one number for each of B samples, [B]")
    if getattr(summary, "shape", None) != ():
        raise PartError(f"{part.where}: its summary must return one number, []")
    if found["loss"].dtype != jnp.float32:
        raise PartError(f"{part.where}: its loss must be float32, not {found['loss'].dtype}")
    return shape


def _vocabulary(dataset: Dataset) -> int:
    """Returns the number of tokens in inputs and targets."""
    tokens = dataset.count_values("targets", -1)
    if dataset.train_inputs.dtype.kind in "iu":
        tokens = max(tokens, dataset.count_values("inputs", 0))
    return tokens
