"""Logs runs to MLflow."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import xarray as xr

from pausejax.execution.tracking.runs import TrackedRun, Tracker, key_of, library, tracked_runs
from pausejax.results.folder import Folder

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
        self._sqlalchemy = library("mlflow", "sqlalchemy")
        self._uri, self._unnamed = uri, unnamed
        self._experiment = ""
        self._known: set[str] = set()
        self._incomplete: set[str] = set()

    def start(self, study: Mapping[str, str]) -> None:
        name = study.get("name") or self._unnamed
        with self._failing_in_one_line():
            with self._alone():
                self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
                self._experiment = self._experiment_of(name)
            self._known = {_key(run) for run in self._runs("attributes.status = 'FINISHED'")}
            self._incomplete = {run.info.run_id for run in self._runs("attributes.status != 'FINISHED'")}

    def runs_finished(self, result: xr.Dataset) -> None:
        for run in tracked_runs(result, self._known):
            with self._failing_in_one_line(), self._alone():
                alike = self._runs(f"tags.`pausejax.identity` = '{run.identity}'")
                same = [one for one in alike if _key(one) == run.key]
                # Another process of the study may have logged the run since `start`.
                if not any(one.info.status == "FINISHED" for one in same):
                    # A process was killed while it logged such a copy. But a server has no lock, so a copy
                    # that was not there at `start` may be one that another process logs at this moment.
                    for one in same:
                        if _place(self._where) or one.info.run_id in self._incomplete:
                            self._client.delete_run(one.info.run_id)
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

    @property
    def _where(self) -> str:
        return self._uri or str(self._mlflow.get_tracking_uri())

    @contextlib.contextmanager
    def _failing_in_one_line(self) -> Iterator[None]:
        """Raises any error of MLflow, SQLAlchemy or Alembic as a ValueError with a message of one line."""
        try:
            yield
        except Exception as error:
            reason = _reason(error)
            # A process that is killed while MLflow makes its tables leaves an incomplete schema.
            broken = isinstance(error, self._sqlalchemy.exc.SQLAlchemyError) or "schema" in reason
            if broken and _place(self._where):
                reason += ". If the same command fails again, move the file away. MLflow then makes a new one"
            raise ValueError(f"tracker mlflow: {self._where}: {reason}") from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Waits until no other process makes MLflow's tables or logs a run, if the store is on a disk.

        MLflow has no lock of its own. Two processes that make the tables of an SQLite file damage it, and two
        that look for a run at the same time both log it.
        """
        if (place := _place(self._where)) is None:
            yield
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        folder, name = Folder(place.parent), f".{place.name}.lock"
        with folder.lock(name):
            try:
                yield
            finally:
                folder.remove(name)

    def _experiment_of(self, name: str) -> str:
        """Returns the id of an experiment. Makes the experiment if it does not exist."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except self._mlflow.MlflowException:
                # Where there is no lock, another process may have made it meanwhile.
                if (found := self._client.get_experiment_by_name(name)) is None:
                    raise
        return str(found.experiment_id)

    def _runs(self, wanted: str) -> Iterator[Any]:
        """Yields the experiment's runs that meet a condition, as MLflow returns them."""
        token = None
        while True:
            page = self._client.search_runs([self._experiment], wanted, max_results=_PAGE, page_token=token)
            yield from page
            # A server that does not support pages repeats the first one.
            if not page.token or page.token == token:
                return
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


def _key(run: Any) -> str:
    """Returns the key by which a run of MLflow is known to `TrackedRun`."""
    tags = run.data.tags
    return key_of(tags.get("pausejax.policy", ""), tags.get("pausejax.identity", ""))


def _place(uri: str) -> Path | None:
    """Returns the file or folder of a store on this machine's disk; None for other stores."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme.startswith("sqlite"):
        path = path[1:]  # sqlite:///relative, sqlite:////absolute
    elif parts.scheme not in ("", "file") or uri.startswith("databricks"):
        path = ""
    return Path(path).absolute() if path else None


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "MLFLOW_ALLOW_FILE_STORE" not in str(error):
        return first
    return (
        "the installed MLflow stores no runs in plain folders. Set MLFLOW_TRACKING_URI=sqlite:///mlflow.db, "
        "or set MLFLOW_ALLOW_FILE_STORE=true to use folders"
    )
