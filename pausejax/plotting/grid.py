"""Assigns runs to panels and lines: a line for each of few settings, small multiples of many."""

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
    group,
    has,
    label,
    labels,
    records,
    runs_table,
    symbols,
    values_of,
)
from pausejax.plotting.levels import format_level, format_levels, levels_of, name_of

# More lines than this, and nobody can tell them apart.
MAX_LINES = 16
# More panels than this, and nobody can read them.
MAX_PANELS = 24
_IN_A_ROW = 4
# The line and the panels' columns and rows.
_SHOWN_AXES = 3


class Line(NamedTuple):
    """Runs that differ in their seed alone, or that one line averages."""

    label: str
    policy: str
    runs: xr.Dataset
    style: int = 0
    """Place in the palette, the same in all panels and charts."""


class Cell(NamedTuple):
    """The lines of one panel."""

    title: str
    lines: tuple[Line, ...]


class Grid(NamedTuple):
    """Panels, row by row."""

    panels: tuple[Cell, ...]
    columns: int
    averaged: tuple[str, ...] = ()
    """Axes that lines are averaged over."""


def lines(result: xr.Dataset) -> list[Line]:
    """Splits a result by policy and swept parameters, in the order in which they first appear."""
    table = runs_table(result).drop(columns="seed")
    codes, first = group(table, list(table.columns))
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes, minlength=len(first)))[:-1])
    settings = records(table.iloc[first])
    named = zip(labels(settings, symbols(result)), settings, members, strict=True)
    return [Line(label, setting["policy"], result.isel(run=positions)) for label, setting, positions in named]


def is_many(result: xr.Dataset) -> bool:
    """Returns whether a result has more settings (of one data set) than a panel has room for lines."""
    table = runs_table(result).drop(columns="seed")
    separate = [name for name in apart_in(result) if name in table]
    whole = table.iloc[group(table, list(table.columns))[1]]
    return bool((np.bincount(group(whole, separate)[0]) > MAX_LINES).any())


def arrange(result: xr.Dataset, by: Sequence[str] = ()) -> Grid | None:
    """Assigns a result's runs; None where there are too many settings and nobody says which to show.

    Data sets have panels of their own. Of few settings each is a line. Of many, a grid over at most three
    axes is made: lines are the policies, or else the axis with the most values; the rest are panels.

    Args:
      result: whose runs are to be drawn.
      by: which axis lines are, then those of columns and rows, by name, alias or symbol. Policies and data
        sets that are not named become panels; lines are averaged over other axes that are not named.

    Raises:
      ValueError: `by` names what is no axis, or makes too many lines or panels.
    """
    found = _arranged(result, by)
    return None if found is None else _styled(found, styles(result))


def styles(result: xr.Dataset) -> dict[str, int]:
    """Returns the place in the palette of each policy, wherever a line or points have its name."""
    return {name: place for place, name in enumerate(dict.fromkeys(result["policy"].values.tolist()))}


def _styled(grid: Grid, policies: dict[str, int]) -> Grid:
    """Every line with its place in the palette: its policy's if that is its name, or else a free one."""
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
    """Lists what varies: policies, where there are several, and the axes with two values or more."""
    several = len(np.unique(result["policy"].values)) > 1
    return [*(["policy"] if several else []), *levels_of(result).axes]


def for_lines(result: xr.Dataset) -> list[str]:
    """Lists what varies and may be a panel's lines."""
    return [name for name, size in _sizes(result).items() if size <= MAX_LINES]


def _sizes(result: xr.Dataset) -> dict[str, int]:
    """How many values has what varies and may share a panel."""
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
        raise ValueError(f"by: {by[0]}: is never drawn in one panel; name the lines' axis first")
    return names


def _by_setting(result: xr.Dataset, apart: Sequence[str]) -> Grid:
    """A line for each setting."""
    panels = []
    axes = [name for name in schema.read(result, "axes") if name not in apart]
    for title, runs in split(result, apart):
        panels.append(Cell(title, tuple(lines(runs.assign_attrs(axes=json.dumps(axes))))))
    return Grid(tuple(panels), min(len(panels), _IN_A_ROW))


