"""What a kind of study hands to the engine: one group of runs as a compiled program sees it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import jax
import numpy as np

from pausejax.study.trials import Layout

Arrays = dict[str, np.ndarray]
"""What some runs leave: arrays by variable, leading axis the runs."""


class Segment(NamedTuple):
    """What some rounds in a row have recorded."""

    first_round: int
    last_round: int
    rows: np.ndarray
    """int [n], the group's rows that were played; one may be there again as padding."""
    records: Arrays
    """By variable, [n, records, ...]."""


class Resident(NamedTuple):
    """Bytes on a device, by what they are."""

    shared: Mapping[str, int]
    """Once, for all rows: data, partitions, tables."""
    each: Mapping[str, int]
    """Of every row: its state between two rounds, and what two calls record of it."""


class Simulation(Protocol):
    """One group, made once. A row is a run's place in the group; every array of a state has rows first."""

    rounds: int
    """T of these runs."""
    rounds_per_call: int
    """Rounds that one call of the program advances."""
    stop_at_latency: float
    """Simulated time at which a run may stop, seconds; 0: never."""
    placement: str
    """What of a run lies side by side on its device, in words; "" where there is nothing to tell."""
    layout: Layout
    """The same for machines, of what might lie there in another way."""

    @property
    def data_shares(self) -> int:
        """Over how many devices the training inputs are sharded; 1: each device holds all of them."""
        ...

    def sharded(self) -> Self:
        """The same with the training inputs sharded over all its devices, if there are any and several."""
        ...

    def padded(self, width: int) -> int:
        """The next number of rows that fills up the devices, all of them where data are sharded."""
        ...

    def lower(self, width: int) -> jax.stages.Lowered:
        """Traces the program for so many rows. Nothing is put on a device.

        Raises:
          ValueError: what the group is made of does not fit together.
        """
        ...

    def state_shapes(self, width: int) -> Any:
        """Shapes, types and shardings of the state of so many rows."""
        ...

    def arguments(self, rows: np.ndarray) -> tuple[Any, ...]:
        """What the program takes besides state and rounds, for some rows, on the devices."""
        ...

    def start(self, rows: np.ndarray) -> Any:
        """The state of some rows before round 1, on the devices."""
        ...

    def to_host(self, first_round: int, rows: np.ndarray, record: Any) -> Segment:
        """What a call that began at a round has recorded."""
        ...

    def running(self, segments: Sequence[Segment], rows: np.ndarray) -> np.ndarray:
        """Which of some distinct rows have not stopped, bool [n]."""
        ...

    def finish(self, segments: Sequence[Segment], rows: np.ndarray) -> Arrays:
        """What some distinct rows leave in the result once all their rounds are recorded."""
        ...

    def resident(self) -> Resident:
        """What lies on each device while runs are played, by shapes alone."""
        ...

    def release(self) -> None:
        """Lets go of what lies on the devices; it is put there again when it is needed."""
        ...


def bytes_of(tree: Any) -> int:
    """Of arrays, or of their shapes."""
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


@runtime_checkable
class Refillable(Simulation, Protocol):
    """One whose rows need not be in the same round, so that a row whose run has ended takes another run."""

    def lower_by_row(self, width: int, rounds: int) -> jax.stages.Lowered:
        """As `lower`, for calls of so many rounds; the first one that a call plays is int32 [rows]."""
        ...

    def with_runs(self, seeds: Sequence[int], values: Sequence[Mapping[str, Any]]) -> Self:
        """The same group with other runs as its rows; their seeds it has had from the start."""
        ...
