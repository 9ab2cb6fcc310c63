"""Means over seeds with intervals, and differences between policies, paired by seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.comparing import refuse_unlike
from pausejax.analysis.intervals import group_intervals
from pausejax.analysis.metrics import is_count, recorded
from pausejax.analysis.per_run import finals, with_divergence
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import (
    axes_of,
    coordinates,
    distinct,
    full_names,
    group,
    has,
    label,
    records,
    runs_table,
    symbols,
    values_of,
)

_SETTING = "setting of the difference"
"""Name of a temporary coordinate. No parameter has this name."""
Side = str | Mapping[str, Any]
"""One side of a difference: the label of a policy, or a table that fixes policy and axes."""


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
      metric: a name in `metrics_of(result)`, or an array with the leading dimension `run`, such as
        `result.test_accuracy` for whole curves. NaN, such as a diverged run's accuracy, is left out. -1 in a
        count of the result stands for no value and is left out too. Before you compute with counts, mask and
        rename them: `count.where(count >= 0).rename("mine")`. A computed array with negative numbers is
        refused if it is of integers, or if it has the name of a count. An array with the coordinates of other
        runs, or of the same runs in another order, is refused too.
      over: what is averaged: "seed", "policy", or axes by name or symbol. If "seed" is one of several names,
        each seed is first averaged over the other names, because runs with the same seed are not independent.
        Without "seed" there are no intervals, because the values of an axis are no sample.
      level: coverage of the interval, which is Student's t interval.

    Returns:
      A data set over `setting` and the array's other dimensions. Its variables are `mean`, `low` and `high`;
      `count`, the number of averaged values (seeds, if axes are averaged too); `left_out`, the number of runs
      with NaN; `runs` and `seeds`, the numbers of all runs and of their distinct seeds; and `diverged`, the
      number of diverged runs, if the result records them. Its coordinates are the policy, the axes and a
      label.

    Raises:
      ValueError: the metric or an axis is unknown, or the array has other runs or negative numbers of
        unknown meaning.
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
    """Computes the mean of policy a's metric minus policy b's, over pairs of runs on the same network.

    Runs are paired by seed and by every axis of which both policies have several values. If only one policy
    has several values of an axis, there is a separate difference for each of these values.

    Args:
      result: a result, or its `finals`.
      policy_a: the label of a policy, or a table that also fixes axes: `{"policy": "pause", "privacy_weight":
        5.0}`. Runs are not paired by an axis that a table fixes. In a table without "policy" the policy is an
        axis like others.
      policy_b: the policy to subtract, in the form of `policy_a`.
      metric: a name in `metrics_of(result)`, or an array with the leading dimension `run`.
      over: what is averaged: "seed", "policy", or axes by name or symbol. Without "seed" there are no
        intervals.
      level: coverage of the interval, which is Student's t interval.

    Returns:
      A data set with `mean`, `low`, `high` and more, as `mean_ci` returns it. A label has the values of
      policy a's runs; if those of policy b differ, it adds them: `η = 0.2, minus random with η = 0.1`. The
      coordinate of an axis has the values of the side that has several. The attributes policy_a and policy_b
      name the two sides. The attribute `unpaired` counts the runs of both sides that are in no pair.

    Raises:
      ValueError: a policy, metric or axis is unknown, no two runs make a pair, or the array has other runs.
      Incomparable: (a ValueError) `metric` is a name, and its values can't be compared: regrets under
        different rewards, or sums over unequally many rounds.
    """
    if isinstance(metric, str):
        result = with_divergence(result, [metric])  # reads each value once
    array = _array(result, metric)
    averaged = full_names(result, over, "over")
    table = runs_table(result)
    sides = _without_constants(
        _side(result, table, policy_a, "policy_a"), _side(result, table, policy_b, "policy_b")
    )
    own = [[name for name in ("policy", *axes_of(result)) if name in side.columns] for side in sides]
    shared = [name for name in own[0] if name in own[1]]
    pairs = sides[0].merge(sides[1], on=["seed", *shared], suffixes=("", " b"), sort=False)
    if pairs.empty:
        names = " and ".join(["seed", *shared])
        raise ValueError(
            f"{_name(policy_a, result)} and {_name(policy_b, result)}: can't be paired, because no two of "
            f"their runs have the same {names}"
        )
    whole = array.values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = whole[pairs["place"]] - whole[pairs["place b"]]
    rows = pairs[["seed", *dict.fromkeys([*own[0], *own[1]])]]
    keys = [name for name in rows.columns if name not in averaged]
    codes, first = group(rows, keys)
    if isinstance(metric, str):
        compared = result.isel(run=np.concatenate([pairs["place"], pairs["place b"]]))
        compared = compared.assign_coords({_SETTING: ("run", np.tile(codes, 2))})
        refuse_unlike(compared, metric, compared[metric].values, [_SETTING], ask="")
    found = _means(difference, rows, keys, averaged, array, result, level)
    runs = [table.iloc[pairs[place].iloc[first]][keys] for place in ("place", "place b")]
    found["label"] = "setting", _labels(runs[0], runs[1], _name(policy_b, result), symbols(result))
    unpaired = sum(map(len, sides)) - pairs["place"].nunique() - pairs["place b"].nunique()
    return found.assign_attrs(
        policy_a=_name(policy_a, result), policy_b=_name(policy_b, result), unpaired=int(unpaired)
    )


def _labels(
    runs_a: pd.DataFrame, runs_b: pd.DataFrame, policy_b: str, symbols: Mapping[str, str]
) -> list[str]:
    """Returns a different label for each pair of runs: the values of a, and those of b that differ."""

    def text(a: Mapping[str, Any], b: Mapping[str, Any], written: Callable[[Any], str] | None) -> str:
        others = {name: value for name, value in b.items() if name not in a or a[name] != value}
        parts = [label(a, symbols, written)] if a else []
        if others:
            parts.append(f"minus {policy_b} with {label(others, symbols, written)}")
        return ", ".join(parts) or "all runs"

    pairs = list(zip(records(runs_a), records(runs_b), strict=True))
    return distinct([text(a, b, None) for a, b in pairs], [text(a, b, str) for a, b in pairs])


def _array(result: xr.Dataset, metric: str | xr.DataArray) -> xr.DataArray:
    if isinstance(metric, str):
        return finals(result, [metric])[metric]
    if metric.dims[:1] != ("run",) or metric.sizes["run"] != result.sizes["run"]:
        raise ValueError(
            f'metric: the first dimension of the array must be "run", of length {result.sizes["run"]}, '
            f"not {dict(metric.sizes)}"
        )
    for name in ("identity", "policy", "seed"):
        known = name in metric.coords and name in result.coords
        if known and not np.array_equal(metric[name].values, result[name].values):
            raise ValueError(
                f"metric: the array's {name} is not that of the result, so it has other runs or another "
                "order. Compute the array from this result"
            )
    if not (is_count(str(metric.name), metric.values) and (metric.values < 0).any()):
        return metric
    if not _is_selection(metric, result.get(metric.name)):
        raise ValueError(
            f"metric: this array of {metric.name or 'integers'} has negative numbers. They may be values, or "
            "come from counts, in which -1 stands for no value. If they are values, give "
            'array.astype(float).rename("mine"). If not, mask the counts before you compute with them: '
            'count.where(count >= 0).rename("mine")'
        )
    return metric.copy(data=recorded(str(metric.name), metric.values))


def _is_selection(array: xr.DataArray, variable: xr.DataArray | None) -> bool:
    """Returns whether an array is a variable, or a selection of it along the dimensions with labels.

    Further values may be masked by NaN.
    """
    if variable is None:
        return False
    chosen = {dim: array[dim].values for dim in variable.dims[1:] if dim in array.coords}
    try:
        whole = variable.sel(chosen)
    except KeyError:
        return False
    if whole.dims != array.dims or whole.shape != array.shape:
        return False
    return bool((np.isnan(array.values) | (whole.values == array.values)).all())


def _name(side: Side, result: xr.Dataset) -> str:
    return side if isinstance(side, str) else label(side, symbols(result))


def _side(result: xr.Dataset, table: pd.DataFrame, side: Side, argument: str) -> pd.DataFrame:
    """Returns a row for each run of a side: its index, its seed, and the policy and axes that the side does
    not fix."""
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
    return own.drop(columns=[*(set(names) | set(lacking))])


def _without_constants(one: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the rows of two sides without the columns of axes by which their runs are not paired.

    A side loses an axis of which it has a single value, unless the other side has this value alone.
    """
    for name in one.columns.intersection(other.columns).difference(["seed", "place"]):
        values, others = set(one[name]), set(other[name])
        if values != others or len(values) > 1:
            one = one.drop(columns=name) if len(values) == 1 else one
            other = other.drop(columns=name) if len(others) == 1 else other
    return one, other


