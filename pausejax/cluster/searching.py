"""A search on a Ray cluster: the driver decides and keeps, workers play blocks of lanes.

A block belongs to one worker. The search does not depend on which, how many there are, or who is faster:
the driver waits for all of a step, and a block whose worker has died is played again from its beginning
elsewhere.
"""

import contextlib
import os
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pausejax.cluster import pool as workers
from pausejax.cluster.driver import Cluster
from pausejax.cluster.pool import Lost, Member, Pool
from pausejax.cluster.worker import Ear, Said, Slot, or_mistake, set_up_worker
from pausejax.data.host import Sources
from pausejax.engine import events
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.searches.goal import Goal
from pausejax.searches.journal import Reports
from pausejax.searches.options import Options
from pausejax.searches.player import LocalPlayer, Order
from pausejax.searches.programs import Cut, Programs
from pausejax.searches.space import Space
from pausejax.study.simulation import Arrays

_ATTEMPTS = 5
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_THE_OTHERS = 60.0


class Answer(NamedTuple):
    """What a worker says."""

    value: Any
    said: tuple[Said, ...]
    """What its engine has said since it was last asked."""


class SearchWorker:
    """Plays blocks of lanes on its own devices; mistakes of the user's come back as values."""

    def __init__(
        self,
        space: Space,
        goal: Goal,
        options: Options,
        held: Mapping[Hashable, Any],
        cache_dir: str | None,
        slot: Slot,
    ) -> None:
        self._cache_dir, self._slot = cache_dir, slot
        self._space, self._goal, self._options, self._held = space, goal, options, held
        self._ear = Ear.of(slot)
        self._player: LocalPlayer | None = None

    def begin(self) -> None:
        """Sets JAX up."""
        set_up_worker(self._slot, self._cache_dir, self._ear)

    def cut(self) -> Answer | Exception:
        """How the lanes of the search are cut."""
        return or_mistake(lambda: self._answer(self._playing().cut()))

    def play(self, orders: Sequence[Order], open_blocks: frozenset[int]) -> Answer | Exception:
        """A step of some blocks."""
        return or_mistake(lambda: self._answer(self._playing().play(orders, open_blocks)))

    def arrays(self, leaving: Sequence[tuple[Order, int]], open_blocks: frozenset[int]) -> Answer | Exception:
        """What the runs of some settings have left."""
        return or_mistake(lambda: self._answer(self._playing().arrays(leaving)))

    def _playing(self) -> LocalPlayer:
        if self._player is None:
            programs = Programs(self._space, Sources(held=self._held), self._options)
            self._player = LocalPlayer(self._goal, programs, self._options, shared=True)
        return self._player

    def _answer(self, value: Any) -> Answer:
        return Answer(value, self._ear.heard())


@contextlib.contextmanager
def player(
    space: Space,
    goal: Goal,
    options: Options,
    sources: Sources,
    *,
    cluster: Cluster,
    stopping: Stopping = NEVER,
) -> Iterator["RayPlayer"]:
    """The workers of a Ray cluster as a player.

    Raises:
      SpecError: a program can't be built.
      ValueError: Ray is missing, the address is none, or no node has room for a worker.
      ConnectionError: no cluster can be reached.
    """
    # Ray starts processes by forking, which JAX does not like once it has begun: so Ray comes first.
    with workers.connected(cluster.address, to_the_end=cluster.to_the_end):
        Programs(space, sources, options).check()
        arguments = (space, goal, options, sources.held, os.environ.get("PAUSEJAX_CACHE_DIR"))
        pool = Pool(arguments, cluster.cpus_per_worker, SearchWorker)
        with contextlib.closing(pool):
            yield RayPlayer(pool, stopping)


