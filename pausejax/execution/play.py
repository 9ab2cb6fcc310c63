"""Plays a study from its plan to its result. Every kind of study takes this path."""

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import xarray as xr

from pausejax.execution import events
from pausejax.execution.batches import Batch, batches, of_shard, unfinished
from pausejax.execution.local import LocalExecutor
from pausejax.execution.rounds import Progress
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.execution.tracking import Tracker
from pausejax.execution.tracking.runs import VARYING
from pausejax.results import labels
from pausejax.results.stores import MemoryStore, Store
from pausejax.results.study_folder import Contents
from pausejax.study.runs import Run
from pausejax.study.simulation import Layout
from pausejax.study.spec import refuse_changed_files
from pausejax.study.study import Plan

_BATCHES_PER_WORKER = 4
_TOLD_AT_ONCE = 256


class Executor(Protocol):
    """Plays batches on devices. The caller cuts the plan into batches and chooses those to play."""

    @property
    def devices(self) -> str:
        """The devices that play batches, in words."""

    @property
    def workers(self) -> int:
        """The number of processes that play batches."""

    def layouts(self, plan: Plan, store: Store, left_out: Collection[str] = ()) -> dict[str, Layout]:
        """Reads a study's layouts for devices of this kind from a store. Adds those that the store lacks.

        Args:
          plan: the study's plan.
          store: the store of the study's result.
          left_out: identities of the runs in the result that are left out, `Contents.left_out`.

        Returns:
          The layout of each group that has runs left, by the group's key.

        Raises:
          SpecError: a group can't be built, or a device has no room for even one of its runs.
          OSError: the store can't be written, for example because the disk is full.
        """

    def execute(
        self,
        plan: Plan,
        work: Sequence[Batch],
        store: Store,
        progress: Progress,
        stopping: StopSignal = NO_STOP,
    ) -> Iterator[Batch]:
        """Plays some batches.

        Args:
          plan: the study's plan.
          work: batches of the plan, without the runs that are finished.
          store: the store of the results and of the checkpoints of unfinished runs.
          progress: the function that is called with the number of rounds × runs advanced.
          stopping: the signal that asks the study to stop.

        Yields:
          Each batch whose runs have been written to the store: a batch of `work`, or a piece of such a batch.

        Raises:
          StopRequested: the study was asked to stop.
          SpecError: a group can't be built; no run has been played then.
          PartError: a part has returned an invalid value in some round; finished batches are kept.
          OSError: the store can't be written, for example because it is full; finished batches are kept.
        """

    def close(self) -> None:
        """Ends the executor's threads or processes. The executor can't play batches afterwards."""


class Outcome(NamedTuple):
    """Numbers of finished and missing runs after a process has played its share of a study."""

    finished_before: int
    """The number of runs that were finished when the process began."""
    missing: int
    """The number of runs that are not finished. Other processes play these runs."""
    damaged: tuple[str, ...]
    """Names of damaged files. Their runs were played again."""


def play(
    plan: Plan,
    executor: Executor,
    store: Store,
    *,
    shard: tuple[int, int] = (1, 1),
    progress: Progress,
    tracker: Tracker | None = None,
    stopping: StopSignal = NO_STOP,
) -> Outcome:
    """Plays a study's missing runs, or this process's share of them, and writes them to a store.

    Args:
      plan: the plan of the whole study.
      executor: the executor that plays the runs.
      store: the store of the result.
      shard: this process's number, from 1, and the number of processes that share the study.
      progress: the function that is called with the number of rounds × runs advanced.
      tracker: the tracker that receives the finished runs of this process's share, first those that were
        finished before, and then every batch that is written. When the study is complete, the tracker
        receives the other runs that were finished before.
      stopping: the signal that asks the study to stop. A stop saves checkpoints of unfinished runs.

    Raises:
      StopRequested: the study was asked to stop.
      SpecError: a group can't be built, or the store holds another study; no run has been played then.
      PartError: a part has returned an invalid value in some round; finished batches are kept.
      ValueError: the tracker can't be reached, or can't store runs; finished batches are kept.
      OSError: the store can't be written, for example because it is full; finished batches are kept.
    """
    contents = store.prepare(plan)
    reported: set[tuple[str, str]] = set()
    with contextlib.ExitStack() as at_end:
        with store.playing():
            share, alone = share_of(plan, executor, store, contents, shard), shard[1] == 1
            work = unfinished(share, contents.identities)
            if tracker:
                at_end.callback(tracker.finish)
                start_tracker(tracker, plan)
                # The process that played these runs may have been killed before it reported them.
                own = [run for batch in share for run in batch.runs if run.identity in contents.identities]
                with store.reporting(alone=alone):
                    reported |= report_runs(tracker, store, plan, own)
            left = sum(len(batch.runs) for batch in work)
            if skipped := len(plan.runs) - left:
                events.found(skipped, left, len({batch.group.key for batch in work}))
            reported |= play_batches(
                plan,
                executor,
                store,
                work,
                progress=progress,
                tracker=tracker,
                alone=alone,
                stopping=stopping,
            )
        missing = store.build_if_complete(plan)
        # The store must now have the runs that were finished before this call, and the runs of `work`.
        stored = set(contents.identities).union(*(batch.identities for batch in work))
        if missing and (lost := store.lost(plan, stored)):
            raise OSError(
                f"{store}: {len(lost)} finished runs are missing. Was the folder moved or cleared? The same "
                "command simulates these runs again"
            )
        if tracker and not missing:
            rest = [r for r in plan.runs if r.identity in stored and (r.policy, r.identity) not in reported]
            with store.reporting(alone=True):
                report_runs(tracker, store, plan, rest)
    finished_before = sum(run.identity in contents.identities for run in plan.runs)
    return Outcome(finished_before, missing, (*contents.damaged, *store.damaged))


