"""Groups runs into settings: a setting is a policy with one value of each swept axis."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.quantities import parameters_in
from pausejax.spelling import nearest

_RATES = ("learning_rate", "exploration_rate")
UNREAD = "unread_parameters"
"""Name of the coordinate that lists, separated by spaces, the parameters that a run does not read."""


def axes_of(result: xr.Dataset) -> tuple[str, ...]:
    """Returns the swept parameters of a result, by their full names."""
    return tuple(name for name in schema.read(result, "axes") if name in result.coords)


def runs_table(result: xr.Dataset) -> pd.DataFrame:
    """Returns a table with a row for each run: policy, seed and a value of each axis.

    A value is missing if the run does not read this parameter.

    Raises:
      ValueError: an axis has the name of another column of such tables, or runs of one setting differ in a
        parameter that is no axis.
    """
    refuse_joined(result)
    if taken := sorted(schema.COLUMNS.intersection(axes_of(result))):
        raise ValueError(f"result: axis {taken[0]}: tables have a column of this name. Rename the parameter")
    return pd.DataFrame({name: column_of(result, name) for name in ("policy", "seed", *axes_of(result))})


def refuse_joined(result: xr.Dataset) -> None:
    """Checks that all runs have one value of `study`, and that runs of a policy differ only in seed and axes.

    A user may join the results of several studies. Means and differences would then mix studies of unlike
    lengths or metrics, or runs of one label that differ in the policy, in a parameter that is no axis, in a
    file or in the user's code. The rates of ensembles may follow from the number of rounds, which axes
    change. Files and code may follow from an axis of words or booleans.

    Raises:
      ValueError: runs have different values of `study`, or runs of one policy differ in a parameter, in
        `algorithm` or in `sources`.
    """
    if "study" in result.coords and len(set(result["study"].values.tolist())) > 1:
        raise ValueError(
            "result: holds runs of studies that differ in mode, rounds, eval_every, stop_at_latency, or in "
            "their variables or metrics. Such studies can't be joined. Simulate all runs in one study"
        )
    axes = axes_of(result)
    others = {*parameters_in(result), "algorithm", "sources"}.difference(("policy", *axes)).intersection(
        map(str, result.coords)
    )
    words = [axis for axis in axes if result[axis].dtype.kind not in "iuf"]
    for name in sorted(others):
        values = result[name].values
        if not values.size or (values == values[0]).all():
            continue
        column = column_of(result, name)
        owner, first = group_by(result, ("policy", *(words if name == "sources" else ())))
        numbers = column.groupby(owner).nunique()
        if (numbers > 1).any() and name in _RATES and result.attrs.get("kind") == "ensemble":
            # A study that sets no rate has the default of its number of rounds.
            default = np.maximum(result["rounds_played"], 2 if name == "exploration_rate" else 1) ** -0.5
            numbers = column.mask(np.isclose(column, default, rtol=1e-9), 0.0).groupby(owner).nunique()
        if (numbers > 1).any():
            twice = int(numbers.idxmax())
            seen = ", ".join(map(str, column[owner == twice].dropna().unique()))
            raise ValueError(
                f"result: runs of the policy {str(result['policy'].values[first[twice]])!r} differ in {name} "
                f"({seen}), which is no axis of this result. "
                + (
                    "Give each policy a label of its own"
                    if name == "algorithm"
                    else "Results of several studies can't be joined. Simulate all values in one study"
                )
            )


def split_settings(result: xr.Dataset) -> tuple[np.ndarray, pd.DataFrame, list[str]]:
    """Splits the runs of a result into its settings, in order of first appearance.

    Returns:
      The index of each run's setting, int [runs]; a table with a row for each setting; and the labels of the
      settings. The table has the columns of `runs_table` without the seed. Its index is the index of the
      setting's first run.
    """
    table = runs_table(result).drop(columns="seed")
    codes, first = group(table, list(table.columns))
    table = table.iloc[first]
    return codes, table, labels(records(table), symbols(result))


def seed_counts(result: xr.Dataset) -> np.ndarray:
    """Returns the number of seeds of each setting, in the order of `split_settings`, int [settings].

    The numbers differ if the study is not finished, or if the result is a selection of runs.
    """
    codes, table, _ = split_settings(result)
    pairs = np.unique(np.stack([codes, result["seed"].values.astype(np.int64)]), axis=1)
    return np.bincount(pairs[0], minlength=len(table))


def counted(numbers: Sequence[int] | np.ndarray) -> str:
    """Returns numbers in words: "3" if all of them are 3, or a range such as "2 to 3"."""
    low, high = min(numbers), max(numbers)
    return str(high) if low == high else f"{low} to {high}"


def seeds_in_words(numbers: Sequence[int] | np.ndarray) -> str:
    """Returns numbers of seeds in words, such as "3 seeds" or "2 to 3 seeds"."""
    return f"{counted(numbers)} {'seed' if max(numbers) == 1 else 'seeds'}"


def has(result: xr.Dataset, name: str) -> np.ndarray:
    """Returns whether each run, or each setting, has a value of a coordinate.

    A run that does not read a parameter has a placeholder in its coordinate. The placeholder may be any value
    and has no meaning.

    Args:
      result: a result, its `finals`, what `mean_ci` returns, or a single run or setting of one of these.
      name: name of a coordinate. A NaN in it is not a value either.

    Returns:
      bool, with the shape of the coordinate.
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
    """Returns a coordinate of the runs as a column of a table; missing if a run has no value of it."""
    column, present = pd.Series(result[name].values), has(result, name)
    if present.all():
        return column
    nullable = {"i": "Int64", "u": "Int64", "b": "boolean"}.get(column.dtype.kind)
    return (column.astype(nullable) if nullable else column).where(present)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a table of runs as dictionaries without missing values."""
    return [
        {str(name): value for name, value in row.items() if not pd.isna(value)}
        for row in table.to_dict("records")
    ]


def values_of(result: xr.Dataset, name: str) -> list[Any]:
    """Returns the distinct values of a coordinate, without placeholders, in the order of the runs."""
    return list(dict.fromkeys(result[name].values[has(result, name)].tolist()))


def full_names(result: xr.Dataset, names: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """Returns the full names for "policy", "seed", or names, aliases and symbols of axes.

    Raises:
      ValueError: a name means no policy, seed or axis; the message begins with the name `argument`.
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
    """Returns the name in `known` that a name, an alias or a symbol means.

    Raises:
      ValueError: `known` has no such name; the message lists the known names and suggests a similar name.
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
        if own := [other for other in spellings if other.endswith(f".{spelling}")]:
            meant = f"; several parts have such a parameter, so write {' or '.join(own)}"
        raise ValueError(f"{spelling!r}: is no {what}{meant}; known: {', '.join(known)}")
    return name


def symbols(result: xr.Dataset) -> dict[str, str]:
    """Returns the symbol of each parameter that has a symbol, by the parameter's name."""
    return {name: symbol for name, (_, symbol) in parameters_in(result).items() if symbol}


