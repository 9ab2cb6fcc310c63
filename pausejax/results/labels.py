"""Labels a result: computes its coordinates and combines finished runs into one data set."""

import functools
import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tomli_w
import xarray as xr

from pausejax.analysis.eval_times import with_eval_elapsed
from pausejax.analysis.made import Provenance
from pausejax.analysis.quantities import Variable, described, tables
from pausejax.analysis.settings import UNREAD
from pausejax.devices import local_devices
from pausejax.parts import File
from pausejax.study.runs import Run
from pausejax.study.simulation import Arrays
from pausejax.study.study import FORMAT, Kind, Plan, Study
from pausejax.version import __version__

_version = functools.cache(importlib.metadata.version)  # each call would read files

_PASSWORD = re.compile(r"(?<=://)[^/\s@]*@")

_MEANINGS = {
    "policy": "label of the policy",
    "algorithm": "registered name of the policy",
    "seed": "seed of the run",
    "identity": "hash of everything that the results of the run depend on",
    "study": "hash of mode, rounds, eval_every, stop_at_latency, and the variables and metrics of the study",
    "sources": "hash of the run's files and parts from outside the package",
    UNREAD: "parameters that the run does not read",
    "round": "number of the round, from 1",
    "eval_round": "round after which the model was evaluated",
    "client": "number of the client, from 0",
}


def sizes(table: Mapping[str, Variable], shapes: Iterable[Mapping[str, tuple[int, ...]]]) -> dict[str, int]:
    """Returns the length of every dimension but `run`: the largest length in any batch of runs.

    Args:
      table: the variables of the study.
      shapes: for each batch of runs, the shape of its recorded arrays by variable.
    """
    found: dict[str, int] = {}
    for arrays in shapes:
        for name, shape in arrays.items():
            for dim, length in zip(table[name].dims, shape[1:], strict=True):
                found[dim] = max(found.get(dim, 0), length)
    return found


def blank(
    table: Mapping[str, Variable], names: Iterable[str], runs: int, lengths: Mapping[str, int]
) -> Arrays:
    """Returns arrays of `runs` runs in which every entry is the fill value of its variable."""
    wanted = set(names)
    return {
        name: np.full((runs, *(lengths[dim] for dim in variable.dims)), variable.fill, variable.dtype)
        for name, variable in table.items()
        if name in wanted
    }


