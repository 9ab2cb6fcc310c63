"""Selects runs by policy, seed and parameters, which are given by name, alias or symbol."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import parameters_in
from pausejax.analysis.settings import UNREAD, full_name, has
from pausejax.spelling import closest

# Coordinates may have been stored as float32, which keeps seven digits.
_TOLERANCE = 1e-6


def select(result: xr.Dataset, where: Mapping[str, Any] | None = None, /, **wanted: Any) -> xr.Dataset:
    """Selects the runs that have some values: `select(result, policy="pause", gamma=5.0)`.

    A condition on a parameter does not apply to policies that lack the parameter. So
    `select(result, kappa=30.0)` keeps all runs of policies without `kappa`. To leave these out, select
    policies too.

    Args:
      result: a result, or its `finals`.
      where: the conditions as a table, in the form of `wanted`. Texts are converted to numbers or truth
        values if the coordinate holds such values.
      **wanted: conditions. A key is the name of a coordinate of `run` (policy, algorithm, seed, identity, any
        parameter), or a parameter's alias or symbol (`gamma`, `γ`). A value is a single value, a list of
        values, or a `slice(low, high)` that includes both ends. Integers must be equal. Other numbers must
        agree to six digits; if a run has exactly the given number, only equal numbers count.

    Returns:
      The data set with only the selected runs, in their order.

    Raises:
      ValueError: a name is unknown, or no run that meets the other conditions has the value. The message
        lists the known names or values, and suggests the most similar name or value.
    """
    if "run" not in result.dims:
        raise ValueError("result: must have the dimension run, but lacks it")
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
                    f"{condition.key} = {_shown(value)}: no run with {said} has this value"
                    f"{_instead(condition.column[left & ~condition.lacking], value)}"
                )
    return result.isel(run=np.flatnonzero(chosen))


class _Condition(NamedTuple):
    key: str
    column: np.ndarray
    values: Sequence[Any]
    hits: list[np.ndarray]
    """For each value, which runs have it, bool [runs]."""
    lacking: np.ndarray
    """Which runs have a policy without the parameter, bool [runs]."""


def _condition(result: xr.Dataset, key: str, value: Any, *, spelled: bool = False) -> _Condition:
    labels = [str(name) for name, coord in result.coords.items() if coord.dims == ("run",) and name != UNREAD]
    name = full_name(result, key, labels, "label of this result's runs")
    column = result[name].values
    values = [_meant(column, one) if spelled else one for one in _several(value, key)]
    lacking = ~has(result, name) if name in parameters_in(result) else np.zeros(len(column), bool)
    hits = [_hit(column, one, key) & ~lacking for one in values]
    for one, hit in zip(values, hits, strict=True):
        if not hit.any():
            raise ValueError(f"{key} = {_shown(one)}: no run has this value{_instead(column[~lacking], one)}")
    return _Condition(key, column, values, hits, lacking)


def _meeting(conditions: Sequence[_Condition], runs: int) -> np.ndarray:
    """Returns which runs meet all conditions, bool [runs]."""
    chosen = np.ones(runs, bool)
    for condition in conditions:
        chosen &= np.any(condition.hits, axis=0) | condition.lacking
    return chosen


def _several(value: Any, key: str) -> Sequence[Any]:
    if isinstance(value, str | bytes | slice) or not isinstance(value, Iterable):
        return [value]
    values = np.atleast_1d(value).tolist() if isinstance(value, np.ndarray) else list(value)
    if not values:
        raise ValueError(f"{key} = []: must list one value or more")
    return values


def _hit(column: np.ndarray, value: Any, key: str) -> np.ndarray:
    """Returns which runs have `value` in `column`, or a number in the range `value` (a slice), bool
    [runs]."""
    words, rounded = column.dtype.kind not in "biuf", column.dtype.kind == "f"
    if isinstance(value, slice):
        if words or value.step is not None:
            raise ValueError(f"{key} = {_shown(value)}: must be slice(low, high) with numbers and no step")
        low, high = (end if end is not None else np.nan for end in (value.start, value.stop))
        reach = _TOLERANCE * np.abs(column) if rounded else 0
        return ~(column < low - reach) & ~(column > high + reach) & ~np.isnan(column)
    if words or isinstance(value, str):
        return np.asarray([item == value for item in column.tolist()], bool)
    try:
        exact = np.asarray(column == value)
        if exact.any() or not rounded:  # seeds may be dates such as 20260101, which may agree in six digits
            return exact
        return np.isclose(column, value, rtol=_TOLERANCE, atol=0)
    except TypeError:
        return np.zeros(len(column), bool)


def _meant(column: np.ndarray, value: Any) -> Any:
    """Converts a text to a truth value or a float if the column holds truth values or numbers."""
    if not isinstance(value, str):
        return value
    if column.dtype.kind == "b":
        return {"true": True, "false": False}.get(value.lower(), value)
    if column.dtype.kind in "iuf":
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _instead(column: np.ndarray, value: Any) -> str:
    """Returns the end of an error message: the nearest known value, and the list of known values."""
    there = list(dict.fromkeys(column.tolist()))
    if not there:
        return "; these runs have no value of it"
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
    """Formats a value for a message. The text has enough digits for `select` to find the value."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def some(values: Iterable[str], most: int = 5) -> str:
    """Joins the first `most` texts by commas; for a longer list, adds its length."""
    listed = list(values)
    return ", ".join(listed[:most]) + (f", … ({len(listed)} in all)" if len(listed) > most else "")
