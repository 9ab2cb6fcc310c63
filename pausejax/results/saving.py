"""Saves a result that is in memory into a folder, in the form that `pausejax run` writes."""

import tomllib
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis import schema, soundness
from pausejax.analysis.eval_times import EVAL_ELAPSED
from pausejax.analysis.per_run import run_blocks
from pausejax.analysis.settings import refuse_joined
from pausejax.clients import parameters as client_parameters
from pausejax.clients.records import evaluated_rounds
from pausejax.ensemble import parameters as ensemble_parameters
from pausejax.ensemble.experts import EXPERT_NAMES
from pausejax.results import blocks, description, exchange, manifest, study_folder
from pausejax.results.folder import Folder
from pausejax.results.sealed import write_sealed
from pausejax.study.study import FORMAT


def save(result: xr.Dataset, directory: str | Path) -> None:
    """Writes a result with its spec, its checksums and the digests of the files that it depends on.

    The folder is then a study's folder: `pausejax.open`, `report` and `export` read it, and
    `pausejax run DIR/spec.toml --out DIR` keeps the saved runs and plays only the missing runs. Files that
    the spec names by a relative path must then be in the folder; `save` does not copy them.

    Args:
      result: a result of `simulate` or `open`, or a selection of its runs.
      directory: the path or URL of the folder. A result in it is replaced if `result` has all of its runs.

    Raises:
      ValueError: `result` is not a complete result of this release, or the folder holds other runs, or files
        of yours that would be replaced.
      OSError: the folder can't be written to.
    """
    _check(result)
    folder = Folder(directory)
    folder.make()
    spec = schema.read(result, "spec")
    _check_new_folder(folder, spec)  # before the lock, which shows that a study has begun
    with folder.lock(study_folder.LOCK):
        _check_folder(folder, Counter(result["identity"].values.tolist()))
        partial = f".{study_folder.RESULT}.{uuid.uuid4().hex}.partial"
        try:
            size = blocks.runs_per_block(_largest(result))
            blocks.write_store(folder, partial, _parts(result, size), size)
            exchange.replace(folder, partial)
        finally:
            folder.remove(partial, manifest.NAME)
        folder.write(study_folder.SPEC, spec.encode())
        folder.remove(exchange.LABELS)  # they may be of another study that was planned here
        files = schema.read(result, "used_files")
        if files or folder.exists(study_folder.FILES):
            write_sealed(folder, study_folder.FILES, files)


def _check(result: xr.Dataset) -> None:
    if not {"spec", "used_files", "variables"} <= result.attrs.keys() or "run" not in result.dims:
        raise ValueError("result: must be a study's result with all its attributes. Nothing was saved")
    if result.attrs.get("format") != FORMAT:
        kept = result.attrs.get("format", 1)
        raise ValueError(
            f"result: has format {schema.brief(kept)}, but this release writes format {FORMAT}. Nothing was "
            "saved"
        )
    whole = set(schema.read(result, "variables"))
    # A later run of the spec treats these runs as finished, so they must have all variables of the study.
    if lost := sorted(whole - set(result.data_vars)):
        raise ValueError(
            f"result: must have all variables of its study, but lacks {', '.join(lost)}. Nothing was saved"
        )
    if added := sorted(str(name) for name in set(result.data_vars) - whole):
        raise ValueError(
            f"result: has {', '.join(added)}, which its study does not record. Nothing was saved. Drop it by "
            "drop_vars, or write the result by to_zarr"
        )
    for name in whole:
        if result[name].dims[:1] != ("run",):
            raise ValueError(f"result: the first dimension of {name} must be run. Nothing was saved")
    try:
        soundness.check(result)
        refuse_joined(result)  # means would average unlike runs
    except ValueError as error:
        raise ValueError(f"{error}. Nothing was saved") from error
    _check_lengths(result)
    _check_selections(result)
    # Runs may have equal identities: under two labels of one policy, or with two files of equal content. So
    # a run is the same only if all its coordinates are equal.
    columns = {str(name): column.values for name, column in result.coords.items() if column.dims == ("run",)}
    if pd.DataFrame(columns).duplicated().any():
        raise ValueError("result: holds a run twice. Nothing was saved")


