"""The one path of every study, from its plan to its result."""

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import xarray as xr

from pausejax.execution import events
from pausejax.execution.batches import Batch, batches, share, unfinished
from pausejax.execution.local import LocalExecutor
from pausejax.execution.rounds import Progress
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.execution.tracking import Tracker
from pausejax.execution.tracking.runs import VARYING
from pausejax.results import labels
from pausejax.results.store import Contents
from pausejax.results.stores import MemoryStore, Store
from pausejax.study.runs import Run
from pausejax.study.simulation import Layout
from pausejax.study.study import Plan

_BATCHES_PER_WORKER = 4
_TOLD_AT_ONCE = 256


class Executor(Protocol):
    """Where batches are played; it decides neither what is played nor how it is cut."""

    @property
    def devices(self) -> str:
        """Where batches are played, in words."""

    @property
    def workers(self) -> int:
        """Processes that play batches."""

    def layouts(self, plan: Plan, store: Store, settled: Collection[str] = ()) -> dict[str, Layout]:
        """Fixes in a store how a study lies on such devices as these, or learns how it was fixed there.

        Args:
          plan: of the study.
          store: of its result.
          settled: identities of runs that were in the result before anybody began.

        Returns:
          By the keys of the groups that are not settled.

        Raises:
          SpecError: a group can't be built, or not even one run of it fits.
          OSError: no space left, or the like.
        """

    def play(
        self,
        plan: Plan,
        work: Sequence[Batch],
        store: Store,
        progress: Progress,
        stopping: StopSignal = NO_STOP,
    ) -> Iterator[Batch]:
        """Plays some batches.

        Args:
          plan: of the study.
          work: batches of it, without the runs that are finished.
          store: gets the results, and keeps what is in flight.
          progress: called with how many rounds × runs have been advanced.
          stopping: whether the study is asked to stop.

        Yields:
          Batches whose runs have been written to the store: those of `work`, or pieces of them.

        Raises:
          StopRequested: the study was asked to stop.
          SpecError: a group can't be built; nothing has been played then.
          OSError: the store is full, or the like; finished batches are kept.
        """

    def close(self) -> None:
        """Ends its threads or processes; it plays nothing after that."""


class Outcome(NamedTuple):
    """What is finished of a study after a process has played its share."""

    finished_before: int
    """Runs that were finished when it began."""
    missing: int
    """Runs that are not finished: other processes' work, or none."""
    damaged: tuple[str, ...]
    """Files that were found damaged; their runs were played again."""


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
    """Plays a study's missing runs, or this process's share of them, into a store.

    Args:
      plan: the whole study.
      executor: where runs are played.
      store: where the result goes.
      shard: this process's number, from 1, and how many share the study.
      progress: called with how many rounds × runs have been advanced.
      tracker: receives every batch that has been written, and in the end the runs that were finished before.
      stopping: whether the study is asked to stop; what is in flight is then kept.

    Raises:
      StopRequested: it was.
      SpecError: a group can't be built, or the store holds another study; nothing has been played then.
      ValueError: the tracker can't be reached; nothing has been played then.
      OSError: the store is full, or the like; finished batches are kept.
    """
    held = store.prepare(plan)
    work = work_left(plan, executor, store, held, shard)
    if tracker:
        start_tracker(tracker, plan)
    try:
        left = sum(len(batch.runs) for batch in work)
        if skipped := len(plan.runs) - left:
            events.found(skipped, left, len({batch.group.key for batch in work}))
        reported = play_batches(
            plan, executor, store, work, progress=progress, tracker=tracker, stopping=stopping
        )
        missing = store.finish(plan)
        own = set(held.identities).union(*(batch.identities for batch in work))
        if missing and (lost := store.lost(plan, own)):
            raise OSError(
                f"{store}: {len(lost)} runs that were finished are no longer there; has the folder been "
                "moved or cleared? The same command simulates them again"
            )
        if tracker and not missing:
            # They were finished before, or their process was killed before it could tell.
            rest = [r for r in plan.runs if r.identity in own and (r.policy, r.identity) not in reported]
            report_runs(tracker, store, plan, rest)
    finally:
        if tracker:
            tracker.finish()
    finished_before = sum(run.identity in held.identities for run in plan.runs)
    return Outcome(finished_before, missing, (*held.damaged, *store.damaged))


def work_left(
    plan: Plan, executor: Executor, store: Store, held: Contents, shard: tuple[int, int] = (1, 1)
) -> list[Batch]:
    """Returns the batches that `play` would have the executor play.

    Args:
      plan: the whole study.
      executor: where runs are played.
      store: where the result goes; the layouts are fixed in it.
      held: what the store holds.
      shard: as for `play`.

    Raises:
      SpecError, OSError: as `Executor.layouts`.
    """
    # First: a Ray cluster must be connected before anything starts JAX.
    layouts = executor.layouts(plan, store, held.settled)
    index, count = shard
    if count > 1:
        # Shards may run on unlike devices and must cut alike all the same: the first one's cut holds.
        names = {key: f"{key}, cut for {count} shards" for key in layouts}
        cut = store.layouts.fix({names[key]: Layout(layout.runs) for key, layout in layouts.items()})
        layouts = {key: cut[name] for key, name in names.items()}
    workers = _BATCHES_PER_WORKER * executor.workers if executor.workers > 1 else 1
    most = {key: layout.runs for key, layout in layouts.items()}
    work = share(batches(plan, held.settled, most, at_least=max(count, workers)), index, count)
    return unfinished(work, held.identities)


def play_batches(
    plan: Plan,
    executor: Executor,
    store: Store,
    work: Sequence[Batch],
    *,
    progress: Progress,
    tracker: Tracker | None = None,
    stopping: StopSignal = NO_STOP,
) -> set[tuple[str, str]]:
    """Plays some batches into a store; as `play`.

    Returns:
      Labels of policies and identities of the runs that the tracker was told of.
    """
    reported: set[tuple[str, str]] = set()
    for batch in executor.play(plan, work, store, progress, stopping) if work else ():
        store.note_written(batch.runs)
        if tracker:
            tracker.runs_finished(store.labelled(plan, batch.runs))
            reported.update((run.policy, run.identity) for run in batch.runs)
    return reported


def play_in_memory(
    plan: Plan,
    executor: LocalExecutor,
    *,
    progress: Progress = lambda _: None,
    tracker: Tracker | None = None,
) -> xr.Dataset:
    """Plays a whole study and returns its labelled result, runs in the plan's order; as `play`.

    It closes the executor.
    """
    store = MemoryStore()
    with contextlib.closing(executor):
        play(plan, executor, store, progress=progress, tracker=tracker)
    return store.result(plan)


def start_tracker(tracker: Tracker, plan: Plan) -> None:
    """Has a tracker begin a study."""
    tracker.start({**labels.attributes_of(plan), VARYING: json.dumps(labels.varying(plan))})


def report_runs(tracker: Tracker, store: Store, plan: Plan, runs: Sequence[Run]) -> None:
    """Tells a tracker of some runs that are in the result."""
    for first in range(0, len(runs), _TOLD_AT_ONCE):
        tracker.runs_finished(store.labelled(plan, runs[first : first + _TOLD_AT_ONCE]))