class RayPlayer:
    """Has blocks played by the workers of a pool."""

    def __init__(self, pool: Pool, stopping: Stopping) -> None:
        self._pool, self._stopping = pool, stopping
        self._homes: dict[int, Member] = {}
        self._attempts: dict[int, int] = {}

    def cut(self) -> Cut:
        """As the first worker that comes up says."""
        (cut,) = self._carry_out("cut", {-1: None})
        del self._homes[-1]
        return Cut(*cut)

    def play(self, orders: Sequence[Order], open_blocks: frozenset[int] | None = None) -> Reports:
        """As `searches.player.Player` says."""
        work = {order.block: order for order in orders}
        self._homes = {block: member for block, member in self._homes.items() if block in work}
        found: dict[int, Any] = {}
        for reports in self._carry_out("play", work):
            found |= reports
        # In the order of the seats, whoever answered first.
        numbers = [seat.number for order in orders for seat in order.seats if seat]
        return {number: found[number] for number in numbers if number in found}

    def arrays(self, leaving: Sequence[tuple[Order, int]]) -> dict[int, Arrays]:
        """As `searches.player.Player` says."""
        work: dict[int, list[tuple[Order, int]]] = {}
        for order, number in leaving:
            work.setdefault(order.block, []).append((order, number))
        found: dict[int, Arrays] = {}
        for arrays in self._carry_out("arrays", work):
            found |= arrays
        return {number: found[number] for _, number in leaving}

    def _carry_out(self, method: str, work: Mapping[int, Any]) -> list[Any]:
        """Has something done for some blocks, each by its worker; the answers, in no order."""
        waiting, answers = dict(work), []
        self._attempts.clear()
        self._wait_for_workers()
        while waiting or self._pool.working():
            self._stopping.check()
            self._find_homes(waiting)
            for member in self._pool.idle():
                own = [block for block in waiting if self._homes.get(block) is member]
                if own:
                    member.task = {block: waiting.pop(block) for block in own}
                    member.answer = self._asked(member, method, member.task)
            for member, answer in self._pool.wait(_SECONDS_BETWEEN_LOOKS):
                task, member.task = member.task, None
                if task is None:
                    continue
                if isinstance(answer, Lost):
                    self._count_attempts(task, answer)
                    self._homes = {b: home for b, home in self._homes.items() if home is not member}
                    waiting |= task
                else:
                    answers.append(_value(answer))
        return answers

    def _asked(self, member: Member, method: str, task: Mapping[int, Any]) -> Any:
        if method == "cut":
            return member.actor.cut.remote()
        payload = list(task.values())
        if method == "arrays":
            payload = [one for part in payload for one in part]
        return getattr(member.actor, method).remote(payload, frozenset(self._homes))

    def _find_homes(self, waiting: Mapping[int, Any]) -> None:
        """Gives blocks without a worker to those that have fewest."""
        members = self._pool.ready()
        self._homes = {block: home for block, home in self._homes.items() if home in members}
        for block in waiting:
            if members and block not in self._homes:
                counts = [sum(home is member for home in self._homes.values()) for member in members]
                self._homes[block] = members[counts.index(min(counts))]

    def _wait_for_workers(self) -> None:
        """Until the slots have their workers, as blocks stay where they begin; for slow ones not for ever."""
        begun = time.monotonic()
        while not self._homes and len(ready := self._pool.ready()) < len(self._pool.slots):
            self._stopping.check()
            if ready and time.monotonic() - begun > _SECONDS_FOR_THE_OTHERS:
                return
            self._pool.wait(_SECONDS_BETWEEN_LOOKS)

    def _count_attempts(self, blocks: Mapping[int, Any], lost: Lost) -> None:
        for block in blocks:
            self._attempts[block] = self._attempts.get(block, 0) + 1
            if self._attempts[block] == _ATTEMPTS:
                what = f"{_ATTEMPTS} workers in a row were lost at it; the last: {lost.reason}"
                raise ChildProcessError(f"a step of the search: {what}")


def _value(answer: Any) -> Any:
    """A worker's answer.

    Raises:
      ValueError, OSError: what the worker met; it would have ended a search on one machine as well.
    """
    if isinstance(answer, Exception):
        raise answer
    for one in answer.said:
        events.say(one.event, one.sentence, **one.fields)
    return answer.value
