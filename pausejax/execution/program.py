"""Compiles and keeps the programs of one group for this process's devices."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax

from pausejax.data.host import DataCache
from pausejax.devices import compile_for, runs_mesh
from pausejax.execution import events, memory
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.parts import PartError
from pausejax.study.runs import Group, policies_of
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError
from pausejax.study.study import Study


class Executable(NamedTuple):
    """Compiled program of a group, and its width: the number of runs that it plays in parallel.

    The program has more rows than its width if devices would otherwise get unequal numbers of rows.
    """

    compiled: jax.stages.Compiled
    width: int


class GroupProgram:
    """Simulation of a group on this process's devices, with its program for batches of one width.

    First call `set_width` with a number of runs, then `compile`, which compiles in a thread. `executable`
    waits for this program and returns it. `compiled_for` returns a program for fewer rows. `drop` frees the
    compiled programs.

    Args:
      study: the study.
      group: a group of the study's plan.
      cache: the training data on the host.
      layout: the layout of the runs on the devices; None: the measured table decides.
      device_memory: bytes that a program may use on each device.
      data_placement: one of `memory.DATA_PLACEMENTS`; if not given, "sharded" if the layout says so or if
        replicated data do not fit, else "replicated".

    Raises:
      SpecError: the group can't be built, or a device has no room for the data and one run.
    """

    def __init__(
        self,
        study: Study,
        group: Group,
        cache: DataCache,
        layout: Layout | None = None,
        *,
        device_memory: int,
        data_placement: str | None = None,
    ) -> None:
        self.group, self.device_memory = group, device_memory
        self._policies = policies_of(group.runs)
        self._asked, self._as_begun = data_placement, bool(layout and layout.sharded)
        simulation = study.kind.simulation(study, group, cache, layout=layout)
        placement = data_placement or ("sharded" if self._as_begun else None)
        with self._refusals():
            self.simulation = memory.place_data(simulation, device_memory, placement)
            memory.check(self._policies, self.simulation, device_memory)
        self._width = 0
        self._lowered: jax.stages.Lowered | None = None
        self._executable: Future[Executable] | None = None
        self._narrow: dict[int, jax.stages.Compiled] = {}

    @property
    def layout(self) -> Layout:
        """The layout of the group's runs on the devices."""
        return self.simulation.layout

    @property
    def is_compiled(self) -> bool:
        """Whether the group's program has been compiled."""
        return self._executable is not None and self._executable.done()

    def set_width(self, width: int) -> None:
        """Traces and lowers the program for `width` runs, so that errors appear before compilation.

        A compiled program of another width is dropped, and the layout is logged. If the width is set already,
        or if the compiled program has this width, the call does nothing.

        Raises:
          SpecError: a part does not work with the other parts, or a file that a run needs can't be read.
        """
        is_ready = self.is_compiled and self.executable().width == width
        if width != self._width and not is_ready:
            self._width, self._executable = width, None
            self._lowered = self.lower(width)
            self._log_layout(width)

    def lower(self, width: int) -> jax.stages.Lowered:
        """Traces and lowers a program for `width` runs, and returns it.

        Raises:
          SpecError: a part fails.
        """
        return self._lower_rows(self.simulation.padded(width))

    def _lower_rows(self, rows: int) -> jax.stages.Lowered:
        with self._refusals():
            return self.simulation.lower(rows)

    def compile(self, threads: ThreadPoolExecutor) -> None:
        """Starts to compile the lowered program in a thread."""
        if self._executable is None:
            lowered, self._lowered = self._lowered or self.lower(self._width), None
            self._executable = threads.submit(self._compile, lowered, self._width)

    def halve(self, threads: ThreadPoolExecutor) -> None:
        """Starts to compile the program for half as many runs.

        The caller does this when the device ran out of memory.
        """
        self._width = -(-self.executable().width // 2)
        self._executable = threads.submit(self._compile, self.lower(self._width), self._width)

    def executable(self, stopping: StopSignal = NO_STOP) -> Executable:
        """Waits for the compiled program and returns it.

        Its width is the one given to `set_width`. The width is smaller after `halve`, or if the program of
        the given width did not fit into memory.

        Raises:
          StopRequested: the study was asked to stop during the wait.
        """
        assert self._executable is not None
        while True:
            stopping.check()
            try:
                return self._executable.result(timeout=0.5)
            except TimeoutError:
                if self._executable.done():
                    raise

    def compiled_for(self, rows: int, stopping: StopSignal = NO_STOP) -> jax.stages.Compiled:
        """Waits for the compiled program for `rows` rows and returns it.

        The rows include padding. If no program for this number of rows exists, it is compiled first.
        """
        executable = self.executable(stopping)
        if rows == self.simulation.padded(executable.width):
            return executable.compiled
        if rows not in self._narrow:
            self._narrow[rows] = compile_for(self._lower_rows(rows))
        return self._narrow[rows]

    def drop(self) -> None:
        """Drops the compiled programs. `compile` makes them again."""
        self._executable, self._narrow = None, {}

    def release(self) -> None:
        """Frees the simulation's arrays on the devices."""
        self.simulation.release()

    def _compile(self, lowered: jax.stages.Lowered, width: int) -> Executable:
        """Compiles the program for `width` runs, or for fewer runs if these do not fit into memory."""
        begun = time.monotonic()
        while True:
            used = 2 * self.device_memory
            try:
                compiled = compile_for(lowered)
                used = memory.program_memory(compiled)
            except jax.errors.JaxRuntimeError as error:
                if not memory.is_out_of_memory(error) or width == 1:
                    raise
            if used <= self.device_memory or width == 1:
                events.compiled(self._policies, width, time.monotonic() - begun)
                return Executable(compiled, width)
            # This assumes that the runs share no memory. So the width may be too small, but it is at least
            # half of the largest width that fits.
            width = -(-width // max(-(-used // self.device_memory), 2))
            lowered = self.lower(width)

    def _log_layout(self, width: int) -> None:
        count, lanes = runs_mesh(self.simulation.padded(width)).size, self.layout.lanes
        placement = f"up to {lanes} clients trained at a time" if lanes else ""
        if self.simulation.input_shards > 1:
            why = memory.why_sharded(self._asked, before=self._as_begun)
            placement += f", training data sharded over {count} devices: {why}"
        events.placed(self._policies, len(self.group.runs), width, count, placement)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns an error that the `with` block raises in the group's functions into a `SpecError`."""
        try:
            yield
        except SpecError:
            raise
        except PartError as error:
            raise SpecError([str(error)]) from error
        except ValueError as error:
            raise SpecError([f"policy {self._policies}: {error}"]) from error
