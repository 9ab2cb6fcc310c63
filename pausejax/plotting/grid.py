"""Assigns runs to panels and lines: one line for each setting, or small multiples of many settings."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.quantities import apart_in
from pausejax.analysis.settings import (
    axes_of,
    full_name,
    group_by,
    has,
    label,
    split_settings,
    symbols,
    values_of,
)
from pausejax.plotting.levels import Levels, format_levels, levels_of, name_of

# Largest number of lines that a reader can distinguish in one panel.
MAX_LINES = 16
# Largest number of panels of a chart; more would be too small to read.
MAX_PANELS = 24
_IN_A_ROW = 4
# Largest number of axes of a grid: one for the lines, one for the columns and one for the rows of panels.
_SHOWN_AXES = 3


class Line(NamedTuple):
    """The runs of one line. They differ only in their seeds and in axes over which the line averages."""

    label: str
    policy: str
    runs: xr.Dataset
    style: int = 0
    """Index into the palette, the same in all panels and charts."""


class Cell(NamedTuple):
    """One panel: its title and its lines."""

    title: str
    lines: tuple[Line, ...]


class Grid(NamedTuple):
    """A grid of panels."""

    panels: tuple[Cell, ...]
    """The panels, row by row."""
    columns: int
    """Number of columns."""
    averaged: tuple[str, ...] = ()
    """Axes over which lines are averaged."""
    binned: tuple[str, ...] = ()
    """Axes of lines and panels whose values are binned; a line averages all values of its bin."""


def lines(result: xr.Dataset) -> list[Line]:
    """Returns one line for each setting (policy and swept parameters) of a result, in order of first
    appearance."""
    codes, table, labels = split_settings(result)
    named = enumerate(zip(labels, table["policy"], strict=True))
    return [Line(label, policy, result.isel(run=codes == place)) for place, (label, policy) in named]


def is_many(result: xr.Dataset) -> bool:
    """Returns whether any data set of a result has more than `MAX_LINES` settings."""
    table = split_settings(result)[1]
    separate = [name for name in apart_in(result) if name in table]
    return bool((np.bincount(group_by(result.isel(run=table.index), separate)[0]) > MAX_LINES).any())


def arrange(result: xr.Dataset, by: Sequence[str] = ()) -> Grid | None:
    """Assigns a result's runs to panels and lines; returns None if `by` is empty and too many axes vary.

    Each data set has its own panels. Up to `MAX_LINES` settings have one line each. More settings become a
    grid over at most three axes. The lines are the policies. With a single policy, the lines are the values
    of the axis with the most values. The other axes become panels.

    Args:
      result: the result to draw.
      by: names, aliases or symbols of the axis of lines, the axis of columns and the axis of rows. Policies
        and data sets become panels if they are not named. Lines average over all other axes.

    Raises:
      ValueError: a name in `by` is no axis or appears twice, or there are too many lines or panels.
    """
    found = _arranged(result, [by] if isinstance(by, str) else by)
    return None if found is None else _styled(found, styles(result))


def styles(result: xr.Dataset) -> dict[str, int]:
    """Returns the index into the palette for each policy, by the name of the policy."""
    return {name: place for place, name in enumerate(dict.fromkeys(result["policy"].values.tolist()))}


def _styled(grid: Grid, policies: dict[str, int]) -> Grid:
    """Sets the style of each line: the style of the policy with the line's label, or else an unused style."""
    labels = list(dict.fromkeys(line.label for cell in grid.panels for line in cell.lines))
    found = {label: policies[label] for label in labels if label in policies}
    free = iter(sorted(set(range(len(labels) + len(found))) - set(found.values())))
    found |= {label: next(free) for label in labels if label not in found}
    cells = (
        cell._replace(lines=tuple(line._replace(style=found[line.label]) for line in cell.lines))
        for cell in grid.panels
    )
    return grid._replace(panels=tuple(cells))


