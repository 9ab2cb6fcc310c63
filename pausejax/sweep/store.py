"""The result on disk: one Zarr store that `xarray.open_zarr` reads, filled chunk by chunk of runs."""

import difflib
import importlib.metadata
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tomli_w
import xarray as xr

from pausejax import __version__
from pausejax.sweep.plan import Plan
from pausejax.sweep.spec import SpecError
from pausejax.sweep.vocabulary import vocabulary

STORE = "results.zarr"
SPEC = "spec.toml"

# name -> (dims after run, dtype, fill value, units, meaning)
VARIABLES: dict[str, tuple[tuple[str, ...], str, float, str, str]] = {
    "round_latency": (("round",), "float32", np.nan, "s", "simulated latency of the round, (3)"),
    "elapsed": (("round",), "float32", np.nan, "s", "simulated time since the start"),
    "reward": (("round",), "float32", np.nan, "1", "reward r(S_t, t), (9)"),
    "regret": (("round",), "float32", np.nan, "1", "realized regret of the round, (15)"),
    "pseudo_regret": (("round",), "float32", np.nan, "1", "regret of the round in expectation, by (10)"),
    "regret_own_history": (
        ("round",),
        "float32",
        np.nan,
        "1",
        "regret of the round against a genie that plays its own trajectory",
    ),
    "max_leakage": (("round",), "float32", np.nan, "1", "largest scheduled leakage of any client so far"),
    "max_leakage_update": (("round",), "float32", np.nan, "1", "the same for the whole update vector"),
    "selection_gap": (
        ("round",),
        "float32",
        np.nan,
        "1",
        "what the cohort loses in (14) against the maximum",
    ),
    "train_loss": (("round",), "float32", np.nan, "nat", "weighted mean loss of the local minibatches"),
    "test_accuracy": (("eval",), "float32", np.nan, "1", "fraction of the test set classified rightly"),
    "test_loss": (("eval",), "float32", np.nan, "nat", "mean cross-entropy on the test set"),
    "selected": (("round", "slot"), "int32", -1, "1", "selected clients, ascending; -1 pads"),
    "counts": (("client",), "int32", -1, "1", "rounds that each client took part in; -1 beyond K"),
    "diverged_round": ((), "int32", 0, "1", "round in which the model ceased to be finite; 0: never"),
}
LEARNING_VARIABLES = ("max_leakage_update", "train_loss", "test_accuracy", "test_loss", "diverged_round")


def evaluated_rounds(rounds: int, eval_every: int) -> np.ndarray:
    """The rounds after which the global model is evaluated: every k-th and the last."""
    return np.unique(np.append(np.arange(eval_every, rounds + 1, eval_every), rounds)).astype(np.int32)


def coordinates(plan: Plan) -> dict[str, tuple[str, np.ndarray]]:
    """Coordinates of `run`: policy, seed, identity, and every parameter under its name and its symbols."""
    runs = plan.runs
    found: dict[str, tuple[str, np.ndarray]] = {
        "policy": ("run", np.array([run.policy for run in runs])),
        "algorithm": ("run", np.array([run.algorithm for run in runs])),
        "seed": ("run", np.array([run.seed for run in runs], np.int64)),
        "identity": ("run", np.array([run.identity(plan.study) for run in runs])),
    }
    missing = {float: np.nan, int: -1, bool: False, str: ""}
    for name, parameter in vocabulary(plan.study.mode).parameters.items():
        if not any(name in run.values for run in runs):
            continue
        column = np.array([run.values.get(name, missing[parameter.kind]) for run in runs])
        for key in (name, *parameter.aliases):
            found[key] = ("run", column)
    return found


def dataset(plan: Plan, positions: Sequence[int], arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
    """The result of some runs of a plan as a labelled data set.

    Args:
      plan: the whole plan.
      positions: places of the runs in the plan.
      arrays: for each name in `VARIABLES`, leading axis `len(positions)`; absent ones are left out.
    """
    study = plan.study
    variables = {}
    for name, (dims, dtype, _, units, meaning) in VARIABLES.items():
        if name in arrays:
            attributes = {"units": units, "long_name": meaning}
            variables[name] = (("run", *dims), np.asarray(arrays[name], dtype), attributes)
    coords: dict[str, Any] = {
        name: (dim, column[list(positions)]) for name, (dim, column) in coordinates(plan).items()
    }
    coords["round"] = np.arange(1, study.rounds + 1, dtype=np.int32)
    coords["client"] = np.arange(arrays["counts"].shape[1], dtype=np.int32)
    if "test_accuracy" in variables:
        coords["eval_round"] = ("eval", evaluated_rounds(study.rounds, study.eval_every))
    noise = "simulation-grade float32 Laplace draws; not for releasing real data"
    return xr.Dataset(variables, coords, {**provenance(plan), "privacy_noise": noise})


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


def prepare(directory: Path, plan: Plan) -> None:
    """Makes the study's folder and checks, before any compute, that the result may be written there.

    Raises:
      SpecError: the folder holds the result of another spec; says where they differ.
      OSError: the folder can't be made or written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, text = directory / SPEC, spec_text(plan)
    finished = (directory / STORE).exists()
    if finished and path.exists() and (old := path.read_text(encoding="utf-8")) != text:
        changed = difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)
        shown = [line for line in changed if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        raise SpecError(
            [f"--out {directory}: holds the result of another spec; choose another folder", *shown[:20]]
        )
    path.write_text(text, encoding="utf-8")


def spec_text(plan: Plan) -> str:
    """The exact spec, overrides applied, as TOML."""
    return tomli_w.dumps(dict(plan.study.document))


def write(directory: Path, result: xr.Dataset) -> None:
    """Writes the result; a reader sees the old one or the new one, never a part."""
    final = directory / STORE
    partial, replaced = (final.with_suffix(suffix) for suffix in (".partial", ".replaced"))
    for leftover in (partial, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    result.to_zarr(partial, mode="w", zarr_format=2, consolidated=True)
    if final.exists():
        final.rename(replaced)
    partial.rename(final)
    shutil.rmtree(replaced, ignore_errors=True)


def read(directory: str | Path) -> xr.Dataset:
    """Opens the result in a study's folder.

    Raises:
      FileNotFoundError: there is none.
    """
    path = Path(directory) / STORE
    if not path.is_dir():
        raise FileNotFoundError(
            f"{directory}: holds no result ({STORE}); run `pausejax run SPEC --out` first"
        )
    return xr.open_zarr(path)
