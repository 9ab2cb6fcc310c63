"""A study on a Ray cluster: units are tasks of a pool of workers, which write into the shared folder.

The driver keeps nothing that the folder does not: the same command goes on where a dead one was.
"""

import collections
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pausejax.cluster import pool as workers
from pausejax.cluster.pool import Lost, Member, Pool
from pausejax.cluster.worker import Job, Report, Said
from pausejax.data.host import Sources
from pausejax.engine import events, schedule
from pausejax.engine.engine import Engine, Progress
from pausejax.engine.local import Outcome, Settings, places, tell
from pausejax.engine.schedule import Unit
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.engine.tracking import Tracker
from pausejax.results import layout, store
from pausejax.results.folder import Folder
from pausejax.study.study import Group, Plan

_UNITS_PER_WORKER = 4
_ATTEMPTS = 5
_SECONDS_BETWEEN_QUESTIONS = 1.0


class Cluster(NamedTuple):
    """Where the workers are."""

    address: str | None = None
    """HOST:PORT, "auto", or "local"; None: $RAY_ADDRESS, or a Ray of its own on this machine."""
    cpus_per_worker: int | None = None
    """None: all cores of a node; beside a GPU one."""
    to_the_end: bool = False
    """Whether the connection stays until the process ends; see `pool.connected`."""


@dataclasses.dataclass
class Task:
    """A unit, or with None the result that is put together in the end, and what has come of it."""

    unit: Unit | None
    attempts: int = 0
    played: int = 0
    """Rounds × runs that have been reported."""


def simulate_into(
    folder: Folder,
    plan: Plan,
    found: store.Progress,
    sources: Sources,
    settings: Settings,
    *,
    progress: Progress,
    tracker: Tracker | None = None,
    stopping: Stopping = NEVER,
    cluster: Cluster = Cluster(),  # noqa: B008, a constant
) -> Outcome:
    """Simulates a study's missing runs on a Ray cluster; otherwise as `study.simulate_into`.

    A unit whose worker or node dies goes to another one, which begins at what was finished or kept of it.

    Raises:
      SpecError: a group can't be built; nothing has been simulated then.
      ValueError: Ray is missing, the address is none, no node has room for a worker, or the tracker can't be
        reached.
      OSError: the folder is full or the workers don't see it, no cluster can be reached, or a unit's worker
        has died time and again.
    """
    already = places(plan, found.identities)
    progress(len(already) * max(plan.study.rounds, 1))
    told: set[int] = set()

    def finish(report: Report) -> None:
        for members, result in report.told:
            told.update(members)
            if tracker:
                tracker.runs_finished(result)

    # Ray starts processes by forking, which JAX does not like once it has begun: so Ray comes first.
    connection = workers.connected(cluster.address, to_the_end=cluster.to_the_end)
    with contextlib.nullcontext() if found.current else connection:
        if tracker:
            tracker.start(layout.provenance(plan))
        if found.current:
            missing = store.consolidate(folder, plan)
        else:
            left = [group for group in plan.groups if not already.issuperset(group.members)]
            check(plan, left, sources)
            held = sources.held
            location, cache_dir = folder.path(), os.environ.get("PAUSEJAX_CACHE_DIR")
            job = Job(location, settings, cache_dir, tracker is not None, found.settled)
            with contextlib.closing(Pool((plan, held, job), cluster.cpus_per_worker)) as pool:
                driver = _Driver(pool, plan, found.identities, progress, finish, stopping)
                missing = driver.study(found, settings)
    if tracker:
        # Those that were there before, and those whose workers died before they could tell.
        tell(tracker, folder, () if missing else set(range(len(plan.runs))) - told)
        tracker.finish()
    return Outcome(len(already), missing, found.damaged)


def check(plan: Plan, groups: Sequence[Group], sources: Sources) -> None:
    """Traces the programs of some groups, so that what can't be built is refused at once.

    Raises:
      SpecError: a group can't be built, or its policy refuses the network.
    """
    engine = Engine(plan, sources)
    for group in groups:
        engine.lower(group, 1)


def pick(waiting: Sequence[Unit], own: set[int], others: Sequence[int]) -> int:
    """Which unit a worker takes: one whose program it has, else one of the group that lacks workers most.

    Args:
      waiting: the units, at least one.
      own: groups, named by `group_of`, whose program the worker has compiled.
      others: the groups that other workers are at.
    """
    left = collections.Counter(map(group_of, waiting))
    busy = collections.Counter(others)
    mine = [group for group in left if group in own]
    group = max(mine or left, key=lambda group: left[group] / (1 + busy[group]))
    return next(place for place, unit in enumerate(waiting) if group_of(unit) == group)


