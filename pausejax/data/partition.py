"""Defines the partitioners, which decide which client owns which training sample.

A partitioner is a function `(labels, num_clients, seed, *, ...)` on the host. It returns a `Partition`, or
every sample's owner. Its random numbers depend on the seed alone, so all policies with one seed get one
partition. Every sample has one owner. With random partitioners, every client owns at least a minibatch.
"""

import zlib
from typing import Annotated, Any, NamedTuple

import numpy as np

from pausejax import parts
from pausejax.data._dealing import dirichlet, grouped, round_to_sum, top_up
from pausejax.parts import Parameter, Part, PartError

DOMINANT_SHARE = 0.25
"""Approximate share of a client's samples that have its dominant label (PAUSE paper, §V-A)."""

CONCENTRATION = 3.0

Concentration = Annotated[
    float,
    Parameter(help="Dirichlet partitions: the smaller, the more the clients differ", low=0, low_open=True),
]
ShardsPerClient = Annotated[int, Parameter(help="partition shards: number of shards of a client", low=1)]

# Numbers by which the seeds of these partitioners differ. Other partitioners use a digest of their names.
_STREAMS = {"iid": 0, "dirichlet_quantity": 1, "dirichlet_label": 2, "shards": 3}

_FIXED_POINT_STEPS = 30


class Partition(NamedTuple):
    """Client k owns the training samples `order[offsets[k] : offsets[k] + sizes[k]]`."""

    order: np.ndarray
    """int32 [N], sample indices, grouped by client and in random order within each client."""
    sizes: np.ndarray
    """int32 [K], |D_k|: the number of training samples of each client."""
    held_out: np.ndarray | int = 0
    """int32 [K], number of each client's samples that only test its model; they come last in `order`."""

    @property
    def owned(self) -> np.ndarray:
        """int [K], the number of all samples of each client."""
        return self.sizes + self.held_out

    @property
    def offsets(self) -> np.ndarray:
        """int32 [K], the position in `order` of each client's first sample."""
        return (np.cumsum(self.owned) - self.owned).astype(np.int32)

    @property
    def data_share(self) -> np.ndarray:
        """float32 [K], |D_k| / |D|: the share of the training samples that each client has."""
        return (self.sizes / self.sizes.sum()).astype(np.float32)

    def label_counts(self, labels: np.ndarray) -> np.ndarray:
        """Returns the number of samples of each label that every client owns, int64 [K, classes]."""
        owner = np.repeat(np.arange(len(self.sizes)), self.owned)
        counts = np.zeros((len(self.sizes), int(labels.max()) + 1), np.int64)
        np.add.at(counts, (owner, labels[self.order]), 1)
        return counts


@parts.partition
def iid(labels: np.ndarray, num_clients: int, seed: int, *, batch_size: int) -> Partition:
    """Assigns samples uniformly at random, in shares whose sizes differ by at most one."""
    rng = _begin("iid", len(labels), num_clients, seed, batch_size)
    return _group(rng.permutation(len(labels)) % num_clients, num_clients, rng)


