"""Reports finished runs to an experiment tracker, while a study is under way.

A tracker is any object with the three methods of `Tracker`. Whoever simulates calls `start` once, then
`runs_finished` for each part of the result after it has been written, then `finish`.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import xarray as xr

from pausejax.analysis import finals
from pausejax.analysis.quantities import objectives_in, parameters_in
from pausejax.analysis.settings import applies

# Entries that MLflow takes in one request, with room for the parameters.
_BATCH = 800


class Tracker(Protocol):
    """What a study calls."""

    def start(self, study: Mapping[str, str]) -> None:
        """Before the first run; the attributes that the result will carry: name, mode, spec, versions, axes.

        Raises:
          ValueError: the tracker can't be reached.
        """

    def runs_finished(self, result: xr.Dataset) -> None:
        """After each chunk: the result of its runs alone, laid out as the whole."""

    def finish(self) -> None:
        """After the last run."""


class MlflowTracker:
    """One MLflow run for each run, in an experiment named after the study.

    Parameters are those that the policy reads; metrics are those of `analysis.finals`, what is learned at
    each evaluated round. A run is known by its identity: one that the experiment holds already is not repeated,
    so a resumed study adds only its new runs. Numbers that are not finite are left out: MLflow can't hold
    them all.
    """

    def __init__(self, uri: str | None = None) -> None:
        """Takes the address of the store; by default what MLflow itself takes, `MLFLOW_TRACKING_URI` first.

        Raises:
          ValueError: the extra `pausejax[mlflow]` is not installed.
        """
        try:
            self._mlflow = importlib.import_module("mlflow")
        except ModuleNotFoundError:
            raise ValueError("tracker mlflow: is not installed; pip install 'pausejax[mlflow]'") from None
        self._uri = uri
        self._experiment = ""
        self._known: set[str] = set()

    def start(self, study: Mapping[str, str]) -> None:
        name = study.get("name") or "pausejax"
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            found = self._client.get_experiment_by_name(name)
            self._experiment = found.experiment_id if found else self._client.create_experiment(name)
            self._known = self._finished()
        except self._mlflow.MlflowException as error:
            first = str(error).strip().splitlines()[0]
            raise ValueError(
                f"tracker mlflow: {self._uri or self._mlflow.get_tracking_uri()}: {first}"
            ) from None

    def runs_finished(self, result: xr.Dataset) -> None:
        figures = finals(result).load()
        curve = None
        learned = objectives_in(result)[0]
        if learned in result and result[learned].dims[1:] == ("eval",):
            curve = learned, result["eval_round"].values, result[learned].values
        parameters = [name for name in parameters_in(result) if name in result.coords]
        for place in range(figures.sizes["run"]):
            run = figures.isel(run=place)
            identity = str(run["identity"].values)
            if identity not in self._known:
                measured = curve and (curve[0], curve[1], curve[2][place])
                self._log(identity, run, parameters, measured, result.attrs)
                self._known.add(identity)

    def finish(self) -> None:
        """Nothing is left open: each run is closed as soon as it is logged."""

    def _finished(self) -> set[str]:
        found: set[str] = set()
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], "attributes.status = 'FINISHED'", max_results=1000, page_token=token
            )
            found |= {run.data.tags.get("pausejax.identity", "") for run in page}
            token = page.token
            if not token:
                return found

    def _log(
        self,
        identity: str,
        run: xr.Dataset,
        parameters: list[str],
        curve: tuple[str, np.ndarray, np.ndarray] | None,
        study: Mapping[str, Any],
    ) -> None:
        entities = self._mlflow.entities
        policy, seed = str(run["policy"].values), int(run["seed"])
        tags = {
            "pausejax.identity": identity,
            "pausejax.policy": policy,
            "pausejax.algorithm": str(run["algorithm"].values),
            "pausejax.study": str(study.get("name", "")),
            "pausejax.versions": str(study.get("versions", "")),
        }
        begun = self._client.create_run(self._experiment, tags=tags, run_name=f"{policy}, seed {seed}")
        values = {"seed": seed, **{name: run[name].values.item() for name in parameters}}
        params = [entities.Param(name, str(value)) for name, value in values.items() if applies(value)]
        now = begun.info.start_time
        last = int(run.get("rounds_played", 0))
        figures = [(str(name), float(run[name]), last) for name in run.data_vars]
        if curve is not None:
            learned, rounds, measured = curve
            figures = [figure for figure in figures if figure[0] != learned]
            figures += [(learned, float(m), int(r)) for r, m in zip(rounds, measured, strict=True)]
        metrics = [
            entities.Metric(name, value, now, step) for name, value, step in figures if np.isfinite(value)
        ]
        run_id = begun.info.run_id
        self._client.log_batch(run_id, metrics=metrics[:_BATCH], params=params)
        for first in range(_BATCH, len(metrics), _BATCH):
            self._client.log_batch(run_id, metrics=metrics[first : first + _BATCH])
        self._client.set_terminated(run_id, "FINISHED")


TRACKERS: dict[str, Callable[[], Tracker]] = {"mlflow": MlflowTracker}
"""Name -> constructor; `make` knows what is in here."""


def make(name: str) -> Tracker:
    """The tracker of a name.

    Raises:
      ValueError: no such tracker, or its extra is not installed.
    """
    if name not in TRACKERS:
        raise ValueError(f"tracker = {name!r}: must be one of {', '.join(TRACKERS)}")
    return TRACKERS[name]()
