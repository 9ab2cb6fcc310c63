"""Helps partitioners: draws Dirichlet shares, rounds to a given sum, and adds samples to small clients."""

import heapq

import numpy as np


def dirichlet(rng: np.random.Generator, concentration: float, num_clients: int) -> np.ndarray:
    """Draws from a symmetric Dirichlet law, float64 [K], with a parameter of any size.

    The function uses the logarithms of gamma variates, because the variates underflow to zero for tiny
    parameters. In distribution, log Γ(c) = log Γ(c + 1) + log(U) / c.
    """
    log_gamma = np.log(rng.standard_gamma(concentration + 1, num_clients))
    log_gamma += np.log1p(-rng.random(num_clients)) / concentration
    weight = np.exp(log_gamma - log_gamma.max())
    return weight / weight.sum()


def round_to_sum(quantities: np.ndarray) -> np.ndarray:
    """Rounds numbers, [K], to adjacent integers with the same sum, by largest remainder."""
    whole = np.floor(quantities).astype(np.int64)
    missing = round(quantities.sum()) - whole.sum()
    whole[np.argsort(whole - quantities, kind="stable")[:missing]] += 1
    return whole


def top_up(owner: np.ndarray, num_clients: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Moves random samples from the largest clients to clients with less than a minibatch of samples.

    `owner` and the returned owners are int [N].
    """
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
    order = grouped(owner, rng)
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    owner = owner.copy()
    owner[rank >= left[owner]] = rng.permutation(np.repeat(np.arange(num_clients), lacking))
    return owner


def grouped(owner: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns the sample indices, [N], grouped by their owners, [N], and shuffled within every client."""
    shuffled = rng.permutation(len(owner))
    return shuffled[np.argsort(owner[shuffled], kind="stable")]
