"""Runs as TensorBoard's event files."""

import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import xarray as xr

from pausejax.engine.tracking.told import Told, module, runs_of


class TensorBoardTracker:
    """One folder of event files for each run: `runs/STUDY/POLICY, seed N, IDENTITY`.

    `TENSORBOARD_DIR` names another folder than `runs`. A run whose folder is there is not repeated; a folder
    is there whole or not at all. Parameters stand in TensorBoard's table of hyper-parameters.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        """Takes the folder of all studies.

        Raises:
          ValueError: the extra `pausejax[tensorboard]` is not installed.
        """
        self._tensorboard = module("tensorboard", "tensorboardX")
        self._root = Path(directory or os.environ.get("TENSORBOARD_DIR", "runs"))
        self._folder = self._root

    def start(self, study: Mapping[str, str]) -> None:
        self._folder = self._root / _as_file(study.get("name") or "pausejax")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"tracker tensorboard: {self._folder}: {error.strerror}") from None

    def runs_finished(self, result: xr.Dataset) -> None:
        known = {path.name.rpartition(" ")[2] for path in self._folder.iterdir()}
        for run in runs_of(result, known):
            self._log(run)

    def finish(self) -> None:
        """Nothing is left open: each run's files are closed as soon as they are written."""

    def _log(self, run: Told) -> None:
        partial = self._folder / f".{uuid.uuid4().hex}"
        try:
            with self._tensorboard.SummaryWriter(str(partial)) as writer:
                for name, value, step in run.points:
                    writer.add_scalar(name, value, step)
                last = {name: value for name, value, _ in run.points}
                described = {**run.parameters, "policy": run.policy, "algorithm": run.algorithm}
                parts = self._tensorboard.summary.hparams(described, last)
                for part in parts:
                    writer.file_writer.add_summary(part)
            os.replace(partial, self._folder / f"{_as_file(run.title)}, {run.identity}")
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _as_file(name: str) -> str:
    return re.sub(r"[^\w ,.=()+-]+", "_", name).strip(". ") or "study"
