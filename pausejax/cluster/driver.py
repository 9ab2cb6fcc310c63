"""Plays batches on the workers of a Ray cluster, which write into the shared folder.

The driver keeps nothing that the folder does not: the same command goes on where a dead one was.
"""

import collections
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from pausejax.cluster import connection
from pausejax.cluster.pool import Lost, Member, Pool
from pausejax.cluster.worker import Assignment, Job, Said
from pausejax.data.host import Sources
from pausejax.execution import events
from pausejax.execution.batches import Batch, groups_left
from pausejax.execution.program import GroupProgram
from pausejax.execution.rounds import Progress
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.results.stores import FolderStore, Store
from pausejax.study.runs import policies_of
from pausejax.study.simulation import Layout
from pausejax.study.study import Plan

_ATTEMPTS = 5
_SECONDS_BETWEEN_QUESTIONS = 1.0


class Cluster(NamedTuple):
    """Where the workers are."""

    address: str | None = None
    """HOST:PORT, "auto", or "local"; None: $RAY_ADDRESS, or a Ray of its own on this machine."""
    cpus_per_worker: int | None = None
    """None: all cores of a node; beside a GPU one."""
    to_the_end: bool = False
    """Whether the connection stays until the process ends; see `connection.connected`."""


@dataclasses.dataclass
class Task:
    """A batch, or with None the result that is put together in the end, and what has come of it."""

    batch: Batch | None
    attempts: int = 0
    played: float = 0
    """Rounds × runs that have been reported."""


class RayExecutor:
    """Hands batches to the workers of a pool.

    A batch whose worker or node dies goes to another one, which begins at what was finished or kept of it.
    It connects when there is something to play.

    Args:
      cluster: where the workers are.
      sources: where data come from.
      lanes: the most runs side by side; None: as the layouts say.
      device_memory: bytes that a program may use on each device; None: what there is.
      data_placement: one of `memory.DATA_PLACEMENTS`; None: sharded where that alone fits.
      stopping: whether the study is asked to stop, before batches are played and after.
    """

    devices = "the workers of a Ray cluster"

    def __init__(
        self,
        cluster: Cluster,
        sources: Sources,
        *,
        lanes: int | None = None,
        device_memory: int | None = None,
        data_placement: str | None = None,
        stopping: StopSignal = NO_STOP,
    ) -> None:
        self._cluster, self._sources, self._stopping = cluster, sources, stopping
        self._limits = (lanes, device_memory, data_placement)
        self._pool: Pool | None = None
        self._plan: Plan | None = None
        """What the workers were given."""
        self._open = contextlib.ExitStack()

    @property
    def workers(self) -> int:
        """How many the cluster has room for; 1 before it is connected."""
        return len(self._pool.slots) if self._pool else 1

    def close(self) -> None:
        """Ends the workers and the connection."""
        self._open.close()
        self._pool = self._plan = None

    def layouts(self, plan: Plan, store: Store, settled: Collection[str] = ()) -> dict[str, Layout]:
        """Has the worker that comes up first fix how the study lies on such devices as its own.

        Raises:
          SpecError: a group can't be built; nothing has been played then.
          ValueError: Ray is missing, the address is none, or no node has room for a worker.
          OSError: the workers don't see the folder, or no cluster can be reached.
          ChildProcessError: the worker, and several after it, are lost at that.
        """
        left = groups_left(plan, settled)
        if not left:
            return {}
        assert isinstance(store, FolderStore), "workers write into a folder"
        if self._pool and self._plan and self._plan.study is plan.study:
            return self._first_answer(self._pool, plan)
        if self._pool:  # a study that is played after another one
            self._pool.close()
        # Ray starts processes by forking, which JAX does not like once it has begun: so Ray comes first.
        cluster = self._cluster
        self._open.enter_context(connection.connected(cluster.address, to_the_end=cluster.to_the_end))
        for group in left:
            # Whether there is room for runs, the workers say.
            GroupProgram(plan.study, group, self._sources, device_memory=sys.maxsize).lower(1)
        job = Job(
            store.folder.path(),
            *self._limits,
            store.checkpoint_seconds,
            store.command,
            os.environ.get("PAUSEJAX_CACHE_DIR"),
            self._open.enter_context(store.folder.marked()),
            frozenset(settled),
        )
        self._plan = plan
        self._pool = Pool((plan, self._sources.held, job), cluster.cpus_per_worker)
        self._open.callback(self._pool.close)
        return self._first_answer(self._pool)

    def play(
        self,
        plan: Plan,
        work: Sequence[Batch],
        store: Store,
        progress: Progress,
        stopping: StopSignal = NO_STOP,
    ) -> Iterator[Batch]:
        """Has every batch played; as `play.Executor.play`.

        Raises:
          ChildProcessError: a batch's worker has died time and again.
        """
        assert self._pool is not None
        shift = _Shift(self._pool, plan, progress, stopping, is_own=plan is self._plan)
        for task, report in shift.carry_out([Task(batch) for batch in work]):
            assert task.batch is not None
            group = task.batch.group
            events.finished(policies_of(task.batch.runs), len(task.batch.runs))
            store.damaged.extend(report.damaged)
            for positions in report.written:
                yield task.batch._replace(runs=tuple(group.runs[position] for position in positions))

    def finish(self, plan: Plan, store: Store) -> int:
        """Has a worker put the result together, labelled with its devices; how many runs are missing."""
        if self._pool is None:
            return store.finish(plan)
        is_own = plan is self._plan
        shift = _Shift(self._pool, plan, lambda _: None, self._stopping, is_own=is_own)
        ((_, missing),) = shift.carry_out([Task(None)])
        return int(missing)

    def _first_answer(self, pool: Pool, plan: Plan | None = None) -> dict[str, Layout]:
        asked, attempts = None, 0
        while True:
            self._stopping.check()
            if asked is None and (idle := pool.idle()):
                asked, attempts = idle[0], attempts + 1
                asked.answer = asked.actor.layouts.remote(plan and (plan.runs, plan.groups))
            for member, answer in pool.wait(_SECONDS_BETWEEN_QUESTIONS):
                if not isinstance(answer, Lost):
                    value = _value(answer)
                    if member is asked:
                        return {key: Layout(*layout) for key, layout in value.items()}
                elif member is asked:
                    asked = None
                    if attempts == _ATTEMPTS:
                        what = f"{attempts} workers in a row were lost: {answer.reason}"
                        raise ChildProcessError(what) from answer.cause


