"""Who plays the lanes of a search: told what is to be seated where, it says what it has seen.

A player decides nothing, so who plays, how many there are and who is faster change no search.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pausejax.searches.goal import Goal, figures_at
from pausejax.searches.journal import Reports
from pausejax.searches.lanes import Lanes, Seat
from pausejax.searches.options import Options
from pausejax.searches.programs import Cut, Programs
from pausejax.study.simulation import Arrays


class Order(NamedTuple):
    """Who is to sit in a block of lanes, in which rounds."""

    block: int
    """Its number."""
    key: tuple[Any, ...]
    """Of its program."""
    seats: tuple[Seat | None, ...]


class Player(Protocol):
    """Plays blocks; what it has not played itself it plays again from its beginning."""

    def cut(self) -> Cut:
        """How lanes are to be cut where nobody has settled it yet.

        Raises:
          SpecError: a program can't be built.
        """
        ...

    def play(self, orders: Sequence[Order], open_blocks: frozenset[int] | None = None) -> Reports:
        """Plays a step of some blocks, and looks at whoever has come to a rung.

        Args:
          orders: who sits where before the step.
          open_blocks: all that are open; by default these. The others are closed.
        """
        ...

    def arrays(self, leaving: Sequence[tuple[Order, int]]) -> dict[int, Arrays]:
        """What the runs of some settings have left, by number.

        Args:
          leaving: settings, each with the order of its block, as they are after the step.
        """
        ...


class LocalPlayer:
    """Plays on this process's devices."""

    def __init__(self, goal: Goal, programs: Programs, options: Options, *, shared: bool = False) -> None:
        """Nothing is made before it is needed.

        Args:
          goal: what settings are judged by.
          programs: of the search.
          options: what is asked.
          shared: whether others play blocks of the same search.
        """
        self._study, self._goal, self._programs = programs.study, goal, programs
        self._options, self._shared = options, shared
        self._lanes: dict[int, Lanes] = {}

    def cut(self) -> Cut:
        """As `Player` says."""
        return self._programs.cut(self._goal, self._options, shared=self._shared)

    def play(self, orders: Sequence[Order], open_blocks: frozenset[int] | None = None) -> Reports:
        """As `Player` says."""
        if open_blocks is None:
            open_blocks = frozenset(order.block for order in orders)
        self._lanes = {block: lanes for block, lanes in self._lanes.items() if block in open_blocks}
        found: dict[int, np.ndarray] = {}
        for order in orders:
            lanes = self._arranged(order)
            step = lanes.advance()
            for slot, seat in enumerate(order.seats):
                if seat is None:
                    continue
                rounds = seat.rounds + step
                if not self._goal.by_latency and rounds < self._goal.rungs[seat.rung]:
                    continue
                seen = self._seen(lanes.arrays(slot), seat.rung, rounds)
                if seen is not None:
                    found[seat.number] = seen
        return found

    def arrays(self, leaving: Sequence[tuple[Order, int]]) -> dict[int, Arrays]:
        """As `Player` says."""
        found = {}
        for order, number in leaving:
            slot = next(slot for slot, seat in enumerate(order.seats) if seat and seat.number == number)
            found[number] = self._arranged(order).arrays(slot)
        return found

    def _arranged(self, order: Order) -> Lanes:
        if order.block not in self._lanes:
            self._lanes[order.block] = self._programs.lanes(order.key, len(order.seats))
        self._lanes[order.block].arrange(order.seats)
        return self._lanes[order.block]

    def _seen(self, arrays: Arrays, rung: int, rounds: int) -> np.ndarray | None:
        """The figures of a setting's seeds at each rung from one on that it has passed; None: at none."""
        goal, study = self._goal, self._study
        elapsed = np.nanmax(arrays["elapsed"], axis=1)
        reached = elapsed.min() if goal.by_latency else rounds
        if rounds >= study.rounds:
            reached = np.inf  # there is no more of it
        rungs = [one for one in goal.rungs[rung:] if one <= reached]
        if not rungs:
            return None
        return np.stack([np.column_stack([figures_at(study, goal, arrays, r), elapsed]) for r in rungs])
