"""Who owns which sample: the type, and the draws that partitioners are made of."""

import heapq
import zlib
from typing import NamedTuple

import numpy as np

# What seeds a partitioner apart from the others; the rest take a digest of their names.
_STREAMS = {"iid": 0, "dirichlet_quantity": 1, "dirichlet_label": 2, "shards": 3}


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

    def label_counts(self, labels: np.ndarray) -> np.ndarray:
        """int64 [K, classes], how many samples of each label every client owns."""
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        counts = np.zeros((len(self.sizes), int(labels.max()) + 1), np.int64)
        np.add.at(counts, (owner, labels[self.order]), 1)
        return counts


def generator(name: str, seed: int) -> np.random.Generator:
    """The random numbers of one partitioner and one seed; those of two partitioners differ.

    Raises:
      ValueError: the seed is negative.
    """
    if seed < 0:
        raise ValueError(f"seed: must not be negative, not {seed}")
    return np.random.default_rng([_STREAMS.get(name, zlib.crc32(name.encode())), seed])


def begin(name: str, samples: int, num_clients: int, seed: int, batch_size: int) -> np.random.Generator:
    """Checks the arguments that the drawing partitioners share and seeds one of them."""
    if num_clients < 1:
        raise ValueError(f"num_clients: must be at least 1, not {num_clients}")
    if batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, not {batch_size}")
    if samples < num_clients * batch_size:
        raise ValueError(
            f"num_clients: {num_clients} clients with at least one minibatch of {batch_size} need"
            f" {num_clients * batch_size} training samples; there are {samples}"
        )
    return generator(name, seed)


def dirichlet(rng: np.random.Generator, concentration: float, num_clients: int) -> np.ndarray:
    """One symmetric Dirichlet draw, float64 [K], for parameters of any size.

    It works with the logarithms of gamma variates, log Γ(c) = log Γ(c + 1) + log(U) / c in law: for tiny
    parameters the variates themselves are all zero.
    """
    log_gamma = np.log(rng.standard_gamma(concentration + 1, num_clients))
    log_gamma += np.log1p(-rng.random(num_clients)) / concentration
    weight = np.exp(log_gamma - log_gamma.max())
    return weight / weight.sum()


def round_to_sum(quantities: np.ndarray) -> np.ndarray:
    """Whole numbers, [K], next to the given ones and with the same sum, by largest remainder."""
    whole = np.floor(quantities).astype(np.int64)
    missing = round(quantities.sum()) - whole.sum()
    whole[np.argsort(whole - quantities, kind="stable")[:missing]] += 1
    return whole


def top_up(owner: np.ndarray, num_clients: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Moves random samples from whoever is largest to the clients with fewer than a minibatch."""
    sizes = np.bincount(owner, minlength=num_clients)
    lacking = np.maximum(batch_size - sizes, 0)
    largest_first = [(-size, client) for client, size in enumerate(sizes.tolist())]
    heapq.heapify(largest_first)
    for _ in range(lacking.sum()):
        size, client = largest_first[0]
        heapq.heapreplace(largest_first, (size + 1, client))
    left = np.zeros_like(sizes)
    left[[client for _, client in largest_first]] = [-size for size, _ in largest_first]

    rank = np.empty_like(owner)
    grouped = group(owner, num_clients, rng)
    rank[grouped.order] = np.arange(len(owner)) - np.repeat(grouped.offsets, grouped.sizes)
    owner = owner.copy()
    owner[rank >= left[owner]] = rng.permutation(np.repeat(np.arange(num_clients), lacking))
    return owner


def group(owner: np.ndarray, num_clients: int, rng: np.random.Generator) -> Partition:
    """Turns each sample's owner, [N], into a partition, shuffled within every client."""
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]
    return Partition(order.astype(np.int32), np.bincount(owner, minlength=num_clients).astype(np.int32))
