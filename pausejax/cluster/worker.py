"""The Ray actor that plays batches on its own devices and writes them into the study's folder."""

import collections
import contextlib
import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

import jax

from pausejax.data.host import Sources
from pausejax.execution import memory
from pausejax.execution.batches import Batch, unfinished
from pausejax.execution.events import LOGGER
from pausejax.execution.local import LocalExecutor
from pausejax.execution.runtime import set_up_jax
from pausejax.execution.stopping import StopRequested, StopSignal
from pausejax.results import store
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore
from pausejax.study.runs import Group, Run
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError
from pausejax.study.study import Plan

T = TypeVar("T")

_SECONDS_TO_SEE_THE_FOLDER = 10
_MOST_SAID = 1000


class Slot(NamedTuple):
    """Room for one worker on a node."""

    node: str
    """Ray's name of the node."""
    number: int
    """Among the slots of the node, from 0."""
    neighbours: int
    """Slots of the node, this one included."""
    cpus: int
    gpus: int


class Job(NamedTuple):
    """What every worker of a study is given, except the plan and the data."""

    location: str
    """Of the study's folder."""
    lanes: int | None
    """The most runs side by side."""
    device_memory: int | None
    """Bytes that a program may use on each device; None: what there is."""
    data_placement: str | None
    checkpoint_seconds: float
    """Between two checkpoints of a batch."""
    command: str
    """What was typed to have the study played."""
    cache_dir: str | None
    """Where the driver keeps compiled programs, if it was told where."""
    mark: str
    """A file that the driver has put into the folder: workers look for it, and know the folder by it."""
    settled: frozenset[str] = frozenset()
    """Identities of the runs that were in the result before anybody began."""


RunsOfPlan = tuple[tuple[Run, ...], tuple[Group, ...]]
"""Another plan of the same study in short: workers have the study, and hold programs for that very one."""


class Assignment(NamedTuple):
    """A batch in short: workers have the plan."""

    group: int
    """The group's place in the plan."""
    positions: tuple[int, ...]
    """Of the runs in the group."""
    width: int
    """Of the batch."""
    runs_of_plan: RunsOfPlan | None = None
    """Of the plan of which it is a batch; None: the worker's own."""


class Said(NamedTuple):
    """What an executor has said, as `events.say` takes it."""

    event: str
    sentence: str
    fields: Mapping[str, Any]


class Report(NamedTuple):
    """What a worker answers when it is done with a batch."""

    written: tuple[tuple[int, ...], ...]
    """Positions in the group of the runs that it has written, part by part."""
    said: tuple[Said, ...] = ()
    """What its executor has said since it was last asked."""
    damaged: tuple[str, ...] = ()
    """Checkpoints that it could not trust."""


class News(NamedTuple):
    """How far a worker is."""

    assignment: Assignment | None
    """The latest batch that it has begun."""
    played: float
    """Rounds × runs of that batch, those that were finished before the study began left out."""
    said: tuple[Said, ...] = ()
    """What its executor has said since it was last asked."""


class Ear(logging.Handler):
    """Keeps what is said for the driver's log; which runs are finished the driver knows by itself."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self._name = name
        self._heard: collections.deque[Said] = collections.deque(maxlen=_MOST_SAID)

    @classmethod
    def of(cls, slot: Slot) -> Self:
        """With the name of a worker."""
        return cls(f"{socket.gethostname()}, worker {slot.number + 1}")

    def emit(self, record: logging.LogRecord) -> None:
        event, fields = getattr(record, "event", ""), getattr(record, "fields", {})
        # In a driver's own process it would hear the driver repeat it.
        if event and event != "batch" and "worker" not in fields:
            sentence = f"{self._name}: {record.getMessage()}"
            self._heard.append(Said(event, sentence, {**fields, "worker": self._name}))

    def heard(self) -> tuple[Said, ...]:
        """What has been said since this was last asked."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._heard.popleft())
        return tuple(found)


