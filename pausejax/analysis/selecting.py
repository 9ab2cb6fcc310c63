"""Choosing runs by what they were played with, and what can be compared among them."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import metrics_in, parameters_in
from pausejax.analysis.settings import applies, symbols


def select(result: xr.Dataset, where: Mapping[str, Any] | None) -> xr.Dataset:
    """The runs with given values; what a policy does not have, it need not match.

    Args:
      result: a result, or its `finals`.
      where: policy, seed or parameters, by name, alias or symbol, each with a value or a list of them. Text
        stands for the number or truth value that it spells.

    Raises:
      ValueError: an unknown name, a value that no run has, or no run with all of them.
    """
    kept = np.ones(result.sizes["run"], bool)
    for spelling, wanted in (where or {}).items():
        name = full_name(result, spelling, "where")
        values = result[name].values
        there = np.array([name == "seed" or applies(value) for value in values.tolist()], bool)
        chosen = np.zeros(len(values), bool)
        for value in wanted if isinstance(wanted, list | tuple | set | np.ndarray) else [wanted]:
            same = there & _equal(values, value)
            if not same.any():
                known = [written(v) for v in np.unique(values[there]).tolist()]
                problem = f"where: {spelling} = {value}: no run has it{guess(str(value), known)}"
                raise ValueError(f"{problem}; known: {some(known)}")
            chosen |= same
        kept &= chosen | ~there
    if not kept.any():
        raise ValueError("where: no run has all of these values")
    return result if kept.all() else result.isel(run=np.flatnonzero(kept))


def full_name(result: xr.Dataset, spelling: str, argument: str) -> str:
    """Policy, seed or a parameter by its full name.

    Raises:
      ValueError: it is none of these.
    """
    parameters = parameters_in(result)
    names = {
        other: name
        for name, (aliases, symbol) in parameters.items()
        if name in result.coords
        for other in (name, *aliases, symbol)
        if other
    }
    names |= {"policy": "policy", "seed": "seed"}
    if spelling not in names:
        known = [name for name in ("policy", "seed", *parameters) if name in names]
        raise ValueError(
            f"{argument}: {spelling}: unknown here{guess(spelling, names)}; known: {', '.join(known)}"
        )
    return names[spelling]


def refuse_unlike(
    result: xr.Dataset, metric: str, values: np.ndarray, groups: Sequence[str] = (), ask: str = "per"
) -> None:
    """Sees to it that figures can be compared: that nothing which their scale depends on differs.

    Args:
      result: a result, or its `finals`.
      metric: a name out of `metrics_of(result)`.
      values: float [run], of the metric; runs without a value do not count.
      groups: coordinates; figures are compared within each of their values alone.
      ask: the argument by which the caller asks for groups; "" if there is none.

    Raises:
      ValueError: something differs.
    """
    for name, seen in unlike(result, metric, values, groups).items():
        shown = ", ".join(written(value) for value in seen)
        short = symbols(result).get(name, name)
        raise ValueError(
            f"{metric}: means something else for each {short}, which is {shown} here: choose one, "
            f"where={{{name!r}: {seen[0]!r}}}" + (f", or compare within each, {ask}={name!r}" if ask else "")
        )


def unlike(
    result: xr.Dataset, metric: str, values: np.ndarray | None = None, groups: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """What a metric's scale depends on and differs among runs of one group, with its values."""
    found: dict[str, list[Any]] = {}
    known = metrics_in(result).get(metric)
    there = np.ones(result.sizes["run"], bool) if values is None else ~np.isnan(values)
    owner = np.zeros(len(there), int)
    for group in groups:
        levels = np.unique(result[group].values, return_inverse=True)[1]
        owner = np.unique(owner * (levels.max(initial=0) + 1) + levels, return_inverse=True)[1]
    for name in known.scaled_by if known else ():
        if name not in result.coords:
            continue
        column = result[name].values
        mine = there & np.array([applies(value) for value in column.tolist()], bool)
        for one in np.unique(owner):
            seen = np.unique(column[mine & (owner == one)]).tolist()
            if len(seen) > 1:
                found[name] = seen
    return found


def written(value: Any) -> str:
    """A value as messages spell it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def some(values: Iterable[str], most: int = 12) -> str:
    """A list in words, its end cut off where it is long."""
    listed = list(values)
    return ", ".join(listed[:most]) + (f", … ({len(listed)} in all)" if len(listed) > most else "")


def _equal(values: np.ndarray, wanted: Any) -> np.ndarray:
    """Which values are the wanted one; numbers as float32 holds them."""
    if values.dtype.kind == "b":
        truth = {"true": True, "false": False}.get(str(wanted).lower())
        return values == truth if truth is not None else np.zeros(len(values), bool)
    if values.dtype.kind in "iuf":
        try:
            number = float(wanted)
        except (TypeError, ValueError):
            return np.zeros(len(values), bool)
        rounded = values.astype(np.float32) if values.dtype.kind == "f" else values
        return rounded == (np.float32(number) if values.dtype.kind == "f" else number)
    return values.astype(str) == str(wanted)


def guess(wrong: str, known: Iterable[str]) -> str:
    """What was meant, to be put into a message; empty where nothing is near."""
    near = difflib.get_close_matches(wrong, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""
