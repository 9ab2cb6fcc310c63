"""Charts as plain data, independent of a renderer; `paper` and `vega` draw them."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Mark = Literal["line", "step", "point", "ring", "cross"]
"""How a series is drawn: as a line, a step function, filled points, open rings or crosses."""
Scale = Literal["linear", "log", "symlog"]

# Based on Okabe and Ito's palette, which stays distinct under common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
DASHES = ((), (5, 2), (1, 1.2), (6, 1.5, 1, 1.5), (2.5, 1), (8, 1.5, 1, 1.2, 1, 1.5), (2, 3))
"""Lengths of dashes and gaps. Seven patterns and eight colours give 56 different lines."""
SHAPES = {
    "o": "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0Z",
    "s": "M-0.8,-0.8H0.8V0.8H-0.8Z",
    "D": "M0,-1L1,0L0,1L-1,0Z",
    "^": "M0,-1L1,0.8H-1Z",
    "v": "M0,1L1,-0.8H-1Z",
    "P": "M-0.3,-1L0.3,-1 0.3,-0.3 1,-0.3 1,0.3 0.3,0.3 0.3,1 -0.3,1 -0.3,0.3 -1,0.3 -1,-0.3 -0.3,-0.3Z",
    "*": "M0,-1L0.3,-0.4 0.9,-0.3 0.4,0.1 0.6,0.8 0,0.5 -0.6,0.8 -0.4,0.1 -0.9,-0.3 -0.3,-0.4Z",
    "X": "M.5,-.9L.9,-.5 .5,0 .9,.5 .5,.9 0,.5 -.5,.9 -.9,.5 -.5,0 -.9,-.5 -.5,-.9 0,-.5Z",
    "<": "M-1,0L0.8,-1V1Z",
    ">": "M1,0L-0.8,-1V1Z",
    "p": "M0,-1L0.9,-0.3 0.6,0.8 -0.6,0.8 -0.9,-0.3Z",
    "d": "M0,-1L0.55,0L0,1L-0.55,0Z",
    "h": "M0,-1L0.9,-0.5 0.9,0.5 0,1 -0.9,0.5 -0.9,-0.5Z",
    "H": "M1,0L0.5,0.9 -0.5,0.9 -1,0 -0.5,-0.9 0.5,-0.9Z",
    "8": "M0.9,0.4L0.4,0.9 -0.4,0.9 -0.9,0.4 -0.9,-0.4 -0.4,-0.9 0.4,-0.9 0.9,-0.4Z",
}
"""SVG paths of points by matplotlib's markers. Their coordinates are from -1 to 1. Fifteen shapes and eight
colours give 120 different points."""
GREY = "#888888"
"""The colour of bounds, fits and fronts, which are not lines of a study."""
# Largest number of bytes of a label in a file name. File systems allow 255 bytes for the whole name.
_LONGEST_NAME = 60
_FILE = re.compile(r"\w[\w-]*")


@dataclasses.dataclass(frozen=True)
class Axis:
    """The meaning and scale of a chart's x axis, y axis or colours."""

    label: str
    scale: Scale = "linear"
    names: tuple[str, ...] = ()
    """Names of the positions 0, 1, …; empty for a numeric axis."""
    zero: bool = False
    """Whether the axis begins at 0."""
    linear: float = 1.0
    """The value up to which a "symlog" scale is linear, on both sides of 0."""


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One line or one set of points, with its label in the legend."""

    label: str
    x: np.ndarray
    """x values, float64 [n]."""
    y: np.ndarray
    """y values, float64 [n]; NaN interrupts a line."""
    low: np.ndarray | None = None
    """Lower ends of intervals, float64 [n], drawn as a band or bars. None with one seed."""
    high: np.ndarray | None = None
    """Upper ends of intervals, float64 [n]."""
    mark: Mark = "line"
    style: int = 0
    """Index into the palette; -1 means a thin grey line.

    A label has the same index in all charts of a result.
    """
    color: np.ndarray | None = None
    """Values on the chart's colour scale, float64 [n]. Points have the scale's colours; without a finite
    value they are grey. Rings and crosses only tell the value when the reader points at them."""
    names: tuple[str, ...] = ()
    """A name for each point, such as its setting. It is shown when the reader points at the point."""

    @property
    def tinted(self) -> bool:
        """Whether the chart's colour scale gives the colours of the points."""
        return self.color is not None and self.mark == "point"


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """One panel of a chart: a pair of axes with what is drawn on them."""

    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    cells: np.ndarray | None = None
    """Values of a heat map, float64 [rows, columns], on the chart's colour scale; NaN: no runs."""
    levels: tuple[tuple[str, float], ...] = ()
    """Horizontal reference lines: name and y value."""
    title: str = ""
    note: str = ""
    """A note on what the panel leaves out."""

    @property
    def what(self) -> str:
        """The title, or "y against x" with the labels of the axes if the panel has no title."""
        return self.title or f"{self.y.label} against {self.x.label}"


