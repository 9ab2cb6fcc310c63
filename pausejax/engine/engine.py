"""Plays runs on this machine's devices: one program per group, chunk by chunk, in segments of rounds."""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pausejax.clients import records
from pausejax.clients.build import Sources, build_hyper, build_program, build_world
from pausejax.clients.play import initial_params, play, runs_mesh, shardings, start
from pausejax.clients.program import Hyper, Program, State, World
from pausejax.engine import memory
from pausejax.engine.schedule import Chunk, Unit, cut, units
from pausejax.engine.tracking import Tracker
from pausejax.ensemble import kind as ensemble
from pausejax.results import layout
from pausejax.results.checkpoint import Checkpoints
from pausejax.results.layout import Arrays
from pausejax.study.plan import Group, Plan
from pausejax.study.spec import SpecError


class Progress(Protocol):
    """Called after each segment with how many rounds × runs it has advanced."""

    def __call__(self, rounds_times_runs: int) -> None: ...


# Measured on a CPU: more runs side by side bring no more speed. A guess elsewhere, where memory decides.
_MOST_RUNS = {"cpu": 256}
_MOST_RUNS_ELSEWHERE = 4096


def most_runs() -> int:
    """The most runs that are put side by side where memory allows."""
    return _MOST_RUNS.get(jax.default_backend(), _MOST_RUNS_ELSEWHERE)


class Compiled(NamedTuple):
    """A group's program for chunks of one size."""

    call: jax.stages.Compiled
    width: int
    """Runs per chunk."""
    padded: int
    """The same with the padding that fills up the devices."""


class Surroundings(NamedTuple):
    """What all chunks of a group share: built and moved to the devices once."""

    program: Program
    world: World
    """Of all runs of the group, in its order."""
    hyper: Hyper


