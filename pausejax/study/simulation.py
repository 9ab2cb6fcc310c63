"""The interface between a kind of study and `execution`: the simulation of one group of runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from pausejax.study.runs import Run

Arrays = dict[str, np.ndarray]
"""Type of the arrays of some runs by variable; the leading axis is the runs."""


Check = Callable[[], None]
"""Type of a function that raises an exception if the study was asked to stop."""


class Layout(NamedTuple):
    """Layout of a group on devices. The layout affects the last bits of floats."""

    runs: int
    """Largest width of a program: the number of runs that all devices of a process together compute in
    parallel, if memory allows."""
    sharded: bool = False
    """Whether each device holds a share of the training inputs instead of all inputs."""
    lanes: int = 0
    """Number of clients, not of runs, that each device trains in parallel."""
    eval_lanes: int = 0
    """Number of global models, one for each run, that each device evaluates in parallel."""
    eval_batch: int = 0
    """Approximate number of test samples in an evaluation batch."""
    conv: str = ""
    """Implementation of convolutions, a `federated.placement.ConvVariant`."""


class Segment(NamedTuple):
    """Records of consecutive rounds."""

    first_round: int
    last_round: int
    positions: np.ndarray
    """int [n], indices of the recorded runs in the batch or piece; padding repeats an index."""
    records: Arrays
    """Recorded values by variable, [n, recorded rounds, ...]."""


class DeviceBytes(NamedTuple):
    """Bytes on a device, by purpose."""

    shared: Mapping[str, int]
    """Bytes that all runs share: data, partitions, tables."""
    per_run: Mapping[str, int]
    """Bytes of one run: its state between two rounds, and its records of two calls of the program."""


class Simulation(Protocol):
    """Simulation of one group by a compiled program.

    The first axis of every array of a state is that of the rows. A row holds a run, or padding: a copy of the
    last run. The *width* of a program is its number of rows without padding.
    """

    rounds: int
    """Number of rounds T of these runs."""
    rounds_per_call: int
    """Number of rounds that one call of the program advances."""
    stop_at_latency: float
    """Simulated time at which a run may stop, seconds; 0 if no run stops early."""
    layout: Layout

    @property
    def input_shards(self) -> int:
        """Number of devices over which the training inputs are sharded; 1 if each device holds all inputs."""

    def sharded(self) -> Self:
        """Returns the simulation with its training inputs sharded over all of its devices.

        Returns the simulation itself if it has no training inputs or only one device.
        """

    def padded(self, width: int) -> int:
        """Returns the number of rows for `width` runs, with padding so that devices get equally many rows.

        If the training inputs are sharded, all devices are in use, else at most one device for each run.
        """

    def trace(self, rows: int) -> jax.stages.Traced:
        """Traces the program for `rows` rows. Nothing is put on a device.

        Raises:
          ValueError: the parts and values of the group do not fit together.
        """

    def turns(self) -> Mapping[str, float]:
        """Returns, by named scope, the numbers of iterations that a trace can't show.

        For a scope with a conditional, the number is the share of calls that take its costly branch.
        """

    def lower(self, rows: int) -> jax.stages.Lowered:
        """Traces and lowers the program for `rows` rows. Raises a ValueError when `trace` raises one."""

    def state_shapes(self, rows: int) -> Any:
        """Returns the shapes, types and shardings of the state of `rows` rows."""

    def arguments(self, runs: Sequence[Run]) -> tuple[Any, ...]:
        """Puts the program's arguments for some runs on the devices, except state and rounds, and returns
        them."""

    def start(self, runs: Sequence[Run]) -> Any:
        """Makes the state of some runs before round 1 on the devices, and returns it."""

    def to_host(self, first_round: int, positions: np.ndarray, record: Any) -> Segment:
        """Copies a record to the host.

        Args:
          first_round: the first round of the call that made the record.
          positions: int [n], for each row the index of its run in the batch.
          record: the record of the call, on the devices.

        Raises:
          PartError: a part from outside the package has returned an invalid value in one of these rounds.
        """

    def running(self, segments: Sequence[Segment], positions: np.ndarray) -> np.ndarray:
        """Returns whether each run at some distinct positions of the batch has not stopped, bool [n]."""

    def finish(self, segments: Sequence[Segment], state: Any, runs: Sequence[Run], check: Check) -> Arrays:
        """Returns the arrays of some runs for the result, after all of their rounds are recorded.

        It does not change the state, so it can be called again after a stop.

        Args:
          segments: the records of the runs.
          state: the state after the last segment, with one row for each entry of `segments[-1].positions`, on
            the devices.
          runs: distinct runs, in the order of their positions.
          check: the function that is called before each long computation.
        """

    def model_bytes(self) -> int:
        """Returns the bytes that the result keeps of the models of one run; 0 if it keeps no models."""

    def device_bytes(self) -> DeviceBytes:
        """Computes the bytes on each device while runs are played, from the shapes of the arrays."""

    def release(self) -> None:
        """Frees the arrays on the devices. The next use puts the arrays on the devices again."""


def bytes_of(tree: Any) -> int:
    """Returns the number of bytes of arrays, or of arrays with given shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
