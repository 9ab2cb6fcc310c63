"""Which runs belong together: a setting is a policy with one value on each swept axis."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.quantities import parameters_in
from pausejax.spelling import nearest


def axes_of(result: xr.Dataset) -> tuple[str, ...]:
    """The swept parameters of a result, by their full names."""
    return tuple(name for name in json.loads(result.attrs["axes"]) if name in result.coords)


def runs_table(result: xr.Dataset) -> pd.DataFrame:
    """Policy, seed and the axis values of each run, one row each; missing values as the result has them."""
    return pd.DataFrame({name: result[name].values for name in ("policy", "seed", *axes_of(result))})


def full_names(result: xr.Dataset, names: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """Names of axes, `policy` or `seed`, symbols resolved.

    Raises:
      ValueError: one of them is none of these.
    """
    known = ("policy", "seed", *axes_of(result))
    try:
        return tuple(
            full_name(result, name, known, "axis of this result")
            for name in ([names] if isinstance(names, str) else names)
        )
    except ValueError as mistake:
        raise ValueError(f"{argument} = {mistake}") from None


def full_name(result: xr.Dataset, spelling: str, known: Sequence[str], what: str) -> str:
    """The one of some labels that a name, an alias or a symbol means.

    Raises:
      ValueError: it is none of these; says what there is, and what is nearest.
    """
    spellings = {
        other: name
        for name, (aliases, symbol) in parameters_in(result).items()
        for other in (*aliases, symbol)
        if name in known and other
    }
    name = spellings.get(spelling, spelling)
    if name not in known:
        meant = nearest(spelling, [*known, *spellings])
        raise ValueError(f"{spelling!r}: is no {what}{meant}; known: {', '.join(known)}")
    return name


def applies(value: Any) -> bool:
    """Whether a policy has the parameter that this is its value of."""
    return not (value == "" or (isinstance(value, float) and np.isnan(value)) or value == -1)


def symbols(result: xr.Dataset) -> dict[str, str]:
    """How pictures write parameters; those without a symbol are not there."""
    return {name: symbol for name, (_, symbol) in parameters_in(result).items() if symbol}


def label(values: Mapping[str, Any], symbols: Mapping[str, str]) -> str:
    """A setting in words: `pause, α = 10, γ = 5`; axes that the policy lacks are left out."""
    first = [str(values["policy"])] if "policy" in values else []
    rest = [
        f"{'seed' if name == 'seed' else symbols.get(name, name)} = {_short(value)}"
        for name, value in values.items()
        if name != "policy" and (name == "seed" or applies(value))
    ]
    return ", ".join(first + rest) or "all runs"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def group(table: pd.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Groups rows that agree on all keys (NaN agrees with NaN), in the order of their first rows.

    Returns:
      The group of each row, int [rows], and the first row of each group, int [groups].
    """
    if not keys or table.empty:
        return np.zeros(len(table), int), np.zeros(min(len(table), 1), int)
    codes = table.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy()
    return codes, np.unique(codes, return_index=True)[1]


def coordinates(table: pd.DataFrame, result: xr.Dataset) -> dict[str, tuple[str, np.ndarray]]:
    """Coordinates of the dimension `setting`: the keys and a label."""
    written = symbols(result)
    found: dict[str, tuple[str, np.ndarray]] = {}
    for name in table.columns:
        column = table[name].to_numpy()
        if column.dtype.kind not in "biuf":
            column = column.astype(str)
        found[name] = ("setting", column)
    labels = [label(row, written) for row in table.to_dict("records")]
    return {**found, "label": ("setting", np.array(labels, dtype=str))}
