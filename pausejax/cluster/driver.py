"""Plays batches on the workers of a Ray cluster, which write into the shared folder.

The folder holds the whole state of the study. If the driver dies, the same command continues the study.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from pausejax.cluster import connection
from pausejax.cluster.pool import Loss, Pool
from pausejax.data.host import DataCache
from pausejax.execution import events
from pausejax.execution.batches import Batch, groups_left
from pausejax.execution.program import GroupProgram
from pausejax.execution.rounds import Progress
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.results.parts import marked
from pausejax.results.stores import FolderStore, Store
from pausejax.study.runs import policies_of
from pausejax.study.simulation import Layout
from pausejax.study.study import Plan, Study

_ATTEMPTS = 5
_SECONDS_BETWEEN_QUESTIONS = 1.0


@dataclasses.dataclass
class Task:
    """Task of one worker. If the worker is lost, the task is repeated on another worker."""

    words: str
    """The description of the task, for messages."""
    call: Callable[[Any, "Task"], Any]
    """The function that starts the task on an actor and returns the reference of its answer."""
    key: str = ""
    """The key of the group whose program the task needs."""
    number: int = -1
    """The number of the task; -1 for a task that plays no batch."""
    attempts: int = 0
    """The number of workers that were lost while they carried out the task."""
    played: float = 0
    """The rounds × runs that have been reported."""

    def note_loss(self, loss: Loss) -> None:
        """Counts an attempt that ended with the loss of a worker.

        Raises:
          ChildProcessError: this was the last of `_ATTEMPTS` attempts.
        """
        self.attempts += 1
        if self.attempts == _ATTEMPTS:
            lost = f"{self.attempts} workers in a row were lost during this task. The last: {loss.reason}"
            raise ChildProcessError(f"{self.words}: {lost}") from loss.cause


class RayExecutor:
    """Executor that hands batches to the workers of a pool.

    If a worker or its node dies, another worker continues the batch from its finished runs and checkpoints.
    The executor connects to the cluster when there are runs to play.

    Args:
      cache: the data of the study, which the driver reads once and sends to the workers.
      address: HOST:PORT, "auto", or "local"; None: $RAY_ADDRESS, or a local Ray that the executor starts.
      cpus_per_worker: the cores of a worker; None: all cores of a node, or one core beside a GPU.
      to_the_end: whether the connection stays until the process ends. The process must then end without
        cleanup.
      stopping: the signal that asks the study to stop while layouts are fixed.
      **limits: the arguments max_width, device_memory and data_placement of each worker's `LocalExecutor`.
    """

    devices = "the workers of a Ray cluster"

    def __init__(
        self,
        cache: DataCache,
        *,
        address: str | None = None,
        cpus_per_worker: int | None = None,
        to_the_end: bool = False,
        stopping: StopSignal = NO_STOP,
        **limits: Any,
    ) -> None:
        self._cache, self._address, self._cpus = cache, address, cpus_per_worker
        self._to_the_end, self._stopping = to_the_end, stopping
        self._limits = {"max_width": None, "device_memory": None, "data_placement": None, **limits}
        self._numbers = itertools.count()
        self._study: Study | None = None
        """The study that was sent to the workers."""
        self._pool: Pool | None = None
        self._open = contextlib.ExitStack()

    @property
    def workers(self) -> int:
        """Returns how many workers the cluster has room for; 1 before the executor is connected."""
        return len(self._pool.slots) if self._pool else 1

    def close(self) -> None:
        """Ends the workers and the connection."""
        self._open.close()
        self._pool = self._study = None

    def layouts(self, plan: Plan, store: Store, left_out: Collection[str] = ()) -> dict[str, Layout]:
        """Returns the layout of each group with unfinished runs, by the group's key.

        The first worker that starts fixes the layouts for its kind of devices.

        Args:
          plan: the plan of the study.
          store: the store of the result, which must be in a folder.
          left_out: identities of the runs in the result that are left out, `Contents.left_out`.

        Raises:
          SpecError: a group can't be built; no run has been played then.
          ValueError: Ray is missing, the address has another form, or no node has room for a worker.
          OSError: the workers don't see the folder, or no cluster can be reached.
          ChildProcessError: several workers in a row were lost while they fixed the layouts.
        """
        if not (left := groups_left(plan, left_out)):
            return {}
        assert isinstance(store, FolderStore), "workers write into a folder"
        if self._study is not plan.study:
            # Ray forks processes, which is unsafe once JAX has started, so Ray must be started first.
            if self._pool:
                self._pool.close()
            self._open.enter_context(connection.connected(self._address, to_the_end=self._to_the_end))
            for group in left:
                # The workers check whether the runs fit into their memory.
                GroupProgram(plan.study, group, self._cache, device_memory=sys.maxsize).lower(1)
            own = FolderStore(
                store.folder, checkpoint_seconds=store.checkpoint_seconds, command=store.command
            )
            mark = self._open.enter_context(marked(store.folder))
            cache_dir = os.environ.get("PAUSEJAX_CACHE_DIR")
            arguments = (plan.study, self._cache.held, own, self._limits, mark, cache_dir)
            self._pool, self._study = Pool(arguments, self._cpus), plan.study
            self._open.callback(self._pool.close)
        task = Task("the layouts of the study", lambda actor, _: actor.layouts.remote(left))
        ((_, layouts),) = self._carry_out([task], lambda _: None, self._stopping)
        return {key: Layout(*layout) for key, layout in layouts.items()}

    def execute(
        self,
        plan: Plan,
        work: Sequence[Batch],
        store: Store,
        progress: Progress,
        stopping: StopSignal = NO_STOP,
    ) -> Iterator[Batch]:
        """Plays batches on the workers, which write the runs into the store's folder.

        Args:
          plan: the plan of the study.
          work: batches of the plan, without finished runs.
          store: the store of the result.
          progress: the function that is called with the number of rounds × runs advanced.
          stopping: the signal that asks the study to stop.

        Yields:
          Each batch whose runs have been written, or each written piece of it.

        Raises:
          StopRequested: the study was asked to stop.
          SpecError, PartError, OSError: a worker raised this error. `Executor.execute` names the causes.
          ChildProcessError: `_ATTEMPTS` workers were lost while they played one batch.
        """
        assert self._pool is not None
        groups = {batch.group.key: batch.group for batch in work}
        sent = {key: self._pool.put(group) for key, group in groups.items()}
        tasks = [self._task(plan, batch, sent[batch.group.key]) for batch in work]
        batches = dict(zip((task.number for task in tasks), work, strict=True))
        for task, status in self._carry_out(tasks, progress, stopping):
            batch = batches[task.number]
            _repeat(status.log)
            progress(len(batch.runs) * max(plan.study.rounds, 1) - task.played)
            events.finished(policies_of(batch.runs), len(batch.runs))
            store.damaged.extend(status.damaged)
            for runs in status.written:
                yield batch._replace(runs=runs)

    def _task(self, plan: Plan, batch: Batch, group: Any) -> Task:
        runs = batch.runs
        first = plan.runs.index(runs[0]) + 1
        words = f"policy {policies_of(runs)} ({len(runs)} runs, from run {first} of the study on)"

        def call(actor: Any, task: Task) -> Any:
            return actor.execute_batch.remote(
                task.number, group, runs, batch.largest_batch, task.attempts > 0
            )

        return Task(words, call, batch.group.key, next(self._numbers))

    def _carry_out(
        self, waiting: list[Task], progress: Progress, stopping: StopSignal
    ) -> Iterator[tuple[Task, Any]]:
        """Carries out tasks on the workers, and repeats a task whose worker is lost.

        Yields:
          Each task with its answer.
        """
        pool, asked = self._pool, time.monotonic()
        assert pool is not None
        while waiting or pool.working():
            if stopping.number is not None:
                pool.stop(stopping.number)
            stopping.check()
            for member in pool.idle()[: len(waiting)]:
                others = [other.task.key for other in pool.working()]
                member.task = task = waiting.pop(pick([one.key for one in waiting], member.groups, others))
                member.groups.add(task.key)
                member.answer = task.call(member.actor, task)
            for member, answer in pool.wait(_SECONDS_BETWEEN_QUESTIONS):
                ended, member.task = member.task, None
                if ended and isinstance(answer, Loss):
                    ended.note_loss(answer)
                    waiting.insert(0, ended)
                elif ended:
                    yield ended, answer
            if time.monotonic() - asked >= _SECONDS_BETWEEN_QUESTIONS:
                asked = time.monotonic()
                for member, status in pool.ask():
                    _repeat(status.log)
                    # The answer to a request for the status may arrive during the next task.
                    if status.task == member.task.number:
                        progress(status.played - member.task.played)
                        member.task.played = status.played


def pick(waiting: Sequence[str], own: set[str], others: Sequence[str]) -> int:
    """Returns the index in `waiting` of the task that a worker takes.

    The worker takes a task whose program it has compiled, if there is such a task. Among several groups, it
    takes a task of the group with the most waiting tasks per worker.

    Args:
      waiting: keys of the groups of the tasks, at least one.
      own: keys of groups whose program the worker has compiled.
      others: keys of the groups of the tasks of the other workers.
    """
    left, busy = collections.Counter(waiting), collections.Counter(others)
    mine = [key for key in left if key in own]
    return waiting.index(max(mine or left, key=lambda key: left[key] / (1 + busy[key])))


def _repeat(log: Sequence[tuple[str, str, Any]]) -> None:
    """Writes the events of a worker into the driver's log."""
    for event, sentence, fields in log:
        events.say(event, sentence, **fields)
