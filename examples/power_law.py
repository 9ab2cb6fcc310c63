"""Your own partitioner: few clients own most of the data."""

import numpy as np

import pausejax


@pausejax.partition
def power_law(
    labels: np.ndarray,
    num_clients: int,
    seed: int,
    *,
    batch_size: int,
    skew: float = pausejax.Parameter(
        1.0, "exponent: the share of the k-th client is proportional to k^-skew", low=0
    ),
) -> np.ndarray:
    """Assigns random samples in shares proportional to k^-skew; every client owns at least a minibatch."""
    share = np.arange(1.0, num_clients + 1) ** -skew
    free = len(labels) - batch_size * num_clients
    if free < 0:
        raise ValueError(f"{len(labels)} samples are too few for {num_clients} minibatches of {batch_size}")
    ends = np.floor(free * np.cumsum(share / share.sum())).astype(int)
    ends[-1] = free
    sizes = batch_size + np.diff(ends, prepend=0)
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(num_clients), sizes))
