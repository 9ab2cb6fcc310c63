"""Tests each client's own model on the samples that were held out of its training."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pausejax.data.dataset import Dataset
from pausejax.data.held_out import rows
from pausejax.data.partition import Partition
from pausejax.federated.batches import TrainingData, flat, scale
from pausejax.federated.evaluation import client_metric
from pausejax.federated.kept import of_runs
from pausejax.federated.learning import Learning, Memory
from pausejax.federated.modules import Weights


def client_metrics(
    learning: Learning,
    dataset: Dataset,
    partitions: Sequence[Partition],
    partition_index: np.ndarray,
    weights: Weights,
    memory: Memory,
    hyper: Any,
    files: Any,
    share: np.ndarray,
) -> np.ndarray:
    """Computes the task's metric of every client's model on the client's held-out samples.

    The models are evaluated run by run. So the metrics of a run are bit for bit independent of the other runs
    of its batch.

    Args:
      learning: the static description of learning.
      dataset: the data set, on the host.
      partitions: all partitions of the group; their sizes fix the shapes of the program.
      partition_index: int [runs], the index of each run's partition.
      weights: the global models after the last round, pytree [R, ...] with R >= runs.
      memory: the states of servers and clients, [R, ...].
      hyper: traced hyper-parameters by name, [runs] each.
      files: tables that all runs share.
      share: float32 [runs, K], |D_k| / |D|.

    Returns:
      float32 [runs, K]; NaN for a client without held-out samples, and for a loss that is NaN.
    """
    learning = dataclasses.replace(learning, sharded=False)  # these samples lie on one device
    longest = int(max(np.max(part.held_out) for part in partitions))
    total = int(max(np.sum(part.held_out) for part in partitions))
    found = np.full(share.shape, np.nan, np.float32)
    of_all = of_runs(weights, memory, hyper, share)
    for number in np.unique(partition_index):
        data = jax.device_put(_samples(dataset, partitions[number], total))
        for run in np.flatnonzero(partition_index == number):
            own_weights, own_memory, values, _ = of_all[run]
            found[run] = client_metric(learning, longest, data, own_weights, own_memory, values, files)
    return found


def _samples(dataset: Dataset, partition: Partition, total: int) -> TrainingData:
    """Returns the held-out samples of all clients, client after client, padded to a given length."""
    index = rows(partition)
    index = np.pad(index, (0, total - len(index)))
    held = np.broadcast_to(partition.held_out, partition.sizes.shape).astype(np.int32)
    mean, std = scale(dataset)
    arrays: tuple[Any, ...] = (
        flat(dataset.train_inputs[index]),
        dataset.train_targets[index],
        mean,
        std,
        np.arange(total, dtype=np.int32)[None],
        (np.cumsum(held) - held).astype(np.int32)[None],
        held[None],
    )
    return TrainingData(*arrays)
