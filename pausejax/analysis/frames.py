"""Converts results to tables with a row for each run, or with a row for each run and round."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis.metrics import recorded
from pausejax.analysis.per_run import MAX_BYTES, finals, run_blocks
from pausejax.analysis.quantities import parameters_in
from pausejax.analysis.settings import axes_of, column_of

_IDENTITY = ("identity", "policy", "algorithm", "seed")

_COMMANDS = ("=", "+", "-", "@", "\t", "\r", "'")
"""First characters before which a cell of a CSV file gets an apostrophe."""


def to_dataframe(
    result: xr.Dataset, *, curves: bool = False, variables: Sequence[str] | None = None
) -> pd.DataFrame:
    """Converts a result to a pandas table.

    Args:
      result: a result; for the table of runs, its `finals` are enough.
      curves: whether to return a row for each run and round, with columns of swept axes only. Default: a row
        for each run, with a column of every parameter. Accuracy and loss are NaN in rounds without an
        evaluation.
      variables: names of variables; implies `curves`. Default: all variables with one value for each round or
        evaluation. A variable with other dimensions (`selected`, `counts`) makes a separate table, with a
        row for each run and element.

    Returns:
      The table, in the order of the runs. The column `identity` joins the two kinds of table. A parameter or
      value that a run lacks is NaN, <NA> or None. Rounds in which none of the variables was recorded are left
      out.

    Raises:
      ValueError: a variable is unknown, or the variables do not fit into one table.
    """
    if curves or variables is not None:
        parts = list(curve_frames(result, variables))
        return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    return runs_frame(result)


def runs_frame(result: xr.Dataset) -> pd.DataFrame:
    """Returns a table with a row for each run: identity, policy, seed, every parameter and every metric."""
    figures = finals(result)
    parameters = [name for name in parameters_in(result) if name in result]
    return pd.DataFrame(
        {
            **_labels(result, (*_IDENTITY, *parameters)),
            **{name: figures[name].values for name in figures.data_vars},
        }
    )


def curve_frames(
    result: xr.Dataset, variables: Sequence[str] | None = None, max_bytes: int = MAX_BYTES
) -> Iterator[pd.DataFrame]:
    """Yields the table of `to_dataframe(curves=True)` in one or more parts of whole runs.

    Raises:
      ValueError: as `to_dataframe`.
    """
    names = list(variables) if variables is not None else _curves(result)
    for name in names:
        if name not in result.data_vars:
            known = ", ".join(str(v) for v in result.data_vars)
            raise ValueError(f"variables: {name!r} is not in the result, which has {known}")
        if result[name].ndim < 2:
            raise ValueError(f"variables: {name!r} has one value for each run, so it makes no curve")
    if not names:
        raise ValueError("variables: must name one variable or more, but names none")
    labels = _labels(result, ("identity", "policy", "seed", *axes_of(result)))
    arrays = [result[name] for name in names]
    if not set(names) <= set(_curves(result)) and len({array.dims for array in arrays}) > 1:
        raise ValueError(f"variables: {', '.join(names)} have different dimensions. Make one table for each")
    for runs in run_blocks(*arrays, max_bytes=max_bytes):
        yield _rows(result, names, labels.iloc[runs], runs)
    if not result.sizes["run"]:
        yield pd.DataFrame(columns=[*labels.columns, *names])


def _curves(result: xr.Dataset) -> list[str]:
    return [
        str(name)
        for name, array in result.data_vars.items()
        if array.dims in (("run", "round"), ("run", "eval"))
    ]


def _labels(result: xr.Dataset, names: Sequence[str]) -> pd.DataFrame:
    """Returns some coordinates of the runs as a table; values that a run lacks are missing."""
    return pd.DataFrame({name: column_of(result, name) for name in names if name in result.coords})


def _rows(result: xr.Dataset, names: Sequence[str], labels: pd.DataFrame, runs: slice) -> pd.DataFrame:
    """Returns a table with a row for each run and element of some variables; leaves out rows without a
    value."""
    arrays = {name: result[name] for name in names}
    dims = arrays[names[0]].dims[1:]
    marks = [result[dim].values if dim in result.coords else np.arange(result.sizes[dim]) for dim in dims]
    if per_round := dims in (("round",), ("eval",)):
        dims = ("round",)  # a part of a result may have only the rounds with an evaluation
        marks = [result["round" if "round" in result.coords else "eval_round"].values]
    values = {}
    for name, array in arrays.items():
        block = array.isel(run=runs).values
        if array.dims[1] == "eval":
            places = pd.Index(marks[0]).get_indexer(result["eval_round"].values)
            there = places >= 0  # a user may have selected rounds
            spread = np.full((len(labels), len(marks[0])), np.nan, block.dtype)
            spread[:, places[there]] = block[:, there]
            block = spread
        values[name] = (block if block.dtype.kind in "iu" else recorded(name, block)).reshape(-1)
    # After a run's last round, all variables are NaN or -1.
    empty = [np.isnan(v) if v.dtype.kind == "f" else v == -1 for v in values.values()]
    kept = ~np.all(empty, axis=0)
    index = np.meshgrid(*marks, indexing="ij")
    frame = labels.loc[labels.index.repeat(index[0].size)[kept]].reset_index(drop=True)
    for dim, places in zip(dims, index, strict=True):
        frame[dim] = np.tile(places.ravel(), len(labels))[kept]
    columns = {name: column[kept] for name, column in values.items()}
    return frame.assign(**({n: _nullable(c) for n, c in columns.items()} if per_round else columns))


def _nullable(column: np.ndarray) -> Any:
    """Returns a column of counts in which -1 is replaced by a missing value; other columns are unchanged."""
    if column.dtype.kind not in "iu":
        return column
    return pd.arrays.IntegerArray(column.copy(), column < 0)


def harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with an apostrophe before each text that a spreadsheet would evaluate as a formula.

    A text that begins with an apostrophe gets a second one. So different texts stay different.
    """
    changed = {}
    for name, column in frame.items():
        if column.dtype.kind == "O":
            words = {word: f"'{word}" for word in column.dropna().unique() if _is_command(word)}
            if words:
                changed[str(name)] = column.map(lambda word, words=words: words.get(word, word))
    return frame.assign(**changed)


def _is_command(word: object) -> bool:
    if not isinstance(word, str) or not word.startswith(_COMMANDS):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False
