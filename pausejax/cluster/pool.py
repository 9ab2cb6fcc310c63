"""Manages the workers of a Ray cluster. Every slot of a node has one worker. A dead worker is replaced."""

import collections
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pausejax.cluster.connection import installed
from pausejax.cluster.worker import Slot, Status, Worker

_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_WITHOUT_A_NODE = 300.0
# Seconds before a slot gets a new worker, by the number of workers that failed to start in this slot.
_RETRY_SECONDS = (0.0, 5.0, 20.0, 60.0)
# Seconds in which workers checkpoint their runs. Batch systems send a signal two minutes before they kill a
# process.
_SECONDS_TO_KEEP = 60.0


class Loss(NamedTuple):
    """Answer of a worker that died, or that failed for a reason other than the user's input or the disk."""

    reason: str
    cause: Exception | None = None
    """Ray's error, with the worker's traceback if there is one."""


class Member:
    """Worker of the pool, with its slot, its task and its unanswered calls."""

    def __init__(self, actor: Any, slot: Slot) -> None:
        self.actor, self.slot = actor, slot
        self.answer: Any = actor.begin.remote()
        """Ray's reference of the answer to the worker's present call; None if the worker is idle."""
        self.question: Any = None
        """Ray's reference of a status that was requested and has not arrived; None if there is none."""
        self.ready = False
        self.groups: set[str] = set()
        """Keys of the groups whose programs the worker has compiled."""
        self.task: Any = None
        """The task that the caller gave the worker; None: no task."""


def find_slots(nodes: Sequence[Mapping[str, Any]], cpus: int | None, *, gpus: bool) -> list[Slot]:
    """Returns the slots for workers: one per GPU, or one per `cpus` cores.

    Args:
      nodes: the nodes, from `ray.nodes()`.
      cpus: the cores of each worker; None: all cores of a node, or one core beside a GPU.
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
    """Pool with a worker in every slot of the connected cluster.

    Args:
      arguments: the arguments of every `Worker`, without its slot.
      cpus: the cores of each worker; None: all cores of a node, or one core beside a GPU.

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
            raise ValueError(
                f"{wanted}: no node of the Ray cluster has room for a worker. "
                f"The largest node has {most} cores"
            )
        self._fill()

    def close(self) -> None:
        """Ends the workers."""
        for member in self._members:
            self._ray.kill(member.actor)
        self._members.clear()

    def put(self, value: Any) -> Any:
        """Stores an argument of several calls in Ray, and returns its reference for all nodes."""
        return self._ray.put(value)

    def idle(self) -> list[Member]:
        """Returns the workers that have answered `begin` and carry out no call."""
        return [member for member in self._members if member.ready and member.answer is None]

    def working(self) -> list[Member]:
        """Returns the workers that have a task."""
        return [member for member in self._members if member.task is not None]

    def wait(self, seconds: float) -> list[tuple[Member, Any]]:
        """Waits at most `seconds` for an answer of a worker, and fills empty slots.

        Returns:
          The workers that have answered, each with its answer. A new worker answers the call of `begin`, and
          any other worker the call whose reference the caller stored in `Member.answer`. The answer of a lost
          worker is a `Loss`.

        Raises:
          ConnectionError: the cluster has had no room for minutes, or no worker starts.
          ValueError, OSError: a worker raised this error because of the user's input or the disk.
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
        """Asks each worker with a task for its status, and returns each status that has arrived.

        It never waits.
        """
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
        """Asks the workers with a task to checkpoint their runs and stop, and waits at most a minute for
        them.

        Args:
          number: the number of the signal that asked the study to stop.
        """
        for member in self.working():
            member.actor.stop.remote(number)
        deadline = time.monotonic() + _SECONDS_TO_KEEP
        while self.working() and time.monotonic() < deadline:
            with contextlib.suppress(ValueError, OSError):  # the study ends in any case
                self.wait(1.0)
            for member in self.working():
                if member.answer is None:
                    member.task = None

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ValueError | OSError):  # an error in the user's input, or a disk error
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
                raise ConnectionError(f"no worker starts on the Ray cluster: {loss.reason}") from loss.cause
        wait = _RETRY_SECONDS[min(self._failures[slot], len(_RETRY_SECONDS) - 1)]
        self._not_before[slot] = time.monotonic() + wait

    def _look(self) -> None:
        """Updates the slots after nodes have joined or left the cluster.

        Raises:
          ConnectionError: the cluster has had no node for `_SECONDS_WITHOUT_A_NODE`.
        """
        now = self._looked = time.monotonic()
        self.slots = find_slots(self._ray.nodes(), self._cpus, gpus=self._gpus)
        if self.slots:
            self._seen = now
        elif now - self._seen > _SECONDS_WITHOUT_A_NODE:
            raise ConnectionError(
                f"the Ray cluster has had no node for {_SECONDS_WITHOUT_A_NODE:.0f} seconds"
            )
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
    """Returns the line of Ray's error that states the reason, with at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("The actor is dead because")]
    line = (telling or lines[-1:] or [type(error).__name__])[0]
    return line if len(line) <= 300 else line[:297] + "..."
