"""Holds samples of each client out of its training, to test the client's own model."""

import numpy as np

from pausejax.data.partition import Partition, generator


def hold_out(partition: Partition, share: float, seed: int) -> Partition:
    """Returns a partition in which a share of each client's samples is held out of training.

    Of a client's n samples, share · n are held out, but at most n - 1. The number is rounded to the nearest
    integer, halves to even. The samples are drawn at random; the draw depends only on the seed.

    Args:
      partition: the partition of all samples.
      share: the share of each client's samples, in [0, 1).
      seed: the seed, not negative.
    """
    held = np.minimum(np.rint(share * partition.sizes).astype(np.int32), partition.sizes - 1)
    client = np.repeat(np.arange(len(partition.sizes)), partition.sizes)
    draw = generator("held_out", seed).random(len(client))
    # Sorts samples by client, and at random within a client.
    order = partition.order[np.lexsort((draw, client))]
    return Partition(order, partition.sizes - held, held)


def rows(partition: Partition) -> np.ndarray:
    """Returns the indices of the held-out samples of all clients, client after client, int32 [M]."""
    client = np.repeat(np.arange(len(partition.sizes)), partition.owned)
    place = np.arange(len(client)) - partition.offsets[client]
    return partition.order[place >= partition.sizes[client]]