def labels(rows: Sequence[Mapping[str, Any]], symbols: Mapping[str, str]) -> list[str]:
    """Returns a different label for each setting.

    If the labels of two settings would be equal, their numbers have all digits. Labels that are still equal
    get a number.
    """
    return distinct([label(row, symbols) for row in rows], [label(row, symbols, str) for row in rows])


def distinct(texts: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Replaces texts that are not unique by those of `longer`, and numbers those that are still equal."""
    found = told_apart(texts, longer)
    taken: set[str] = set()
    for place, text in enumerate(found):
        number = 1
        while found[place] in taken:
            number += 1
            found[place] = f"{text} ({number})"
        taken.add(found[place])
    return found


def told_apart(texts: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Replaces each text that is not unique by the text of `longer` at the same index."""
    counts = Counter(texts)
    return [long if counts[text] > 1 else text for text, long in zip(texts, longer, strict=True)]


def label(
    values: Mapping[str, Any], symbols: Mapping[str, str], written: Callable[[Any], str] | None = None
) -> str:
    """Returns the label of a setting, such as `pause, α = 10, γ = 5`.

    `written` formats the values; default: floats have six digits.
    """
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
    """Groups rows that have equal values of all keys; two missing values are equal.

    Returns:
      The group of each row, int [rows], and the first row of each group, int [groups]. Groups are numbered
      in the order of their first rows.
    """
    if not keys or table.empty:
        return np.zeros(len(table), int), np.zeros(min(len(table), 1), int)
    codes = table.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy()
    return codes, np.unique(codes, return_index=True)[1]


def group_by(result: xr.Dataset, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Groups the runs or settings of a result by the values of some coordinates.

    Runs without a value of a coordinate count as equal in it, whatever their placeholder is.

    Returns:
      The group of each run or setting, int [n], and the index of the first one in each group, int [groups].
    """
    size = result.sizes["run" if "run" in result.sizes else "setting"]
    table = pd.DataFrame({name: column_of(result, name) for name in names}, index=range(size))
    return group(table, names)


def coordinates(table: pd.DataFrame, result: xr.Dataset) -> dict[str, tuple[str, np.ndarray]]:
    """Makes the coordinates of the dimension `setting` for a table of settings: its columns, the labels, and
    the names of the columns in which a setting has no value."""
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
