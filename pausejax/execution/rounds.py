"""Plays all rounds of a batch, segment by segment, with checkpoints.

Stopped runs are dropped from the batch.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.devices import SHARED, SPLIT, put, runs_mesh
from pausejax.execution import events
from pausejax.execution.program import GroupProgram
from pausejax.execution.stopping import NO_STOP, StopRequested, StopSignal
from pausejax.parts.visits import lending
from pausejax.study.runs import Run
from pausejax.study.simulation import Arrays, Segment

if TYPE_CHECKING:
    from pausejax.results.checkpoint import Checkpoint


Progress = Callable[[float], None]
"""A function that is called after each segment with the number of rounds × runs advanced.

If the data stream sets the number of rounds T, `BatchProgress` divides rounds × runs by T.
"""


class BatchProgress:
    """Reports the progress of consecutive batches. A round that is played twice is reported only once.

    Args:
      progress: the function that is called with the advance since its last call.
      scale: the factor that converts rounds × runs to the unit of `progress`.
    """

    def __init__(self, progress: Progress, scale: float = 1) -> None:
        self._progress, self._scale = progress, scale
        self._of_batch = self._again = 0.0

    def __call__(self, rounds_times_runs: float) -> None:
        """Reports the rounds × runs that a batch has advanced, without repeated rounds."""
        repeated = min(rounds_times_runs, self._again)
        self._again -= repeated
        self._of_batch += rounds_times_runs
        self._progress((rounds_times_runs - repeated) * self._scale)

    def keep(self) -> None:
        """Notes the end of a batch whose runs are not played again."""
        self._of_batch = 0.0

    def repeat(self) -> None:
        """Notes the end of a batch whose runs are all played again, so that repeated rounds do not count."""
        self._again += self._of_batch
        self._of_batch = 0.0


@lending()
def play_rounds(
    program: GroupProgram,
    runs: Sequence[Run],
    progress: Progress,
    checkpoint: "Checkpoint | None" = None,
    stopping: StopSignal = NO_STOP,
) -> Arrays:
    """Plays some runs from their start, or from their last checkpoint.

    Args:
      program: the program of the runs' group.
      runs: at most as many runs as the program's width; copies of the last run fill up the width.
      progress: the function that is called after each segment with the rounds × runs advanced.
      checkpoint: the checkpoint of the runs while they are unfinished.
      stopping: the signal that asks the study to stop; a checkpoint of the runs is then saved.

    Raises:
      StopRequested: the study was asked to stop.
      PartError: a part from outside the package has returned an invalid value.

    Returns:
      The recorded arrays by variable; the first axis is that of the runs.
    """
    simulation, num_runs = program.simulation, len(runs)
    rounds, padded = simulation.rounds, simulation.padded
    full_rows = padded(program.executable(stopping).width)
    segments: list[Segment] = []
    # For each row, the index of its run in `runs`. When the active runs are at most half as many as the rows,
    # stopped runs are dropped. A checkpoint holds the state of the remaining rows.
    positions = np.minimum(np.arange(full_rows), num_runs - 1)

    def run_of_each_row() -> list[Run]:
        return [runs[position] for position in positions]

    if resumed := checkpoint.restore(simulation.state_shapes) if checkpoint else None:
        state, segments = resumed
        stored = segments[-1].positions
        # The number of devices or the placement of the data may have changed since the checkpoint, and so the
        # padding.
        positions = np.pad(stored, (0, padded(len(stored)) - len(stored)), mode="edge")
        state = take(state, places_of(positions, stored))
        events.resumed(num_runs, segments[-1].last_round, rounds)
        progress(segments[-1].last_round * num_runs)
    else:
        state = simulation.start(run_of_each_row())

    def ready() -> tuple[jax.stages.Compiled, tuple[Any, ...]]:
        return program.compiled_for(len(positions), stopping), simulation.arguments(run_of_each_row())

    call, arguments = ready()
    first = segments[-1].last_round + 1 if segments else 1
    in_flight: tuple[int, Any] | None = None

    def fetch() -> None:
        nonlocal in_flight
        if in_flight:
            segments.append(simulation.to_host(in_flight[0], positions, in_flight[1]))
            progress((segments[-1].last_round + 1 - in_flight[0]) * num_runs)
        in_flight = None

    while first <= rounds:
        if simulation.stop_at_latency:
            # The previous segment is not read, because a device may still be computing it. Timing must not
            # change which runs are played. So a run that stops in one segment is also played in the next one,
            # and in later segments until it is dropped. `Simulation.finish` leaves these rounds out.
            seen = [segment for segment in segments if segment.last_round < first - 1]
            active = np.flatnonzero(simulation.running(seen, np.arange(num_runs)))
            if not len(active):
                break
            if rows := _fewer_rows(full_rows, len(positions), len(active), padded):
                fetch()
                narrowed = np.pad(active, (0, rows - len(active)), mode="edge")
                state = take(state, places_of(narrowed, positions))
                positions = narrowed
                call, arguments = ready()
        state, record = call(*arguments, state, *_rounds(len(positions), first, rounds))
        # The previous segment's records are copied to the host while the devices compute this segment.
        fetch()
        in_flight, first = (first, record), first + simulation.rounds_per_call
        if first <= rounds and (stopping() or (checkpoint and checkpoint.due())):
            fetch()
            if checkpoint:
                checkpoint.save(state, segments)
            stopping.check()
    fetch()
    # If all runs have stopped, the remaining rounds are not played. They are reported as progress, so that
    # the total is reached.
    if (last := segments[-1].last_round) < rounds:
        events.ended_early(num_runs, last, rounds)
        progress((rounds - last) * num_runs)
    try:
        return simulation.finish(segments, state, runs, stopping.check)
    except StopRequested:
        if checkpoint:
            checkpoint.save(state, segments)
        raise


def _fewer_rows(full_rows: int, rows: int, active: int, padded: Callable[[int], int]) -> int | None:
    """Returns a smaller number of rows to play: `full_rows` over a power of two, rounded up and padded.

    Returns None if the active runs are more than half as many as the rows, or if no smaller number exists.

    Args:
      full_rows: the number of rows before any run was dropped.
      rows: the number of rows that are played now.
      active: the number of runs that have not stopped.
      padded: the function from a width to the number of rows with padding.
    """
    if 2 * active > rows:
        return None
    width = full_rows
    while active <= -(-width // 2) and width > 1:
        width = -(-width // 2)
    return padded(width) if padded(width) < rows else None


def places_of(wanted: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Returns the index in `positions` of each position in `wanted`, int [n].

    If padding repeats a position in `positions`, its first index is returned.
    """
    order = np.argsort(positions, kind="stable")
    return order[np.searchsorted(positions, wanted, sorter=order)]


def take(state: Any, places: Sequence[int] | np.ndarray) -> Any:
    """Returns the rows of a state with the indices `places`, placed on the devices."""
    return put(jax.tree.map(lambda leaf: leaf[np.asarray(places)], state), runs_mesh(len(places)), SPLIT)


def _rounds(rows: int, first: int, last: int) -> tuple[jax.Array, jax.Array]:
    mesh = runs_mesh(rows)
    return put(jnp.int32(first), mesh, SHARED), put(jnp.int32(last), mesh, SHARED)
