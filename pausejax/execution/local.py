"""Plays batches on this process's devices."""

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING

from pausejax.data.host import DataCache
from pausejax.devices import forget, local_devices, make_room
from pausejax.execution import events, memory, rounds
from pausejax.execution.batches import Batch, groups_left, split
from pausejax.execution.program import GroupProgram
from pausejax.execution.rounds import BatchProgress, Progress
from pausejax.execution.runtime import check_jax_settings
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.parts.traces import forget_changed
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
      cache: the training data on the host.
      max_width: the largest number of runs in parallel; None: the number in each group's layout.
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
        cache: DataCache,
        *,
        max_width: int | None = None,
        device_memory: int | None = None,
        data_placement: str | None = None,
    ) -> None:
        memory.check_data_placement(data_placement)
        self.cache, self.max_width = cache, max_width
        self.device_memory = device_memory or memory.device_memory()
        """Bytes that a program may use on each device."""
        self._data_placement = data_placement
        self._study: Study | None = None
        self._programs: dict[str, GroupProgram] = {}
        # XLA compiles without the interpreter's lock, so threads compile programs while other programs run.
        self._threads = ThreadPoolExecutor(os.cpu_count())

    def layouts(
        self, plan: Plan, store: "Store | None" = None, left_out: Collection[str] = ()
    ) -> dict[str, Layout]:
        """Returns the layout of each group that has runs left, by the group's key.

        A `GroupProgram` determines the layout of its group. Making it loads the group's data and checks that
        one run fits into memory. The programs are kept for `prepare` and `execute`. If the store lacks a
        group's layout, the table of measurements decides, and the layout is added to the store.

        Args:
          plan: the study's plan.
          store: the store of the study's result; None: layouts are neither read nor stored.
          left_out: identities of the runs in the result that are left out, `Contents.left_out`.

        Raises:
          SpecError: as `Executor.layouts`, or JAX's settings would change the numbers of equal runs.
        """
        check_jax_settings()
        groups = groups_left(plan, left_out)
        names = {group.key: layout_name(group) for group in groups}
        before = store.layouts.by_name() if store else {}
        own = {}
        for group in groups:
            layout = self.program(plan.study, group, before.get(names[group.key])).layout
            own[group.key] = layout._replace(runs=min(self.max_width or layout.runs, layout.runs))
        if store is None:
            return own
        stored = store.layouts.setdefault({names[key]: layout for key, layout in own.items()})
        # Another process may have stored other layouts meanwhile. `program` now makes the programs with the
        # stored layouts, and `prepare` and `execute` find these programs.
        for group in groups:
            self.program(plan.study, group, stored[names[group.key]])
        return {key: stored[name] for key, name in names.items()}

    def program(self, study: Study, group: Group, layout: Layout | None = None) -> GroupProgram:
        """Returns a group's program. The first call for a layout makes the program.

        Raises:
          SpecError: the program can't be built, or a device has no room for even one run.
        """
        if study is not self._study:
            make_room(study.kind.jitted)
            forget_changed(study.outsiders)
            self._study, self._programs = study, {}
        program = self._programs.get(group.key)
        if program is None or (layout and layout._replace(runs=0) != program.layout._replace(runs=0)):
            program = GroupProgram(
                study,
                group,
                self.cache,
                layout,
                device_memory=self.device_memory,
                data_placement=self._data_placement,
            )
            self._programs[group.key] = program
        return program

    def prepare(
        self, study: Study, work: Sequence[Batch], fitted_widths: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Traces the programs of some batches, so that errors in a group appear before any run is played.

        Args:
          study: the study of the batches.
          work: the batches.
          fitted_widths: the widths that fit into memory, as `Layouts.fitted_widths` returns them.

        Raises:
          SpecError: a group can't be built, or one of its parts does not work with the other parts.
        """
        for batch in {batch.group.key: batch for batch in work}.values():
            self.program(study, batch.group).set_width(self.first_width(study, batch, fitted_widths))
        self._compile_ahead(study, work)

    def first_width(self, study: Study, batch: Batch, fitted_widths: Mapping[str, int]) -> int:
        """Returns the width for which a batch's program is compiled first. A smaller width may follow.

        The width is the smallest of four numbers of runs:
          - the number of runs in the group's largest batch;
          - the number in `fitted_widths`, from `Layouts.fitted_widths`. It is smaller if a process has found
            that the largest batch does not fit into memory;
          - `max_width`. It is smaller if the batches were cut under a larger limit;
          - the number in the layout for this process's devices. It is smaller if a process with other devices
            has cut the batches.
        """
        fitted = fitted_widths.get(_width_name(batch), batch.largest_batch)
        of_layout = self.program(study, batch.group).layout.runs
        return min(batch.largest_batch, fitted, self.max_width or batch.largest_batch, of_layout)

    def execute(
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
          PartError: a part has returned an invalid value in some round; finished batches are kept.
          OSError: the store can't be written, or one run alone does not fit into memory.
        """
        fitted_widths = dict(store.layouts.fitted_widths())
        self.prepare(plan.study, work, fitted_widths)
        try:
            with store.playing():
                for place, batch in enumerate(work):
                    if place and work[place - 1].group is not batch.group:
                        self._compile_ahead(plan.study, work[place:])
                    yield from self._execute_batch(
                        plan.study, batch, store, fitted_widths, progress, stopping
                    )
                    if not any(later.group is batch.group for later in work[place + 1 :]):
                        self.program(plan.study, batch.group).release()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the threads that compile. The executor can then play another study."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = ThreadPoolExecutor(os.cpu_count())  # starts threads when there is work

    def _execute_batch(
        self,
        study: Study,
        batch: Batch,
        store: "Store",
        fitted_widths: dict[str, int],
        progress: Progress,
        stopping: StopSignal,
    ) -> Iterator[Batch]:
        """Plays a batch, in several pieces if its runs do not fit in parallel; each has a checkpoint."""
        program, left = self.program(study, batch.group), batch
        # Where the data streams set the number of rounds, each run counts as one round.
        batch_progress = BatchProgress(progress, 1 if study.rounds else 1 / program.simulation.rounds)
        while left.runs:
            width = program.executable(stopping).width
            _keep_width(store, fitted_widths, batch, width)
            piece = split(left, width)[0]
            checkpoint = store.checkpoint(piece.runs)
            try:
                arrays = rounds.play_rounds(program, piece.runs, batch_progress, checkpoint, stopping)
            except BaseException as error:
                will_halve = memory.is_out_of_memory(error) and width > 1
                if checkpoint:
                    # The runs are played again in smaller pieces, which have other checkpoints.
                    checkpoint.remove() if will_halve else checkpoint.close()
                if not memory.is_out_of_memory(error):
                    raise
                if not will_halve:
                    first, _, _ = str(error).strip().partition("\n")
                    raise OSError(
                        f"policy {policies_of(piece.runs)}: out of memory even with one run at a time "
                        f"({first})"
                    ) from error
                batch_progress.repeat()
                program.halve(self._threads)
                continue
            batch_progress.keep()
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
    return f"{layout_name(batch.group)}, {batch.largest_batch} runs at most"


def _keep_width(store: "Store", fitted_widths: dict[str, int], batch: Batch, width: int) -> None:
    """Stores that `width` runs of a batch's group fit in parallel, if no smaller width is stored.

    Logs an event if a larger width was stored.
    """
    name = _width_name(batch)
    before = fitted_widths.get(name)
    if before is not None and before <= width:
        return
    if before is not None:
        events.narrowed(policies_of(batch.runs), before, width)
    store.layouts.keep_fitted_width(name, width)
    fitted_widths[name] = width