@parts.partition
def dirichlet_quantity(
    labels: np.ndarray,
    num_clients: int,
    seed: int,
    *,
    batch_size: int,
    concentration: Concentration = CONCENTRATION,
) -> Partition:
    """Draws sizes from a Dirichlet law, and a dominant label for each client: the non-i.i.d. case of PAUSE.

    A client's dominant label is the label with the most unassigned samples; the largest clients come first.
    The client's other samples are drawn uniformly. Its dominant share is smaller if no label has enough
    samples.

    Args:
      labels: int [N], the label of each sample.
      num_clients: K, the number of clients.
      seed: the seed, not negative.
      batch_size: the smallest number of samples of a client.
      concentration: the law's parameter, above 0; the smaller, the more unequal the clients.
    """
    _check_labels(labels)
    rng = _begin("dirichlet_quantity", len(labels), num_clients, seed, batch_size)
    _check_positive("concentration", concentration)
    size = len(labels)
    share = dirichlet(rng, concentration, num_clients)
    sizes = batch_size + round_to_sum(share * (size - num_clients * batch_size))

    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in range(int(labels.max()) + 1)]
    supply = np.array([len(pool) for pool in pools])
    lottery = rng.permutation(len(pools))
    dominant = np.empty(num_clients, np.int64)
    demand = np.zeros(len(pools))
    largest_first = np.argsort(-sizes, kind="stable")
    for client in largest_first:
        dominant[client] = lottery[np.argmax((supply - demand)[lottery])]
        demand[dominant[client]] += DOMINANT_SHARE * sizes[client]

    # The random rest also contains the dominant label, so only the difference is assigned.
    load = np.bincount(dominant, sizes, len(pools))
    forced = np.zeros(len(pools))
    for _ in range(_FIXED_POINT_STEPS):
        rest = np.maximum(supply - forced * load, 0) / (size - (forced * load).sum())
        forced = np.clip((DOMINANT_SHARE - rest) / np.maximum(1 - rest, 1 / size), 0, 1)
    owner = np.full(size, -1)
    for client in largest_first:
        label = dominant[client]
        taken = min(round(forced[label] * sizes[client]), supply[label])
        owner[pools[label][supply[label] - taken : supply[label]]] = client
        supply[label] -= taken
    lacking = sizes - np.bincount(owner[owner >= 0], minlength=num_clients)
    owner[owner < 0] = rng.permutation(np.repeat(np.arange(num_clients), lacking))
    return _group(owner, num_clients, rng)


@parts.partition
def dirichlet_label(
    labels: np.ndarray,
    num_clients: int,
    seed: int,
    *,
    batch_size: int,
    concentration: Concentration = CONCENTRATION,
) -> Partition:
    """Divides each label among the clients by its own symmetric Dirichlet draw (Hsu, Qi, Brown 2019).

    Args:
      labels: int [N], the label of each sample.
      num_clients: K, the number of clients.
      seed: the seed, not negative.
      batch_size: the smallest number of samples of a client. Clients with fewer get random samples of the
        largest clients.
      concentration: the law's parameter, above 0; the smaller, the fewer labels a client has.
    """
    _check_labels(labels)
    rng = _begin("dirichlet_label", len(labels), num_clients, seed, batch_size)
    _check_positive("concentration", concentration)
    owner = np.empty(len(labels), np.int64)
    for label in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == label)
        counts = round_to_sum(dirichlet(rng, concentration, num_clients) * len(members))
        owner[members] = rng.permutation(np.repeat(np.arange(num_clients), counts))
    return _group(top_up(owner, num_clients, batch_size, rng), num_clients, rng)


@parts.partition
def shards(
    labels: np.ndarray,
    num_clients: int,
    seed: int,
    *,
    batch_size: int,
    shards_per_client: ShardsPerClient = 2,
) -> Partition:
    """Sorts samples by label and gives each client s of K·s pieces at random (McMahan et al. 2017).

    Args:
      labels: int [N], the label of each sample.
      num_clients: K, the number of clients.
      seed: the seed, not negative.
      batch_size: the smallest number of samples of a client. Clients with fewer get random samples of the
        largest clients.
      shards_per_client: s, at least 1; the smaller, the fewer labels a client has.
    """
    _check_labels(labels)
    rng = _begin("shards", len(labels), num_clients, seed, batch_size)
    if not 1 <= shards_per_client <= len(labels) // num_clients:
        raise ValueError(
            f"shards_per_client: must be from 1 to {len(labels) // num_clients} with {len(labels)} samples"
            f" and {num_clients} clients, not {shards_per_client}"
        )
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, num_clients * shards_per_client)
    owner = np.empty(len(labels), np.int64)
    for position, piece in enumerate(rng.permutation(len(pieces))):
        owner[pieces[piece]] = position % num_clients
    return _group(top_up(owner, num_clients, batch_size, rng), num_clients, rng)


