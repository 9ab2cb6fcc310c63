"""Partitioners: which client owns which training sample.

Each one is a function `(labels, num_clients, seed, *, batch_size, ...) -> Partition` on the host. Its
randomness comes from the seed and from nothing else, so every policy with the same seed meets the same
partition. Every sample has one owner, and every client owns at least one minibatch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Partition(NamedTuple):
    """Client k owns the training samples `order[offsets[k] : offsets[k] + sizes[k]]`."""

    order: np.ndarray
    """int32 [N], sample indices, grouped by client and in random order within each."""
    sizes: np.ndarray
    """int32 [K], |D_k|."""

    @property
    def offsets(self) -> np.ndarray:
        """int32 [K], where each client's samples start in `order`."""
        return (np.cumsum(self.sizes) - self.sizes).astype(np.int32)

    @property
    def data_share(self) -> np.ndarray:
        """float32 [K], |D_k| / |D|."""
        return (self.sizes / self.sizes.sum()).astype(np.float32)


def iid(labels: np.ndarray, num_clients: int, seed: int, *, batch_size: int = 1) -> Partition:
    """Uniformly random shares whose sizes differ by at most one."""
    rng = _generator("iid", labels, num_clients, seed, batch_size)
    return _group(rng.permutation(len(labels)) % num_clients, num_clients, rng)


PARTITIONERS: dict[str, Callable[..., Partition]] = {"iid": iid}
"""The partitioners by name. A partitioner's position seeds it apart from the others: append only."""


def _generator(
    partitioner: str, labels: np.ndarray, num_clients: int, seed: int, batch_size: int
) -> np.random.Generator:
    """Checks the arguments that all partitioners share and seeds one of them."""
    if num_clients < 1:
        raise ValueError(f"num_clients: must be at least 1, not {num_clients}")
    if batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, not {batch_size}")
    if seed < 0:
        raise ValueError(f"seed: must not be negative, not {seed}")
    if len(labels) < num_clients * batch_size:
        raise ValueError(
            f"num_clients: {num_clients} clients with at least one minibatch of {batch_size} need"
            f" {num_clients * batch_size} training samples; there are {len(labels)}"
        )
    return np.random.default_rng([list(PARTITIONERS).index(partitioner), seed])


def _group(owner: np.ndarray, num_clients: int, rng: np.random.Generator) -> Partition:
    """Turns each sample's owner, [N], into a partition, shuffled within every client."""
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]
    return Partition(order.astype(np.int32), np.bincount(owner, minlength=num_clients).astype(np.int32))
