"""Charts as plain data: what is drawn, and nothing of how; `paper` and `vega` draw them."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Mark = Literal["line", "step", "point", "ring", "cross"]
"""How a series is drawn: joined, held up to the next point, or as filled, open or crossed points."""
Scale = Literal["linear", "log", "symlog"]

# Okabe and Ito's colours, told apart under every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
DASHES = ((), (5, 2), (1, 1.2), (6, 1.5, 1, 1.5), (2.5, 1), (8, 1.5, 1, 1.2, 1, 1.5), (2, 3))
"""Lengths of ink and gap. There are seven, so that a pair of colour and dashes comes back after 56 lines."""
GREY = "#888888"
"""The colour of what is no line of a study: a bound, a fit, a front."""
# Of a part of a file's name that is a label, in bytes; a file system allows 255 for all of it.
_LONGEST_NAME = 60
_FILE = re.compile(r"\w[\w-]*")


@dataclasses.dataclass(frozen=True)
class Axis:
    """What one direction, or the colours, of a chart stand for."""

    label: str
    scale: Scale = "linear"
    names: tuple[str, ...] = ()
    """Of the places 0, 1, …; empty for numbers."""
    zero: bool = False
    """Whether the axis begins at 0."""
    linear: float = 1.0
    """Of a "symlog" scale: up to this distance from 0 it is linear."""


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One line, or one set of points, that a legend names."""

    label: str
    x: np.ndarray
    """Float64 [n]."""
    y: np.ndarray
    """Float64 [n]; NaN interrupts a line."""
    low: np.ndarray | None = None
    """Lower ends of intervals [n]: a band around a line, a bar at a point. None with one seed."""
    high: np.ndarray | None = None
    mark: Mark = "line"
    style: int = 0
    """Place in the palette, one for each label in all charts of a result; -1: thin and grey."""
    color: np.ndarray | None = None
    """[n], values on the chart's scale of colours, in place of the palette; NaN is grey."""
    names: tuple[str, ...] = ()
    """What each point is, such as its setting; shown where a reader points at it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes."""

    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    cells: np.ndarray | None = None
    """A heat map, [rows, columns] on the chart's scale of colours; NaN: there are no runs."""
    levels: tuple[tuple[str, float], ...] = ()
    """Horizontal reference lines: a name and where."""
    title: str = ""
    note: str = ""
    """What the panel leaves out."""


@dataclasses.dataclass(frozen=True, eq=False)
class ChartData:
    """Panels that are read together, row by row; panels with equal axes share them."""

    name: str
    """Of its files: letters, digits, _ and - alone."""
    caption: str
    """What, against what, averaged over what, and who is missing."""
    panels: tuple[Panel, ...]
    columns: int = 1
    color: Axis | None = None
    """One scale of colours for all panels."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """Every setting of a large study with its parameters and metrics; a reader chooses which to see."""

    labels: tuple[str, ...]
    """Of the settings."""
    axes: tuple[Axis, ...]
    """Of the columns: first the parameters, then the metrics."""
    values: np.ndarray
    """Float64 [settings, columns]; places of names where an axis has names, NaN where there is no value."""
    parameters: int
    """How many columns are parameters."""
    front: np.ndarray
    """Bool [settings]: on the Pareto front."""
    start: tuple[int, int, int]
    """The columns that are shown first: across, upwards, in colour."""


class Look(NamedTuple):
    """How a series is told from the others."""

    color: str
    dash: tuple[float, ...]
    width: float


def look(style: int) -> Look:
    """Returns the look of a series with this `style`, for every renderer."""
    if style < 0:
        return Look(GREY, (1, 1.5), 0.8)
    return Look(PALETTE[style % len(PALETTE)], DASHES[style % len(DASHES)], 1.2)


def thinned(count: int, most: int) -> np.ndarray:
    """Returns which of some points of a line to draw: all, or some `most` that an eye can't tell from all.

    Two thirds are evenly spread and one third over the decades, so that a logarithmic axis is served too.
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, 2 * most // 3)
    early = np.geomspace(1, count, most // 3) - 1
    return np.unique(np.concatenate([even, early]).astype(int))


def color_ends(chart: ChartData) -> tuple[float, float]:
    """Returns the ends of a chart's scale of colours."""
    values = [panel.cells.ravel() for panel in chart.panels if panel.cells is not None]
    values += [one.color for panel in chart.panels for one in panel.series if one.color is not None]
    whole = np.concatenate([*values, np.zeros(0)])
    whole = whole[np.isfinite(whole)]
    if not whole.size:
        return 0.0, 1.0
    low, high = float(whole.min()), float(whole.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def file_names(labels: Sequence[str]) -> list[str]:
    """Returns a part of a file's name for each of some labels, all different where the labels are.

    They have letters, digits and _ alone, and few enough of them. Where nothing is left of a label, or no
    more than of another one, it is numbered; upper and lower case are one to some file systems.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in dict.fromkeys(labels):
        words = re.sub(r"\W+", "_", label).strip("_")
        # A letter may be four bytes.
        plain = words.encode()[:_LONGEST_NAME].decode(errors="ignore")
        name, number = plain, 1
        while not name or name.casefold() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.casefold())
        found[label] = name
    return [found[label] for label in labels]


def check_name(name: str) -> str:
    """Returns a chart's name.

    Raises:
      ValueError: it is no name of a file within a folder.
    """
    if not _FILE.fullmatch(name):
        raise ValueError(f"{name[:100]!r}: is no name of a chart: letters, digits, _ and - alone")
    return name
