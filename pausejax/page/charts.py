"""What a figure shows, read back from it: lines with their bands, points with their bars, cells, dots.

A page repeats these numbers where a reader points at a picture, hides the lines that he is not interested in,
and draws them anew on another axis. What is not understood is drawn all the same.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection, PathCollection, QuadMesh
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from pausejax.report.curves import Banded

_COLUMNS = 240
"""Points that a line keeps, and half as many spread evenly over the decades."""


class Trace(NamedTuple):
    """A line or a row of points."""

    label: str
    """"" where the legend does not name it."""
    artists: tuple[Any, ...]
    """The line first."""
    values: np.ndarray
    """[4, n]: x, y, and the interval around y (NaN where there is none)."""
    band: Collection | None = None
    is_level: bool = False
    """Whether it is a level across the panel, x in shares of the panel's width, rather than data."""


class Panel(NamedTuple):
    """One pair of axes."""

    axes: Axes
    traces: list[Trace]
    cells: QuadMesh | None
    dots: list[PathCollection]
    whole: bool
    """Whether all of its data are lines and bands, so that it can be drawn on other axes."""


class Cells(NamedTuple):
    """A heat map."""

    x: np.ndarray
    """Borders of the columns."""
    y: np.ndarray
    values: np.ndarray
    """[rows, columns], NaN where there is none."""


def panels_of(figure: Figure) -> list[Panel]:
    """The panels of a figure, insets among them, without the scales of colours."""
    every: list[Any] = [inner for axes in figure.axes for inner in (axes, *axes.child_axes)]
    return [_panel(axes) for axes in dict.fromkeys(every) if axes.axison and not is_scale(axes)]


def is_scale(axes: Axes) -> bool:
    """Whether axes are a scale of colours."""
    return axes.get_label() == "<colorbar>"


def labels_of(panels: Sequence[Panel]) -> list[str]:
    """The lines that a legend names."""
    return list(dict.fromkeys(trace.label for panel in panels for trace in panel.traces if is_named(trace)))


def cells_of(axes: Axes, cells: QuadMesh) -> Cells:
    """What a heat map shows."""
    corners: Any = cells.get_coordinates()
    values = np.ma.filled(np.ma.asarray(cells.get_array(), np.float64), np.nan)
    return Cells(corners[0, :, 0], corners[:, 0, 1], values.reshape(corners.shape[0] - 1, -1))


def names_along(axes: Axes, letter: Literal["x", "y"]) -> list[str]:
    """What the ticks of cells say; those of inner panels stand at the edge of the picture."""
    own = axes.get_position()
    for beside in [axes, *root_of(axes).axes]:
        place = beside.get_position()
        aligned = np.isclose(place.x0, own.x0) if letter == "x" else np.isclose(place.y0, own.y0)
        axis: Axis = getattr(beside, f"{letter}axis")
        texts = [text.get_text() for text in axis.get_ticklabels()]
        if aligned and not is_scale(beside) and any(texts):
            name = axis.get_label_text()
            return [f"{name} = {text}" if name else text for text in texts]
    return []


def scale_label(axes: Axes) -> str:
    """What the colours of a figure stand for."""
    return next((other.get_ylabel() for other in root_of(axes).axes if is_scale(other)), "")


def root_of(axes: Axes) -> Figure:
    """The whole figure that axes are in."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def is_named(trace: Trace) -> bool:
    """Whether a trace is data that the legend names."""
    return bool(trace.label) and not trace.is_level


def is_switchable(axis: Axis) -> bool:
    """Whether other ticks could stand at an axis: not where they are names, or a choice of the picture's."""
    return not isinstance(axis.get_major_locator(), FixedLocator)


def _panel(axes: Axes) -> Panel:
    bars = [_with_bars(found) for found in axes.containers if isinstance(found, ErrorbarContainer)]
    taken: set[Any] = {artist for trace in bars for artist in trace.artists}
    lines = [line for line in axes.lines if line not in taken and _is_data(line, axes)]
    bands = {found[0]: found for found in axes.containers if isinstance(found, Banded)}
    cells = next((found for found in axes.collections if isinstance(found, QuadMesh)), None)
    dots = [found for found in axes.collections if isinstance(found, PathCollection)]
    across = axes.get_yaxis_transform()
    levels = [line for line in axes.lines if line.get_transform() == across]
    traces = [*(_with_band(line, bands.get(line)) for line in lines), *bars, *map(_level, levels)]
    known = {*lines, *levels, *(trace.band for trace in traces)}
    drawn = {line for line in axes.lines if np.size(line.get_xdata())}  # a legend's example has no data
    placed = [text for text in axes.texts if text.get_transform() != axes.transAxes]
    whole = known >= {*drawn, *axes.collections} and not (axes.images or placed)
    return Panel(axes, traces, cells, dots, whole and bool(lines))


def _is_data(line: Line2D, axes: Axes) -> bool:
    x, y = (np.asarray(values) for values in line.get_data())
    numeric = x.dtype.kind in "iuf" and y.dtype.kind in "iuf"
    return line.get_transform() == axes.transData and numeric and len(x) > 1


def _with_band(line: Line2D, banded: Banded | None) -> Trace:
    x, y = (np.asarray(values, np.float64) for values in line.get_data())
    if banded is None:
        nothing = np.full_like(y, np.nan)
        return Trace(_label(line), (line,), np.stack([x, y, nothing, nothing]))
    return Trace(_label(line), (line,), np.stack([x, y, banded.low, banded.high]), banded[1])


def _with_bars(bars: ErrorbarContainer) -> Trace:
    line, caps, bunches = bars.lines
    x, y = (np.asarray(values, np.float64) for values in line.get_data())
    low, high = np.full_like(y, np.nan), np.full_like(y, np.nan)
    upright = [bunch for bunch in bunches if isinstance(bunch, LineCollection)]
    for bunch in upright:
        ends = np.array(bunch.get_segments())
        if ends.shape == (len(x), 2, 2) and np.allclose(ends[:, 0, 0], ends[:, 1, 0]):
            low, high = ends[:, :, 1].min(axis=1), ends[:, :, 1].max(axis=1)
    label = str(bars.get_label())
    return Trace("" if label.startswith("_") else label, (line, *caps, *upright), np.stack([x, y, low, high]))


def _level(line: Line2D) -> Trace:
    x, y = (np.asarray(values, np.float64) for values in line.get_data())
    nothing = np.full_like(y, np.nan)
    return Trace(_label(line), (line,), np.stack([x, y, nothing, nothing]), is_level=True)


def _label(line: Line2D) -> str:
    label = str(line.get_label())
    return "" if label.startswith("_") else label


def thinned(values: np.ndarray) -> np.ndarray:
    """As many points of a trace [4, n] as an eye can tell, on linear axes and on logarithmic ones."""
    x = values[0]
    values = values[:, np.argsort(x, kind="stable")] if (np.diff(x) < 0).any() else values
    count = values.shape[1]
    if count <= 1.5 * _COLUMNS:
        return values
    even = np.linspace(0, count - 1, _COLUMNS)
    early = np.geomspace(1, count, _COLUMNS // 2) - 1
    return values[:, np.unique(np.concatenate([even, early]).astype(int))]
