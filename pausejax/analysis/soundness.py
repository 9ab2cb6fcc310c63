"""Checks a result from an unknown source: its attributes, coordinates and variables."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pausejax.analysis import schema

if TYPE_CHECKING:
    import xarray as xr

_CHARACTERS = 2**28
"""Largest size of one coordinate in characters: the number of values times the longest value's length."""


def check(result: "xr.Dataset") -> None:
    """Checks the layout and the attributes of a result from an unknown source.

    Raises:
      ValueError: the check fails; the message names the attribute, coordinate or variable.
    """
    for name in schema.NAMES:
        if name in result.attrs:
            schema.read(result, name)
    _check_arrays(result)
    _check_runs(result)
    _check_rounds(result)
    metrics = schema.read(result, "metrics")
    for name, metric in metrics.items():
        _check_source(result, name, metric["variable"], metric["reduce"])
    objectives = schema.read(result, "objectives")
    if "objectives" in result.attrs and not (len(objectives) == 3 and metrics.keys() >= set(objectives)):
        raise ValueError("result: attribute objectives: must name three metrics of the result")
    ranking = schema.read(result, "ranking") if "ranking" in result.attrs else None
    if ranking and not (
        ranking in metrics and {ranking, metrics[ranking]["variable"]} & set(result.variables)
    ):
        raise ValueError(
            f"result: attribute ranking: {ranking}: must be a metric whose variable the result has"
        )


def _check_source(result: "xr.Dataset", metric: str, variable: str, reduce: str) -> None:
    """Checks that a metric has one figure for each run, or can be computed from its variable."""
    if metric in result and result[metric].dims == ("run",) and result[metric].dtype.kind in "biuf":
        return
    if metric not in result and variable not in result:
        return
    array = result[variable if variable in result else metric]
    dims = ("run",) if reduce == "itself" else ("run", *array.dims[1:2])
    if variable not in result or array.dims != dims or len(dims) != 1 + (reduce != "itself"):
        raise ValueError(
            f"result: metric {metric}: {reduce!r} must give one number per run, but {_laid_out(array)}"
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(f"result: metric {metric}: {_laid_out(array)}; must have numbers")


def check_layout(
    result: "xr.Dataset",
    layout: Mapping[str, tuple[str, ...]],
    kinds: Mapping[str, str],
    needed: Collection[str],
) -> None:
    """Checks the dimensions and the types of some variables and coordinates, if a result has them.

    Args:
      result: the result.
      layout: the dimensions of each variable, by its name.
      kinds: the allowed kinds of NumPy types, such as "iu", of each coordinate of `run`, by its name.
      needed: the names of variables and coordinates that the result must have.

    Raises:
      ValueError: a needed name is absent, or a variable or coordinate has other dimensions or another type.
    """
    for name in sorted({*layout, *kinds, *needed}):
        if name not in result:
            if name in needed:
                raise ValueError(f"result: must have {name}, which its charts need, but lacks it")
            continue
        wanted = layout.get(name, ("run",))
        allowed = kinds.get(name, "biufU")
        if result[name].dims != wanted or result[name].dtype.kind not in allowed:
            what = f"{'numbers or words' if 'U' in allowed else 'numbers'} over {', '.join(wanted)}"
            raise ValueError(f"result: {_laid_out(result[name])}; must be {what}")


def _check_arrays(result: "xr.Dataset") -> None:
    for name, array in result.variables.items():
        if wrong := schema.name_problem(name):
            raise ValueError(f"result: a variable's name {wrong}")
        dims = [dim for dim in array.dims if schema.name_problem(dim)]
        if dims or len(set(array.dims)) < len(array.dims):
            raise ValueError(
                f"result: {name}: its dimensions must be different names, not {schema.brief(array.dims)}"
            )
        numbers = array.dtype.kind in "biuf"
        if name in result.data_vars and not (numbers and array.dims[:1] == ("run",)):
            raise ValueError(f"result: {_laid_out(result[name])}; a variable must have numbers for each run")
        if name in result.coords and not (numbers or _is_words(array)):
            raise ValueError(f"result: {_laid_out(result[name])}; a coordinate must have numbers or words")
        for key in ("units", "long_name", "symbol"):
            if key in array.attrs and (wrong := schema.text_problem(array.attrs[key])):
                raise ValueError(f"result: {name}: {key}: {wrong}")


def _check_runs(result: "xr.Dataset") -> None:
    labels = {
        "policy": "UT",
        "algorithm": "UT",
        "identity": "UT",
        "seed": "iu",
        "study": "UT",
        "sources": "UT",
    }
    for name in dict.fromkeys((*labels, *schema.read(result, "axes"), *schema.read(result, "parameters"))):
        if name not in result.coords:
            if name in labels and name not in ("study", "sources"):
                raise ValueError(f"result: must have the coordinate {name}, but lacks it")
            continue
        column = result[name]
        if column.dims != ("run",) or column.dtype.kind not in labels.get(name, "biufUT"):
            raise ValueError(f"result: {_laid_out(column)}; must have a label for each run")
    if not result.sizes["run"]:
        raise ValueError("result: must have one run or more, but has none")
    for name, column in result.coords.items():
        if _is_words(column.variable):
            _check_words(str(name), column.values)


def _check_words(name: str, values: np.ndarray) -> None:
    longest, different = 0, set()
    for value in values.ravel().tolist():
        longest = max(longest, len(value))
        different.add(value)
        if longest * values.size > _CHARACTERS:
            raise ValueError(f"result: {name}: must have at most {_CHARACTERS} characters in all")
    for value in different:
        if wrong := schema.line_problem(value):
            raise ValueError(f"result: {name}: a label {wrong}")


def _check_rounds(result: "xr.Dataset") -> None:
    known: set[int] = set()
    for dim, name in (("round", "round"), ("eval", "eval_round")):
        if dim not in result.sizes:
            continue
        if name not in result.coords or result[name].dims != (dim,) or result[name].dtype.kind not in "iu":
            raise ValueError(f"result: {name}: must be an integer for each {dim}")
        rounds = result[name].values
        if (rounds < 1).any() or (np.diff(rounds) <= 0).any():
            raise ValueError(f"result: {name}: must be ascending numbers from 1")
        if dim == "round":
            known = set(rounds.tolist())
        elif not known.issuperset(rounds.tolist()):
            raise ValueError("result: eval_round: must contain only rounds of the result")


def _is_words(array: Any) -> bool:
    return array.dtype.kind == "U" or isinstance(array.dtype, np.dtypes.StringDType)


def _laid_out(array: "xr.DataArray") -> str:
    return f"{array.name} is {array.dtype} over {', '.join(map(str, array.dims)) or 'no dimension'}"
