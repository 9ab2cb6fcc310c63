"""Runs by what they are: policy, seed and parameters, by name or symbol."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import parameters_in
from pausejax.analysis.settings import UNREAD, full_name, has
from pausejax.spelling import closest

# Coordinates may have been through float32, which keeps seven digits.
_TOLERANCE = 1e-6


def select(result: xr.Dataset, where: Mapping[str, Any] | None = None, /, **wanted: Any) -> xr.Dataset:
    """Selects the runs that have some values: `select(result, policy="pause", gamma=5.0)`.

    A policy that lacks a parameter is not asked for it: `select(result, kappa=30.0)` keeps the rivals that
    anneal nothing. To leave them out, name the policies.

    Args:
      result: a result, or its `finals`.
      where: the same as `wanted`, as a table; text stands for the number or truth value that it spells.
      **wanted: by the name of a coordinate of `run` (policy, algorithm, seed, identity, any parameter), or by
        a parameter's alias or symbol (`gamma`, `γ`): a value, several in a list, or a `slice(low, high)` with
        both ends included. Integers agree exactly; other numbers to six digits, unless some
        run has the very value.

    Returns:
      The same data set with these runs alone, in their order.

    Raises:
      ValueError: an unknown name, or a value that none of the runs has which the rest leaves; says what there
        is and what is nearest.
    """
    if "run" not in result.dims:
        raise ValueError("result: has no dimension run, so there is nothing to select from")
    conditions = [_condition(result, key, value) for key, value in wanted.items()]
    try:
        conditions += [_condition(result, key, value, spelled=True) for key, value in (where or {}).items()]
    except ValueError as mistake:
        raise ValueError(f"where: {mistake}") from mistake
    chosen = _meeting(conditions, result.sizes["run"])
    for condition in conditions:
        for value, hit in zip(condition.values, condition.hits, strict=True):
            if not (hit & chosen).any():
                others = [other for other in conditions if other is not condition]
                left = _meeting(others, len(chosen))
                said = ", ".join(f"{other.key} = {_listed(other.values)}" for other in others)
                raise ValueError(
                    f"{condition.key} = {_shown(value)}: no run with {said} has it"
                    f"{_instead(condition.column[left & ~condition.lacking], value)}"
                )
    return result.isel(run=np.flatnonzero(chosen))


class _Condition(NamedTuple):
    key: str
    column: np.ndarray
    values: Sequence[Any]
    hits: list[np.ndarray]
    """For each value which runs have it, bool [runs]."""
    lacking: np.ndarray
    """Which runs are of a policy without the parameter, bool [runs]."""


def _condition(result: xr.Dataset, key: str, value: Any, *, spelled: bool = False) -> _Condition:
    labels = [str(name) for name, coord in result.coords.items() if coord.dims == ("run",) and name != UNREAD]
    name = full_name(result, key, labels, "label of this result's runs")
    column = result[name].values
    values = [_meant(column, one) if spelled else one for one in _several(value, key)]
    lacking = ~has(result, name) if name in parameters_in(result) else np.zeros(len(column), bool)
    hits = [_hit(column, one, key) & ~lacking for one in values]
    for one, hit in zip(values, hits, strict=True):
        if not hit.any():
            raise ValueError(f"{key} = {_shown(one)}: no run has it{_instead(column[~lacking], one)}")
    return _Condition(key, column, values, hits, lacking)


def _meeting(conditions: Sequence[_Condition], runs: int) -> np.ndarray:
    """Returns which runs meet all of some conditions, bool [runs]."""
    chosen = np.ones(runs, bool)
    for condition in conditions:
        chosen &= np.any(condition.hits, axis=0) | condition.lacking
    return chosen


def _several(value: Any, key: str) -> Sequence[Any]:
    if isinstance(value, str | bytes | slice) or not isinstance(value, Iterable):
        return [value]
    values = np.atleast_1d(value).tolist() if isinstance(value, np.ndarray) else list(value)
    if not values:
        raise ValueError(f"{key} = []: name at least one value")
    return values


def _hit(column: np.ndarray, value: Any, key: str) -> np.ndarray:
    """Returns which runs have a value, bool [runs]."""
    words, rounded = column.dtype.kind not in "biuf", column.dtype.kind == "f"
    if isinstance(value, slice):
        if words or value.step is not None:
            raise ValueError(f"{key} = {_shown(value)}: a range is slice(low, high), of numbers")
        low, high = (end if end is not None else np.nan for end in (value.start, value.stop))
        reach = _TOLERANCE * np.abs(column) if rounded else 0
        return ~(column < low - reach) & ~(column > high + reach) & ~np.isnan(column)
    if words or isinstance(value, str):
        return np.asarray([item == value for item in column.tolist()], bool)
    try:
        exact = np.asarray(column == value)
        if exact.any() or not rounded:  # seeds may be dates, whose first six digits are alike
            return exact
        return np.isclose(column, value, rtol=_TOLERANCE, atol=0)
    except TypeError:
        return np.zeros(len(column), bool)


def _meant(column: np.ndarray, value: Any) -> Any:
    """Finds what text stands for among some values."""
    if not isinstance(value, str):
        return value
    if column.dtype.kind == "b":
        return {"true": True, "false": False}.get(value.lower(), value)
    if column.dtype.kind in "iuf":
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _instead(column: np.ndarray, value: Any) -> str:
    """Says what there is in place of a value, the nearest first."""
    there = list(dict.fromkeys(column.tolist()))
    if not there:
        return "; these runs lack it"
    numbers = all(isinstance(one, int | float) for one in there)
    near: list[Any] = []
    if numbers:
        there.sort()
        if isinstance(value, int | float):
            near = [min(there, key=lambda one: abs(one - value))]
    else:
        by_lower = {str(one).lower(): one for one in there}
        close = closest(str(value).lower(), by_lower)
        near = [] if close is None else [by_lower[close]]
    meant = f"; did you mean {_shown(near[0])}?" if near else ";"
    return f"{meant} known: {some(map(_shown, there))}"


def _listed(values: Sequence[Any]) -> str:
    shown = [_shown(value) for value in values]
    return shown[0] if len(shown) == 1 else f"[{some(shown)}]"


def _shown(value: Any) -> str:
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop}{'' if value.step is None else f', {value.step}'})"
    return f"{value:.7g}" if isinstance(value, float) else repr(value)


def written(value: Any) -> str:
    """Writes a value as messages spell it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def some(values: Iterable[str], most: int = 5) -> str:
    """Writes a list in words, its end cut off where it is long."""
    listed = list(values)
    return ", ".join(listed[:most]) + (f", … ({len(listed)} in all)" if len(listed) > most else "")