def pick(waiting: Sequence[Batch], own: set[str], others: Sequence[str]) -> int:
    """Returns which batch a worker takes.

    It is one whose program the worker has, else one of the group that lacks workers most.

    Args:
      waiting: the batches, at least one.
      own: keys of groups whose program the worker has compiled.
      others: keys of the groups that other workers are at.
    """
    left = collections.Counter(batch.group.key for batch in waiting)
    busy = collections.Counter(others)
    mine = [key for key in left if key in own]
    chosen = max(mine or left, key=lambda key: left[key] / (1 + busy[key]))
    return next(place for place, batch in enumerate(waiting) if batch.group.key == chosen)


class _Shift:
    """Hands tasks to the workers of a pool until all are done."""

    def __init__(
        self, pool: Pool, plan: Plan, progress: Progress, stopping: StopSignal, *, is_own: bool
    ) -> None:
        self._pool, self._plan, self._progress, self._stopping = pool, plan, progress, stopping
        self._sent = None if is_own else (plan.runs, plan.groups)
        self._number_of = {group.key: number for number, group in enumerate(plan.groups)}
        self._position_of: dict[str, dict[int, int]] = {}

    def carry_out(self, waiting: list[Task]) -> Iterator[tuple[Task, Any]]:
        """Has some tasks done, each as often as it takes; yields each with its answer."""
        pool, asked = self._pool, time.monotonic()
        while waiting or pool.working():
            if self._stopping.number is not None:
                pool.stop(self._stopping.number)
            self._stopping.check()
            for member in pool.idle()[: len(waiting)]:
                self._hand_over(member, waiting)
            for member, answer in pool.wait(_SECONDS_BETWEEN_QUESTIONS):
                task, member.task = member.task, None
                if task is None:
                    if not isinstance(answer, Lost):
                        _value(answer)
                elif isinstance(answer, Lost):
                    self._count_attempt(task, answer)
                    waiting.insert(0, task)
                else:
                    value = _value(answer)
                    if task.batch:
                        self._report(task, self._rounds(task.batch))
                        _repeat(value.said)
                    yield task, value
            if time.monotonic() - asked >= _SECONDS_BETWEEN_QUESTIONS:
                asked = time.monotonic()
                for member, news in pool.ask():
                    _repeat(news.said)
                    batch = member.task.batch
                    # What was asked during one batch may be answered during the next.
                    if batch and news.assignment == self._assignment(batch):
                        self._report(member.task, news.played)

    def _hand_over(self, member: Member, waiting: list[Task]) -> None:
        batches = [task.batch for task in waiting if task.batch]
        others = [other.task.batch.group.key for other in self._pool.working() if other.task.batch]
        member.task = task = waiting.pop(pick(batches, member.groups, others) if batches else 0)
        if task.batch is None:
            member.answer = member.actor.finish.remote(self._sent)
            return
        member.groups.add(task.batch.group.key)
        member.answer = member.actor.play.remote(self._assignment(task.batch), task.attempts > 0)

    def _assignment(self, batch: Batch) -> Assignment:
        key = batch.group.key
        if key not in self._position_of:
            self._position_of[key] = {id(run): place for place, run in enumerate(batch.group.runs)}
        positions = tuple(self._position_of[key][id(run)] for run in batch.runs)
        return Assignment(self._number_of[key], positions, batch.width, self._sent)

    def _rounds(self, batch: Batch) -> int:
        """Rounds × runs that a batch comes to."""
        return len(batch.runs) * max(self._plan.study.rounds, 1)

    def _report(self, task: Task, played: float) -> None:
        self._progress(played - task.played)
        task.played = played

    def _count_attempt(self, task: Task, lost: Lost) -> None:
        task.attempts += 1
        if task.attempts < _ATTEMPTS:
            return
        what = "the result"
        if task.batch:
            policy, count = policies_of(task.batch.runs), len(task.batch.runs)
            first = self._plan.runs.index(task.batch.runs[0])
            what = f"policy {policy} ({count} runs, from run {first + 1} of the study on)"
        lost_workers = f"{task.attempts} workers in a row were lost at it"
        raise ChildProcessError(f"{what}: {lost_workers}; the last: {lost.reason}") from lost.cause


def _repeat(said: Sequence[Said]) -> None:
    """Tells the study's log what a worker's executor has said."""
    for one in said:
        events.say(one.event, one.sentence, **one.fields)


def _value(answer: Any) -> Any:
    """Returns a worker's answer.

    Raises:
      ValueError, OSError: what the worker met; it would have ended a study on one machine as well.
    """
    if isinstance(answer, Exception):
        raise answer
    return answer
