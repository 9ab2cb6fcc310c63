"""Defines trackers and the data of a run that they log: parameters, curves, and metrics at the end."""

import hashlib
import importlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import finals, metrics_of
from pausejax.analysis.mean_curves import has_curve
from pausejax.analysis.metrics import RUNNING, recorded
from pausejax.analysis.quantities import objectives_in, parameters_in
from pausejax.analysis.settings import axes_of, has, label, symbols

VARYING = "varying"
"""The attribute of a study that names the parameters whose values differ between its runs, as JSON."""
_POINTS = 100
"""The largest number of points of a curve in a study without evaluated rounds."""


class Tracker:
    """Base class of trackers. Its methods do nothing; a subclass overrides those that it needs."""

    def start(self, study: Mapping[str, str]) -> None:
        """Begins a study, before its first run.

        Args:
          study: the attributes of the result (name, mode, spec, versions, axes), and under `runs.VARYING` the
            names of the parameters whose values differ between runs, as JSON.

        Raises:
          ValueError: the tracker can't be reached.
        """

    def runs_finished(self, result: xr.Dataset) -> None:
        """Logs finished runs. An earlier process of the study may have reported some of them.

        Args:
          result: the labelled result of these runs.

        Raises:
          ValueError: the tracker can't store them.
        """

    def finish(self) -> None:
        """Ends the study, after its last run or when it is stopped."""

    def attach(self, files: Sequence[Path]) -> None:
        """Stores files of the study: its spec, its page and its pictures."""


class Point(NamedTuple):
    """The value of a metric of a run after one of its rounds."""

    name: str
    value: float
    round: int


class TrackedRun(NamedTuple):
    """Data of a run that trackers log."""

    identity: str
    policy: str
    algorithm: str
    seed: int
    title: str
    """The policy, the swept parameters and the seed in words; unique within a study."""
    parameters: Mapping[str, Any]
    """The policy, the seed, the swept parameters, and then the other parameters that the run reads."""
    points: tuple[Point, ...]
    """Points with finite values, the objectives first.

    The points of a metric are its curve, or its value at the last round.

    A metric is left out if its value at the end is not finite. For a run that diverged, this is so for all
    metrics of the learned model.
    """

    @property
    def key(self) -> str:
        """The run's key in a tracker. The key depends on the label too, because runs with different labels
        may share an identity."""
        return key_of(self.policy, self.identity)

    def leading(self, study: Mapping[str, str]) -> dict[str, Any]:
        """Returns the parameters that differ between runs of the study."""
        names = ("policy", "seed", *json.loads(study.get(VARYING, "[]")))
        return {name: self.parameters[name] for name in names if name in self.parameters}


def key_of(policy: str, identity: str) -> str:
    """Returns a run's key: 16 hexadecimal digits from its label and its identity."""
    return hashlib.sha256(f"{policy} {identity}".encode()).hexdigest()[:16]


def tracked_runs(result: xr.Dataset, known: Collection[str] = ()) -> Iterator[TrackedRun]:
    """Yields the runs of a result that a tracker does not know.

    Args:
      result: the labelled result of some runs.
      known: the keys of the runs that the tracker knows.
    """
    figures = finals(result).load()
    curves, places = _curves(result), _places(result)
    rounds = result["round"].values if "round" in result.coords else np.zeros(0, int)
    objectives = [name for name in objectives_in(result) if name in figures]
    swept, written = axes_of(result), symbols(result)
    names = dict.fromkeys([*swept, *parameters_in(result)])
    reads = {name: has(result, name) for name in names if name in result.coords}
    for place in range(figures.sizes["run"]):
        run = figures.isel(run=place)
        policy, identity = str(run["policy"].values), str(run["identity"].values)
        if key_of(policy, identity) in known:
            continue
        seed, last = int(run["seed"]), int(run.get("rounds_played", rounds[-1] if len(rounds) else 0))
        played = int((rounds <= last).sum())
        values = {name: run[name].values.item() for name in reads if reads[name][place]}
        setting = {"policy": policy, **{name: values[name] for name in swept if name in values}}
        points = []
        for name in dict.fromkeys([*objectives, *map(str, run.data_vars)]):
            if not np.isfinite(run[name].values):
                continue  # the last finite value would look like a final result
            if name in curves:
                curve = curves[name][place, :played]
                # The last value may be of an earlier round, if no update arrived in the last round.
                own = {*places[places < len(curve)].tolist(), *np.flatnonzero(~np.isnan(curve))[-1:].tolist()}
                points += [Point(name, float(curve[at]), int(rounds[at])) for at in sorted(own)]
            else:
                points.append(Point(name, float(run[name]), last))
        yield TrackedRun(
            identity,
            policy,
            str(run["algorithm"].values),
            seed,
            f"{label(setting, written)}, seed {seed}",
            {"policy": policy, "seed": seed, **values, **_of_study(result)},
            tuple(point for point in points if np.isfinite(point.value)),
        )


def _of_study(result: xr.Dataset) -> dict[str, Any]:
    rounds = {"rounds": int(result["round"].values[-1])} if result.sizes.get("round") else {}
    return {"mode": str(result.attrs.get("mode", "")), **rounds}


def _curves(result: xr.Dataset) -> dict[str, np.ndarray]:
    """Returns the values of each metric with a curve, [runs, rounds]; NaN in rounds without an evaluation."""
    curves = {}
    for name, metric in metrics_of(result).items():
        if not has_curve(result, metric):
            continue
        variable = result[metric.variable]
        # A tracker ranks runs by the last points of their curves, so these are the metrics of the runs.
        reduce = "mean" if metric.reduce == "each" else metric.reduce
        values = RUNNING[reduce](recorded(metric.variable, variable.values))
        if variable.dims[1:] == ("round",):
            curves[name] = values
        else:
            curves[name] = np.full((len(values), result.sizes["round"]), np.nan)
            curves[name][:, _evaluated(result)] = values
    return curves


def _evaluated(result: xr.Dataset) -> np.ndarray:
    """Returns the positions of the evaluated rounds among the recorded rounds."""
    return np.searchsorted(result["round"].values, result["eval_round"].values)


def _places(result: xr.Dataset) -> np.ndarray:
    """Returns the indices of the rounds at which curves have points: evaluated rounds, or evenly spaced
    rounds."""
    if "eval_round" in result:
        return _evaluated(result)
    rounds = result.sizes.get("round", 0)
    return np.unique(np.linspace(0, rounds - 1, min(_POINTS, rounds)).round().astype(int))


def library(tracker: str, name: str) -> ModuleType:
    """Imports the library of a tracker.

    Raises:
      ValueError: the library is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"tracker {tracker}: is not installed. Install it: pip install 'pausejax[{tracker}]'"
        ) from error
