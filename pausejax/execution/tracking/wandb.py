"""Logs runs to Weights & Biases (W&B)."""

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from pausejax.execution.tracking.runs import TrackedRun, Tracker, key_of, library, tracked_runs

_LONGEST_NAME = 128
_WHOLE = "pausejax-project"
"""The file in the folder of a complete offline run that holds the name of the run's project."""


class WandbTracker(Tracker):
    """Tracker that logs each run as a W&B run, in a project named after the study or by `WANDB_PROJECT`.

    A run's id is a digest of its label and its identity. A study that resumes may log a run again. This adds
    nothing, because W&B ignores a step that it has. Offline, a complete run is not logged again, and an
    incomplete run is logged again in a new folder. W&B's environment variables apply: `WANDB_MODE=offline`
    stores runs in `WANDB_DIR` until `wandb sync`, and `WANDB_ENTITY` sets the account.
    """

    def __init__(self, *, unnamed: str = "pausejax") -> None:
        """Loads W&B.

        Args:
          unnamed: the name of the project of a study without a name.

        Raises:
          ValueError: the extra `pausejax[wandb]` is not installed.
        """
        self._wandb = library("wandb", "wandb")
        self._project, self._unnamed = "", unnamed
        self._known: set[str] = set()

    def start(self, study: Mapping[str, str]) -> None:
        name = os.environ.get("WANDB_PROJECT") or study.get("name") or self._unnamed
        self._project = re.sub(r"[/\\#?%:]+", "-", name)[:_LONGEST_NAME]
        self._offline = os.environ.get("WANDB_MODE", "online") != "online"
        self._known = set()
        if self._offline:
            return
        try:
            there = self._wandb.login()
        except self._wandb.Error as error:
            raise ValueError(f"tracker wandb: {str(error).splitlines()[0]}. {_CURE}") from error
        if not there:
            raise ValueError(f"tracker wandb: no account is logged in. {_CURE}")

    def _note_complete_runs(self) -> None:
        """Adds the keys of the complete offline runs of this and other processes to the known keys."""
        folder = Path(os.environ.get("WANDB_DIR", "."))
        for path in itertools.chain(folder.glob("wandb/offline-run-*"), folder.glob(".wandb/offline-run-*")):
            # offline-run-TIME-KEY, and a number if this name exists. Other names are not of pausejax.
            key = next(iter(path.name.split("-")[3:4]), "")
            if key and key not in self._known and self._is_whole(path):
                self._known.add(key)

    def _is_whole(self, folder: Path) -> bool:
        """Returns whether an offline run in a folder is complete and of this project."""
        marker = folder / _WHOLE
        return marker.is_file() and marker.read_text(encoding="utf-8") == self._project

    def runs_finished(self, result: xr.Dataset) -> None:
        if self._offline:
            self._note_complete_runs()
        for run in tracked_runs(result, self._known):
            try:
                self._log(run, result)
            except self._wandb.Error as error:
                raise ValueError(f"tracker wandb: {str(error).splitlines()[0]}") from error
            self._known.add(run.key)

    def finish(self) -> None:
        """Ends W&B's process, which first sends the remaining data."""
        self._wandb.teardown()

    def attach(self, files: Sequence[Path]) -> None:
        begun = self._begin(
            id=key_of("study", self._project),
            name="study",
            job_type="study",
            resume=None if self._offline else "allow",
        )
        artifact = self._wandb.Artifact("study", type="study")
        for file in files:
            artifact.add_file(str(file))
        begun.log_artifact(artifact)
        begun.finish()
        self._wandb.teardown()

    def _begin(self, **more: Any) -> Any:
        quiet = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True}
        return self._wandb.init(
            project=self._project,
            reinit="finish_previous",
            settings=self._wandb.Settings(**quiet),
            **more,
        )

    def _log(self, run: TrackedRun, result: xr.Dataset) -> None:
        begun = self._begin(
            id=run.key,
            name=run.title,
            group=run.policy,
            config={**run.parameters, "algorithm": run.algorithm, "identity": run.identity},
            notes=str(result.attrs.get("versions", "")),
            resume=None if self._offline else "allow",
        )
        points = sorted(run.points, key=lambda point: point.round)
        for step, together in itertools.groupby(points, key=lambda point: point.round):
            begun.log({point.name: point.value for point in together}, step=step)
        folder = Path(begun.dir).parent
        begun.finish()
        if self._offline:
            try:
                (folder / _WHOLE).write_text(self._project, encoding="utf-8")
            except OSError as error:
                raise ValueError(f"tracker wandb: {folder} can't be written: {error.strerror}") from error


_CURE = "Set WANDB_API_KEY or run `wandb login`, or set WANDB_MODE=offline to store runs in a folder"
