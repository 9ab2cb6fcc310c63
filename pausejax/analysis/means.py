"""Means over seeds with their intervals, and differences between policies, paired by seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.intervals import group_intervals
from pausejax.analysis.per_run import finals
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import (
    axes_of,
    coordinates,
    full_names,
    group,
    has,
    label,
    runs_table,
    symbols,
    values_of,
)

Side = str | Mapping[str, Any]


def mean_ci(
    result: xr.Dataset,
    metric: str | xr.DataArray = "test_accuracy",
    *,
    over: str | Sequence[str] = "seed",
    level: float = 0.95,
) -> xr.Dataset:
    """Computes the mean of a metric with its confidence interval, for each setting.

    Args:
      result: a result, or its `finals`.
      metric: a name out of `metrics_of(result)`, or any array with the leading dimension `run`, such as
        `result.test_accuracy` for whole curves. NaN (a diverged run's accuracy) is left out.
      over: what is averaged: "seed", "policy", axes by name or symbol. Where the seed is among several,
        the mean over the others is taken first, seed by seed: runs of one seed are no independent sample.
      level: coverage of the interval, Student's t.

    Returns:
      Data set over `setting` (and the array's other dims): `mean`, `low`, `high`, `count` (values that the
      mean is over: seeds, where axes are averaged too), `left_out` (runs that are NaN) of so many `runs`, and
      `diverged` (runs), if the result says so; coordinates policy, axes, and a label.

    Raises:
      ValueError: an unknown metric or axis.
    """
    array = _array(result, metric)
    averaged = full_names(result, over, "over")
    table = runs_table(result)
    keys = [name for name in table.columns if name not in averaged]
    found = _means(array.values, table, keys, averaged, array, result, level)
    if "diverged_round" in result:
        codes, first = group(table, keys)
        counts = np.bincount(codes, result["diverged_round"].values > 0, len(first)).astype(int)
        found = found.assign(diverged=("setting", counts))
    return found


def paired_difference(
    result: xr.Dataset,
    policy_a: Side,
    policy_b: Side,
    metric: str | xr.DataArray = "test_accuracy",
    *,
    over: str | Sequence[str] = "seed",
    level: float = 0.95,
) -> xr.Dataset:
    """Computes the mean of a's metric minus b's, over pairs of runs that met the same network.

    Runs are paired by seed and by the value of every axis that both have; an axis that only one of them
    has makes settings of its own.

    Args:
      result: a result, or its `finals`.
      policy_a: a policy's label, or a table that fixes axes as well:
        `{"policy": "pause", "privacy_weight": 5.0}`.
      policy_b: the same; an axis that a table fixes is not paired by.
      metric: as in `mean_ci`.
      over: as in `mean_ci`.
      level: as in `mean_ci`.

    Returns:
      As `mean_ci`; attributes policy_a and policy_b say what was subtracted from what.

    Raises:
      ValueError: an unknown policy, metric or axis, or no two runs that make a pair.
    """
    array = _array(result, metric)
    averaged = full_names(result, over, "over")
    table = runs_table(result)
    sides = [
        _side(result, table, side, name) for name, side in (("policy_a", policy_a), ("policy_b", policy_b))
    ]
    own = [[name for name in axes_of(result) if name in side.columns] for side in sides]
    shared = [name for name in own[0] if name in own[1]]
    pairs = sides[0].merge(sides[1], on=["seed", *shared], suffixes=("", " b"), sort=False)
    if pairs.empty:
        names = " and ".join(["seed", *shared])
        raise ValueError(
            f"{_name(policy_a, result)} and {_name(policy_b, result)}: no two runs agree in {names}"
        )
    whole = array.values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = whole[pairs["place"]] - whole[pairs["place b"]]
    rows = pairs[["seed", *dict.fromkeys([*own[0], *own[1]])]]
    keys = [name for name in rows.columns if name not in averaged]
    found = _means(difference, rows, keys, averaged, array, result, level)
    return found.assign_attrs(policy_a=_name(policy_a, result), policy_b=_name(policy_b, result))


def _array(result: xr.Dataset, metric: str | xr.DataArray) -> xr.DataArray:
    if isinstance(metric, str):
        return finals(result, [metric])[metric]
    if metric.dims[:1] != ("run",) or metric.sizes["run"] != result.sizes["run"]:
        raise ValueError(f"metric: an array over {metric.dims}; its first dimension must be the result's run")
    return metric


def _name(side: Side, result: xr.Dataset) -> str:
    return side if isinstance(side, str) else label(side, symbols(result))


def _side(result: xr.Dataset, table: pd.DataFrame, side: Side, argument: str) -> pd.DataFrame:
    """Finds the runs of one side: place in the result, seed, and the axes that they have and don't fix."""
    fixed = {"policy": side} if isinstance(side, str) else dict(side)
    names = full_names(result, list(fixed), argument)
    chosen = np.ones(len(table), bool)
    for name, value in zip(names, fixed.values(), strict=True):
        same = has(result, name) & (result[name].values == value)
        if not same.any():
            known = some(map(str, values_of(result, name)))
            raise ValueError(f"{argument}: no run has {name} = {value!r}; known: {known}")
        chosen &= same
    if not chosen.any():
        raise ValueError(f"{argument} = {_name(side, result)}: no run has all of these values")
    own = table[chosen].assign(place=np.flatnonzero(chosen))
    lacking = [name for name in axes_of(result) if own[name].isna().all()]
    return own.drop(columns=["policy", *(set(names) - {"policy"} | set(lacking))])


def _means(
    each: np.ndarray,
    rows: pd.DataFrame,
    keys: Sequence[str],
    averaged: Sequence[str],
    array: xr.DataArray,
    result: xr.Dataset,
    level: float,
) -> xr.Dataset:
    """Computes means and intervals of the values of runs, or of pairs of runs, as a labelled data set."""
    codes, first = group(rows, keys)
    # A setting may have several runs of a seed: over axes, and where two values are played alike.
    seeds = rows["seed"].to_numpy() if "seed" in averaged else None
    found = group_intervals(each, codes, seeds, level=level)
    lost = np.zeros((len(first), *each.shape[1:]), int)
    np.add.at(lost, codes, np.isnan(each))
    dims = ("setting", *array.dims[1:])
    described = {key: array.attrs[key] for key in ("units", "long_name") if key in array.attrs}
    variables = {
        **{name: (dims, getattr(found, name), described) for name in ("mean", "low", "high")},
        "count": (dims, found.counts),
        "left_out": (dims, lost),
        "runs": ("setting", np.bincount(codes, minlength=len(first))),
    }
    coords = coordinates(rows.iloc[first][list(keys)], result)
    others = {name: c.variable for name, c in array.coords.items() if "run" not in c.dims}
    attrs = {"metric": str(array.name), "level": level, "over": ", ".join(averaged)}
    return xr.Dataset(variables, {**coords, **others}, attrs)
