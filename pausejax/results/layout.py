"""How a result is laid out: its variables, its coordinates, and how finished runs become one data set."""

import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import tomli_w
import xarray as xr

from pausejax import __version__
from pausejax.ensemble import EXPERT_NAMES
from pausejax.study.plan import Plan
from pausejax.study.vocabulary import vocabulary

Arrays = dict[str, np.ndarray]
"""What some runs leave: arrays by variable, leading axis the runs."""


class Variable(NamedTuple):
    """One variable of a result."""

    dims: tuple[str, ...]
    """After `run`."""
    dtype: str
    fill: float
    """Where a run has no value: beyond its clients, its slots, its last round."""
    units: str
    meaning: str


def _series(units: str, meaning: str) -> Variable:
    return Variable(("round",), "float32", np.nan, units, meaning)


_CLIENTS: dict[str, Variable] = {
    "round_latency": _series("s", "simulated latency of the round, (3)"),
    "elapsed": _series("s", "simulated time since the start"),
    "reward": _series("1", "reward r(S_t, t), (9)"),
    "regret": _series("1", "realized regret of the round, (15)"),
    "pseudo_regret": _series("1", "regret of the round in expectation, by (10)"),
    "regret_own_history": _series("1", "regret of the round against a genie that plays its own trajectory"),
    "max_leakage": _series("1", "largest scheduled leakage of any client so far"),
    "max_leakage_update": _series("1", "the same for the whole update vector"),
    "selection_gap": _series("1", "what the cohort loses in (14) against the maximum"),
    "train_loss": _series("nat", "weighted mean loss of the local minibatches"),
    "test_accuracy": Variable(
        ("eval",), "float32", np.nan, "1", "fraction of the test set classified rightly"
    ),
    "test_loss": Variable(("eval",), "float32", np.nan, "nat", "mean cross-entropy on the test set"),
    "selected": Variable(("round", "slot"), "int32", -1, "1", "selected clients, ascending; -1 pads"),
    "counts": Variable(("client",), "int32", -1, "1", "rounds that each client took part in; -1 beyond K"),
    "diverged_round": Variable((), "int32", 0, "1", "round in which the model ceased to be finite; 0: never"),
}
LEARNING_VARIABLES = ("max_leakage_update", "train_loss", "test_accuracy", "test_loss", "diverged_round")

_ENSEMBLE: dict[str, Variable] = {
    "mse": _series("1", "mean squared error so far, MSE_t of the EFL-FG paper"),
    "best_expert_mse": _series("1", "the same of the best single model so far"),
    "regret": _series("1", "cumulative regret, (10)"),
    "realized_regret": _series("1", "the same with the losses incurred"),
    "regret_bound": _series("1", "bound (11) on the regret; EFL-FG only"),
    "violations": _series("1", "share of rounds so far that cost more than B"),
    "cost": _series("1", "mean cost sent per round so far; largest model = 1"),
    "reports": Variable(("round",), "int32", -1, "1", "cumulative number of clients that reported"),
    "sent_counts": Variable(("model",), "int32", -1, "1", "rounds in which each model was sent"),
    "model_cost": Variable(("model",), "float32", np.nan, "1", "cost of each model; largest model = 1"),
    # Coordinates of `run` that only the simulation knows: the spec may leave them to the data.
    "rounds_played": Variable((), "int32", 0, "1", "T"),
    "learning_rate": Variable((), "float64", np.nan, "1", "as played: 1/√T where the spec leaves it out"),
    "exploration_rate": Variable((), "float64", np.nan, "1", "as played: 1/√T where the spec leaves it out"),
}


def variables(mode: str) -> dict[str, Variable]:
    """Every variable that a result of a mode may have, by name."""
    return _ENSEMBLE if mode == "ensemble" else _CLIENTS


def evaluated_rounds(rounds: int, eval_every: int) -> np.ndarray:
    """The rounds after which the global model is evaluated: every k-th and the last."""
    return np.unique(np.append(np.arange(eval_every, rounds + 1, eval_every), rounds)).astype(np.int32)


def sizes(mode: str, shapes: Iterable[Mapping[str, tuple[int, ...]]]) -> dict[str, int]:
    """The length of every dimension but `run`: the longest that any runs need.

    Args:
      mode: the study's.
      shapes: the shape of every array that some runs left, by variable.
    """
    found: dict[str, int] = {}
    for arrays in shapes:
        for name, shape in arrays.items():
            for dim, length in zip(variables(mode)[name].dims, shape[1:], strict=True):
                found[dim] = max(found.get(dim, 0), length)
    return found


