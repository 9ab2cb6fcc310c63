"""The workers of a Ray cluster as their driver sees them: one in every slot, a new one where one has died."""

import collections
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pausejax.cluster.connection import installed
from pausejax.cluster.worker import Slot, Status, Worker

_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_WITHOUT_A_NODE = 300.0
# A worker that does not come up is tried again where it was, then again later, and so on.
_RETRY_SECONDS = (0.0, 5.0, 20.0, 60.0)
# Batch systems warn two minutes before they kill.
_SECONDS_TO_KEEP = 60.0


class Loss(NamedTuple):
    """The answer of a worker that died, or that failed in a way that no input explains."""

    reason: str
    cause: Exception | None = None
    """Ray's own error, with the worker's traceback if it had one."""


class Member:
    """One worker of the pool."""

    def __init__(self, actor: Any, slot: Slot) -> None:
        self.actor, self.slot = actor, slot
        self.answer: Any = actor.begin.remote()
        """What it works on; None: nothing."""
        self.question: Any = None
        """An unanswered question how far it is."""
        self.ready = False
        self.groups: set[str] = set()
        """Keys of the groups whose programs it has compiled."""
        self.task: Any = None
        """The caller's."""


def find_slots(nodes: Sequence[Mapping[str, Any]], cpus: int | None, *, gpus: bool) -> list[Slot]:
    """Returns the room for workers: one per GPU, or one per so many cores.

    Args:
      nodes: from `ray.nodes()`.
      cpus: of each worker; None: a node's all, or one beside a GPU.
      gpus: whether workers need a GPU.
    """
    slots: list[Slot] = []
    for node in nodes:
        resources = node["Resources"] if node["Alive"] else {}
        cores, cards = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        each = cpus or (min(cores, 1) if gpus else cores)
        count = cores // each if each else cards
        count = min(count, cards) if gpus else count
        slots += [Slot(node["NodeID"], number, count, each, int(gpus)) for number in range(count)]
    return slots


class Pool:
    """Keeps a worker in every slot of the cluster that it is connected to.

    Args:
      arguments: of every worker, its slot left out.
      cpus: of each worker, as in `find_slots`.

    Raises:
      ValueError: no node has room for a worker.
    """

    def __init__(self, arguments: Sequence[Any], cpus: int | None) -> None:
        self._ray = ray = installed()
        self._arguments, self._cpus = [ray.put(argument) for argument in arguments], cpus
        self._members: list[Member] = []
        self._failures: collections.Counter[Slot] = collections.Counter()
        self._not_before: dict[Slot, float] = {}
        self._looked = self._seen = time.monotonic()
        nodes = ray.nodes()
        self._gpus = any(node["Alive"] and node["Resources"].get("GPU", 0) >= 1 for node in nodes)
        self.slots = find_slots(nodes, cpus, gpus=self._gpus)
        if not self.slots:
            most = max((int(n["Resources"].get("CPU", 0)) for n in nodes if n["Alive"]), default=0)
            wanted = f"--cpus-per-worker {cpus}" if cpus else "--executor ray"
            raise ValueError(f"{wanted}: no node of the Ray cluster has room; the most cores of any: {most}")
        self._fill()

    def close(self) -> None:
        """Ends the workers."""
        for member in self._members:
            self._ray.kill(member.actor)
        self._members.clear()

    def put(self, value: Any) -> Any:
        """Puts an argument of several calls where all nodes find it."""
        return self._ray.put(value)

    def idle(self) -> list[Member]:
        """Returns the workers that wait for something to do."""
        return [member for member in self._members if member.ready and member.answer is None]

    def working(self) -> list[Member]:
        """Returns the workers that have a task."""
        return [member for member in self._members if member.task is not None]

    def wait(self, seconds: float) -> list[tuple[Member, Any]]:
        """Waits until something happens, at most so long; keeps the pool filled meanwhile.

        Returns:
          Workers and what they answered: to `begin`, or to what the caller has put into `answer`; a `Loss`
          from those that are gone.

        Raises:
          ConnectionError: the cluster has had no room for minutes, or no worker comes up.
          ValueError, OSError: what a worker met, as a study on one machine would have.
        """
        if time.monotonic() - self._looked > _SECONDS_BETWEEN_LOOKS:
            self._look()
        by_answer = {member.answer: member for member in self._members if member.answer is not None}
        if not by_answer:
            time.sleep(seconds)
            return []
        answers = []
        done, _ = self._ray.wait(list(by_answer), num_returns=1, timeout=seconds)
        for reference in done:
            member = by_answer[reference]
            member.answer = None
            answer = self._get(reference)
            if isinstance(answer, Loss):
                self._drop(member, answer)
            else:
                member.ready = True
                self._failures[member.slot] = 0
            answers.append((member, answer))
        return answers

    def ask(self) -> list[tuple[Member, Status]]:
        """Returns how far the working ones are, of those whose answer has come; never waits."""
        answers = []
        for member in self.working():
            if member.question is None:
                member.question = member.actor.status.remote()
            elif self._ray.wait([member.question], timeout=0)[0]:
                status = self._get(member.question)
                member.question = None
                if not isinstance(status, Loss):
                    answers.append((member, status))
        return answers

    def stop(self, number: int) -> None:
        """Has the working ones keep what is in flight, and waits for them; for a minute at most.

        Args:
          number: of the signal that asked for it.
        """
        for member in self.working():
            member.actor.stop.remote(number)
        deadline = time.monotonic() + _SECONDS_TO_KEEP
        while self.working() and time.monotonic() < deadline:
            with contextlib.suppress(ValueError, OSError):  # the study ends all the same
                self.wait(1.0)
            for member in self.working():
                if member.answer is None:
                    member.task = None

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ValueError | OSError):  # the user's mistake, or what the disk refuses
                raise error.cause from error
            return Loss(_reason(error), error)
        except self._ray.exceptions.RayError as error:
            return Loss(_reason(error), error)

    def _drop(self, member: Member, loss: Loss) -> None:
        self._ray.kill(member.actor)
        self._members.remove(member)
        slot = member.slot
        if not member.ready:
            self._failures[slot] += 1
            if all(self._failures[slot] >= len(_RETRY_SECONDS) for slot in self.slots):
                raise ConnectionError(f"no worker comes up on the Ray cluster: {loss.reason}") from loss.cause
        wait = _RETRY_SECONDS[min(self._failures[slot], len(_RETRY_SECONDS) - 1)]
        self._not_before[slot] = time.monotonic() + wait

    def _look(self) -> None:
        """Follows nodes that come and go."""
        now = self._looked = time.monotonic()
        self.slots = find_slots(self._ray.nodes(), self._cpus, gpus=self._gpus)
        if self.slots:
            self._seen = now
        elif now - self._seen > _SECONDS_WITHOUT_A_NODE:
            raise ConnectionError(f"the Ray cluster has had no node for {_SECONDS_WITHOUT_A_NODE:.0f} s")
        self._fill()

    def _fill(self) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        taken = {member.slot for member in self._members}
        for slot in self.slots:
            if slot in taken or time.monotonic() < self._not_before.get(slot, 0.0):
                continue
            actor = self._ray.remote(Worker).options(
                num_cpus=slot.cpus,
                num_gpus=slot.gpus,
                max_concurrency=2,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node, soft=False),
            )
            self._members.append(Member(actor.remote(*self._arguments, slot), slot))


def _reason(error: Exception) -> str:
    """Returns what Ray says at length, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("The actor is dead because")]
    line = (telling or lines[-1:] or [type(error).__name__])[0]
    return line if len(line) <= 300 else line[:297] + "..."
