"""Plays all rounds of one chunk of runs, segment by segment, with checkpoints, and shrinks as runs stop."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.devices import SHARED, SPLIT, put, runs_mesh
from pausejax.engine.schedule import Chunk
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.study.simulation import Arrays, Segment, Simulation

if TYPE_CHECKING:
    from pausejax.results.checkpoint import Checkpoints


def play(
    simulation: Simulation,
    chunk: Chunk,
    program: Callable[[int], jax.stages.Compiled],
    progress: Callable[[int], None],
    checkpoints: "Checkpoints | None",
    stopping: Stopping = NEVER,
) -> Arrays:
    """Plays a chunk from its start, or from its last checkpoint.

    Args:
      simulation: of the chunk's group.
      chunk: the rows to play.
      program: the compiled program for so many rows.
      progress: called after each segment with the rounds × runs that it has advanced.
      checkpoints: where the chunk is kept while it is in flight.
      stopping: whether the study is asked to stop; the chunk is then kept as it is.

    Raises:
      Stopped: it was.

    Returns:
      What the chunk's rows without the padding leave; leading axis those rows.
    """
    rounds, count = simulation.rounds, len(chunk.members)
    segments: list[Segment] = []
    # The rows that are played: all of the chunk, until most have stopped.
    rows = chunk.rows
    if resumed := checkpoints.restore(simulation.state_shapes) if checkpoints else None:
        state, segments = resumed
        kept = segments[-1].rows
        # There may be more devices than then, or data that are sharded now: a lone run had one device.
        rows = np.pad(kept, (0, simulation.padded(len(kept)) - len(kept)), mode="edge")
        state = take(state, places_of(rows, kept)) if len(rows) > len(kept) else state
        progress(segments[-1].last_round * count)
    else:
        state = simulation.start(rows)
    call, arguments = program(len(rows)), simulation.arguments(rows)
    first = segments[-1].last_round + 1 if segments else 1
    in_flight: tuple[int, Any] | None = None

    def fetch() -> None:
        nonlocal in_flight
        if in_flight:
            segments.append(simulation.to_host(in_flight[0], rows, in_flight[1]))
            progress((segments[-1].last_round + 1 - in_flight[0]) * count)
        in_flight = None

    while first <= rounds:
        if simulation.stop_at_latency:
            # Without the segment before this one: it may still be in flight, and whether it is must not
            # change what is played.
            seen = [segment for segment in segments if segment.last_round < first - 1]
            left = chunk.members[simulation.running(seen, chunk.members)]
            if not len(left):
                break
            if width := _narrower(len(chunk.rows), len(rows), len(left), simulation.padded):
                fetch()
                narrowed = np.pad(left, (0, width - len(left)), mode="edge")
                state = take(state, places_of(narrowed, rows))
                rows = narrowed
                call, arguments = program(len(rows)), simulation.arguments(rows)
        state, record = call(*arguments, state, *_rounds(len(rows), first, rounds))
        # The records of the segment before come over while the devices are busy with this one.
        fetch()
        in_flight, first = (first, record), first + simulation.rounds_per_call
        if first <= rounds and (stopping() or (checkpoints and checkpoints.due())):
            fetch()
            if checkpoints:
                checkpoints.save(state, segments)
            stopping.check()
    fetch()
    progress((rounds - segments[-1].last_round) * count)
    return simulation.finish(segments, chunk.members)


def _narrower(whole: int, played: int, left: int, padded: Callable[[int], int]) -> int | None:
    """The padded width for `left` rows: the chunk's over a power of two; None while over half are left."""
    if 2 * left > played:
        return None
    width = whole
    while left <= -(-width // 2) and width > 1:
        width = -(-width // 2)
    return padded(width) if padded(width) < played else None


def places_of(wanted: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Where some of the played rows lie; of a row that is there again as padding, its first place."""
    order = np.argsort(rows, kind="stable")
    return order[np.searchsorted(rows, wanted, sorter=order)]


def take(state: Any, places: Sequence[int] | np.ndarray) -> Any:
    """The state of some of the rows that were played."""
    return put(jax.tree.map(lambda leaf: leaf[np.asarray(places)], state), runs_mesh(len(places)), SPLIT)


def _rounds(rows: int, first: int, last: int) -> tuple[jax.Array, jax.Array]:
    mesh = runs_mesh(rows)
    return put(jnp.int32(first), mesh, SHARED), put(jnp.int32(last), mesh, SHARED)