def blank(mode: str, names: Iterable[str], runs: int, lengths: Mapping[str, int]) -> Arrays:
    """Arrays of `runs` runs that hold fill values only."""
    return {
        name: np.full((runs, *(lengths[dim] for dim in variable.dims)), variable.fill, variable.dtype)
        for name, variable in variables(mode).items()
        if name in names
    }


def put(whole: Arrays, places: np.ndarray, part: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
    """Copies some runs into larger arrays; shorter trailing axes leave the fill values behind them."""
    for name, array in part.items():
        corner = tuple(slice(0, length) for length in array.shape[1:])
        whole[name][(places, *corner)] = array[rows]


def coordinates(plan: Plan) -> dict[str, np.ndarray]:
    """Coordinates of `run`: policy, seed, identity, and every parameter under its name and its symbols."""
    runs = plan.runs
    found: dict[str, np.ndarray] = {
        "policy": np.array([run.policy for run in runs]),
        "algorithm": np.array([run.algorithm for run in runs]),
        "seed": np.array([run.seed for run in runs], np.int64),
        "identity": np.array(plan.identities),
    }
    missing = {float: np.nan, int: -1, bool: False, str: ""}
    for name, parameter in vocabulary(plan.study.mode).parameters.items():
        if not any(name in run.values for run in runs):
            continue
        column = np.array([run.values.get(name, missing[parameter.kind]) for run in runs])
        for key in (name, *parameter.aliases):
            found[key] = column
    return found


def label(
    plan: Plan, columns: Mapping[str, np.ndarray], rows: slice | list[int], arrays: Arrays
) -> xr.Dataset:
    """The labelled data set of some runs.

    Args:
      plan: the whole plan.
      columns: from `coordinates`.
      rows: the runs' places in the plan.
      arrays: leading axis the runs.
    """
    study, table = plan.study, variables(plan.study.mode)
    coords: dict[str, Any] = {name: ("run", column[rows]) for name, column in columns.items()}
    attributes = provenance(plan)
    arrays = dict(arrays)
    if study.mode == "ensemble":
        coords["rounds_played"] = ("run", arrays.pop("rounds_played"))
        for name in ("learning_rate", "exploration_rate"):
            played = arrays.pop(name)
            if name in columns:
                aliases = vocabulary(study.mode).parameters[name].aliases
                coords |= dict.fromkeys((name, *aliases), ("run", played))
        count = arrays["mse"].shape[1]
        coords["round"] = np.arange(1, count + 1, dtype=np.int32) * study.eval_every
        coords["model"] = np.array(EXPERT_NAMES)
    else:
        coords["round"] = np.arange(1, study.rounds + 1, dtype=np.int32)
        coords["client"] = np.arange(arrays["counts"].shape[1], dtype=np.int32)
        if "test_accuracy" in arrays:
            coords["eval_round"] = ("eval", evaluated_rounds(study.rounds, study.eval_every))
        attributes["privacy_noise"] = "simulation-grade float32 Laplace draws; not for releasing real data"
    labelled = {}
    for name, array in arrays.items():
        _, _, _, units, meaning = table[name]
        labelled[name] = (("run", *table[name].dims), array, {"units": units, "long_name": meaning})
    return xr.Dataset(labelled, coords, attributes)


def merge(plan: Plan, parts: Sequence[tuple[Sequence[int], Arrays]]) -> xr.Dataset:
    """The whole result from the runs of all chunks, each with their places in the plan."""
    mode = plan.study.mode
    lengths = sizes(mode, ({name: array.shape for name, array in part.items()} for _, part in parts))
    whole = blank(mode, {name for _, part in parts for name in part}, len(plan.runs), lengths)
    for places, part in parts:
        put(whole, np.asarray(places), part, np.arange(len(places)))
    return label(plan, coordinates(plan), slice(None), whole)


def spec_text(plan: Plan) -> str:
    """The exact spec, overrides applied, as TOML."""
    return tomli_w.dumps(dict(plan.study.document))


def provenance(plan: Plan) -> dict[str, str]:
    """What a reader needs to know where the numbers come from."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    versions["pausejax"] = __version__
    return {
        "name": plan.study.name,
        "mode": plan.study.mode,
        "spec": spec_text(plan),
        "versions": json.dumps(versions),
        "backend": jax.default_backend(),
        "axes": json.dumps(plan.axes),
    }