def group_of(unit: Unit) -> int:
    """A short name of a unit's group."""
    return unit.group.number


class _Driver:
    """Hands tasks to the workers of a pool and counts what comes back."""

    def __init__(
        self,
        pool: Pool,
        plan: Plan,
        finished: frozenset[str],
        progress: Progress,
        finish: Callable[[Report], None],
        stopping: Stopping,
    ) -> None:
        self._pool, self._plan, self._finished = pool, plan, finished
        self._progress, self._finish, self._stopping = progress, finish, stopping

    def study(self, found: store.Progress, settings: Settings) -> int:
        """Has every unit simulated and then the result put together; how many runs are missing."""
        most = self._settled()
        count = _UNITS_PER_WORKER * len(self._pool.slots)
        units = schedule.units(self._plan, found.settled, most=most, at_least=count)
        self._carry_out([Task(unit) for unit in schedule.unfinished(self._plan, units, self._finished)])
        return self._carry_out([Task(None)])

    def _settled(self) -> dict[int, int]:
        """Has the worker that comes up first decide how the study lies on such devices as its own.

        Raises:
          ChildProcessError: it, and several after it, are lost at that.
        """
        asked, attempts = None, 0
        while True:
            self._stopping.check()
            if asked is None and (idle := self._pool.idle()):
                asked, attempts = idle[0], attempts + 1
                asked.answer = asked.actor.settle.remote()
            for member, answer in self._pool.wait(_SECONDS_BETWEEN_QUESTIONS):
                if not isinstance(answer, Lost):
                    found = _value(answer)
                    if member is asked:
                        return found
                elif member is asked:
                    asked = None
                    if attempts == _ATTEMPTS:
                        raise ChildProcessError(f"{attempts} workers in a row were lost: {answer.reason}")

    def _carry_out(self, waiting: list[Task]) -> Any:
        """Has some tasks done, each as often as it takes; the last answer."""
        pool, last, asked = self._pool, None, time.monotonic()
        while waiting or pool.working():
            self._stopping.check()
            for member in pool.idle()[: len(waiting)]:
                self._hand_over(member, waiting)
            for member, answer in pool.wait(_SECONDS_BETWEEN_QUESTIONS):
                task, member.task = member.task, None
                if task is not None and isinstance(answer, Lost):
                    self._count_attempt(task, answer)
                    waiting.insert(0, task)
                elif not isinstance(answer, Lost):
                    last = _value(answer)
                    if task and task.unit:
                        self._report(task, self._rounds(task.unit))
                        self._finish(last)
                        _repeat(last.said)
                        members = task.unit.group.members
                        events.finished(self._plan.runs[members[0]].policy, len(task.unit.rows))
            if time.monotonic() - asked >= _SECONDS_BETWEEN_QUESTIONS:
                asked = time.monotonic()
                for member, news in pool.ask():
                    _repeat(news.said)
                    if member.task.unit:
                        self._report(member.task, news.played)
        return last

    def _hand_over(self, member: Member, waiting: list[Task]) -> None:
        units = [task.unit for task in waiting if task.unit]
        others = [group_of(other.task.unit) for other in self._pool.working() if other.task.unit]
        member.task = task = waiting.pop(pick(units, member.groups, others) if units else 0)
        if task.unit is None:
            member.answer = member.actor.consolidate.remote()
            return
        member.groups.add(group_of(task.unit))
        member.answer = member.actor.simulate.remote(task.unit, task.attempts > 0)

    def _rounds(self, unit: Unit) -> int:
        """Rounds × runs that a unit comes to."""
        return len(unit.rows) * max(self._plan.study.rounds, 1)

    def _report(self, task: Task, played: int) -> None:
        self._progress(played - task.played)
        task.played = played

    def _count_attempt(self, task: Task, lost: Lost) -> None:
        task.attempts += 1
        if task.attempts < _ATTEMPTS:
            return
        what = "the result"
        if task.unit:
            members = task.unit.group.members
            first, last = members[task.unit.rows[0]], members[task.unit.rows[-1]]
            what = f"policy {self._plan.runs[first].policy} (runs {first + 1} to {last + 1} of the study)"
        lost_workers = f"{task.attempts} workers in a row were lost at it"
        raise ChildProcessError(f"{what}: {lost_workers}; the last: {lost.reason}")


def _repeat(said: Sequence[Said]) -> None:
    """What a worker's engine has said, for the study's log."""
    for one in said:
        events.say(one.event, one.sentence, **one.fields)


def _value(answer: Any) -> Any:
    """A worker's answer.

    Raises:
      ValueError, OSError: what the worker met; it would have ended a study on one machine as well.
    """
    if isinstance(answer, Exception):
        raise answer
    return answer
