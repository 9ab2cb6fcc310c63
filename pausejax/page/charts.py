"""What a figure shows, read back from it: lines with their bands, points with their bars, cells, dots.

A page repeats these numbers where a reader points at a picture, hides the lines that he is not interested in,
and draws them anew on another axis. What is not understood is drawn all the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

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
    bands = [band for band in axes.collections if type(band).__name__ == "FillBetweenPolyCollection"]
    cells = next((found for found in axes.collections if isinstance(found, QuadMesh)), None)
    dots = [found for found in axes.collections if isinstance(found, PathCollection)]
    across = axes.get_yaxis_transform()
    levels = [line for line in axes.lines if line.get_transform() == across]
    traces = [*_with_bands(lines, bands), *bars, *map(_level, levels)]
    known = {*lines, *levels, *(trace.band for trace in traces)}
    drawn = {line for line in axes.lines if np.size(line.get_xdata())}  # a legend's example has no data
    placed = [text for text in axes.texts if text.get_transform() != axes.transAxes]
    whole = known >= {*drawn, *axes.collections} and not (axes.images or placed)
    return Panel(axes, traces, cells, dots, whole and bool(lines))


def _is_data(line: Line2D, axes: Axes) -> bool:
    x, y = (np.asarray(values) for values in line.get_data())
    numeric = x.dtype.kind in "iuf" and y.dtype.kind in "iuf"
    return line.get_transform() == axes.transData and numeric and len(x) > 1


def _with_bands(lines: list[Line2D], bands: list[Any]) -> Iterator[Trace]:
    """Each line with the band of its colour that it runs within."""
    left = [(band, *_edges(band)) for band in bands]
    for line in lines:
        x, y = (np.asarray(values, np.float64) for values in line.get_data())
        low, high, own = np.full_like(y, np.nan), np.full_like(y, np.nan), None
        for place, (band, at, bottom, top) in enumerate(left):
            same = np.allclose(to_rgb(line.get_color()), band.get_facecolor()[0][:3], atol=1e-3)
            shared = np.isin(x, at)
            if not (same and at.size and shared.any()):
                continue
            where = np.searchsorted(at, x[shared])
            low[shared], high[shared] = bottom[where], top[where]
            own = left.pop(place)[0]
            break
        yield Trace(_label(line), (line,), np.stack([x, y, low, high]), own)


def _edges(band: PolyCollection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a filled band lies: x ascending, lower and upper edge."""
    found: list[np.ndarray] = [np.zeros((3, 0))]
    for path in band.get_paths():
        # First the start, then the lower edge, the end, the upper edge backwards, and the start again.
        corners = np.asarray(path.vertices, np.float64)
        count = (len(corners) - 3) // 2
        lower, upper = corners[1 : count + 1], corners[count + 2 : 2 * count + 2][::-1]
        if len(corners) != 2 * count + 3 or not np.array_equal(lower[:, 0], upper[:, 0]):
            return (np.zeros(0),) * 3
        sides = np.sort(np.stack([lower[:, 1], upper[:, 1]]), axis=0)
        found.append(np.stack([lower[:, 0], *sides]))
    x, low, high = np.concatenate(found, axis=1)
    order = np.argsort(x, kind="stable")
    return x[order], low[order], high[order]


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
