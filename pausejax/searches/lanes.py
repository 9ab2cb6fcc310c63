"""The lanes of one compiled program, each with a run of its own in a round of its own.

A setting has a lane for each seed. When it ends, another one takes its lanes, while its neighbours play on:
the program knows the round of each lane. What a run plays does not depend on who its neighbours are.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.devices import SHARED, SPLIT, put, runs_mesh
from pausejax.searches.space import Setting
from pausejax.study.simulation import Arrays, Refillable, Segment

_NO_END = np.int32(2**31 - 1)


class Seat(NamedTuple):
    """A setting in its lanes, as whoever decides sees it."""

    number: int
    setting: Setting
    rung: int
    """The next one."""
    rounds: int
    """Played so far."""


@dataclasses.dataclass
class _Trial:
    """A setting in its lanes, with what its runs have left."""

    number: int
    setting: Setting
    rounds: int = 0
    segments: list[Segment] = dataclasses.field(default_factory=list)


class Compiled(NamedTuple):
    """A program for lanes in unlike rounds."""

    simulation: Refillable
    call: jax.stages.Compiled


class Lanes:
    """The lanes of one program; those that nobody is in play on for nothing."""

    def __init__(self, compile: Callable[[], Compiled], slots: int, seeds: Sequence[int], step: int) -> None:
        """Empty lanes.

        Args:
          compile: makes the program, when something is played first.
          slots: settings side by side.
          seeds: of every setting.
          step: rounds that one call plays.
        """
        self._compile, self._seeds, self._step = compile, tuple(seeds), step
        self._slots: list[_Trial | None] = [None] * slots
        self._values: list[Any] = []
        self._compiled: Compiled | None = None
        self._state: Any = None
        self._arguments: tuple[Any, ...] = ()
        self._entered: list[int] = []

    def arrange(self, seats: Sequence[Seat | None]) -> None:
        """Lets settings leave and enter, so that these are there, each in its round.

        Those that have played elsewhere, or in a process before this one, play their first rounds again.
        """
        for slot, seat in enumerate(seats):
            there = self._slots[slot]
            if seat is None:
                self._slots[slot] = None
            elif there is None or there.number != seat.number:
                self._slots[slot] = _Trial(seat.number, seat.setting)
                self._entered.append(slot)
        reached = [seat.rounds if seat else 0 for seat in seats]
        if [trial.rounds if trial else 0 for trial in self._slots] == reached:
            return
        self._entered = list(range(len(self._slots)))
        for trial in filter(None, self._slots):
            trial.rounds, trial.segments = 0, []
        for played in range(0, max(reached), self._step):
            there_then = zip(self._slots, reached, strict=True)
            self._play([trial is not None and played < end for trial, end in there_then])

    def advance(self) -> int:
        """Plays a step of everybody who is there; how many rounds that is."""
        self._play([trial is not None for trial in self._slots])
        return self._step

    def arrays(self, slot: int) -> Arrays:
        """What the runs of the setting in a slot have left so far, seeds first."""
        trial = self._slots[slot]
        assert trial is not None
        return self._program.simulation.finish(trial.segments, self._lanes(slot))

    @property
    def _program(self) -> Compiled:
        self._compiled = self._compiled or self._compile()
        return self._compiled

    @property
    def _width(self) -> int:
        """How many lanes that is, with the padding that fills up the devices."""
        return self._program.simulation.padded(len(self._slots) * len(self._seeds))

    def _lanes(self, slot: int) -> np.ndarray:
        return np.arange(slot * len(self._seeds), (slot + 1) * len(self._seeds))

    def _play(self, plays: Sequence[bool]) -> None:
        """Plays a step of some slots; the others stay where they are."""
        self._refill()
        mesh = runs_mesh(self._width)
        rounds = np.array([trial.rounds if trial else 0 for trial in self._slots])
        first = self._by_lane(rounds + 1).astype(np.int32)
        ends = put(jnp.int32(_NO_END), mesh, SHARED)
        before = (
            None if all(p or not t for p, t in zip(plays, self._slots, strict=True)) else _copy(self._state)
        )
        self._state, record = self._program.call(*self._arguments, self._state, put(first, mesh, SPLIT), ends)
        if before is not None:
            self._state = self._choose(plays, self._state, before)
        host = jax.device_get(record)
        for slot, trial in enumerate(self._slots):
            if trial and plays[slot]:
                lanes = self._lanes(slot)
                own = jax.tree.map(lambda leaf, lanes=lanes: leaf[:, lanes], host)
                trial.segments.append(self._program.simulation.to_host(trial.rounds + 1, lanes, own))
                trial.rounds += self._step

    def _refill(self) -> None:
        """Gives the lanes of those who have entered their values and their states before round 1."""
        if not self._entered:
            return
        for slot in self._entered:
            trial = self._slots[slot]
            if trial:
                self._values = self._values or [trial.setting.values] * len(self._slots)
                self._values[slot] = trial.setting.values
        seeds = list(self._seeds) * len(self._slots)
        values = [own for own in self._values for _ in self._seeds]
        lanes, width = np.arange(self._width), len(seeds)
        program = self._program
        self._compiled = program._replace(simulation=program.simulation.with_runs(seeds, values))
        rows = np.minimum(lanes, width - 1)
        self._arguments = self._program.simulation.arguments(rows)
        fresh = self._program.simulation.start(rows)
        if self._state is None:
            self._state = fresh
        else:
            entered = [slot in self._entered for slot in range(len(self._slots))]
            self._state = self._choose(entered, fresh, self._state)
        self._entered = []

    def _choose(self, slots: Sequence[bool], yes: Any, no: Any) -> Any:
        """The one state in some slots, the other in the rest."""
        mesh = runs_mesh(self._width)
        chosen = _choose(put(self._by_lane(np.array(slots)), mesh, SPLIT), yes, no)
        return put(chosen, mesh, SPLIT)

    def _by_lane(self, by_slot: np.ndarray) -> np.ndarray:
        """A number of each slot for each of its lanes; padding has the last one's."""
        by_lane = np.repeat(by_slot, len(self._seeds))
        return np.pad(by_lane, (0, self._width - len(by_lane)), mode="edge")


@jax.jit
def _choose(mask: jax.Array, yes: Any, no: Any) -> Any:
    """By row: the one state or the other."""

    def choose(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


@jax.jit
def _copy(state: Any) -> Any:
    return jax.tree.map(jnp.copy, state)