def _arranged(result: xr.Dataset, by: Sequence[str]) -> Grid | None:
    apart = [name for name in apart_in(result) if name in axes_of(result)]
    if by:
        return _by_axes(result, _checked(result, by, apart), apart)
    if not is_many(result):
        return _by_setting(result, apart)
    levels = levels_of(result).runs
    sizes = _sizes(result)
    if len(sizes) > _SHOWN_AXES:
        return None
    widest = sorted(sizes, key=lambda name: -sizes[name])
    line = "policy" if "policy" in sizes else widest[0]
    rest = [name for name in widest if name != line]
    panels = np.prod([sizes[name] for name in rest] + [len(_values(levels, name)) for name in apart])
    if sizes[line] > MAX_LINES or panels > MAX_PANELS:
        return None
    return _by_axes(result, [line, *rest], apart)


def factors(result: xr.Dataset) -> list[str]:
    """Returns "policy" if there are several policies, and the axes with at least two values."""
    several = len(np.unique(result["policy"].values)) > 1
    return [*(["policy"] if several else []), *levels_of(result).axes]


def for_lines(result: xr.Dataset) -> list[str]:
    """Returns the swept axes, and "policy", that have at most `MAX_LINES` values and so can be one panel's
    lines."""
    return [name for name, size in _sizes(result).items() if size <= MAX_LINES]


def _sizes(result: xr.Dataset) -> dict[str, int]:
    """Returns the number of values of each swept axis, and of "policy".

    Axes whose values never share a panel, such as the data set, are left out.
    """
    runs, apart = levels_of(result).runs, apart_in(result)
    return {name: len(_values(runs, name)) for name in factors(result) if name not in apart}


def _checked(result: xr.Dataset, by: Sequence[str], apart: Sequence[str]) -> list[str]:
    axes = ("policy", *axes_of(result))
    try:
        names = [full_name(result, name, axes, "axis of this result") for name in by]
    except ValueError as mistake:
        raise ValueError(f"by: {mistake}") from mistake
    for spelling, name in zip(by, names, strict=True):
        if names.count(name) > 1:
            raise ValueError(f"by: {spelling}: is named twice")
    if names[0] in apart:
        raise ValueError(f"by: {by[0]}: its values are not comparable in one panel. Name another axis first")
    return names


def _by_setting(result: xr.Dataset, apart: Sequence[str]) -> Grid:
    """Makes one line for each setting, and one panel for each data set."""
    panels = []
    axes = [name for name in schema.read(result, "axes") if name not in apart]
    for title, runs in split(result, apart):
        panels.append(Cell(title, tuple(lines(runs.assign_attrs(axes=json.dumps(axes))))))
    return Grid(tuple(panels), min(len(panels), _IN_A_ROW))


def split(result: xr.Dataset, names: Sequence[str]) -> list[tuple[str, xr.Dataset]]:
    """Splits the runs of a result by the values of the coordinates `names`.

    Returns:
      Pairs of a title, which joins the values of these coordinates, and the runs with these values.
    """
    if not names:
        return [("", result)]
    codes, first = group_by(result, names)
    columns = {name: (result[name].values, has(result, name)) for name in names}
    titles = [", ".join(str(c[place]) for c, known in columns.values() if known[place]) for place in first]
    return [(title, result.isel(run=np.flatnonzero(codes == place))) for place, title in enumerate(titles)]


def _by_axes(result: xr.Dataset, names: list[str], apart: Sequence[str]) -> Grid:
    """Makes a line for each value of the first axis in `names`, and panels for the values of the other axes.

    If `names` lacks the policy or an axis of `apart`, such as the data set, this axis becomes panels too.
    """
    line, *rest = names
    varying = factors(result)
    rest += [name for name in ("policy", *apart) if name in varying and name not in names]
    found = levels_of(result)
    runs = found.runs
    levels = {name: _values(runs, name) for name in (line, *rest)}
    rest = [name for name in rest if levels[name]]  # no selected run may have the axis
    written = {name: _written(found, name, values) for name, values in levels.items()}
    if len(levels[line]) > MAX_LINES:
        raise ValueError(
            f"by: {line}: makes {len(levels[line])} lines; must be <= {MAX_LINES}. Choose values by where"
        )
    panels: dict[bytes, Cell] = {}
    for values in itertools.product(*(levels[name] for name in rest)):
        kept = np.ones(runs.sizes["run"], bool)
        for name, value in zip(rest, values, strict=True):
            # Runs without this parameter are in every panel, in lines of their own.
            kept &= (runs[name].values == value) | ~has(runs, name)
        own = {
            name: value for name, value in zip(rest, values, strict=True) if (kept & has(runs, name)).any()
        }
        drawn = _lines(runs, kept, line, written[line], rest)
        if drawn:
            panels.setdefault(kept.tobytes(), Cell(_title(runs, own, written), drawn))
    if len(panels) > MAX_PANELS:
        raise ValueError(f"by: makes {len(panels)} panels; must be <= {MAX_PANELS}. Choose values by where")
    complete = len(rest) == 2 and len(panels) == np.prod([len(levels[name]) for name in rest])
    if complete:
        # The values of the first axis are the columns.
        rows = len(levels[rest[1]])
        ordered = [p for row in range(rows) for p in list(panels.values())[row::rows]]
        columns = len(levels[rest[0]])
    else:
        ordered, columns = list(panels.values()), min(len(panels), _IN_A_ROW)
    averaged = tuple(n for n in varying if n not in (line, *rest))
    binned = tuple(name for name in (line, *rest) if name in found.bins)
    return Grid(tuple(ordered), columns, averaged, binned)