def put(whole: Arrays, places: np.ndarray, part: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
    """Copies the runs `rows` of `part` to the runs `places` of `whole`, in place.

    Where an array of `part` is shorter along another dimension, fill values remain.
    """
    for name, array in part.items():
        corner = tuple(slice(0, length) for length in array.shape[1:])
        at: tuple[Any, ...] = (places, *corner)
        whole[name][at] = array[rows]


def coordinates(plan: Plan) -> dict[str, np.ndarray]:
    """Returns the coordinates of the dimension `run`, one entry for each run of the plan.

    The values of the parameters that a run does not read are placeholders.
    """
    runs, study = plan.runs, plan.study
    text = json.dumps([study.extent, tables(study.outputs.variables, study.outputs.metrics)], sort_keys=True)
    found: dict[str, np.ndarray] = {
        "policy": np.array([run.policy for run in runs]),
        "algorithm": np.array([run.algorithm for run in runs]),
        "seed": np.array([run.seed for run in runs], np.int64),
        "identity": np.array(plan.identities),
        "study": np.full(len(runs), hashlib.sha256(text.encode()).hexdigest()[:16]),
        "sources": np.array([run.sources for run in runs]),
    }
    fillings = {float: np.nan, int: -1, bool: False, str: "", File: ""}
    read = set().union(*(run.values for run in runs))
    for name in (names := [name for name in study.words.parameters if name in read]):
        filling = fillings[study.words.parameters[name].kind]
        found[name] = np.array([run.values.get(name, filling) for run in runs])
    # Runs that differ only in the seed share one mapping of values.
    unread = {id(run.values): " ".join(name for name in names if name not in run.values) for run in runs}
    found[UNREAD] = np.array([unread[id(run.values)] for run in runs])
    return found


def varying(plan: Plan) -> list[str]:
    """Returns the names of the parameters whose values differ between runs or that only some runs read."""
    settings = list({id(run.values): run.values for run in plan.runs}.values())
    names = [name for name in plan.study.words.parameters if any(name in values for values in settings)]
    return [name for name in names if len({values.get(name) for values in settings}) > 1]


def empty_result(plan: Plan) -> xr.Dataset:
    """Returns a plan's result with empty variables. With it, requests are checked before JAX starts."""
    empty = {
        name: (("run", *variable.dims), np.full((len(plan.runs), *(0 for _ in variable.dims)), variable.fill))
        for name, variable in plan.study.outputs.variables.items()
    }
    columns = {name: ("run", column) for name, column in coordinates(plan).items()}
    return xr.Dataset({n: v for n, v in empty.items() if n not in columns}, columns, attributes_of(plan))


class Labels(NamedTuple):
    """Labels of the runs of a plan: their coordinates, and the attributes of the result."""

    kind: Kind
    mode: str
    rounds: int
    eval_every: int
    variables: Mapping[str, Variable]
    columns: Mapping[str, np.ndarray]
    """The coordinates of `run` by name, as the function `coordinates` returns them."""
    meanings: Mapping[str, Mapping[str, str]]
    """The attributes of coordinates by name: `long_name`, and `symbol` and `units` of a parameter."""
    attributes: Mapping[str, Any]
    """The attributes of the result."""

    @classmethod
    def of(cls, plan: Plan) -> "Labels":
        study = plan.study
        meanings = {name: {"long_name": text} for name, text in _MEANINGS.items()}
        for name, parameter in study.words.parameters.items():
            texts = {"long_name": parameter.help, "symbol": parameter.symbol, "units": parameter.units}
            meanings[name] = {key: text for key, text in texts.items() if text or key == "long_name"}
        return cls(
            study.kind,
            study.mode,
            study.rounds,
            study.eval_every,
            study.outputs.variables,
            coordinates(plan),
            meanings,
            attributes_of(plan),
        )

    @property
    def identities(self) -> list[str]:
        return self.columns["identity"].tolist()

    def take(self, rows: slice | Sequence[int]) -> "Labels":
        """Returns the labels of the runs at some indices."""
        places = rows if isinstance(rows, slice) else np.asarray(rows, np.int64)
        return self._replace(columns={name: column[places] for name, column in self.columns.items()})

    def label(self, arrays: Arrays) -> xr.Dataset:
        """Returns the labelled data set of the runs.

        Args:
          arrays: the recorded arrays by variable; the first axis is that of the runs.
        """
        found, kept = self.kind.coordinates(self.mode, self.rounds, self.eval_every, arrays)
        coords: dict[str, Any] = {name: ("run", column) for name, column in self.columns.items()}
        for name, coordinate in found.items():
            # Coordinates from the simulation replace those without a value in the spec.
            if name in coords or name in _MEANINGS or name not in self.meanings:
                coords[name] = coordinate
        for name in coords.keys() & self.meanings.keys():
            dims, values, *_ = coords[name] if isinstance(coords[name], tuple) else (name, coords[name])
            coords[name] = (dims, values, dict(self.meanings[name]))
        labelled = {}
        for name, array in kept.items():
            variable = self.variables[name]
            attributes = {"units": variable.units, "long_name": variable.meaning}
            labelled[name] = (("run", *variable.dims), array, attributes)
        # `save` compares this list with the variables to see whether the result is complete.
        told = {**self.attributes, "rounds": self.rounds, "variables": json.dumps(sorted(labelled))}
        return xr.Dataset(labelled, coords, told)


def merge(plan: Plan, parts: Sequence[tuple[Sequence[int], Arrays]]) -> xr.Dataset:
    """Combines the arrays of all batches into the whole labelled result.

    Args:
      plan: the whole plan.
      parts: for each batch, the indices of its runs in the plan and its recorded arrays.
    """
    table = plan.study.outputs.variables
    lengths = sizes(table, ({name: array.shape for name, array in part.items()} for _, part in parts))
    whole = blank(table, {name for _, part in parts for name in part}, len(plan.runs), lengths)
    for places, part in parts:
        put(whole, np.asarray(places), part, np.arange(len(places)))
    return Labels.of(plan).label(whole)


def spec_text(plan: Plan) -> str:
    """Returns the spec with its overrides applied, as TOML."""
    return tomli_w.dumps(dict(plan.study.document))


def attributes_of(plan: Plan) -> dict[str, Any]:
    """Returns the attributes of a result that describe its study."""
    study = plan.study
    parameters = {name: (p.aliases, p.symbol) for name, p in study.words.parameters.items()}
    return {
        "name": study.name,
        "kind": study.kind.name,
        "mode": study.mode,
        "format": FORMAT,
        "spec": spec_text(plan),
        "versions": json.dumps(versions()),
        "axes": json.dumps(plan.axes),
        "used_files": json.dumps(used_files(study)),
        **described(
            study.outputs.metrics,
            study.outputs.objectives,
            study.outputs.best_by,
            parameters,
            study.outputs.compare_within,
        ),
    }


def versions() -> dict[str, str]:
    """Returns the versions of the software on which the numbers depend."""
    libraries = {name: _version(name) for name in ("jax", "jaxlib", "numpy")}
    return {**libraries, "pausejax": __version__, "python": platform.python_version()}


def provenance(command: str = "") -> Provenance:
    """Returns the provenance of the runs that this process simulates: its command, devices and versions.

    Every file of `parts/` stores the provenance. In a result it is the attribute `made`.

    Args:
      command: the command as it was typed, or "". User names and passwords in URLs are left out.
    """
    return Provenance(command=_PASSWORD.sub("…@", command), devices=local_devices(), versions=versions())


def used_files(study: Study) -> dict[str, str]:
    """Returns the digests of files, modules and parts of this session on which the runs depend, by name."""
    found = {name: hashlib.sha256(content).hexdigest() for name, content in copies(study).items()}
    for source in study.parts.sources:
        found |= source.digests
    parts = {f"{category} {name}": digest for (category, name), digest in study.outsiders.items()}
    return {**found, **parts, **study.files}


def copies(study: Study) -> dict[str, bytes]:
    """Returns the content of each file that defines parts of the study, by file name."""
    found: dict[str, bytes] = {}
    for number, source in enumerate(study.parts.sources, 1):
        for name, content in source.files.items():
            alone = found.get(name, content) == content  # files in different folders may have the same name
            found[name if alone else f"{number}/{name}"] = content
    return found


def _keys(runs: Sequence[Run]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Returns a unique key of each run of a plan: its label, its identity, and the names of its files.

    Files with equal content under different names give runs with equal identities.
    """
    files: dict[int, tuple[str, ...]] = {}
    for run in runs:
        if id(run.values) not in files:
            files[id(run.values)] = tuple(v for v in run.values.values() if isinstance(v, File))
    return [(run.policy, run.identity, files[id(run.values)]) for run in runs]


class RunTable(NamedTuple):
    """Table of a plan's runs, with their labels and their indices in the plan."""

    plan: Plan
    labels: Labels
    place_of: dict[tuple[str, str, tuple[str, ...]], int]

    @classmethod
    def of(cls, plan: Plan) -> "RunTable":
        places = {key: place for place, key in enumerate(_keys(plan.runs))}
        return cls(plan, Labels.of(plan), places)

    def places(self, runs: Sequence[Run]) -> list[int]:
        return [self.place_of[key] for key in _keys(runs)]

    def label(self, runs: Sequence[Run], arrays: Arrays) -> xr.Dataset:
        return with_eval_elapsed(self.labels.take(self.places(runs)).label(arrays))