@dataclasses.dataclass(frozen=True, eq=False)
class ChartData:
    """One chart: its panels, row by row. Panels whose axes are equal share these axes."""

    name: str
    """Name of the chart and of its files; only letters, digits, _ and -."""
    caption: str
    """Sentences that say what is drawn, over what means are taken, and which runs are left out."""
    panels: tuple[Panel, ...]
    columns: int = 1
    color: Axis | None = None
    """The colour scale of all panels."""

    @property
    def least_named(self) -> int:
        """Least number of labels for which a chart has a legend. It is 2, or 1 if a panel has a note."""
        return 1 if any(panel.note and len(panel.series) > 0 for panel in self.panels) else 2


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """Every setting of a large study, with the parameters and metrics that a reader can choose as axes."""

    labels: tuple[str, ...]
    """The label of each setting."""
    axes: tuple[Axis, ...]
    """The axis of each column of `values`: first the parameters, then the metrics."""
    values: np.ndarray
    """Float64 [settings, columns]. If an axis has names, its column holds indices of names. NaN: no value. A
    metric may be infinite."""
    parameters: int
    """Number of columns of `values` that are parameters. The other columns are metrics."""
    front: np.ndarray
    """Whether each setting is on the Pareto front, bool [settings]."""
    start: tuple[int, int, int]
    """Indices of the columns of `values` that the chart shows at first: x axis, y axis, colour."""


class Look(NamedTuple):
    """Colour, dashes and line width of a series, and matplotlib's marker for its points."""

    color: str
    dash: tuple[float, ...]
    width: float
    marker: str


def look(style: int) -> Look:
    """Returns the look of a series with this `style`, for every renderer."""
    if style < 0:
        return Look(GREY, (1, 1.5), 0.8, "o")
    marker = [*SHAPES][style % len(SHAPES)]
    return Look(PALETTE[style % len(PALETTE)], DASHES[style % len(DASHES)], 1.2, marker)


def thinned(values: np.ndarray, most: int) -> np.ndarray:
    """Returns the indices of the points of a line that are drawn, int [at most 3 `most`].

    Some points are evenly spaced, and some logarithmically, for a logarithmic axis. The lowest and the
    highest point of each section are included, so that no spike is lost. The points at the edges of gaps are
    included, with a point of the gap, so that the line breaks. If there are more gaps than half of `most`,
    the line breaks at the longest gaps, and is drawn across the others.

    Args:
      values: y values of the line, float [n]; NaN is a gap.
      most: approximate number of points to keep of a line without gaps.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    quarter = max(most // 4, 1)
    even, early = np.linspace(0, count - 1, quarter), np.geomspace(1, count, quarter) - 1
    extremes = []
    for part in np.array_split(np.arange(count), quarter):
        finite = part[np.isfinite(values[part])]
        if finite.size:
            extremes += [finite[np.argmin(values[finite])], finite[np.argmax(values[finite])]]
    kept = np.unique(np.concatenate([even, early, extremes]).astype(int))
    missing = np.isnan(values)
    first = np.flatnonzero(missing & ~np.append(False, missing[:-1]))
    end = np.flatnonzero(missing & ~np.append(missing[1:], False)) + 1
    # Gaps at the ends of the line count as long: there the line ends.
    length = np.where((first == 0) | (end == count), count, end - first)
    longest = np.argsort(-length, kind="stable")[: most // 2]
    edges = [first[longest] - 1, first[longest], end[longest]]
    kept = np.concatenate([kept[~missing[kept]], *edges, [0, count - 1]])
    return np.unique(np.clip(kept, 0, count - 1))


def isolated(values: np.ndarray) -> np.ndarray:
    """Returns whether each point of a line lies between gaps, bool [n]. A line would not show it.

    Args:
      values: y values of the line, float [n]; NaN is a gap.
    """
    there = np.concatenate([[False], np.isfinite(values), [False]])
    return there[1:-1] & ~there[:-2] & ~there[2:]


def color_ends(chart: ChartData) -> tuple[float, float]:
    """Returns the lowest and highest finite value of a chart's colours; (0, 1) if there is none. Equal values
    are moved 0.5 down and up."""
    values = [panel.cells.ravel() for panel in chart.panels if panel.cells is not None]
    values += [one.color for panel in chart.panels for one in panel.series if one.color is not None]
    whole = np.concatenate([*values, np.zeros(0)])
    whole = whole[np.isfinite(whole)]
    if not whole.size:
        return 0.0, 1.0
    low, high = float(whole.min()), float(whole.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def file_names(labels: Sequence[str]) -> list[str]:
    """Converts labels to parts of file names. Different labels get different parts.

    The parts contain only letters, digits and _, and are at most 60 bytes long, plus a number. An empty or
    repeated part gets a number. Parts that differ only in case count as repeated, because some file systems
    ignore case.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in dict.fromkeys(labels):
        words = re.sub(r"\W+", "_", label).strip("_")
        # A letter may take four bytes in UTF-8.
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
      ValueError: the name contains characters other than letters, digits, _ and -, or begins with -.
    """
    if not _FILE.fullmatch(name):
        raise ValueError(f"{name[:100]!r}: must be letters, digits, _ and -, and must not begin with -")
    return name
