"""Defines the stores of finished runs: a study's folder, or memory."""

import contextlib
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import xarray as xr

from pausejax.analysis.eval_times import with_eval_elapsed
from pausejax.analysis.made import with_provenance
from pausejax.results import labels, parts, planned, study_folder
from pausejax.results.blocks import ExpectedRuns, StoredRuns
from pausejax.results.checkpoint import Checkpoint
from pausejax.results.description import CHECKPOINTS
from pausejax.results.exchange import LABELS
from pausejax.results.folder import Folder
from pausejax.results.layouts import Layouts
from pausejax.results.study_folder import Contents
from pausejax.study.runs import Run
from pausejax.study.simulation import Arrays
from pausejax.study.study import Plan

REPORTING = ".reporting"
"""The lock of the processes that report runs to a tracker."""


class Store:
    """Store of finished runs, and of the checkpoints of unfinished runs.

    Args:
      layouts: the layouts of the study's groups on devices.
    """

    def __init__(self, layouts: Layouts | None = None) -> None:
        self.layouts = layouts or Layouts()
        self.damaged: list[str] = []
        """Names of damaged checkpoints."""
        self._table: labels.RunTable | None = None

    def prepare(self, plan: Plan, *, grows: bool = False) -> Contents:
        """Checks that a plan may use the store, and returns the store's contents.

        Args:
          plan: the plan of the study.
          grows: whether the store may hold runs that the plan lacks. A search needs `grows`, because it does
            not know its runs in advance.

        Raises:
          SpecError: the store holds runs of another spec.
          OSError: the store can't be written to.
        """
        return Contents()

    def playing(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context. While it lasts, other processes know that this process plays batches."""
        return contextlib.nullcontext()

    def reporting(self, *, alone: bool = False) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which this process reports runs to a tracker.

        Args:
          alone: whether no other process may be in this context. This is needed to report runs that another
            process may report at the same time. The tracker then knows what the other process has reported.
        """
        return contextlib.nullcontext()

    def checkpoint(self, runs: Sequence[Run]) -> Checkpoint | None:
        """Opens the checkpoint of runs that are played together; returns None if the store has none."""
        return None

    def write(self, runs: Sequence[Run], arrays: Arrays, checkpoint: Checkpoint | None = None) -> None:
        """Stores finished runs, all or none of them, and removes their checkpoint."""
        raise NotImplementedError

    def note_written(self, runs: Sequence[Run]) -> None:
        """Records that this or another process has written these runs as one finished batch.

        `load` can then find the runs.
        """

    def load(self, runs: Sequence[Run]) -> Arrays:
        """Returns the recorded arrays of some finished runs, in the order of `runs`."""
        raise NotImplementedError

    def labelled(self, plan: Plan, runs: Sequence[Run]) -> Iterator[xr.Dataset]:
        """Yields labelled results that together hold some finished runs.

        Runs of different groups may have arrays of different shapes, so one data set can't hold all runs.

        Raises:
          OSError: the store no longer has some of these runs.
        """
        yield self._table_of(plan).label(runs, self.load(runs))

    def build_if_complete(self, plan: Plan) -> int:
        """Builds the result if every run of the plan is finished; returns the number of missing runs."""
        raise NotImplementedError

    def result(self, plan: Plan) -> xr.Dataset:
        """Returns the labelled result of a plan whose runs are all finished, loaded into memory."""
        raise NotImplementedError

    def discard(self) -> None:
        """Removes the finished runs that are in no result yet, and the checkpoints."""
        raise NotImplementedError

    def lost(self, plan: Plan, identities: Collection[str]) -> frozenset[str]:
        """Returns the entries of `identities` whose runs the store no longer holds."""
        return frozenset()

    def _table_of(self, plan: Plan) -> labels.RunTable:
        if self._table is None or self._table.plan is not plan:
            self._table = labels.RunTable.of(plan)
        return self._table


class FolderStore(Store):
    """Store in the folder of a study, on a disk or under a URL.

    Args:
      folder: the folder of the study.
      checkpoint_seconds: the seconds between two checkpoints of the runs that are played together.
      command: the command that plays the study, as it was typed. The result records the command.
    """

    def __init__(self, folder: Folder, *, checkpoint_seconds: float = 300.0, command: str = "") -> None:
        super().__init__(Layouts(folder))
        self.folder, self.checkpoint_seconds, self.command = folder, checkpoint_seconds, command
        self._prepared: tuple[Plan, Contents] | None = None
        self._grows = False
        self._begun = contextlib.ExitStack()
        self._stored: dict[str, tuple[StoredRuns, int]] = {}
        self._latest: tuple[StoredRuns, Arrays] | None = None

    def __str__(self) -> str:
        return str(self.folder)

    def prepare(self, plan: Plan, *, grows: bool = False) -> Contents:
        """Makes the folder, checks that a plan may use it, and returns its contents.

        Repeated calls for a plan return the first answer. Other processes know from now on that this process
        plays the plan. The next context of `playing` ends this when it ends.
        """
        if self._prepared is None or self._prepared[0] is not plan:
            found = study_folder.prepare(self.folder, plan, grows=grows, begun=self._begun)
            self._note(found.stored_runs)
            self._prepared, self._grows = (plan, found), grows
        return self._prepared[1]

    def note_written(self, runs: Sequence[Run]) -> None:
        assert self._prepared is not None
        expected = ExpectedRuns.of(self._prepared[0])
        self._note([parts.stored_in_part([run.identity for run in runs], self.folder, expected)])

    def load(self, runs: Sequence[Run]) -> Arrays:
        try:
            return self._load(runs)
        except (FileNotFoundError, KeyError):
            # Another process has written these runs or moved them into the result, so the contents are read
            # again.
            assert self._prepared is not None
            self._note(study_folder.examine(self.folder, self._prepared[0]).stored_runs)
            return self._load(runs)

    def _load(self, runs: Sequence[Run]) -> Arrays:
        found = [self._stored[run.identity] for run in runs]
        rows = [{name: array[row] for name, array in self._arrays(stored).items()} for stored, row in found]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def _note(self, stored_runs: Sequence[StoredRuns]) -> None:
        for stored in stored_runs:
            self._stored |= {name: (stored, row) for row, name in enumerate(stored.identities)}

    def _arrays(self, stored: StoredRuns) -> Arrays:
        """Returns the recorded arrays of the runs of one file or block. The latest arrays are cached."""
        if self._latest is None or self._latest[0] is not stored:
            self._latest = stored, stored.load()
        return self._latest[1]

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        with parts.playing(self.folder):
            self._begun.close()  # the lock that `prepare` has taken
            yield

    @contextlib.contextmanager
    def reporting(self, *, alone: bool = False) -> Iterator[None]:
        with self.folder.lock(REPORTING, shared=not alone):
            try:
                yield
            finally:
                if alone:
                    self.folder.remove(REPORTING)

    def checkpoint(self, runs: Sequence[Run]) -> Checkpoint:
        return Checkpoint(self.folder, [run.identity for run in runs], self.checkpoint_seconds)

    def write(self, runs: Sequence[Run], arrays: Arrays, checkpoint: Checkpoint | None = None) -> None:
        provenance = labels.provenance(self.command)
        parts.write_part(self.folder, [run.identity for run in runs], arrays, provenance)
        if checkpoint:
            if checkpoint.damaged:
                self.damaged.append(checkpoint.place)
            checkpoint.remove()

    def labelled(self, plan: Plan, runs: Sequence[Run]) -> Iterator[xr.Dataset]:
        by_part: dict[str, list[Run]] = {}
        for run in runs:
            stored = self._stored.get(run.identity)
            by_part.setdefault(stored[0].file if stored else "", []).append(run)
        in_result = by_part.pop("", [])
        for some in by_part.values():
            try:
                arrays = self._load(some)
            except FileNotFoundError:  # another process has moved the part into the result
                in_result += some
                continue
            yield self._table_of(plan).label(some, arrays)
        if in_result:
            # Another process may have extended the result, so indices may differ.
            result, wanted = study_folder.read(str(self.folder)), {(r.policy, r.identity) for r in in_result}
            named = list(zip(result["policy"].values, result["identity"].values, strict=True))
            if not wanted.issubset(named):
                raise OSError(f"{self}: finished runs are missing. Was the folder moved or cleared?")
            yield result.isel(run=[row for row, name in enumerate(named) if name in wanted]).load()

    def discard(self) -> None:
        for name in (parts.PARTS, CHECKPOINTS, LABELS):
            self.folder.remove(name)
        self._prepared, self._stored, self._latest = None, {}, None

    def build_if_complete(self, plan: Plan) -> int:
        return study_folder.build_if_complete(self.folder, plan, grows=self._grows)

    def result(self, plan: Plan) -> xr.Dataset:
        return study_folder.read(self.folder.location).load()

    def lost(self, plan: Plan, identities: Collection[str]) -> frozenset[str]:
        return study_folder.lost(self.folder, plan, identities)


class MemoryStore(Store):
    """Store of the runs of one study in the memory of this process."""

    def __init__(self, layouts: Layouts | None = None) -> None:
        super().__init__(layouts)
        self._parts: list[tuple[Sequence[Run], Arrays]] = []
        self._place_of: dict[str, tuple[int, int]] = {}
        """For each identity, the index of the written batch that holds the run, and its row in this batch."""

    def __str__(self) -> str:
        return "memory"

    def write(self, runs: Sequence[Run], arrays: Arrays, checkpoint: Checkpoint | None = None) -> None:
        part = len(self._parts)
        self._parts.append((runs, arrays))
        self._place_of |= {run.identity: (part, row) for row, run in enumerate(runs)}

    def load(self, runs: Sequence[Run]) -> Arrays:
        places = [self._place_of[run.identity] for run in runs]
        names = self._parts[places[0][0]][1]
        return {name: np.stack([self._parts[part][1][name][row] for part, row in places]) for name in names}

    def labelled(self, plan: Plan, runs: Sequence[Run]) -> Iterator[xr.Dataset]:
        by_part: dict[int, list[Run]] = {}
        for run in runs:
            by_part.setdefault(self._place_of[run.identity][0], []).append(run)
        for some in by_part.values():
            yield from super().labelled(plan, some)

    def discard(self) -> None:
        self._parts, self._place_of = [], {}

    def build_if_complete(self, plan: Plan) -> int:
        return sum(run.identity not in self._place_of for run in plan.runs)

    def result(self, plan: Plan) -> xr.Dataset:
        placed = [(self._table_of(plan).places(runs), arrays) for runs, arrays in self._parts]
        written = {place for places, _ in placed for place in places}
        for place in {*range(len(plan.runs))} - written:  # a run of another policy has the same identity
            part, row = self._place_of[plan.runs[place].identity]
            arrays = {name: array[row : row + 1] for name, array in self._parts[part][1].items()}
            placed.append(([place], arrays))
        return with_provenance(with_eval_elapsed(labels.merge(plan, placed)), [labels.provenance()])


class FolderView(MemoryStore):
    """Store that reads a study's folder but never changes it: new runs and layouts stay in memory.

    Args:
      folder: the folder of the study, which need not exist.
    """

    def __init__(self, folder: Folder) -> None:
        super().__init__(Layouts(folder, writes=False))
        self._folder = folder

    def prepare(self, plan: Plan, *, grows: bool = False) -> Contents:
        found = study_folder.checked_contents(self._folder, plan, grows=grows)
        return found._replace(left_out=planned.left_out(plan, planned.runs(self._folder), found.in_result))