def _check_lengths(result: xr.Dataset) -> None:
    """Checks that a result has all rounds, evaluations, clients and models of its runs, in order.

    Raises:
      ValueError: some were cut off or are in another order.
    """
    for name, complete in _coordinates(result).items():
        if name not in result.coords:
            continue
        if result[name].ndim != 1:
            raise ValueError(f"result: must have all values of {name}, not one. Nothing was saved")
        found, (dim,) = result[name].values, result[name].dims
        # A study whose runs differ in K is as wide as the largest, also where only smaller runs are selected.
        if len(found) < len(complete):
            raise ValueError(
                f"result: the dimension {dim} must have the length {len(complete)}, not {len(found)}. "
                "Nothing was saved"
            )
        if (found[: len(complete)] != complete).any():
            first = ", ".join(str(value) for value in complete[:3])
            raise ValueError(f"result: the coordinate {name} must begin with {first}. Nothing was saved")


def _coordinates(result: xr.Dataset) -> dict[str, Any]:
    """Returns the values of the coordinates of rounds, clients and models in a complete result, by name."""
    spec = tomllib.loads(schema.read(result, "spec"))
    if result.attrs.get("kind") == "ensemble":
        every = spec.get("eval_every", ensemble_parameters.STUDY["eval_every"].default)
        last = int(result["rounds_played"].max())
        return {"round": np.arange(every, last + 1, every), "model": np.array(EXPERT_NAMES)}
    defaults = {key: parameter.default for key, parameter in client_parameters.STUDY.items()}
    rounds, every = ({**defaults, **spec}[key] for key in ("rounds", "eval_every"))
    clients = int(result["num_clients"].max()) if "num_clients" in result.coords else 0
    return {
        "round": np.arange(1, rounds + 1),
        "eval_round": evaluated_rounds(rounds, every),
        "client": np.arange(max(clients, result.sizes.get("client", 0))),
        "slot": np.arange(result.sizes.get("slot", 0)),
    }


def _check_selections(result: xr.Dataset) -> None:
    """Checks that no selection is missing.

    Raises:
      ValueError: slots or rounds were cut off.
    """
    if not {"selected", "counts"} <= set(result.data_vars):
        return
    for runs in run_blocks(result["selected"], result["counts"]):
        part = result.isel(run=runs)
        selected = (part["selected"].values >= 0).reshape(part.sizes["run"], -1).sum(axis=1)
        counts = part["counts"].values  # NaN in a joined result, where a run has no client
        counted = np.where(counts > 0, counts, 0).sum(axis=1)
        if part["selected"].ndim != 3 or (selected != counted).any():
            raise ValueError(
                "result: selected and counts must have equally many selections, but differ. Were slots or "
                "rounds cut off? Nothing was saved"
            )


def _check_new_folder(folder: Folder, spec: str) -> None:
    """Checks that `save` replaces no files of the user in a folder where no study has begun.

    Raises:
      ValueError: it would replace some.
    """
    if exchange.result_name(folder) is not None:
        return
    keeps_spec = folder.exists(study_folder.SPEC) and folder.read(study_folder.SPEC) == spec.encode()
    if problem := description.problem_of_replacing(folder, keeps_spec=keeps_spec, who="`save`"):
        raise ValueError(f"{folder}: {problem}")


def _check_folder(folder: Folder, identities: Counter[str]) -> None:
    """Checks that saving into a folder would neither remove other runs nor mix the runs of two studies.

    Raises:
      ValueError: the folder holds an unfinished study, a result that can't be read, or other runs.
    """
    if folder.names(study_folder.PARTS) or description.checkpoints_of_others(folder, identities):
        raise ValueError(f"{folder}: holds an unfinished study. Choose another folder")
    if exchange.result_name(folder) is None:
        return
    try:
        held = Counter(study_folder.read(folder.location)["identity"].values.tolist())
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder}: holds a result that can't be read. Choose another folder") from error
    if lost := (held - identities).total():
        raise ValueError(f"{folder}: holds {lost} runs that this result lacks. Choose another folder")


def _largest(result: xr.Dataset) -> int:
    """Returns the bytes per run of the largest variable."""
    return max(array.nbytes // result.sizes["run"] for array in result.data_vars.values())


def _parts(result: xr.Dataset, size: int) -> Iterator[xr.Dataset]:
    # The chunks of the store from which the result was read are not kept.
    bare = result.drop_encoding().drop_vars(EVAL_ELAPSED, errors="ignore")  # computed at each opening
    for first in range(0, result.sizes["run"], size):
        yield bare.isel(run=slice(first, first + size)).load()
