"""What a kind of study hands to the engine: one group of runs as a compiled program sees it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from pausejax.study.runs import Run

Arrays = dict[str, np.ndarray]
"""What some runs leave: arrays by variable, leading axis the runs."""


class Layout(NamedTuple):
    """How a group lies on devices. It decides the last bits of floats, beside the settings of the runs."""

    runs: int
    """The most runs side by side, where memory allows."""
    sharded: bool = False
    """Whether each device holds a share of the training inputs, and not all of them."""
    lanes: int = 0
    """Clients of a run that are trained side by side."""
    eval_lanes: int = 0
    """Global models that are evaluated side by side."""
    eval_batch: int = 0
    """About so many test samples at a time."""
    conv: str = ""
    """How convolutions are done: as `federated.placement.ConvVariant`."""


class Segment(NamedTuple):
    """What some rounds in a row have recorded."""

    first_round: int
    last_round: int
    positions: np.ndarray
    """int [n], of the played runs among those that are played together; one may come again as padding."""
    records: Arrays
    """By variable, [n, records, ...]."""


class DeviceBytes(NamedTuple):
    """Bytes on a device, by what they are."""

    shared: Mapping[str, int]
    """Once, for all rows: data, partitions, tables."""
    each: Mapping[str, int]
    """Of every row: its state between two rounds, and what two calls record of it."""


class Simulation(Protocol):
    """One group as a compiled program sees it; every array of a state has the played runs first."""

    rounds: int
    """T of these runs."""
    rounds_per_call: int
    """Rounds that one call of the program advances."""
    stop_at_latency: float
    """Simulated time at which a run may stop, seconds; 0: never."""
    layout: Layout

    @property
    def data_shares(self) -> int:
        """Over how many devices the training inputs are sharded; 1: each device holds all of them."""

    def sharded(self) -> Self:
        """The same with the training inputs sharded over all its devices, if there are any and several."""

    def padded(self, width: int) -> int:
        """Returns the next number of rows that fills up the devices, all of them where data are sharded."""

    def trace(self, width: int) -> jax.stages.Traced:
        """Traces the program for so many rows. Nothing is put on a device.

        Raises:
          ValueError: what the group is made of does not fit together.
        """

    def turns(self) -> Mapping[str, float]:
        """Says by named scope how often loops go round that no trace can count, and which share chooses.

        A choice within a scope is made in such a share of all times.
        """

    def lower(self, width: int) -> jax.stages.Lowered:
        """Traces and lowers the program for so many rows; as `trace`."""

    def state_shapes(self, width: int) -> Any:
        """Shapes, types and shardings of the state of so many rows."""

    def arguments(self, runs: Sequence[Run]) -> tuple[Any, ...]:
        """Returns what the program takes besides state and rounds, for some runs, on the devices."""

    def start(self, runs: Sequence[Run]) -> Any:
        """Returns the state of some runs before round 1, on the devices."""

    def to_host(self, first_round: int, positions: np.ndarray, record: Any) -> Segment:
        """Fetches what a call that began at a round has recorded of the runs at some positions."""

    def running(self, segments: Sequence[Segment], positions: np.ndarray) -> np.ndarray:
        """Says which of the runs at some distinct positions have not stopped, bool [n]."""

    def finish(self, segments: Sequence[Segment], runs: Sequence[Run]) -> Arrays:
        """Returns what some runs leave in the result once all their rounds are recorded.

        Args:
          segments: their records.
          runs: distinct; the one at position i comes i-th.
        """

    def device_bytes(self) -> DeviceBytes:
        """Computes the bytes on each device while runs are played, from the shapes of the arrays."""

    def release(self) -> None:
        """Lets go of what lies on the devices; it is put there again when it is needed."""


def bytes_of(tree: Any) -> int:
    """Of arrays, or of their shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
