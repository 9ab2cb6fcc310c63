"""How a batch is played, segment by segment: with runs that count, against what each would leave alone."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.devices import SPLIT, put, runs_mesh, shapes
from pausejax.execution import rounds as playing
from pausejax.execution.stopping import StopRequested, StopSignal
from pausejax.results.checkpoint import Checkpoint
from pausejax.results.folder import Folder
from pausejax.study.simulation import Segment


class Counting:
    """Run r adds r + 1 to its state in each round; where there is a time to stop at, until it is there.

    It is a simulation and the program of it; its runs are numbers.
    """

    def __init__(self, rounds=10, rounds_per_call=3, stop_at_latency=0.0):
        self.rounds, self.rounds_per_call, self.stop_at_latency = rounds, rounds_per_call, stop_at_latency
        self.calls, self.asked, self.simulation, self.width = [], [], self, 0

    def executable(self, stopping):
        return SimpleNamespace(width=self.width)

    def state_shapes(self, width):
        return shapes(jax.ShapeDtypeStruct((width,), jnp.int32), runs_mesh(width), SPLIT)

    def padded(self, width):
        return -(-width // 2) * 2

    def start(self, runs):
        return put(jnp.zeros(len(runs), jnp.int32), runs_mesh(len(runs)), SPLIT)

    def arguments(self, runs):
        return (np.asarray(runs),)

    def compiled_for(self, width, stopping):
        def call(rows, state, first, last):
            assert len(rows) == width == state.shape[0] and int(last) == self.rounds
            self.calls.append((int(first), rows.tolist()))
            steps = np.arange(1, self.rounds_per_call + 1)
            record = np.asarray(state)[:, None] + (rows + 1)[:, None] * steps
            return state + self.rounds_per_call * (rows + 1), record

        return call

    def to_host(self, first, positions, record):
        last = min(first + self.rounds_per_call - 1, self.rounds)
        return Segment(first, last, positions, {"total": record[:, : last + 1 - first]})

    def running(self, segments, positions):
        self.asked.append([segment.last_round for segment in segments])
        return np.array([max([0, *_totals(segments, p)]) < self.stop_at_latency for p in positions])

    def finish(self, segments, state, runs, check):
        return {run: _totals(segments, position) for position, run in enumerate(runs)}


def _totals(segments, position):
    found = []
    for segment in segments:
        if position in segment.positions:
            found += segment.records["total"][list(segment.positions).index(position)].tolist()
    return found


class Kept:
    """Checkpoint in memory, due before some rounds."""

    damaged = False

    def __init__(self, due=(), resumed=None):
        self._due, self.resumed, self.saved, self.times = set(due), resumed, [], 0

    def restore(self, shapes):
        return self.resumed

    def due(self):
        self.times += 1
        return self.times in self._due

    def save(self, state, segments):
        self.saved.append((state, list(segments)))


def play(simulation, members, width, **more):
    told, simulation.width = [], width
    return playing.play_rounds(simulation, members, told.append, **more), told


@pytest.mark.parametrize("rounds", [1, 3, 4, 10])
def test_every_row_is_played_for_all_rounds_and_progress_adds_up(rounds):
    simulation = Counting(rounds)
    found, told = play(simulation, [4, 7, 2], 4)
    assert found == {r: [(r + 1) * t for t in range(1, rounds + 1)] for r in (4, 7, 2)}
    assert sum(told) == 3 * rounds and simulation.calls == [
        (t, [4, 7, 2, 2]) for t in range(1, rounds + 1, 3)
    ]
    # A segment's progress is told when the next is under way.
    assert [n for n in told if n] == [3 * min(3, rounds + 1 - t) for t in range(1, rounds + 1, 3)]


@pytest.mark.parametrize("due", [1, 2, 3])
@pytest.mark.parametrize("shrunk", [False, True])
def test_a_chunk_goes_on_from_its_checkpoint_to_the_same_numbers(due, shrunk):
    """Also where then a lone run was played on one device, and now there are two."""
    members, width = ([6], 1) if shrunk else ([4, 7, 2], 4)
    whole, _ = play(Counting(), members, width)
    kept = Kept({due})
    assert play(Counting(), members, width, checkpoint=kept)[0] == whole
    ((state, segments),) = kept.saved
    assert segments[-1].last_round == 3 * due and len(segments) == due
    again = Counting()
    found, told = play(again, members, width, checkpoint=Kept(resumed=(state, segments)))
    assert found == whole and sum(told) == 10 * len(members) and told[0] == 3 * due * len(members)
    assert again.calls[0] == (3 * due + 1, [4, 7, 2, 2] if not shrunk else [6, 6])


class OnOneDevice(Counting):
    def padded(self, width):
        return width

    def start(self, runs):
        return jnp.zeros(len(runs), jnp.int32)


def test_a_chunk_goes_on_where_the_devices_do_not_divide_its_rows(tmp_path):
    """Three runs on one device, then on two of them."""
    members, told = [4, 7, 2], []

    def checkpoints():
        return Checkpoint(Folder(tmp_path), ("a", "b", "c"), 0.0)

    def killed(advanced):
        told.append(advanced)
        if len(told) == 2:
            raise KeyboardInterrupt

    first, simulation = checkpoints(), OnOneDevice()
    simulation.width = 3
    with pytest.raises(KeyboardInterrupt):
        playing.play_rounds(simulation, members, killed, first)
    first.close()
    again, second = Counting(), checkpoints()
    assert play(again, members, 4, checkpoint=second)[0] == play(Counting(), members, 4)[0]
    assert again.calls[0][0] > 1 and not second.damaged


def test_a_signal_keeps_the_chunk_between_two_segments_and_ends_it():
    stopping, kept = StopSignal(), Kept()
    stopping.note(15, None)
    simulation = Counting()
    with pytest.raises(StopRequested):
        play(simulation, [4, 7], 2, checkpoint=kept, stopping=stopping)
    ((_, segments),) = kept.saved
    assert [segment.last_round for segment in segments] == [3] and len(simulation.calls) == 1
    with pytest.raises(StopRequested):
        play(Counting(), [4, 7], 2, stopping=stopping)
    # In the last segment there is nothing left to keep.
    assert play(Counting(rounds=3), [4], 2, checkpoint=Kept({1}), stopping=stopping)[0] == {4: [5, 10, 15]}


def test_a_chunk_shrinks_as_runs_stop_and_ends_with_the_last():
    """Row r is at 3 (r + 1) after a call; that it stops is seen one call later."""
    simulation = Counting(rounds=90, stop_at_latency=24)
    found, told = play(simulation, list(range(8)), 8)
    for row, totals in found.items():
        assert totals == [(row + 1) * t for t in range(1, len(totals) + 1)] and totals[-1] >= 24
    assert sum(told) == 90 * 8
    widths = [len(rows) for _, rows in simulation.calls]
    assert widths == sorted(widths, reverse=True) and set(widths) == {8, 4, 2}
    for first, rows in simulation.calls:
        assert rows == sorted(rows)  # what fills a chunk up is its last row
        # Whoever had not got there two calls ago is played.
        seen = first - 4
        assert set(rows) >= {r for r in range(8) if (r + 1) * max(seen, 0) < 24}
    # Row 0 gets there in round 24, the end of the eighth call; the ninth is under way when that is seen.
    assert [first for first, _ in simulation.calls] == list(range(1, 28, 3))
    assert simulation.asked == [[3 * n for n in range(1, max(call - 1, 0) + 1)] for call in range(10)]


@pytest.mark.parametrize("rounds_per_call", [1, 3])
def test_which_rows_are_played_does_not_depend_on_what_is_kept_when(rounds_per_call):
    """That a run has stopped is seen when the call after its last one is under way, fetched or not."""
    played = []
    for due in ((), range(1, 100, 2), range(100)):
        simulation = Counting(90, rounds_per_call, stop_at_latency=24)
        found, _ = play(simulation, list(range(8)), 8, checkpoint=Kept(due))
        played.append(
            (simulation.calls, simulation.asked, {row: len(totals) for row, totals in found.items()})
        )
    assert played[0] == played[1] == played[2]
    ends = [[rounds_per_call * n for n in range(1, max(call - 1, 0) + 1)] for call in range(100)]
    assert played[0][1] == ends[: len(played[0][1])]


@pytest.mark.parametrize("multiple", [1, 2])
@pytest.mark.parametrize("whole", [1, 2, 3, 8, 12, 100])
def test_a_chunk_is_halved_while_what_is_left_fits_half_of_it(whole, multiple):
    def padded(width):
        return -(-width // multiple) * multiple

    halves = [whole]
    while halves[-1] > 1:
        halves.append(-(-halves[-1] // 2))
    for played in range(1, whole + 1):
        for left in range(1, played + 1):
            width = padded(min(half for half in halves if half >= left))
            found = playing._fewer_rows(whole, played, left, padded)
            assert found == (width if 2 * left <= played and width < played else None)
