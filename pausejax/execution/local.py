"""Plays batches on this process's devices."""

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING

from pausejax.data.host import Sources
from pausejax.devices import forget, local_devices, make_room
from pausejax.execution import events, memory, rounds
from pausejax.execution.batches import Batch, groups_left, split
from pausejax.execution.program import GroupProgram
from pausejax.execution.rounds import Advance, Progress
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.study.runs import Group, policies_of
from pausejax.study.simulation import Layout
from pausejax.study.study import Plan, Study

if TYPE_CHECKING:
    from pausejax.results.stores import Store

COMPILED_AHEAD = 16
"""The number of next groups whose programs are compiled in advance."""
_MOST = 48
"""If more programs than this number are compiled, only the programs of the next groups are kept."""


class LocalExecutor:
    """Executor that plays batches in this process.

    It compiles a group's program shortly before the group is played.

    Args:
      sources: the training data on the host.
      lanes: the largest number of runs, not of clients, in parallel; None: the number in each group's layout.
      device_memory: bytes that a program may use on each device; None: the device's memory with a margin.
      data_placement: one of `memory.DATA_PLACEMENTS`; None: sharded only if the replicated data do not fit.

    Raises:
      SpecError: `data_placement` is not one of `memory.DATA_PLACEMENTS`.
    """

    workers = 1
    """The number of processes that play batches."""

    @property
    def devices(self) -> str:
        """The devices that play batches, in words."""
        return local_devices()

    def __init__(
        self,
        sources: Sources,
        *,
        lanes: int | None = None,
        device_memory: int | None = None,
        data_placement: str | None = None,
    ) -> None:
        memory.check_data_placement(data_placement)
        self.sources, self.lanes = sources, lanes
        self.device_memory = device_memory or memory.device_memory()
        """Bytes that a program may use on each device."""
        self._data_placement = data_placement
        self._study: Study | None = None
        self._programs: dict[str, GroupProgram] = {}
        # XLA compiles without the interpreter's lock, so threads compile programs while other programs run.
        self._threads = ThreadPoolExecutor(os.cpu_count())

    def layouts(
        self, plan: Plan, store: "Store | None" = None, settled: Collection[str] = ()
    ) -> dict[str, Layout]:
        """Returns the layout of each group that has runs left, by the group's key.

        If the store lacks a group's layout, the measured table decides, and the layout is added to the store.

        Args:
          plan: the study's plan.
          store: the store of the study's result; None: layouts are neither read nor stored.
          settled: identities of runs that were in the result before any process began.
        """
        groups = groups_left(plan, settled)
        names = {group.key: layout_name(group) for group in groups}
        before = store.layouts.by_name() if store else {}
        own = {}
        for group in groups:
            layout = self.program(plan.study, group, before.get(names[group.key])).layout
            own[group.key] = layout._replace(runs=min(self.lanes or layout.runs, layout.runs))
        if store is None:
            return own
        fixed = store.layouts.fix({names[key]: layout for key, layout in own.items()})
        for group in groups:
            self.program(plan.study, group, fixed[names[group.key]])
        return {key: fixed[name] for key, name in names.items()}

    def program(self, study: Study, group: Group, layout: Layout | None = None) -> GroupProgram:
        """Returns a group's program. The first call for a layout makes the program.

        Raises:
          SpecError: the program can't be built, or a device has no room for even one run.
        """
        if study is not self._study:
            make_room(study.kind.jitted)
            self._study, self._programs = study, {}
        program = self._programs.get(group.key)
        if program is None or (layout and layout._replace(runs=0) != program.layout._replace(runs=0)):
            program = GroupProgram(
                study,
                group,
                self.sources,
                layout,
                device_memory=self.device_memory,
                data_placement=self._data_placement,
            )
            self._programs[group.key] = program
        return program

    def prepare(
        self, study: Study, work: Sequence[Batch], fits: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Traces the programs of some batches, so that errors in a group appear before any run is played.

        Args:
          study: the study of the batches.
          work: the batches.
          fits: the numbers of runs that fit in parallel, as `Layouts.fits` returns them.

        Raises:
          SpecError: a group can't be built, or one of its parts does not work with the other parts.
        """
        for batch in {batch.group.key: batch for batch in work}.values():
            self.program(study, batch.group).trace(self.width(study, batch, fits))
        self._compile_ahead(study, work)

    def width(self, study: Study, batch: Batch, fits: Mapping[str, int]) -> int:
        """Returns the number of runs for which a batch's program is compiled first.

        `fits` has the numbers of runs that fit in parallel, as `Layouts.fits` returns them.
        """
        fitted = fits.get(_width_name(batch), batch.width)
        most = self.program(study, batch.group).layout.runs
        return min(batch.width, fitted, self.lanes or batch.width, most)

    def play(
        self,
        plan: Plan,
        work: Sequence[Batch],
        store: "Store",
        progress: Progress,
        stopping: StopSignal = NO_STOP,
    ) -> Iterator[Batch]:
        """Plays batches one after another, and yields each batch, or piece of it, after its runs are stored.

        If the study is asked to stop, the executor saves a checkpoint of the unfinished runs that it plays.

        Raises:
          StopRequested: the study was asked to stop.
          SpecError: a group can't be built; no run has been played then.
          OSError: the store can't be written, or one run alone does not fit into memory.
        """
        fits = dict(store.layouts.fits())
        self.prepare(plan.study, work, fits)
        try:
            with store.playing():
                for place, batch in enumerate(work):
                    if place and work[place - 1].group is not batch.group:
                        self._compile_ahead(plan.study, work[place:])
                    yield from self._play(plan.study, batch, store, fits, progress, stopping)
                    if not any(later.group is batch.group for later in work[place + 1 :]):
                        self.program(plan.study, batch.group).release()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the threads that compile."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _play(
        self,
        study: Study,
        batch: Batch,
        store: "Store",
        fits: dict[str, int],
        progress: Progress,
        stopping: StopSignal,
    ) -> Iterator[Batch]:
        """Plays a batch, in several pieces if its runs do not fit in parallel; each has a checkpoint."""
        program, left = self.program(study, batch.group), batch
        # Where the data streams set the number of rounds, each run counts as one round.
        advance = Advance(progress, 1 if study.rounds else 1 / program.simulation.rounds)
        while left.runs:
            width = program.compiled(stopping).width
            _keep_width(store, fits, batch, width)
            piece = split(left, width)[0]
            checkpoint = store.checkpoint(piece.runs)
            try:
                arrays = rounds.play(program, piece.runs, advance, checkpoint, stopping)
            except BaseException as error:
                is_narrowed = memory.is_out_of_memory(error) and width > 1
                if checkpoint:
                    # Narrower batches have checkpoints of their own.
                    checkpoint.remove() if is_narrowed else checkpoint.close()
                if not memory.is_out_of_memory(error):
                    raise
                if not is_narrowed:
                    first, _, _ = str(error).strip().partition("\n")
                    raise OSError(
                        f"policy {policies_of(piece.runs)}: out of memory even with one run at a time "
                        f"({first})"
                    ) from error
                advance.repeat()
                program.halve(self._threads)
                continue
            advance.keep()
            store.write(piece.runs, arrays, checkpoint)
            events.finished(policies_of(piece.runs), len(piece.runs))
            yield piece
            left = left._replace(runs=left.runs[len(piece.runs) :])

    def _compile_ahead(self, study: Study, work: Sequence[Batch]) -> None:
        """Starts compiling the programs of the next groups. Drops other programs if too many are compiled."""
        ahead = dict(itertools.islice({batch.group.key: batch for batch in work}.items(), COMPILED_AHEAD))
        compiled = {key: program for key, program in self._programs.items() if program.is_compiled}
        if len(compiled) >= _MOST or memory.near_mapping_limit():
            for key, program in compiled.items():
                if key not in ahead:
                    program.drop()
            forget(study.kind.jitted)
        for batch in ahead.values():
            self.program(study, batch.group).compile(self._threads)


def layout_name(group: Group) -> str:
    """Returns the name under which a store keeps a group's layout for this process's kind of devices.

    The layouts of a group may differ between kinds of devices.
    """
    return f"{local_devices()}: {group.key}"


def _width_name(batch: Batch) -> str:
    return f"{layout_name(batch.group)}, {batch.width} runs at most"


def _keep_width(store: "Store", fits: dict[str, int], batch: Batch, width: int) -> None:
    """Stores that `width` runs of a batch's group fit in parallel, if no smaller number is stored.

    Logs an event if a larger number was stored.
    """
    name = _width_name(batch)
    before = fits.get(name)
    if before is not None and before <= width:
        return
    if before is not None:
        events.narrowed(policies_of(batch.runs), before, width)
    store.layouts.keep_fit(name, width)
    fits[name] = width
