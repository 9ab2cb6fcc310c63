"""Which runs belong together: a setting is a policy with one value on each swept axis."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.quantities import parameters_in
from pausejax.spelling import nearest

UNREAD = "unread_parameters"
"""The coordinate that names, with spaces between, the parameters of a result that a run does not read."""


def axes_of(result: xr.Dataset) -> tuple[str, ...]:
    """Returns the swept parameters of a result, by their full names."""
    return tuple(name for name in schema.read(result, "axes") if name in result.coords)


def runs_table(result: xr.Dataset) -> pd.DataFrame:
    """Makes a row for each run: policy, seed and the axis values; missing where a run lacks the axis.

    Raises:
      ValueError: an axis has the name of a table's own column.
    """
    if taken := sorted(schema.COLUMNS.intersection(axes_of(result))):
        raise ValueError(f"result: axis {taken[0]}: tables have a column of this name; rename the parameter")
    return pd.DataFrame({name: column_of(result, name) for name in ("policy", "seed", *axes_of(result))})


def split_settings(result: xr.Dataset) -> tuple[np.ndarray, pd.DataFrame, list[str]]:
    """Splits the runs of a result into its settings, in order of first appearance.

    Returns:
      The setting of each run, int [runs]; a row for each setting, which has the columns of `runs_table`
      without the seed, under the place of the setting's first run; and the labels of the settings.
    """
    table = runs_table(result).drop(columns="seed")
    codes, first = group(table, list(table.columns))
    table = table.iloc[first]
    return codes, table, labels(records(table), symbols(result))


def has(result: xr.Dataset, name: str) -> np.ndarray:
    """Returns whether each run, or each setting, has a value of a coordinate.

    The value of a run that does not read a parameter is a filling and means nothing: any value may be meant.

    Args:
      result: a result, its `finals`, or what `mean_ci` returns; one run or setting of these.
      name: of a coordinate; a float that is NaN is no value either.

    Returns:
      bool, in the shape of the coordinate.
    """
    values = result[name].values
    present = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    if UNREAD not in result.coords:
        return present
    unread = result[UNREAD].values
    codes, lists = pd.factorize(unread.ravel())
    reads = np.array([name not in names.split() for names in lists], bool)
    return present & reads[codes].reshape(unread.shape)


def column_of(result: xr.Dataset, name: str) -> pd.Series:
    """Returns a coordinate of the runs as a column, missing where a run has no value of it."""
    column, present = pd.Series(result[name].values), has(result, name)
    if present.all():
        return column
    nullable = {"i": "Int64", "u": "Int64", "b": "boolean"}.get(column.dtype.kind)
    return (column.astype(nullable) if nullable else column).where(present)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a table of runs, each with the values that it has."""
    return [
        {str(name): value for name, value in row.items() if not pd.isna(value)}
        for row in table.to_dict("records")
    ]


def values_of(result: xr.Dataset, name: str) -> list[Any]:
    """Returns the values of a coordinate among the runs that have it, each once, in their order."""
    return list(dict.fromkeys(result[name].values[has(result, name)].tolist()))


def full_names(result: xr.Dataset, names: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """Resolves names of axes, `policy` or `seed`, and symbols of them.

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
        raise ValueError(f"{argument} = {mistake}") from mistake


def full_name(result: xr.Dataset, spelling: str, known: Sequence[str], what: str) -> str:
    """Finds the one of some labels that a name, an alias or a symbol means.

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


def symbols(result: xr.Dataset) -> dict[str, str]:
    """Returns how pictures write parameters; those without a symbol are not there."""
    return {name: symbol for name, (_, symbol) in parameters_in(result).items() if symbol}


def labels(rows: Sequence[Mapping[str, Any]], symbols: Mapping[str, str]) -> list[str]:
    """Writes settings in words, each in its own, so that a reader does not mix two up.

    Where two would read alike, numbers have all of their digits; what is alike even then is numbered.
    """
    found = told_apart([label(row, symbols) for row in rows], [label(row, symbols, str) for row in rows])
    taken: set[str] = set()
    for place, text in enumerate(found):
        number = 1
        while found[place] in taken:
            number += 1
            found[place] = f"{text} ({number})"
        taken.add(found[place])
    return found


def told_apart(texts: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Returns some texts; the longer ones where two of them are alike."""
    counts = Counter(texts)
    return [long if counts[text] > 1 else text for text, long in zip(texts, longer, strict=True)]


def label(
    values: Mapping[str, Any], symbols: Mapping[str, str], written: Callable[[Any], str] | None = None
) -> str:
    """Writes a setting in words: `pause, α = 10, γ = 5`; six digits, unless `written` spells numbers."""
    spell = written or _short
    first = [str(values["policy"])] if "policy" in values else []
    rest = [
        f"{'seed' if name == 'seed' else symbols.get(name, name)} = {spell(value)}"
        for name, value in values.items()
        if name != "policy"
    ]
    return ", ".join(first + rest) or "all runs"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def group(table: pd.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Groups rows that agree on all keys (missing agrees with missing), in the order of their first rows.

    Returns:
      The group of each row, int [rows], and the first row of each group, int [groups].
    """
    if not keys or table.empty:
        return np.zeros(len(table), int), np.zeros(min(len(table), 1), int)
    codes = table.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy()
    return codes, np.unique(codes, return_index=True)[1]


def group_by(result: xr.Dataset, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Groups the runs of a result, or its settings, that agree on some coordinates.

    Those that have no value of a coordinate agree with each other, whatever fills its place.

    Returns:
      As `group`.
    """
    size = result.sizes["run" if "run" in result.sizes else "setting"]
    table = pd.DataFrame({name: column_of(result, name) for name in names}, index=range(size))
    return group(table, names)


def coordinates(table: pd.DataFrame, result: xr.Dataset) -> dict[str, tuple[str, np.ndarray]]:
    """Makes coordinates of the dimension `setting`: the keys, a label, the keys that the setting lacks."""
    written = symbols(result)
    fillings = {"f": np.nan, "i": -1, "u": 0, "b": False}
    found: dict[str, tuple[str, np.ndarray]] = {}
    for name in table.columns:
        dtype, missing = result[name].dtype, table[name].isna()
        column = table[name].astype(object).mask(missing, fillings.get(dtype.kind, ""))
        found[name] = ("setting", column.to_numpy().astype(dtype if dtype.kind in fillings else str))
    rows = records(table)
    unread = [" ".join(name for name in table.columns if name not in row) for row in rows]
    return {
        **found,
        "label": ("setting", np.array(labels(rows, written), dtype=str)),
        UNREAD: ("setting", np.array(unread, dtype=str)),
    }
