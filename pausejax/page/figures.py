"""Prepares the charts of a page: their titles, legends, colour scales and tables of numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pausejax.analysis.quantities import format_number
from pausejax.page.tables import Table
from pausejax.plotting import encodings, vega
from pausejax.plotting.data import GREY, Axis, ChartData, Panel, Scale, Series, Sweep, color_ends

MOST_BYTES = 500_000
"""Approximate limit on the size in bytes of the numbers of all lines of a page, in JSON."""
MOST_SETTINGS = 1000
"""Largest number of rows of the table of settings.

This table is below the explorer, the interactive chart of all settings.
"""
_BYTES = 7
"""Approximate size of a number in JSON, in bytes."""
_FEWEST_POINTS = 20
_MOST_ROWS, _MOST_POINTS = 60, 40
"""Largest number of rows of a table below a chart, and of points of one series in this table."""


class Key(NamedTuple):
    """An entry of a legend: a label, and the look of the series with this label."""

    label: str
    color: str
    dash: str
    """Value of the SVG attribute `stroke-dasharray`."""
    mark: str
    shape: str
    """SVG path of a point, with coordinates from -1 to 1."""


class Figure(NamedTuple):
    """One chart as the page shows it."""

    name: str
    title: str
    caption: str
    columns: int
    panels: list[tuple[int, str, str]]
    """For each panel: its index in the page's data, its title and its note."""
    legend: list[Key]
    """The entries of labels that have no button on the page."""
    colors: tuple[str, str, str] | None
    """Label, lowest and highest value of the colour scale."""
    scales: list[tuple[str, bool]]
    """The axes ("x" or "y") whose scale the reader can switch, and whether each is logarithmic at first."""
    tables: list[Table]
    more: bool
    """Whether the tables are incomplete."""


def figures(charts: Mapping[str, ChartData]) -> tuple[list[Figure], list[dict[str, Any]], list[Key]]:
    """Returns the charts of a page, the specifications of their panels, and the legend entries of buttons.

    A label has a button if several charts contain it, or if the page has a single chart. A fit or a front is
    usually in one chart only, so its label has no button. If a series looks different from its
    button, the chart has a legend entry for it, such as for points whose button shows a line.
    """
    keys = {name: _keys(chart) for name, chart in charts.items()}
    count = Counter(label for found in keys.values() for label in found)
    shared = {label for label, often in count.items() if often > 1 or len(charts) == 1}
    buttons: dict[str, Key] = {}
    for key in (key for own in keys.values() for label, key in own.items() if label in shared):
        if key.label not in buttons or _rank(key) > _rank(buttons[key.label]):
            buttons[key.label] = key
    specs: list[dict[str, Any]] = []
    found = []
    most = _points(charts)
    for name, chart in charts.items():
        panels = [(len(specs) + i, panel.title, panel.note) for i, panel in enumerate(chart.panels)]
        specs += [_spec(chart, panel, most) for panel in chart.panels]
        named = len(keys[name]) >= chart.least_named
        legend = [key for key in keys[name].values() if named and buttons.get(key.label) != key]
        tables, more = numbers(chart)
        low, high = color_ends(chart)
        log = ", log scale" if chart.color and chart.color.scale == "log" and low > 0 else ""
        colors = (f"{chart.color.label}{log}", _short(low), _short(high)) if chart.color else None
        own = specs[len(specs) - len(panels) :]
        free = [letter for letter in "yx" if all(letter in spec["usermeta"]["free"] for spec in own)]
        scales = [(letter, getattr(chart.panels[0], letter).scale == "log") for letter in free]
        head = (name, title_of(name), chart.caption, chart.columns)
        found.append(Figure(*head, panels, legend, colors, scales, tables, more))
    return found, specs, list(buttons.values())


def _rank(key: Key) -> tuple[bool, bool]:
    """Returns a larger rank for a better button: a line, then points in the policy's own colour."""
    return key.mark == "line", key.color != GREY


def title_of(name: str) -> str:
    """Returns the title of a chart, made from its name."""
    words = name.replace("_vs_", " against ").replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def numbers(chart: ChartData) -> tuple[list[Table], bool]:
    """Returns the numbers of a chart as tables, and whether rows are left out.

    The tables show the last value of each line, all points of a set of points, and all cells of a heat map.
    The numbers of rows and points are limited.
    """
    tables, rows, more, first = [], [], False, chart.panels[0]
    alike = all((panel.x, panel.y) == (first.x, first.y) for panel in chart.panels)
    for panel in chart.panels:
        title = panel.title if alike else panel.what
        if panel.cells is not None:
            more |= len(panel.cells) > _MOST_ROWS
            headings = (f"{panel.y.label} \\ {panel.x.label}", *_places(panel.x, panel.cells.shape[1]))
            names = _places(panel.y, len(panel.cells))
            cells = [(name, *map(_short, row)) for name, row in zip(names, panel.cells, strict=True)]
            tables.append(Table(panel.what, headings, cells[::-1][:_MOST_ROWS], panel.what))
        for one in panel.series:
            for place in _shown(one):
                name = one.names[place] if one.names else ""
                rows.append((one.label, title, name, *_values(panel, one, place)))
            more |= one.mark not in ("line", "step") and len(one.x) > _MOST_POINTS
        rows += [(text or "level", title, "", "", _short(at), "") for text, at in panel.levels]
    more |= len(rows) > _MOST_ROWS
    if rows:
        across, upwards = (first.x.label, first.y.label) if alike else ("x", "y")
        headings = ("series", "panel", "point", across, upwards, "95 % interval")
        used = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
        kept = [tuple(row[i] for i in used) for row in rows[:_MOST_ROWS]]
        caption = "the last value of each line, and every point"
        tables.append(Table(title_of(chart.name), tuple(headings[i] for i in used), kept, caption))
    return tables, more


