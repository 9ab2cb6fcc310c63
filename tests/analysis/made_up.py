"""A small result with everything that makes results awkward, its truth kept beside it."""

import json

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import described
from pausejax.analysis.settings import UNREAD
from pausejax.clients.parameters import PARAMETERS
from pausejax.clients.variables import METRICS
from pausejax.parts import registered_parts
from pausejax.policies import sa_pause
from pausejax.results import blocks
from pausejax.results.folder import Folder
from pausejax.results.study_folder import RESULT
from pausejax.study.study import FORMAT

ANNEALING = registered_parts().get("policy", sa_pause.__name__).parameters

FIXED = {
    "num_clients": 5,
    "clients_per_round": 2,
    "privacy_budget": 40.0,
    "latency": "two_speed",
    "min_latency": 0.05,
    "fast_latency": 0.2,
    "slow_latency": 0.7,
    "slow_range": 0.2,
    "latency_deviation": 0.05,
    "generalization_weight": 1.0,
    "privacy_weight": 1.0,
}
"""Parameters that every run of a study has."""

ROUNDS, EVALUATED, CLIENTS = 12, np.array([4, 8, 12]), 5


def build(policies, seeds, axes, mode="training", random_seed=0, whole=False):
    """Random runs of policies {label: {axis: values}}; some stop early unless `whole`, some diverge."""
    rng = np.random.default_rng(random_seed)
    rows = [
        {"policy": policy, "seed": seed, **dict(zip(own, point, strict=True))}
        for policy, own in policies.items()
        for point in _product(list(own.values()))
        for seed in range(seeds)
    ]
    rng.shuffle(rows)
    runs = len(rows)
    last = np.where((rng.random(runs) < 0.4) & (not whole), rng.integers(4, ROUNDS + 1, runs), ROUNDS)
    recorded = np.arange(1, ROUNDS + 1) <= last[:, None]
    measured = last[:, None] >= EVALUATED
    latency = rng.uniform(0.1, 1, (runs, ROUNDS))

    def series(values, kept=recorded):
        return np.where(kept, values, np.nan).astype(np.float32)

    diverged = np.where(rng.random(runs) < 0.15, rng.integers(1, 4, runs), 0).astype(np.int32)
    selected = np.sort(rng.permuted(np.tile(np.arange(CLIENTS), (runs, ROUNDS, 1)), axis=2)[..., :2], axis=2)
    selected = np.where(recorded[..., None], selected, -1).astype(np.int32)
    counts = np.stack([np.bincount(s[s >= 0], minlength=CLIENTS) for s in selected]).astype(np.int32)
    variables = {
        "round_latency": (("run", "round"), series(latency)),
        "elapsed": (("run", "round"), series(np.cumsum(latency, axis=1))),
        "max_leakage": (("run", "round"), series(np.cumsum(rng.random((runs, ROUNDS)), axis=1))),
        "regret": (("run", "round"), series(rng.normal(size=(runs, ROUNDS)))),
        "pseudo_regret": (("run", "round"), series(rng.random((runs, ROUNDS)))),
        "selection_gap": (("run", "round"), series(rng.choice([0.0, 1e-7, 0.5, np.inf], (runs, ROUNDS)))),
        "selected": (("run", "round", "slot"), selected),
        "counts": (("run", "client"), counts),
    }
    if mode == "training":
        accuracy = rng.random((runs, EVALUATED.size))
        variables["test_accuracy"] = (("run", "eval"), series(accuracy, measured), {"units": "1"})
        variables["diverged_round"] = ("run", diverged)
    coords = {
        "policy": ("run", np.array([row["policy"] for row in rows])),
        "algorithm": ("run", np.array([row["policy"] for row in rows])),
        "seed": ("run", np.array([row["seed"] for row in rows])),
        "identity": ("run", np.array([f"{place:04x}" for place in range(runs)])),
        "round": np.arange(1, ROUNDS + 1, dtype=np.int32),
        "client": np.arange(CLIENTS, dtype=np.int32),
    }
    coords |= {name: ("run", np.full(runs, value)) for name, value in FIXED.items() if name not in axes}
    missing = {"annealing_steps": -1}
    for axis in axes:
        coords[axis] = ("run", np.array([row.get(axis, missing.get(axis, np.nan)) for row in rows]))
    unread = [" ".join(axis for axis in axes if axis not in row) for row in rows]
    coords[UNREAD] = ("run", np.array(unread, dtype=str))
    if mode == "training":
        coords["eval_round"] = ("eval", EVALUATED.astype(np.int32))
    parameters = {name: (p.aliases, p.symbol) for name, p in {**PARAMETERS, **ANNEALING}.items()}
    up = "test_accuracy" if mode == "training" else "participation_imbalance"
    ranking = "test_accuracy" if mode == "training" else "mean_latency"
    attributes = {"axes": json.dumps(list(axes)), "kind": "clients", "mode": mode, "name": "made up"}
    attributes |= described(METRICS, (up, "mean_latency", "max_leakage"), ranking, parameters)
    result = xr.Dataset(variables, coords, attributes)
    return result, rows, last


def _product(values):
    if not values:
        return [()]
    return [(first, *rest) for first in values[0] for rest in _product(values[1:])]


POLICIES = {
    "pause": {"privacy_weight": [1.0, 5.0]},
    "annealed": {
        "privacy_weight": [1.0, 5.0],
        "annealing_steps": [10, 50],
        "temperature_divisor": [1.0, 30.0],
    },
    "uniform": {},
}
AXES = ("privacy_weight", "annealing_steps", "temperature_divisor")


def store(result, folder, runs=None):
    """Writes a result as a study leaves it: its codecs, its manifest, `runs` runs a chunk."""
    result = result.assign_attrs(format=FORMAT)
    blocks.put(Folder(folder), RESULT, result, runs or result.sizes["run"])
    blocks.seal(Folder(folder), RESULT)