def share_of(
    plan: Plan, executor: Executor, store: Store, contents: Contents, shard: tuple[int, int] = (1, 1)
) -> list[Batch]:
    """Fixes the layouts, cuts the plan into batches, and returns those of this process's share.

    The batches also have finished runs, but not the runs that the cut leaves out (`Contents.left_out`).

    Args:
      plan: the plan of the whole study.
      executor: the executor that plays the runs.
      store: the store of the result; layouts that it lacks are added to it.
      contents: the contents of the store.
      shard: this process's number, from 1, and the number of processes.

    Raises:
      SpecError: as `Executor.layouts`, or a file of the study has changed since the spec was parsed.
      OSError: as `Executor.layouts`.
    """
    # `layouts` must be called first. In this call a Ray executor connects to its cluster, which must happen
    # before JAX starts. Only then does the executor know `executor.workers`.
    layouts = executor.layouts(plan, store, contents.left_out)
    refuse_changed_files(plan.study)  # `layouts` has read the files
    index, count = shard
    if count > 1:
        # Shards may run on different devices, but must use the same batches. So the first shard fixes the
        # sizes.
        names = {key: f"{key}, cut for {count} shards" for key in layouts}
        cut = store.layouts.setdefault({names[key]: Layout(layout.runs) for key, layout in layouts.items()})
        layouts = {key: cut[name] for key, name in names.items()}
    workers = _BATCHES_PER_WORKER * executor.workers if executor.workers > 1 else 1
    max_runs = {key: layout.runs for key, layout in layouts.items()}
    return of_shard(batches(plan, contents.left_out, max_runs, min_batches=max(count, workers)), index, count)


def play_batches(
    plan: Plan,
    executor: Executor,
    store: Store,
    work: Sequence[Batch],
    *,
    progress: Progress,
    tracker: Tracker | None = None,
    alone: bool = True,
    stopping: StopSignal = NO_STOP,
) -> set[tuple[str, str]]:
    """Plays the batches `work` and writes their runs to a store. The other arguments are as for `play`.

    With `alone`, only one process reports runs at a time. It must be true unless all processes play different
    runs.

    Returns:
      The runs that were reported to the tracker, as pairs of the policy's label and the run's identity.
    """
    reported: set[tuple[str, str]] = set()
    for batch in executor.execute(plan, work, store, progress, stopping) if work else ():
        store.note_written(batch.runs)
        if tracker:
            with store.reporting(alone=alone):
                reported |= report_runs(tracker, store, plan, batch.runs)
    return reported


def play_in_memory(
    plan: Plan,
    executor: LocalExecutor,
    *,
    progress: Progress = lambda _: None,
    tracker: Tracker | None = None,
) -> xr.Dataset:
    """Plays a whole study, closes the executor, and returns the labelled result.

    The runs are in the plan's order. The executor plays the runs, and `progress` is called with the number of
    rounds × runs advanced. The tracker receives every batch.
    """
    store = MemoryStore()
    with contextlib.closing(executor):
        play(plan, executor, store, progress=progress, tracker=tracker)
    return store.result(plan)


def start_tracker(tracker: Tracker, plan: Plan) -> None:
    """Starts a tracker with the study's attributes and the names of its varying parameters."""
    tracker.start({**labels.attributes_of(plan), VARYING: json.dumps(labels.varying(plan))})


def report_runs(tracker: Tracker, store: Store, plan: Plan, runs: Sequence[Run]) -> set[tuple[str, str]]:
    """Reports finished runs to a tracker, and returns them as `play_batches` does."""
    for first in range(0, len(runs), _TOLD_AT_ONCE):
        for result in store.labelled(plan, runs[first : first + _TOLD_AT_ONCE]):
            tracker.runs_finished(result)
    return {(run.policy, run.identity) for run in runs}