def split(result: xr.Dataset, names: Sequence[str]) -> list[tuple[str, xr.Dataset]]:
    """Splits the runs by some coordinates' values; each part has a title."""
    if not names:
        return [("", result)]
    table = runs_table(result)[list(names)]
    codes, first = group(table, list(names))
    titles = [", ".join(map(str, row.values())) for row in records(table.iloc[first])]
    return [(title, result.isel(run=np.flatnonzero(codes == place))) for place, title in enumerate(titles)]


def _by_axes(result: xr.Dataset, names: list[str], apart: Sequence[str]) -> Grid:
    """Lines by the first axis, panels by the others and by what must not share a panel."""
    line, *rest = names
    varying = factors(result)
    rest += [name for name in ("policy", *apart) if name in varying and name not in names]
    runs = levels_of(result).runs
    levels = {name: _values(runs, name) for name in (line, *rest)}
    if len(levels[line]) > MAX_LINES:
        raise ValueError(f"by: {line}: {len(levels[line])} lines; at most {MAX_LINES}: choose some, where")
    panels: dict[bytes, Cell] = {}
    for values in itertools.product(*(levels[name] for name in rest)):
        kept = np.ones(runs.sizes["run"], bool)
        for name, value in zip(rest, values, strict=True):
            # What a policy does not have, it need not match: it is in every panel.
            kept &= (runs[name].values == value) | ~has(runs, name)
        own = {
            name: value for name, value in zip(rest, values, strict=True) if (kept & has(runs, name)).any()
        }
        drawn = _lines(runs, kept, line, levels[line])
        if drawn:
            panels.setdefault(kept.tobytes(), Cell(_title(runs, own), drawn))
    if len(panels) > MAX_PANELS:
        raise ValueError(f"by: {len(panels)} panels; at most {MAX_PANELS}: choose some, where")
    complete = len(rest) == 2 and len(panels) == np.prod([len(levels[name]) for name in rest])
    if complete:
        # The first axis runs along the rows of panels.
        rows = len(levels[rest[1]])
        ordered = [p for row in range(rows) for p in list(panels.values())[row::rows]]
        columns = len(levels[rest[0]])
    else:
        ordered, columns = list(panels.values()), min(len(panels), _IN_A_ROW)
    averaged = tuple(n for n in varying if n not in (line, *rest))
    return Grid(tuple(ordered), columns, averaged)


def _lines(runs: xr.Dataset, kept: np.ndarray, line: str, values: list[Any]) -> tuple[Line, ...]:
    """The lines of a panel; policies that lack the axis of the lines have one each, by their name."""
    column, present, policy = runs[line].values, has(runs, line), runs["policy"].values
    written = symbols(runs)
    found = []
    for value, level in zip(values, format_levels(values), strict=True):
        mine = np.flatnonzero(kept & present & (column == value))
        if mine.size:
            name = str(value) if line == "policy" else f"{written.get(line, line)} = {level}"
            found.append(Line(name, str(policy[mine[0]]), runs.isel(run=mine)))
    for name in dict.fromkeys(policy[kept & ~present].tolist()):
        mine = np.flatnonzero(kept & ~present & (policy == name))
        found.append(Line(str(name), str(name), runs.isel(run=mine)))
    return tuple(found)


def _title(runs: xr.Dataset, own: dict[str, Any]) -> str:
    """What the runs of a panel have in common."""
    plain = [str(own[name]) for name in own if name == "policy" or name in apart_in(runs)]
    swept = {n: format_level(v) for n, v in own.items() if n != "policy" and n not in apart_in(runs)}
    return ", ".join([*plain, *([label(swept, symbols(runs))] if swept else [])])


def _values(runs: xr.Dataset, name: str) -> list[Any]:
    """The levels of an axis, ascending; policies in the order of the study."""
    values = values_of(runs, name)
    return values if name == "policy" or runs[name].dtype.kind not in "iuf" else sorted(values)


def words_for(names: Sequence[str], result: xr.Dataset) -> str:
    """Writes axes as charts do, in one line."""
    return ", ".join(name_of(name, result) for name in names)
