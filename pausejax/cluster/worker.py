"""Ray actor that plays batches on its node's devices and writes them into the study's folder."""

import contextlib
import logging
import logging.handlers
import os
import queue
import socket
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from pausejax.data.host import DataCache
from pausejax.execution import memory
from pausejax.execution.batches import Batch, unfinished
from pausejax.execution.events import LOGGER
from pausejax.execution.local import LocalExecutor
from pausejax.execution.runtime import set_up_jax
from pausejax.execution.stopping import StopRequested, StopSignal
from pausejax.results import study_folder
from pausejax.results.stores import FolderStore
from pausejax.study.runs import Group, Run
from pausejax.study.simulation import Layout
from pausejax.study.study import Plan, Study

_SECONDS_TO_SEE_THE_FOLDER = 10


class Slot(NamedTuple):
    """Resources of a node for one worker."""

    node: str
    """Ray's identifier of the node."""
    number: int
    """The slot's number on the node, from 0."""
    neighbours: int
    """The number of slots of the node, this slot included."""
    cpus: int
    gpus: int


class Status(NamedTuple):
    """Progress of a worker."""

    task: int
    """The number of the task that the worker began last."""
    played: float
    """The rounds × runs of that task that were played. Runs finished before the driver began don't count."""
    log: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    """The events of the worker's executor since the last status, as arguments of `events.say`."""
    written: tuple[tuple[Run, ...], ...] = ()
    """The runs that the worker has written, one tuple for each written file; empty until the task is done."""
    damaged: tuple[str, ...] = ()
    """Names of damaged checkpoints."""


class Worker:
    """Worker that plays one batch at a time. It compiles each group's program once.

    `status` and `stop` are called while `execute_batch` runs in another thread.

    Args:
      study: the study of the batches.
      held: the data that the driver has read, by key, so that the worker opens no data files.
      store: the store of the study's result.
      limits: keyword arguments of `LocalExecutor`.
      mark: the name of a file that the driver has put into the folder.
      cache_dir: the driver's $PAUSEJAX_CACHE_DIR, or None if it is not set.
      slot: the worker's slot.
    """

    def __init__(
        self,
        study: Study,
        held: Mapping[Hashable, Any],
        store: FolderStore,
        limits: Mapping[str, Any],
        mark: str,
        cache_dir: str | None,
        slot: Slot,
    ) -> None:
        self._study, self._held, self._store, self._limits = study, held, store, limits
        self._mark, self._cache_dir, self._slot = mark, cache_dir, slot
        self._executor: LocalExecutor | None = None
        self._status = Status(-1, 0.0)
        self._name = f"{socket.gethostname()}, worker {slot.number + 1}"
        self._records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        self._stopping = StopSignal()

    def begin(self) -> None:
        """Sets JAX up, and checks that the worker sees the driver's folder.

        Raises:
          OSError: the file that the driver has put into its folder is not in the worker's folder.
        """
        LOGGER.addHandler(logging.handlers.QueueHandler(self._records))
        LOGGER.setLevel(logging.INFO)
        if self._cache_dir:
            os.environ["PAUSEJAX_CACHE_DIR"] = self._cache_dir
        if not self._slot.gpus:
            jax.config.update("jax_platforms", "cpu")
        set_up_jax(self._slot.cpus)
        deadline = time.monotonic() + _SECONDS_TO_SEE_THE_FOLDER
        while not self._store.folder.exists(self._mark):
            if time.monotonic() > deadline:
                raise OSError(
                    f"--out {self._store}: the worker on {socket.gethostname()} does not see this folder. "
                    "With --executor ray, it must be a URL or on a file system that all nodes share"
                )
            time.sleep(0.5)

    def layouts(self, groups: Sequence[Group]) -> dict[str, Layout]:
        """Fixes the layouts of some groups for the worker's kind of devices; returns them by group key."""
        return self._local_executor().layouts(Plan(self._study, (), tuple(groups)), self._store)

    def execute_batch(
        self, task: int, group: Group, runs: tuple[Run, ...], largest_batch: int, again: bool
    ) -> Status:
        """Plays a batch and writes its runs to the store.

        Args:
          task: the number of the task.
          group: the group of the batch.
          runs: the runs of the batch, without those that were finished when the driver began.
          largest_batch: the number of runs of the group's largest batch.
          again: whether another worker was lost while it played this batch. That worker may have finished
            some of the runs.

        Returns:
          The final status of the task.
        """
        plan = Plan(self._study, runs, (group,))
        self.layouts([group])
        work = [Batch(group, runs, largest_batch)]
        if again:
            work = unfinished(work, study_folder.examine(self._store.folder, plan).identities)
        left = sum(len(batch.runs) for batch in work)
        self._status = Status(task, (len(runs) - left) * max(self._study.rounds, 1))
        written = []
        with contextlib.suppress(StopRequested):  # the unfinished runs have been checkpointed
            for piece in self._local_executor().execute(
                plan, work, self._store, self._advance, self._stopping
            ):
                written.append(piece.runs)
        damaged, self._store.damaged = tuple(self._store.damaged), []
        return self.status()._replace(written=tuple(written), damaged=damaged)

    def status(self) -> Status:
        """Returns the worker's progress, with the events of its executor since the last call."""
        log = []
        with contextlib.suppress(queue.Empty):
            while True:
                record = self._records.get_nowait()
                event, fields = getattr(record, "event", "batch"), getattr(record, "fields", {})
                if event != "batch":  # the driver reports finished batches itself
                    sentence = f"{self._name}: {record.getMessage()}"
                    log.append((event, sentence, {**fields, "worker": self._name}))
        return self._status._replace(log=tuple(log))

    def stop(self, number: int) -> None:
        """Asks the worker to checkpoint its runs and stop, as the signal of this number would."""
        self._stopping.note(number, None)

    def _advance(self, rounds_times_runs: float) -> None:
        self._status = self._status._replace(played=self._status.played + rounds_times_runs)

    def _local_executor(self) -> LocalExecutor:
        """Returns the worker's executor. The first call makes the executor."""
        if self._executor is None:
            limits = dict(self._limits)
            if not (limits["device_memory"] or self._slot.gpus):  # workers of a node share its memory
                limits["device_memory"] = memory.device_memory() // self._slot.neighbours
            self._executor = LocalExecutor(DataCache(held=self._held), **limits)
        return self._executor