class Worker:
    """Plays batches one after the other; each group's program is compiled once in its life.

    Mistakes of the user's and what the disk refuses come back as values: they end the study, whereas an
    exception counts against the worker. `news` and `stop` are called while `play` runs in another thread.
    """

    def __init__(self, plan: Plan, held: Mapping[Hashable, Any], job: Job, slot: Slot) -> None:
        self._plan, self._held, self._job, self._slot = plan, held, job, slot
        folder = Folder(job.location)
        self._store = FolderStore(folder, checkpoint_seconds=job.checkpoint_seconds, command=job.command)
        self._executor: LocalExecutor | None = None
        self._is_fixed = False
        """Whether it knows the layouts of its own plan."""
        self._far: tuple[Assignment | None, float] = None, 0.0
        self._ear = Ear.of(slot)
        self._stopping = StopSignal()

    def begin(self) -> Exception | None:
        """Sets JAX up, and makes sure that the folder is the driver's."""
        set_up_worker(self._slot, self._job.cache_dir, self._ear)
        deadline = time.monotonic() + _SECONDS_TO_SEE_THE_FOLDER
        while not self._store.folder.exists(self._job.mark):
            if time.monotonic() > deadline:
                host = socket.gethostname()
                return OSError(
                    f"--out {self._job.location}: the worker on {host} does not see this folder; "
                    "with --executor ray it must be on a file system that all nodes share, or a URL"
                )
            time.sleep(0.5)
        return None

    def layouts(self, sent: RunsOfPlan | None = None) -> dict[str, Layout] | Exception:
        """Fixes how a plan's groups lie on devices such as its own, by the keys of the groups."""
        settled = () if sent else self._job.settled
        return or_mistake(lambda: self._playing().layouts(self._plan_of(sent), self._store, settled))

    def play(self, assignment: Assignment, again: bool) -> Report | Exception:
        """Plays a batch and writes it down.

        Args:
          assignment: without the runs that were finished when the driver began.
          again: another worker has died at it, and may have finished some of it.
        """
        return or_mistake(lambda: self._play(assignment, again))

    def _play(self, assignment: Assignment, again: bool) -> Report:
        sent = assignment.runs_of_plan
        plan, executor = self._plan_of(sent), self._playing()
        group = plan.groups[assignment.group]
        if sent or not self._is_fixed:
            executor.layouts(plan, self._store, () if sent else self._job.settled)
            self._is_fixed = self._is_fixed or not sent
        runs = tuple(group.runs[position] for position in assignment.positions)
        left = [Batch(group, runs, assignment.width)]
        if again:
            left = unfinished(left, store.examine(self._store.folder, plan).identities)
        done = len(runs) - sum(len(rest.runs) for rest in left)
        self._far = assignment, done * max(plan.study.rounds, 1)
        places = dict(zip(map(id, runs), assignment.positions, strict=True))
        written = []
        with contextlib.suppress(StopRequested):  # what is in flight has been kept
            for piece in executor.play(plan, left, self._store, self._advance, self._stopping):
                written.append(tuple(places[id(run)] for run in piece.runs))
        damaged, self._store.damaged = tuple(self._store.damaged), []
        return Report(tuple(written), self._ear.heard(), damaged)

    def news(self) -> News:
        """How far it is, and what its executor has said meanwhile."""
        return News(*self._far, self._ear.heard())

    def stop(self, number: int) -> None:
        """Has it keep what is in flight and stop playing, as a signal of this number asks a process to do."""
        self._stopping.note(number, None)

    def finish(self, sent: RunsOfPlan | None = None) -> int | Exception:
        """Puts the result together, labelled with what it was played on; how many runs are missing."""
        return or_mistake(lambda: self._store.finish(self._plan_of(sent)))

    def _advance(self, rounds_times_runs: float) -> None:
        assignment, played = self._far
        self._far = assignment, played + rounds_times_runs

    def _plan_of(self, sent: RunsOfPlan | None) -> Plan:
        return Plan(self._plan.study, *sent) if sent else self._plan

    def _playing(self) -> LocalExecutor:
        """Its executor, which plays as the first worker with such devices has fixed it."""
        if self._executor is None:
            self._executor = LocalExecutor(
                Sources(held=self._held),
                lanes=self._job.lanes,
                device_memory=self._memory(),
                data_placement=self._job.data_placement,
            )
        return self._executor

    def _memory(self) -> int | None:
        """What a program may use on each device; workers without a GPU share their node's memory."""
        if self._job.device_memory or self._slot.gpus:
            return self._job.device_memory
        return memory.device_memory() // self._slot.neighbours


def set_up_worker(slot: Slot, cache_dir: str | None, ear: Ear) -> None:
    """Sets JAX up in a worker's process, and lets an ear hear what is said in it."""
    LOGGER.addHandler(ear)
    LOGGER.setLevel(logging.INFO)
    if cache_dir:
        os.environ["PAUSEJAX_CACHE_DIR"] = cache_dir
    if not slot.gpus:
        jax.config.update("jax_platforms", "cpu")
    set_up_jax(slot.cpus)


def or_mistake(work: Callable[[], T]) -> T | Exception:
    """Returns what comes of some work, or what would end a study on one machine, in a form that travels."""
    try:
        return work()
    except SpecError as error:
        return _travelling(SpecError(error.problems), error)
    except ValueError as error:
        return _travelling(ValueError(str(error)), error)
    except OSError as error:
        return _travelling(OSError(str(error)), error)


def _travelling(copy: Exception, error: Exception) -> Exception:
    """Returns the copy with the traceback as a note: it would not go from process to process by itself."""
    copy.add_note(f"on the worker {socket.gethostname()}:\n{''.join(traceback.format_exception(error))}")
    return copy
