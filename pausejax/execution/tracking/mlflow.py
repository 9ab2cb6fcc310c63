"""Logs runs to MLflow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from pausejax.execution.tracking.runs import TrackedRun, Tracker, key_of, library, tracked_runs

# The number of metrics in one request, which also holds parameters; the number of runs read in one request.
_BATCH, _PAGE = 800, 1000
_KIND = "pausejax.kind"
"""The tag of the run that holds the files of a study."""


class MlflowTracker(Tracker):
    """Tracker that logs each run as an MLflow run, in an experiment named after the study.

    Steps are rounds. A run is identified by its label and its identity. A run that the experiment holds is
    not logged again, so a resumed study adds only its new runs. Numbers that are not finite are left out,
    because MLflow can't store all of them. Files of the study are artifacts of a further run, "study".
    """

    def __init__(self, uri: str | None = None, *, unnamed: str = "pausejax") -> None:
        """Loads MLflow.

        Args:
          uri: the URI of MLflow's store; MLflow's default if not given, first `MLFLOW_TRACKING_URI`.
          unnamed: the name of the experiment of a study without a name.

        Raises:
          ValueError: the extra `pausejax[mlflow]` is not installed.
        """
        self._mlflow = library("mlflow", "mlflow")
        # By default MLflow stores runs in SQLite, and its message is unclear if SQLAlchemy is missing.
        library("mlflow", "sqlalchemy")
        self._uri, self._unnamed = uri, unnamed
        self._experiment = ""
        self._known: set[str] = set()

    def start(self, study: Mapping[str, str]) -> None:
        name = study.get("name") or self._unnamed
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            found = self._client.get_experiment_by_name(name)
            self._experiment = found.experiment_id if found else self._client.create_experiment(name)
            self._known = self._finished()
        except self._mlflow.MlflowException as error:
            where = self._uri or self._mlflow.get_tracking_uri()
            raise ValueError(f"tracker mlflow: {where}: {_reason(error)}") from error

    def runs_finished(self, result: xr.Dataset) -> None:
        for run in tracked_runs(result, self._known):
            # Another process of the study may have logged the run since `start`.
            one = self._finished(f"tags.`pausejax.identity` = '{run.identity}'")
            if run.key not in one:
                self._log(run, result.attrs)
            self._known.add(run.key)

    def attach(self, files: Sequence[Path]) -> None:
        wanted = f"tags.`{_KIND}` = 'study'"
        runs = self._client.search_runs([self._experiment], wanted, max_results=1)
        if not runs:
            tags = {_KIND: "study"}
            runs = [self._client.create_run(self._experiment, tags=tags, run_name="study")]
        run_id = runs[0].info.run_id
        for file in files:
            self._client.log_artifact(run_id, str(file))
        self._client.set_terminated(run_id, "FINISHED")

    def _finished(self, also: str = "") -> set[str]:
        """Returns the keys of the experiment's complete runs; `also` is a further condition."""
        found: set[str] = set()
        token = None
        wanted = " and ".join(filter(None, ["attributes.status = 'FINISHED'", also]))
        while True:
            page = self._client.search_runs([self._experiment], wanted, max_results=_PAGE, page_token=token)
            tagged = (run.data.tags for run in page)
            found |= {
                key_of(tags.get("pausejax.policy", ""), tags.get("pausejax.identity", "")) for tags in tagged
            }
            if (
                not page.token or page.token == token
            ):  # the server repeats the first page, so it does not support pages
                return found
            token = page.token

    def _log(self, run: TrackedRun, study: Mapping[str, Any]) -> None:
        entities = self._mlflow.entities
        tags = {
            "pausejax.identity": run.identity,
            "pausejax.policy": run.policy,
            "pausejax.algorithm": run.algorithm,
            "pausejax.study": str(study.get("name", "")),
            "pausejax.versions": str(study.get("versions", "")),
        }
        begun = self._client.create_run(self._experiment, tags=tags, run_name=run.title)
        params = [entities.Param(name, str(value)) for name, value in run.parameters.items()]
        now, run_id = begun.info.start_time, begun.info.run_id
        metrics = [entities.Metric(name, value, now, step) for name, value, step in run.points]
        self._client.log_batch(run_id, metrics=metrics[:_BATCH], params=params)
        for first in range(_BATCH, len(metrics), _BATCH):
            self._client.log_batch(run_id, metrics=metrics[first : first + _BATCH])
        self._client.set_terminated(run_id, "FINISHED")


def _reason(error: Exception) -> str:
    first = str(error).strip().splitlines()[0]
    if "MLFLOW_ALLOW_FILE_STORE" not in str(error):
        return first
    return (
        "the installed MLflow stores no runs in plain folders. Set MLFLOW_TRACKING_URI=sqlite:///mlflow.db, "
        "or set MLFLOW_ALLOW_FILE_STORE=true to use folders"
    )