def _written(levels: Levels, name: str, values: list[Any]) -> dict[Any, str]:
    """Returns the text of each value of an axis: the range of its bin, or else a number in enough digits."""
    if name in levels.bins:
        return {value: levels.bins[name][value] for value in values}
    return dict(zip(values, format_levels(values), strict=True))


def _lines(
    runs: xr.Dataset, kept: np.ndarray, line: str, values: dict[Any, str], rest: Sequence[str]
) -> tuple[Line, ...]:
    """Returns the lines of a panel, one for each value of the axis `line`.

    If some runs lack the axis `line`, each of their policies gets a line with the policy's name. Runs without
    an axis of the panels are never averaged with runs that have this axis. The label of the runs without the
    axis says so, unless every run of their policy lacks the axis.

    Args:
      runs: all runs.
      kept: the runs of the panel, bool [runs].
      line: the axis that distinguishes the lines.
      values: the text of each value of `line`.
      rest: the axes of the panels.
    """
    column, present, policy = runs[line].values, has(runs, line), runs["policy"].values
    written = symbols(runs)
    found = []

    def add(name: str, chosen: np.ndarray, axes: Sequence[str]) -> None:
        lacking = np.array([~has(runs, axis) for axis in axes]).reshape(len(axes), len(policy))
        for pattern in sorted(set(map(tuple, lacking[:, chosen].T.tolist()))):
            mine = np.flatnonzero(chosen & (lacking == np.reshape(pattern, (-1, 1))).all(axis=0))
            own = policy == policy[mine[0]]
            without = [
                written.get(axis, axis)
                for axis, lacks, column in zip(axes, pattern, lacking, strict=True)
                if lacks and not column[own].all()
            ]
            label = f"{name}, without {' and '.join(without)}" if without else name
            found.append(Line(label, str(policy[mine[0]]), runs.isel(run=mine)))

    for value, level in values.items():
        name = str(value) if line == "policy" else f"{written.get(line, line)} = {level}"
        add(name, kept & present & (column == value), rest)
    for name in dict.fromkeys(policy[kept & ~present].tolist()):
        add(str(name), kept & ~present & (policy == name), [line, *rest])
    return tuple(found)


def _title(runs: xr.Dataset, own: dict[str, Any], written: dict[str, dict[Any, str]]) -> str:
    """Returns a panel's title from `own`, the value of each axis that its runs share; `written` has texts."""
    plain = [str(own[name]) for name in own if name == "policy" or name in apart_in(runs)]
    swept = {n: written[n][v] for n, v in own.items() if n != "policy" and n not in apart_in(runs)}
    return ", ".join([*plain, *([label(swept, symbols(runs))] if swept else [])])


def _values(runs: xr.Dataset, name: str) -> list[Any]:
    """Returns the levels of an axis: numbers in ascending order, other values in the order of the study."""
    values = values_of(runs, name)
    return values if name == "policy" or runs[name].dtype.kind not in "iuf" else sorted(values)


def words_for(names: Sequence[str], result: xr.Dataset) -> str:
    """Joins the symbols or names of axes by commas."""
    return ", ".join(name_of(name, result) for name in names)
