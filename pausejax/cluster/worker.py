"""What runs in a Ray actor: one engine on its own devices, which writes finished chunks into the folder."""

import collections
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

import jax
import xarray as xr

from pausejax.data.host import Sources
from pausejax.engine import memory, schedule
from pausejax.engine.engine import Engine
from pausejax.engine.events import LOGGER
from pausejax.engine.local import Settings, labelled, play_into, settle
from pausejax.engine.runtime import set_up_jax
from pausejax.engine.schedule import Unit
from pausejax.results import layout, store
from pausejax.results.folder import Folder
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
    settings: Settings
    cache_dir: str | None
    """Where the driver keeps compiled programs, if it was told where."""
    tell: bool = False
    """Whether the driver wants to see finished runs, for a tracker."""
    settled: frozenset[str] = frozenset()
    """Identities of the runs that were in the result before anybody began."""


class Said(NamedTuple):
    """What an engine has said, as `events.say` takes it."""

    event: str
    sentence: str
    fields: Mapping[str, Any]


class Report(NamedTuple):
    """What a worker answers when it is done with a unit."""

    told: tuple[tuple[tuple[int, ...], xr.Dataset], ...]
    """Places in the plan's runs and their labelled result, if the driver wants to see them."""
    said: tuple[Said, ...] = ()
    """What its engine has said since it was last asked."""


class News(NamedTuple):
    """How far a worker is."""

    played: int
    """Rounds × runs of the latest unit, those that were finished before the study began left out."""
    said: tuple[Said, ...] = ()
    """What its engine has said since it was last asked."""


class Ear(logging.Handler):
    """Keeps what the engine says for the driver's log; which runs are finished the driver knows by itself."""

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
        if event and event != "chunk" and "worker" not in fields:
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
    """Simulates units one after the other; each group's program is compiled once in its life.

    Mistakes of the user's and what the disk refuses come back as values: they end the study, whereas an
    exception counts against the worker. `news` is asked for while `simulate` runs in another thread.
    """

    def __init__(self, plan: Plan, held: Mapping[Hashable, Any], job: Job, slot: Slot) -> None:
        self._plan = plan
        self._job = job
        self._slot = slot
        self._sources = Sources(held=held)
        self._folder = Folder(job.location)
        self._settled: tuple[Engine, dict[int, int]] | None = None
        self._played = 0
        self._ear = Ear.of(slot)

    def begin(self) -> Exception | None:
        """Sets JAX up, and makes sure that the folder is the driver's."""
        set_up_worker(self._slot, self._job.cache_dir, self._ear)
        deadline = time.monotonic() + _SECONDS_TO_SEE_THE_FOLDER
        while not self._folder.exists(store.SPEC):
            if time.monotonic() > deadline:
                host = socket.gethostname()
                return OSError(
                    f"--out {self._job.location}: the worker on {host} does not see this folder; "
                    "with --executor ray it must be on a file system that all nodes share, or a URL"
                )
            time.sleep(0.5)
        return None

    def settle(self) -> dict[int, int] | Exception:
        """Decides how the study lies on devices such as its own; the most runs side by side, by group."""
        return or_mistake(lambda: self._engine_and_most()[1])

    def simulate(self, unit: Unit, again: bool) -> Report | Exception:
        """Plays a unit and writes it down.

        Args:
          unit: of the plan, without the runs that were finished when the driver began.
          again: another worker has died at it, and may have finished some of it.
        """
        return or_mistake(lambda: self._simulate(unit, again))

    def _simulate(self, unit: Unit, again: bool) -> Report:
        plan, left = self._plan, [unit]
        if again:
            known = store.examine(self._folder, plan).identities
            left = schedule.unfinished(plan, left, known)
        done = len(unit.rows) - sum(len(rest.rows) for rest in left)
        self._played = done * max(plan.study.rounds, 1)
        (engine, _), told = self._engine_and_most(), []
        settings, columns = self._job.settings, layout.coordinates(plan)
        for chunk, arrays in play_into(self._folder, engine, left, settings, self._advance, []):
            if self._job.tell:
                members = tuple(chunk.group.members[row] for row in chunk.members)
                told.append((members, labelled(plan, columns, chunk, arrays)))
        return Report(tuple(told), self._ear.heard())

    def news(self) -> News:
        """How far it is, and what its engine has said meanwhile."""
        return News(self._played, self._ear.heard())

    def consolidate(self) -> int | Exception:
        """Puts the result together, labelled with what it was played on; how many runs are missing."""
        return or_mistake(lambda: store.consolidate(self._folder, self._plan))

    def _advance(self, rounds_times_runs: int) -> None:
        self._played += rounds_times_runs

    def _engine_and_most(self) -> tuple[Engine, dict[int, int]]:
        """Its engine, which plays as the first worker with such devices has settled it."""
        if self._settled is None:
            job, limit = self._job, self._memory()
            placement = job.settings.data_placement
            engine = Engine(self._plan, self._sources, device_memory=limit, data_placement=placement)
            self._settled = engine, settle(self._folder, engine, job.settled, job.settings)
        return self._settled

    def _memory(self) -> int | None:
        """What a program may use on each device; workers without a GPU share their node's memory."""
        if self._job.settings.device_memory or self._slot.gpus:
            return self._job.settings.device_memory
        return memory.device_memory() // self._slot.neighbours


def set_up_worker(slot: Slot, cache_dir: str | None, ear: Ear) -> None:
    """Sets JAX up in a worker's process, and lets an ear hear the engine."""
    LOGGER.addHandler(ear)
    LOGGER.setLevel(logging.INFO)
    if cache_dir:
        os.environ["PAUSEJAX_CACHE_DIR"] = cache_dir
    if not slot.gpus:
        jax.config.update("jax_platforms", "cpu")
    set_up_jax(slot.cpus)


def or_mistake(work: Callable[[], T]) -> T | Exception:
    """What comes of some work, or what would end a study on one machine, in a form that travels."""
    try:
        return work()
    except SpecError as error:
        return SpecError(error.problems)
    except ValueError as error:
        return ValueError(str(error))
    except OSError as error:
        return OSError(str(error))
