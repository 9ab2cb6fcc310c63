"""The compiled programs of a plan on this machine's devices, one for each group, and what they play."""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

import jax

from pausejax.data.host import Sources
from pausejax.devices import compile_for, forget, runs_mesh
from pausejax.engine import chunk as playing
from pausejax.engine import events, memory
from pausejax.engine.schedule import Chunk, Unit, cut
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.parts import PartError
from pausejax.study.simulation import Arrays, Simulation
from pausejax.study.spec import SpecError
from pausejax.study.study import Group, Plan
from pausejax.study.trials import Layout

if TYPE_CHECKING:
    from pausejax.results.checkpoint import Checkpoints


_AHEAD = 16
"""Groups whose programs are compiled before it is their turn."""
_MOST = 48
"""Programs that are held; of more, those whose turn is over go."""


class Progress(Protocol):
    """Called after each segment with how many rounds × runs it has advanced."""

    def __call__(self, rounds_times_runs: int) -> None: ...


class Compiled(NamedTuple):
    """A group's program for chunks of one size."""

    call: jax.stages.Compiled
    width: int
    """Runs per chunk."""
    padded: int
    """The same with the padding that fills up the devices."""


class Engine:
    """The compiled programs of a plan on the local devices; each is compiled shortly before its turn.

    Args:
      plan: the whole plan.
      sources: where data come from.
      device_memory: bytes that a program may use on each device; measured if not given.
      data_placement: one of `memory.DATA_PLACEMENTS`; sharded where that alone fits if not given.
      stopping: whether the study is asked to stop.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Sources,
        *,
        device_memory: int | None = None,
        data_placement: str | None = None,
        stopping: Stopping = NEVER,
    ) -> None:
        memory.check_data_placement(data_placement)
        self.plan = plan
        self.sources = sources
        self.limit = device_memory or memory.device_memory()
        """Bytes that a program may use on each device."""
        self.origins: dict[int, str] = {}
        """Where a group's layout comes from, in words, by its number."""
        self._stopping = stopping
        self._data_placement = data_placement
        self._layouts: dict[int, Layout] = {}
        self._simulations: dict[int, Simulation] = {}
        self._lowered: dict[int, jax.stages.Lowered] = {}
        self._compiled: dict[int, Future[Compiled]] = {}
        self._narrow: dict[tuple[int, int], jax.stages.Compiled] = {}
        # XLA compiles outside the interpreter's lock, so programs compile side by side while others run.
        self._threads = ThreadPoolExecutor(os.cpu_count())

    def simulation(self, group: Group) -> Simulation:
        """A group as its kind of study simulates it, made once.

        Raises:
          SpecError: it can't be made.
        """
        if group.number not in self._simulations:
            kind = self.plan.study.kind
            layout = self._layouts.get(group.number)
            made = kind.simulation(self.plan, group, self.sources, layout=layout)
            with self._refusals(group):
                placed = memory.place_data(made, self.limit, self._data_placement)
            self._simulations[group.number] = placed
        return self._simulations[group.number]

    def place(self, group: Group, layout: Layout) -> None:
        """Has a group, whose program has not been asked for yet, lie on the devices in some way."""
        if group.number in self._simulations and self._simulations[group.number].layout != layout:
            del self._simulations[group.number]
        self._layouts[group.number] = layout

    def prepare(self, work: Sequence[Unit]) -> None:
        """Traces the programs of some units, so that what can't be built is refused now.

        Raises:
          SpecError: a group can't be built, or a part of it refuses the rest.
        """
        widths = {unit.group.number: (unit.group, unit.width) for unit in work}
        there = {**self._lowered, **self._compiled}
        new = {key: pair for key, pair in widths.items() if key not in there}
        for group, _ in new.values():
            self.check_memory(group)
        self._lowered |= {key: self.lower(group, width) for key, (group, width) in new.items()}
        for group, width in new.values():
            self._tell_placement(group, width)
        self._compile_ahead(work)

    def _compile_ahead(self, work: Sequence[Unit]) -> None:
        """Has the programs of the next groups compiled, and where there are many lets go of the others."""
        ahead = dict(itertools.islice({unit.group.number: unit for unit in work}.items(), _AHEAD))
        if len(self._compiled) >= _MOST or memory.crowded():
            kept = {
                key: future for key, future in self._compiled.items() if key in ahead or not future.done()
            }
            self._compiled = kept
            self._narrow = {key: call for key, call in self._narrow.items() if key[0] in kept}
            forget(self.plan.study.kind.programs)
        for key, unit in ahead.items():
            if key not in self._compiled:
                lowered = self._lowered.pop(key, None) or self.lower(unit.group, unit.width)
                self._compiled[key] = self._threads.submit(self._compile, unit.group, lowered, unit.width)

    def check_memory(self, group: Group) -> None:
        """Refuses a group of which not even one run fits beside its data.

        Raises:
          SpecError: one line with the numbers, or a part refuses the network.
        """
        policy, simulation = self.plan.runs_of(group)[0].policy, self.simulation(group)
        with self._refusals(group):
            memory.check(policy, simulation, self.limit)

    def simulate(
        self,
        work: Sequence[Unit],
        *,
        progress: Progress = lambda _: None,
        checkpoints: "Callable[[Chunk], Checkpoints] | None" = None,
    ) -> Iterator[tuple[Chunk, Arrays]]:
        """Plays some units.

        Args:
          work: the units, without the runs that are finished.
          progress: told how far it is.
          checkpoints: where chunks in flight are kept; they begin where they were.

        Yields:
          Each chunk with what its runs (without the padding) have recorded.

        Raises:
          SpecError: a group can't be built; nothing has been computed then.
        """
        self.prepare(work)
        try:
            for place, unit in enumerate(work):
                if place and work[place - 1].group is not unit.group:
                    self._compile_ahead(work[place:])
                yield from self._simulate_unit(unit, progress, checkpoints)
                if not any(later.group is unit.group for later in work[place + 1 :]):
                    self.simulation(unit.group).release()
        except BaseException:
            self._threads.shutdown(wait=False, cancel_futures=True)
            raise

    def compiled(self, group: Group) -> Compiled:
        """The program of a group that was prepared.

        Raises:
          Stopped: the study was asked to stop while the program was being compiled.
        """
        while True:
            self._stopping.check()
            try:
                return self._compiled[group.number].result(timeout=0.5)
            except TimeoutError:
                if self._compiled[group.number].done():
                    raise

    def lower(self, group: Group, width: int) -> jax.stages.Lowered:
        """Traces a group's program for chunks of some width.

        Raises:
          SpecError: a part refuses the network, or a file that a run needs can't be read.
        """
        simulation = self.simulation(group)
        with self._refusals(group):
            return simulation.lower(simulation.padded(width))

    @contextlib.contextmanager
    def _refusals(self, group: Group) -> Iterator[None]:
        """What tracing a group's functions finds wrong with them, as mistakes of the spec."""
        try:
            yield
        except SpecError:
            raise
        except PartError as error:
            raise SpecError([str(error)]) from None
        except ValueError as error:
            raise SpecError([f"policy {self.plan.runs_of(group)[0].policy}: {error}"]) from None

    def program(self, group: Group, width: int) -> jax.stages.Compiled:
        """A group's program for a padded width: that of its chunks, or one that they shrink to."""
        compiled = self.compiled(group)
        if width == compiled.padded:
            return compiled.call
        key = (group.number, width)
        if key not in self._narrow:
            self._narrow[key] = compile_for(self.lower(group, width))
        return self._narrow[key]

    def play(
        self,
        chunk: Chunk,
        progress: Progress = lambda _: None,
        checkpoints: "Checkpoints | None" = None,
    ) -> Arrays:
        """Plays all rounds of one chunk of a group that was prepared; as `chunk.play`."""
        group = chunk.group
        return playing.play(
            self.simulation(group),
            chunk,
            lambda width: self.program(group, width),
            progress,
            checkpoints,
            self._stopping,
        )

    def _tell_placement(self, group: Group, width: int) -> None:
        policy, simulation = self.plan.runs_of(group)[0].policy, self.simulation(group)
        placement, count = simulation.placement, runs_mesh(simulation.padded(width)).size
        if simulation.data_shares > 1:
            why = "as asked" if self._data_placement else "no device has room for all of them and a run"
            placement += f", training data sharded over {count} devices: {why}"
        origin = self.origins.get(group.number, "")
        events.placed(policy, len(group.members), width, count, placement, origin)

    def _compile(self, group: Group, lowered: jax.stages.Lowered, width: int) -> Compiled:
        """Compiles for the given width, or, where that does not fit into memory, for a part of it."""
        whole, parts, begun = width, 1, time.monotonic()
        while True:
            used = float("inf")
            try:
                call = compile_for(lowered)
                used = memory.program_memory(call)
            except jax.errors.JaxRuntimeError as error:
                if not memory.is_out_of_memory(error) or width == 1:
                    raise
            if used <= self.limit or width == 1:
                policy, took = self.plan.runs_of(group)[0].policy, time.monotonic() - begun
                told = f"compiled {policy} for {width} runs side by side in {took:.1f} s"
                events.say("compiled", told, policy=policy, width=width, took=round(took, 3))
                return Compiled(call, width, self.simulation(group).padded(width))
            if used < float("inf") and parts == 1 and width >= 4:
                smaller = memory.program_memory(compile_for(self.lower(group, width // 4)))
                parts = memory.parts_that_fit(int(used), smaller, (width // 4) / width, self.limit)
            else:
                parts *= 2
            width = -(-whole // min(parts, whole))
            lowered = self.lower(group, width)

    def _simulate_unit(
        self, unit: Unit, progress: Progress, checkpoints: "Callable[[Chunk], Checkpoints] | None"
    ) -> Iterator[tuple[Chunk, Arrays]]:
        left = unit
        while len(left.rows):
            compiled = self.compiled(unit.group)
            chunk = cut(left, compiled.width, compiled.padded)[0]
            kept = checkpoints(chunk) if checkpoints else None
            try:
                arrays = self.play(chunk, progress, kept)
            except BaseException as error:
                if kept:
                    kept.close()
                if not memory.is_out_of_memory(error) or compiled.width == 1:
                    raise
                half = -(-compiled.width // 2)
                future: Future[Compiled] = Future()
                rows = self.simulation(unit.group).padded(half)
                future.set_result(Compiled(compile_for(self.lower(unit.group, half)), half, rows))
                self._compiled[unit.group.number] = future
                continue
            yield chunk, arrays
            left = left.without(chunk)