def _means(
    each: np.ndarray,
    rows: pd.DataFrame,
    keys: Sequence[str],
    averaged: Sequence[str],
    array: xr.DataArray,
    result: xr.Dataset,
    level: float,
) -> xr.Dataset:
    """Computes means and intervals of `each`, the values of the runs or pairs of runs in `rows`.

    Returns:
      A data set with one setting for each combination of the values of `keys`.
    """
    codes, first = group(rows, keys)
    # A setting may have several runs with one seed: if axes are averaged, or if two axis values act alike.
    seeds = rows["seed"].to_numpy() if "seed" in averaged else None
    found = group_intervals(each, codes, seeds, level=level)
    if seeds is None:
        found = found._replace(low=np.full_like(found.low, np.nan), high=np.full_like(found.high, np.nan))
    lost = np.zeros((len(first), *each.shape[1:]), int)
    np.add.at(lost, codes, np.isnan(each))
    dims = ("setting", *array.dims[1:])
    described = {key: array.attrs[key] for key in ("units", "long_name") if key in array.attrs}
    variables = {
        **{name: (dims, getattr(found, name), described) for name in ("mean", "low", "high")},
        "count": (dims, found.counts),
        "left_out": (dims, lost),
        "runs": ("setting", np.bincount(codes, minlength=len(first))),
        "seeds": ("setting", rows["seed"].groupby(codes).nunique().to_numpy()),
    }
    coords = coordinates(rows.iloc[first][list(keys)], result)
    others = {name: c.variable for name, c in array.coords.items() if "run" not in c.dims}
    attrs = {"metric": str(array.name), "level": level, "over": ", ".join(averaged)}
    return xr.Dataset(variables, {**coords, **others}, attrs)