@parts.partition
def natural(
    labels: np.ndarray, num_clients: int, seed: int, *, batch_size: int, owner: np.ndarray | None
) -> Partition:
    """Gives each client the samples that it owns in the data set, even if they are fewer than a minibatch.

    Args:
      labels: [N, ...], the targets.
      num_clients: K, the number of owners.
      seed: the seed of the order of each client's samples, not negative.
      batch_size: unused, because a client may own less than a minibatch.
      owner: int [N] in [0, K), each sample's owner in the data set.
    """
    del batch_size
    if owner is None:
        raise ValueError("the data set must have an array `owner`, which names the client of each sample")
    owners = int(owner.max()) + 1
    if owners != num_clients:
        raise ValueError(f"num_clients must be {owners}, the data set's number of owners, not {num_clients}")
    return _group(owner.astype(np.int64), num_clients, generator("natural", seed))


def generator(name: str, seed: int) -> np.random.Generator:
    """Returns the random generator of a partitioner for a seed; two partitioners have different generators.

    Raises:
      ValueError: the seed is negative.
    """
    if seed < 0:
        raise ValueError(f"seed: must be >= 0, not {seed}")
    return np.random.default_rng([_STREAMS.get(name, zlib.crc32(name.encode())), seed])


def split(part: str | Part, labels: np.ndarray, num_clients: int, seed: int, **values: Any) -> Partition:
    """Assigns every sample to a client by one partitioner.

    Args:
      part: a partitioner or the name of a registered partitioner.
      labels: [N, ...], the targets.
      num_clients: K, the number of clients.
      seed: the seed, not negative.
      **values: `batch_size`, `owner` and the partitioner's own parameters; other values are ignored.

    Raises:
      ValueError: no partitioner has this name, or an argument is out of its range.
      PartError: the partitioner does not return a partition.
    """
    part = parts.find("partition", part)
    made = part.build(labels, num_clients, seed, **values)
    where = part.where
    if not isinstance(made, Partition):
        owner = np.asarray(made)
        if owner.shape != (len(labels),) or owner.dtype.kind not in "iu":
            raise PartError(
                f"{where}: must return a Partition, or integers [{len(labels)}], the owner of each sample,"
                f" not {owner.dtype} {list(owner.shape)}"
            )
        if owner.min() < 0 or owner.max() >= num_clients:
            raise PartError(
                f"{where}: owners must be from 0 to {num_clients - 1}, not {owner.min()} to {owner.max()}"
            )
        made = _group(owner.astype(np.int64), num_clients, generator(part.name, seed))
    order, sizes = np.asarray(made.order), np.asarray(made.sizes)
    for what, array in (("order", order), ("sizes", sizes)):
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise PartError(f"{where}: {what} must be integers in one row, not {array.dtype} {array.shape}")
    if sizes.shape != (num_clients,) or sizes.min() < 1:
        raise PartError(f"{where}: each of the {num_clients} clients must own one sample or more")
    if not np.array_equal(np.sort(order), np.arange(len(labels))) or sizes.sum() != len(labels):
        raise PartError(f"{where}: each of the {len(labels)} samples must have exactly one owner")
    return Partition(order.astype(np.int32), sizes.astype(np.int32))


def _begin(name: str, samples: int, num_clients: int, seed: int, batch_size: int) -> np.random.Generator:
    """Checks the arguments of a partitioner that draws at random and returns its random generator."""
    if num_clients < 1:
        raise ValueError(f"num_clients: must be at least 1, not {num_clients}")
    if batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, not {batch_size}")
    if samples < num_clients * batch_size:
        raise ValueError(
            f"num_clients: {num_clients} clients with one minibatch of {batch_size} samples each need"
            f" {num_clients * batch_size} training samples, but the data set has {samples}"
        )
    return generator(name, seed)


def _check_labels(labels: np.ndarray) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"partitions by label need integer targets of shape [N], not {labels.dtype} {labels.shape}"
        )
    if labels.min() < 0:
        raise ValueError(f"partitions by label need targets >= 0, not {labels.min()}")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise ValueError(f"{name}: must be positive and finite, not {value}")


def _group(owner: np.ndarray, num_clients: int, rng: np.random.Generator) -> Partition:
    """Returns the partition for each sample's owner, [N]; each client's samples are shuffled."""
    order = grouped(owner, rng)
    return Partition(order.astype(np.int32), np.bincount(owner, minlength=num_clients).astype(np.int32))
