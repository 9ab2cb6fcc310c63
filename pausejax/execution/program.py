"""One group's compiled programs on this process's devices."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax

from pausejax.data.host import Sources
from pausejax.devices import compile_for, runs_mesh
from pausejax.execution import events, memory
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.parts import PartError
from pausejax.study.runs import Group, policies_of
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError
from pausejax.study.study import Study


class Executable(NamedTuple):
    """A compiled program, and how many runs it plays side by side."""

    call: jax.stages.Compiled
    width: int


class GroupProgram:
    """A group as it is played here: its simulation, and its program for batches of one width.

    Args:
      study: the whole.
      group: of its plan.
      sources: where data come from.
      layout: how runs lie on the devices; as the table says if not given.
      device_memory: bytes that a program may use on each device.
      data_placement: one of `memory.DATA_PLACEMENTS`; as the layout says, or as fits, if not given.

    Raises:
      SpecError: the group can't be built, or not even one run of it fits beside its data.
    """

    def __init__(
        self,
        study: Study,
        group: Group,
        sources: Sources,
        layout: Layout | None = None,
        *,
        device_memory: int,
        data_placement: str | None = None,
    ) -> None:
        self.group, self.device_memory = group, device_memory
        self._policies = policies_of(group.runs)
        self._asked, self._as_begun = data_placement, bool(layout and layout.sharded)
        simulation = study.kind.simulation(study, group, sources, layout=layout)
        placement = data_placement or ("sharded" if self._as_begun else None)
        with self._refusals():
            self.simulation = memory.place_data(simulation, device_memory, placement)
            memory.check(self._policies, self.simulation, device_memory)
        self._width = 0
        self._lowered: jax.stages.Lowered | None = None
        self._compiled: Future[Executable] | None = None
        self._narrow: dict[int, jax.stages.Compiled] = {}

    @property
    def layout(self) -> Layout:
        """How its runs lie on the devices."""
        return self.simulation.layout

    @property
    def is_compiled(self) -> bool:
        """Whether its program has been compiled."""
        return self._compiled is not None and self._compiled.done()

    def trace(self, width: int) -> None:
        """Traces the program for so many runs, so that what can't be built is refused now.

        Raises:
          SpecError: a part refuses the rest, or a file that a run needs can't be read.
        """
        is_ready = self.is_compiled and self.compiled().width == width
        if width != self._width and not is_ready:
            self._width, self._compiled = width, None
            self._lowered = self.lower(width)
            self._tell_layout(width)

    def lower(self, width: int) -> jax.stages.Lowered:
        """Traces and lowers a program for so many runs; as `trace`."""
        with self._refusals():
            return self.simulation.lower(self.simulation.padded(width))

    def compile(self, threads: ThreadPoolExecutor) -> None:
        """Has the program that was traced compiled by a thread."""
        if self._compiled is None:
            lowered, self._lowered = self._lowered or self.lower(self._width), None
            self._compiled = threads.submit(self._compile, lowered, self._width)

    def halve(self, threads: ThreadPoolExecutor) -> None:
        """Has the program compiled for half as many runs, after the device ran out of memory."""
        self._width = -(-self.compiled().width // 2)
        self._compiled = threads.submit(self._compile, self.lower(self._width), self._width)

    def compiled(self, stopping: StopSignal = NO_STOP) -> Executable:
        """Waits for the program, which fits as many runs side by side as were asked for, or fewer.

        Raises:
          StopRequested: the study was asked to stop meanwhile.
        """
        assert self._compiled is not None
        while True:
            stopping.check()
            try:
                return self._compiled.result(timeout=0.5)
            except TimeoutError:
                if self._compiled.done():
                    raise

    def call(self, runs: int, stopping: StopSignal = NO_STOP) -> jax.stages.Compiled:
        """Returns the program for so many runs with padding: that of whole batches, or a narrower one."""
        compiled = self.compiled(stopping)
        if runs == self.simulation.padded(compiled.width):
            return compiled.call
        if runs not in self._narrow:
            self._narrow[runs] = compile_for(self.lower(runs))
        return self._narrow[runs]

    def drop(self) -> None:
        """Lets go of the compiled programs; `compile` makes them anew."""
        self._compiled, self._narrow = None, {}

    def release(self) -> None:
        """Lets go of what lies on the devices."""
        self.simulation.release()

    def _compile(self, lowered: jax.stages.Lowered, width: int) -> Executable:
        """Compiles for the given width, or, where that does not fit into memory, for a part of it."""
        begun = time.monotonic()
        while True:
            used = 2 * self.device_memory
            try:
                call = compile_for(lowered)
                used = memory.program_memory(call)
            except jax.errors.JaxRuntimeError as error:
                if not memory.is_out_of_memory(error) or width == 1:
                    raise
            if used <= self.device_memory or width == 1:
                events.compiled(self._policies, width, time.monotonic() - begun)
                return Executable(call, width)
            # As if nothing were shared by the runs: never too narrow by more than a half.
            width = -(-width // max(-(-used // self.device_memory), 2))
            lowered = self.lower(width)

    def _tell_layout(self, width: int) -> None:
        count, lanes = runs_mesh(self.simulation.padded(width)).size, self.layout.lanes
        placement = f"up to {lanes} clients trained at a time" if lanes else ""
        if self.simulation.data_shares > 1:
            why = memory.why_sharded(self._asked, before=self._as_begun)
            placement += f", training data sharded over {count} devices: {why}"
        events.placed(self._policies, len(self.group.runs), width, count, placement)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns what tracing the group's functions finds wrong with them into mistakes of the spec."""
        try:
            yield
        except SpecError:
            raise
        except PartError as error:
            raise SpecError([str(error)]) from error
        except ValueError as error:
            raise SpecError([f"policy {self._policies}: {error}"]) from error