def settings(sweep: Sweep) -> Table:
    """Returns a table of settings with their metrics and parameters, with the Pareto front first."""
    order = np.argsort(~np.asarray(sweep.front, bool), kind="stable")[:MOST_SETTINGS]
    columns = [*range(sweep.parameters, len(sweep.axes)), *range(sweep.parameters)]
    rows = []
    for place in order.tolist():
        cells = []
        for column in columns:
            value, names = float(sweep.values[place, column]), sweep.axes[column].names
            digits = 12 if column < sweep.parameters else 4
            named = names[int(value)] if names and np.isfinite(value) else ""
            cells.append(named or _short(value, digits))
        rows.append((sweep.labels[place], "yes" if sweep.front[place] else "", *cells))
    caption = "every setting; those on the Pareto front come first"
    if len(order) < len(sweep.labels):
        caption = f"{len(order)} of {len(sweep.labels)} settings; those on the Pareto front come first"
    headings = ("setting", "front", *(sweep.axes[column].label for column in columns))
    return Table("settings", headings, rows, caption)


def _spec(chart: ChartData, panel: Panel, most: int) -> dict[str, Any]:
    """Returns the specification of a panel, with the limits of its axes on each scale that the reader can
    choose."""
    free = {letter: ends for letter in "xy" if (ends := _ends_by_scale(chart, panel, letter))}
    written = {key: value for key, value in vega.page_spec(chart, panel, most).items() if key != "config"}
    labels = {"labels": [panel.x.label, panel.y.label], "free": free}
    return {**written, "usermeta": labels}


def _ends_by_scale(chart: ChartData, panel: Panel, letter: str) -> dict[str, list[float | int | None]]:
    """Returns the limits of an axis on a linear and on a log scale, if the reader can switch the scale.

    The reader can not switch axes with names as positions, symlog axes, and axes of charts with a heat map.
    Axes with values that are not positive can not be switched either. For these axes the result is {}.
    """
    axis: Axis = getattr(panel, letter)
    if axis.names or axis.scale == "symlog" or any(other.cells is not None for other in chart.panels):
        return {}
    if any((np.asarray(values) <= 0).any() for values in encodings.values_along(chart, panel, letter)[1]):
        return {}
    scales: tuple[Scale, ...] = ("linear", "log")
    ends = {scale: encodings.ends_of(chart, panel, letter, scale) for scale in scales}
    return {scale: encodings.numbers(own) for scale, own in ends.items()}


def _points(charts: Mapping[str, ChartData]) -> int:
    """Returns the largest number of points of a line for which the page stays below `MOST_BYTES`."""
    series = [one for chart in charts.values() for panel in chart.panels for one in panel.series]
    columns = sum(2 + 2 * (one.low is not None) for one in series if one.mark in ("line", "step"))
    return int(np.clip(MOST_BYTES // (_BYTES * max(columns, 1)), _FEWEST_POINTS, vega.MOST_POINTS))


def _keys(chart: ChartData) -> dict[str, Key]:
    """Returns the legend entry of each label of a chart. If a label has lines and points, the entry shows the
    line."""
    found: dict[str, Key] = {}
    for one in (one for panel in chart.panels for one in panel.series if one.label):
        joined = one.mark in ("line", "step")
        if one.label not in found or (joined and found[one.label].mark != "line"):
            dash = " ".join(f"{length:g}" for length in encodings.dashes_of(one))
            mark = "line" if joined else one.mark
            found[one.label] = Key(one.label, encodings.color_of(one), dash, mark, encodings.shape_of(one))
    return found


def _shown(one: Series) -> Sequence[int]:
    """Returns the indices of the points of a series that the table shows: the last one of a line, or all."""
    whole = np.flatnonzero(np.isfinite(one.x) & np.isfinite(one.y))
    return (whole[-1:] if one.mark in ("line", "step") and not one.names else whole[:_MOST_POINTS]).tolist()


def _values(panel: Panel, one: Series, place: int) -> tuple[str, str, str]:
    interval = ""
    if one.low is not None and one.high is not None and np.isfinite(one.low[place] + one.high[place]):
        interval = f"{_short(one.low[place])} to {_short(one.high[place])}"
    return _at(panel.x, one.x[place]), _at(panel.y, one.y[place]), interval


def _at(axis: Axis, value: float) -> str:
    return axis.names[round(float(value))] if axis.names else _short(value)


def _places(axis: Axis, count: int) -> Sequence[str]:
    return axis.names or [str(place) for place in range(count)]


def _short(value: float, digits: int = 4) -> str:
    return format_number(value, f".{digits}g")
