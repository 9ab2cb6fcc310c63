"""Logs runs as event files of TensorBoard."""

import contextlib
import functools
import itertools
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import xarray as xr

from pausejax.execution.tracking.runs import TrackedRun, Tracker, library, tracked_runs

_KEY = "pausejax-run"
_LONGEST_NAME = 200
"""The most bytes of a folder's name. File systems allow 255 bytes, and a number may be appended."""
_INCOMPLETE = "." + "[0-9a-f]" * 32
"""The name of a folder while it is written, as a pattern."""
_SECONDS_OF_WRITING = 60.0
"""Writing a run takes less time. An older incomplete folder belongs to a killed process, and is removed."""


class TensorBoardTracker(Tracker):
    """Tracker that writes a folder of event files for each run: `runs/STUDY/SETTING, seed N`.

    `TENSORBOARD_DIR` replaces the folder `runs`. A folder gets its name when it is complete, and contains a
    file that is named after the run's key. A run with such a folder is not logged again. Until then the name
    begins with a dot. TensorBoard also lists such folders. Those of killed processes are removed when runs
    are reported a minute later. TensorBoard's table of hyper-parameters has the parameters that differ
    between runs.
    """

    def __init__(self, directory: str | Path | None = None, *, unnamed: str = "pausejax") -> None:
        """Loads TensorBoard's writer.

        Args:
          directory: the folder of all studies.
          unnamed: the name of the folder of a study without a name.

        Raises:
          ValueError: the extra `pausejax[tensorboard]` is not installed.
        """
        self._tensorboard = library("tensorboard", "tensorboardX")
        self._root = Path(directory or os.environ.get("TENSORBOARD_DIR", "runs"))
        self._folder, self._unnamed = self._root, unnamed
        self._study: Mapping[str, str] = {}

    def start(self, study: Mapping[str, str]) -> None:
        self._study = study
        self._folder = self._root / _as_file(study.get("name") or self._unnamed)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def runs_finished(self, result: xr.Dataset) -> None:
        for folder in self._folder.glob(_INCOMPLETE):
            with contextlib.suppress(FileNotFoundError):  # another process has completed it
                if time.time() - folder.stat().st_mtime > _SECONDS_OF_WRITING:
                    shutil.rmtree(folder, ignore_errors=True)
        # The pattern leaves out hidden folders: another process may rename one while it is searched.
        known = {path.suffix[1:] for path in self._folder.glob(f"[!.]*/{_KEY}.*")}
        for run in tracked_runs(result, known):
            self._log(run)

    def _log(self, run: TrackedRun) -> None:
        partial = self._folder / f".{uuid.uuid4().hex}"
        try:
            partial.mkdir(parents=True)
            self._write(run, partial / f"events.out.tfevents.{int(time.time())}")
            (partial / f"{_KEY}.{run.key}").touch()
            self._rename(partial, run)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _write(self, run: TrackedRun, path: Path) -> None:
        """Writes the events of a run into a file.

        `SummaryWriter` writes in a thread. If the disk is full, the thread ends and `add_scalar` waits for
        ever. So this function writes the file itself.

        Raises:
          OSError: the file can't be written.
        """
        summary = self._tensorboard.summary
        event = functools.partial(self._tensorboard.proto.event_pb2.Event, wall_time=time.time())
        last = {name: value for name, value, _ in run.points}
        events = [
            event(file_version="brain.Event:2"),
            *(event(step=step, summary=summary.scalar(name, value)) for name, value, step in run.points),
            *(event(summary=part) for part in summary.hparams(run.leading(self._study), last)),
        ]
        with contextlib.closing(self._tensorboard.RecordWriter(str(path))) as file:
            for one in events:
                file.write(one.SerializeToString())
            file.flush()

    def _unwritable(self, error: OSError) -> ValueError:
        return ValueError(f"tracker tensorboard: {self._folder} can't be written: {error.strerror}")

    def _rename(self, partial: Path, run: TrackedRun) -> None:
        """Gives a complete folder its name, unless another process has logged the run meanwhile.

        A number is appended if another study's run has the same title.
        """
        name = _as_file(run.title)
        for number in itertools.count(1):
            folder = self._folder / (name if number == 1 else f"{name} ({number})")
            if not folder.exists():
                try:
                    os.rename(partial, folder)
                    return
                except OSError:
                    if not folder.exists():  # else another process has just taken the name
                        raise
            if (folder / f"{_KEY}.{run.key}").exists():
                return


def _as_file(name: str) -> str:
    text = re.sub(r"[^\w ,.=()+-]+", "_", name).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return text.strip(". ") or "study"