class Engine:
    """The compiled programs of a plan on the local devices; each is compiled once, when it is needed.

    Args:
      plan: the whole plan.
      sources: where data come from.
      device_memory: bytes that a program may use on each device; measured if not given.
    """

    def __init__(self, plan: Plan, sources: Sources, *, device_memory: int | None = None) -> None:
        self.plan = plan
        self.sources = sources
        self._limit = device_memory or memory.device_memory()
        self._compiled: dict[int, Future[Compiled]] = {}
        self._narrow: dict[tuple[int, int], jax.stages.Compiled] = {}
        self._surroundings: Surroundings
        self._surrounded: int | None = None
        self._building = threading.Lock()
        # XLA compiles outside the interpreter's lock, so programs compile side by side while others run.
        self._threads = ThreadPoolExecutor(os.cpu_count())

    def prepare(self, work: Sequence[Unit], finished: Collection[int] = ()) -> None:
        """Traces the programs of some units, so that what can't be built is refused now, and compiles them.

        Raises:
          SpecError: a group can't be built, or its policy refuses the network.
        """
        if self.plan.study.mode == "ensemble":
            ensemble.check(self.plan, [unit.group for unit in work], self.sources)
            return
        width_of: dict[int, tuple[Group, int]] = {}
        for unit in work:
            if _key(unit.group) not in self._compiled and not set(unit.members).issubset(finished):
                width_of[_key(unit.group)] = unit.group, unit.width
        lowered = {key: self.lower(group, width) for key, (group, width) in width_of.items()}
        for key, (group, width) in width_of.items():
            self._compiled[key] = self._threads.submit(self._compile, group, lowered[key], width)

    def simulate(
        self,
        work: Sequence[Unit],
        *,
        finished: Collection[int] = (),
        progress: Progress = lambda _: None,
        checkpoints: Callable[[Chunk], Checkpoints] | None = None,
    ) -> Iterator[tuple[Chunk, Arrays]]:
        """Plays what is unfinished of some units.

        Args:
          work: the units.
          finished: places of runs that need not be played.
          progress: told how far it is.
          checkpoints: where chunks in flight are kept; they begin where they were.

        Yields:
          Each chunk with what its runs (without the padding) have recorded.

        Raises:
          SpecError: a group can't be built; nothing has been computed then.
        """
        self.prepare(work, finished)
        try:
            if self.plan.study.mode == "ensemble":
                yield from ensemble.simulate_units(
                    self.plan, work, finished, self.sources, progress, self._threads
                )
                return
            for unit in work:
                yield from self._simulate_unit(unit, finished, progress, checkpoints)
        except BaseException:
            self._threads.shutdown(wait=False, cancel_futures=True)
            raise

    def compiled(self, group: Group) -> Compiled:
        """The program of a group that was prepared."""
        return self._compiled[_key(group)].result()

    def surroundings(self, group: Group) -> Surroundings:
        """The data and settings of a group; those of the group before are let go."""
        with self._building:
            if _key(group) != self._surrounded:
                program = build_program(self.plan, group, self.sources)
                world = build_world(self.plan, program, group, self.sources)
                mesh = runs_mesh(len(jax.local_devices()))
                shared = jax.device_put((world.files, world.data, world.test), shardings(mesh)[0].files)
                hyper = build_hyper([self.plan.runs[member] for member in group.members])
                own = World(world.seed, world.data_share, world.partition, *shared)
                self._surroundings, self._surrounded = Surroundings(program, own, hyper), _key(group)
            return self._surroundings

    def lower(self, group: Group, width: int) -> jax.stages.Lowered:
        """Traces `play` for chunks of some width.

        Raises:
          SpecError: the policy refuses the network, or a file that a run needs can't be read.
        """
        around = self.surroundings(group)
        mesh, world, hyper = _rows(around, np.zeros(_padded(width), np.int32))
        state = _state_shapes(around, len(world.seed))
        try:
            return play.lower(around.program, mesh, world, hyper, state, *_rounds(mesh, 1, 1))
        except ValueError as error:
            raise SpecError([f"policy {self.plan.runs[group.members[0]].policy}: {error}"]) from None

    def _compile(self, group: Group, lowered: jax.stages.Lowered, width: int) -> Compiled:
        """Compiles for the given width, or, where that does not fit into memory, for a part of it."""
        whole, parts = width, 1
        while True:
            used = float("inf")
            try:
                call = lowered.compile()
                used = memory.program_memory(call)
            except jax.errors.JaxRuntimeError as error:
                if not memory.is_out_of_memory(error) or width == 1:
                    raise
            if used <= self._limit or width == 1:
                return Compiled(call, width, _padded(width))
            if used < float("inf") and parts == 1 and width >= 4:
                smaller = memory.program_memory(self.lower(group, width // 4).compile())
                parts = memory.parts_that_fit(used, smaller, (width // 4) / width, self._limit)
            else:
                parts *= 2
            width = -(-whole // min(parts, whole))
            lowered = self.lower(group, width)

    def _simulate_unit(
        self,
        unit: Unit,
        finished: Collection[int],
        progress: Progress,
        checkpoints: Callable[[Chunk], Checkpoints] | None,
    ) -> Iterator[tuple[Chunk, Arrays]]:
        done = set(finished)
        while not done.issuperset(unit.members):
            program = self.compiled(unit.group)
            chunk = cut(unit, done, program.width, program.padded)[0]
            try:
                arrays = self.play_chunk(chunk, program, progress, checkpoints)
            except jax.errors.JaxRuntimeError as error:
                if not memory.is_out_of_memory(error) or program.width == 1:
                    raise
                half = -(-program.width // 2)
                future: Future[Compiled] = Future()
                future.set_result(Compiled(self.lower(unit.group, half).compile(), half, _padded(half)))
                self._compiled[_key(unit.group)] = future
                continue
            yield chunk, arrays
            done.update(chunk.members)

    def play_chunk(
        self,
        chunk: Chunk,
        compiled: Compiled,
        progress: Progress = lambda _: None,
        checkpoints: Callable[[Chunk], Checkpoints] | None = None,
    ) -> Arrays:
        """Plays all rounds of one chunk; arrays as in `layout.variables`, leading axis the chunk's runs."""
        study, around = self.plan.study, self.surroundings(chunk.group)
        program = around.program
        row_of = {member: row for row, member in enumerate(chunk.group.members)}
        rows = np.array([row_of[position] for position in chunk.positions], np.int32)
        kept = checkpoints(chunk) if checkpoints else None
        if resumed := kept.restore(lambda width: _state_shapes(around, width)) if kept else None:
            state, segments = resumed
            progress(segments[-1].last_round * chunk.lanes)
        else:
            state, segments = _start(around, rows), []
        # The chunk's places that are played: all of them, until most have reached `stop_at_latency`.
        lanes = segments[-1].lanes if segments else np.arange(compiled.padded)
        call = self._program(chunk.group, compiled, len(lanes))
        mesh, world, hyper = _rows(around, rows[lanes])

        def fetch(first: int, record: Any) -> None:
            segments.append(records.to_host(first, lanes, record, study.rounds))
            progress((segments[-1].last_round + 1 - first) * chunk.lanes)

        first = segments[-1].last_round + 1 if segments else 1
        in_flight: tuple[int, Any] | None = None
        while first <= study.rounds:
            if study.stop_at_latency:
                # Without the segment before this one: it may still be in flight, and whether it is must not
                # change what is played.
                seen = [segment for segment in segments if segment.last_round < first - 1]
                left = records.running(seen, chunk.lanes, study.stop_at_latency)
                if not len(left):
                    break
                if (width := _narrower(compiled.width, len(lanes), len(left))) is not None:
                    if in_flight:
                        fetch(*in_flight)
                        in_flight = None
                    kept_lanes = np.pad(left, (0, _padded(width) - len(left)), mode="edge")
                    state = _repack(state, np.searchsorted(lanes, kept_lanes), runs_mesh(len(kept_lanes)))
                    lanes, call = kept_lanes, self._program(chunk.group, compiled, len(kept_lanes))
                    mesh, world, hyper = _rows(around, rows[lanes])
            state, record = call(world, hyper, state, *_rounds(mesh, first, study.rounds))
            # The records of the segment before come over while the devices are busy with this one.
            if in_flight:
                fetch(*in_flight)
            in_flight, first = (first, record), first + program.rounds_per_call
            if kept and first <= study.rounds and kept.due():
                fetch(*in_flight)
                in_flight = None
                kept.save(state, segments)
        if in_flight:
            fetch(*in_flight)
        progress((study.rounds - segments[-1].last_round) * chunk.lanes)
        return records.finish(study, segments, chunk.lanes, program.num_clients)

    def _program(self, group: Group, compiled: Compiled, padded: int) -> jax.stages.Compiled:
        """A group's program for chunks of a width, which is that of its chunks or one that they shrink to."""
        if padded == compiled.padded:
            return compiled.call
        key = (_key(group), padded)
        if key not in self._narrow:
            self._narrow[key] = self.lower(group, padded).compile()
        return self._narrow[key]


def run(
    plan: Plan, sources: Sources, progress: Progress | None = None, tracker: Tracker | None = None
) -> xr.Dataset:
    """Simulates every run of a plan in memory and returns the labelled result, runs in the plan's order.

    Raises:
      SpecError: a group can't be built; nothing has been computed then.
      ValueError: the tracker can't be reached; nothing has been computed then.
    """
    if tracker:
        tracker.start(layout.provenance(plan))
    columns = layout.coordinates(plan)
    parts = []
    work = units(plan, (), most=most_runs())
    for chunk, arrays in Engine(plan, sources).simulate(work, progress=progress or (lambda _: None)):
        parts.append((chunk.members, arrays))
        if tracker:
            tracker.runs_finished(layout.label(plan, columns, list(chunk.members), arrays))
    if tracker:
        tracker.finish()
    return layout.merge(plan, parts)


def _key(group: Group) -> int:
    return group.members[0]


def _padded(width: int) -> int:
    return width + -width % runs_mesh(width).size


def _rows(around: Surroundings, rows: np.ndarray) -> tuple[Mesh, World, Hyper]:
    """The worlds and settings of some of a group's runs, on the devices of a mesh."""
    mesh = runs_mesh(len(rows))
    whole, split = shardings(mesh)
    world = around.world
    chosen = World(
        world.seed[rows], world.data_share[rows], world.partition[rows], world.files, world.data, world.test
    )
    hyper = {name: values[rows] for name, values in around.hyper.items()}
    return mesh, World(*map(jax.device_put, chosen, whole)), jax.device_put(hyper, split)


def _start(around: Surroundings, rows: np.ndarray) -> State:
    """The state of some of a group's runs before round 1."""
    mesh, world, hyper = _rows(around, rows)
    learning = around.program.learning
    params = initial_params(learning.model, world.seed) if learning else None
    return jax.device_put(start(around.program, world, hyper, params), shardings(mesh)[1])


def _narrower(width: int, lanes: int, left: int) -> int | None:
    """The width for `left` runs: a chunk's over the largest power of two; None while over half are left."""
    if 2 * left > lanes:
        return None
    while left <= -(-width // 2) and width > 1:
        width = -(-width // 2)
    return width if _padded(width) < lanes else None


def _repack(state: State, lanes: np.ndarray, mesh: Mesh) -> State:
    """The state of some of the lanes that were played."""
    return jax.device_put(jax.tree.map(lambda leaf: leaf[lanes], state), shardings(mesh)[1])


def _state_shapes(around: Surroundings, width: int) -> State:
    """Shapes, types and shardings of the state of so many runs."""
    mesh, world, hyper = _rows(around, np.zeros(width, np.int32))
    learning = around.program.learning
    params = jax.eval_shape(initial_params, learning.model, world.seed) if learning else None
    state = jax.eval_shape(start, around.program, world, hyper, params)
    split = shardings(mesh)[1]
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=split), state)


def _rounds(mesh: Mesh, first: int, last: int) -> tuple[jax.Array, jax.Array]:
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.device_put(jnp.int32(first), everywhere), jax.device_put(jnp.int32(last), everywhere)
