"""Draws charts with matplotlib, on given axes or as a figure for a paper."""

import io
import warnings
from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pausejax.plotting.data import ChartData, Panel, Series, color_ends, isolated, look, thinned
from pausejax.plotting.ticks import set_ticks, upright_height
from pausejax.plotting.words import LETTERS, cut, filled, note, note_lines, plain

COLUMN, PAGE = 3.5, 7.0
"""Widths of one column and of both columns of a two-column paper, in inches."""
_COLORS = "viridis"
_MISSING = "0.85"
_POINTS = 2000
"""Largest number of points of a line; a printer can not resolve more."""
_FEW = 12
"""Largest number of points of a line that has a dot at each point, because nothing was measured between."""
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "pdf.fonttype": 42,
    "svg.hashsalt": "pausejax",
    "text.usetex": False,
    "savefig.bbox": None,
}
_NOTE = 7
"""Size of a note's letters, in points."""
_LINE = 0.14
"""Height of a line of a note, in inches."""
_LETTER = 0.065
"""Width of a digit, in inches."""
_SCALE = 0.6
"""Width of the colour bar with its numbers, in inches."""
_INNER = 0.75
"""Approximate least share of a panel's size for the plot itself, without labels."""
_BELOW = 0.4
"""Approximate height of the labels below a panel, in inches."""


def draw(chart: ChartData, axes: Any) -> None:
    """Draws a chart on matplotlib axes: a single `Axes`, or an array with one `Axes` for each panel.

    Raises:
      ValueError: the numbers of panels and axes differ.
    """
    places = np.ravel(np.asarray(axes, object))
    if len(places) != len(chart.panels):
        raise ValueError(
            f"axes: must be {len(chart.panels)}, one for each panel of {chart.name}, not {len(places)}"
        )
    _draw_panels(chart, places)


def figure(chart: ChartData, width: float | None = None, height: float | None = None) -> Figure:
    """Returns a figure of all panels, with one legend and one colour bar; width and height in inches.

    Raises:
      ValueError: the labels do not fit into the size that was given.
    """
    asked = width or height
    width = width or (COLUMN if chart.columns == 1 else PAGE)
    room = width - (_SCALE if chart.color else 0)
    shapes = [panel.cells.shape for panel in chart.panels if panel.cells is not None]
    most_rows, most_columns = np.max([(0, 0), *shapes], axis=0)
    columns = min(chart.columns, max(int(room / max(1.15, 0.12 * most_columns + 0.75)), 1))
    rows, across = -(-len(chart.panels) // columns), room / columns
    up = min(max(0.72 * across, 1.35), 2.6 if chart.columns == 1 else 1.7)
    up = max(1.7, 0.2 * most_rows + 0.8) if most_rows else up
    inner = _INNER * across, max(_INNER * up, up - _BELOW)
    up += max(note_lines(panel.note, inner[0]) for panel in chart.panels) * _LINE
    upright = max(upright_height(panel.x, inner[0]) for panel in chart.panels)
    up += upright
    with matplotlib.rc_context(_STYLE):
        drawn = Figure(figsize=(width, height or 0.25 + rows * up), layout="constrained")
        FigureCanvasAgg(drawn)
        same_x, same_y = (len({getattr(panel, xy) for panel in chart.panels}) == 1 for xy in "xy")
        places = list(drawn.subplots(rows, columns, squeeze=False, sharex=same_x, sharey=same_y).flat)
        norm = _draw_panels(chart, places, *inner)
        for place, own in enumerate(places):
            if place >= len(chart.panels):
                own.remove()
            elif place + columns < len(chart.panels) and same_x:
                own.set_xlabel("")
            elif same_x:
                own.tick_params(labelbottom=True)
            if place % columns and same_y:
                own.set_ylabel("")
        if chart.color and norm:
            label = filled(chart.color.label, (height or rows * up) - _BELOW - upright)
            scale = ScalarMappable(norm, _COLORS)
            drawn.colorbar(scale, ax=places[: len(chart.panels)], label=label, aspect=30)
        lines = _legend(drawn, chart.least_named)
        if height is None and lines:
            drawn.set_size_inches(width, 0.25 + rows * up + 0.16 * lines)
        drawn.align_labels()
        # The layout determines the number of ticks and their size, so it is computed once before saving.
        with warnings.catch_warnings():
            warnings.filterwarnings("error" if asked else "default", "constrained_layout not applied")
            try:
                drawn.draw_without_rendering()
            except UserWarning as crowded:
                size = f"{width:g} by {drawn.get_figheight():.3g} inches"
                raise ValueError(f"{chart.name}: {size} are too small for its labels") from crowded
    return drawn


def encode(
    chart: ChartData, format: str, width: float | None = None, height: float | None = None, *, dpi: int = 300
) -> bytes:
    """Returns the bytes of a picture, without a date; width and height in inches."""
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(format)
    written = io.BytesIO()
    drawn = figure(chart, width, height)
    with matplotlib.rc_context(_STYLE):  # it sets the type of embedded fonts, and the ids in an SVG file
        drawn.savefig(written, format=format, dpi=dpi, metadata=undated)
    return written.getvalue()


def _draw_panels(
    chart: ChartData, places: Iterable[Axes], across: float = 0, up: float = 0
) -> Normalize | None:
    """Draws all panels, and returns their colour scale.

    Args:
      chart: the chart to draw.
      places: the axes, one for each panel.
      across: length in inches at which labels along x wrap; 0: the width of the axes.
      up: length in inches at which labels along y wrap; 0: the height of the axes.
    """
    norm = None
    if chart.color is not None:
        low, high = color_ends(chart)
        norm = LogNorm(low, high) if chart.color.scale == "log" and low > 0 else Normalize(low, high)
    for panel, axes in zip(chart.panels, places, strict=False):
        _draw(panel, axes, norm, across, up)
    # The limits are set last, because shared axes with a fixed end at 0 no longer grow.
    for panel, axes in zip(chart.panels, places, strict=False):
        if panel.x.zero and panel.x.scale != "log":
            axes.set_xlim(left=0)
        if panel.y.zero and panel.y.scale != "log":
            axes.set_ylim(bottom=0)
    return norm


def _draw(panel: Panel, axes: Axes, norm: Normalize | None, across: float, up: float) -> None:
    """Draws one panel, with colours on the scale `norm`.

    Labels along x wrap at `across` inches, and labels along y at `up` inches; 0: the size of `axes`.
    """
    box, dots = axes.get_window_extent(), axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    width, height = across or box.width / dots, up or box.height / dots
    if panel.cells is not None and norm is not None:
        _cells(panel.cells, axes, norm, width, height)
    for one in panel.series:
        _series(one, axes, norm)
    for text, value in panel.levels:
        axes.axhline(value, color="black", linestyle=":", linewidth=0.8, label=plain(text))
    for which, axis, inches in (("x", panel.x, width), ("y", panel.y, height)):
        getattr(axes, f"set_{which}label")(filled(axis.label, inches))
        set_ticks(axes, which, axis, inches, cells=panel.cells is not None)
    places = axes.xaxis.get_major_locator()
    whole = all((one.x == np.round(one.x)).all() for one in panel.series)
    if whole and isinstance(places, MaxNLocator):
        places.set_params(integer=True)
    if panel.note:  # above the axes, where it covers no line
        place: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right"}
        axes.annotate(note(panel.note, width), (1, 1), (0, 3), fontsize=_NOTE, color="0.3", **place)
    if panel.title:
        pad = matplotlib.rcParams["axes.titlepad"] + 72 * _LINE * note_lines(panel.note, width)
        axes.set_title(filled(panel.title, 1.1 * width), pad=pad)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.cells is None:
        axes.grid(alpha=0.3, linewidth=0.5)


def _series(one: Series, axes: Axes, norm: Normalize | None) -> None:
    kind, label = look(one.style), plain(one.label)
    if not np.isfinite(one.x + one.y).any():
        return
    if one.mark in ("line", "step"):
        kept = np.arange(len(one.x)) if one.mark == "step" else thinned(one.y, _POINTS)
        step = "post" if one.mark == "step" else None
        style: Any = {"color": kind.color, "linestyle": (0, kind.dash) if kind.dash else "-"}
        style |= {"drawstyle": f"steps-{step}" if step else "default", "linewidth": kind.width}
        style |= {"marker": "o" if len(one.x) <= _FEW and not step else "", "markersize": 2}
        axes.plot(one.x[kept], one.y[kept], label=label, **style)
        lone = kept[isolated(one.y[kept])]
        if lone.size:
            axes.plot(one.x[lone], one.y[lone], **style | {"linestyle": "", "marker": "o"})
        if one.low is not None and one.high is not None:
            band: Any = {"color": kind.color, "alpha": 0.2, "linewidth": 0, "step": step}
            axes.fill_between(one.x[kept], one.low[kept], one.high[kept], **band)
            if lone.size:
                axes.vlines(one.x[lone], one.low[lone], one.high[lone], color=kind.color, linewidth=0.7)
        return
    if one.low is not None and one.high is not None:
        axes.vlines(one.x, one.low, one.high, color=kind.color, linewidth=0.7)
    marker = {"cross": "x", "ring": "o"}.get(one.mark, kind.marker)
    points: Any = {"marker": marker, "s": 9, "color": kind.color, "linewidth": 0.6}
    if one.mark == "ring":
        points |= {"s": 22, "facecolor": "none", "edgecolor": "black", "zorder": 4}
        del points["color"]
    elif one.tinted and one.color is not None and norm is not None:
        shades = matplotlib.colormaps[_COLORS](norm(np.ma.masked_invalid(one.color)))
        shades[~np.isfinite(one.color)] = matplotlib.colors.to_rgba("0.6")
        points["color"] = shades
        axes.scatter(one.x, one.y, **points)
        # Colours show a metric here, so the legend shows the markers of policies in grey.
        axes.scatter([], [], label=label, **points | {"color": "0.4"})
        return
    axes.scatter(one.x, one.y, label=label, **points)


def _cells(cells: np.ndarray, axes: Axes, norm: Normalize, width: float, height: float) -> None:
    """Draws a heat map, and its numbers if they fit into `width` and `height`, both in inches."""
    axes.set_facecolor(_MISSING)
    axes.pcolormesh(np.ma.masked_invalid(cells), cmap=_COLORS, norm=norm, edgecolors="w", linewidth=0.4)
    known = {at: value for at, value in np.ndenumerate(cells) if np.isfinite(value)}
    texts = {at: f"{value:.3g}".replace("e+0", "e") for at, value in known.items()}
    rows, columns = cells.shape
    longest = max(map(len, texts.values()), default=0)
    if longest * _LETTER > width / columns or height / rows < 2 * _LETTER:
        return
    for (row, column), text in texts.items():
        red, green, blue, _ = matplotlib.colormaps[_COLORS](norm(cells[row, column]))
        ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"
        look_of: Any = {"color": ink, "ha": "center", "va": "center", "fontsize": 7}
        axes.text(column + 0.5, row + 0.5, text, **look_of)


def _legend(drawn: Figure, least: int) -> int:
    """Adds a legend above all panels; returns its number of lines, or 0 for fewer than `least` labels."""
    handles: dict[str, Any] = {}
    for axes in drawn.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) < least:
        return 0
    most = int(LETTERS * drawn.get_figwidth()) - 6
    written = [plain(cut(label.replace(r"\$", "$"), most)) for label in handles]
    for columns in range(min(len(handles), 5), 0, -1):
        legend = drawn.legend(
            list(handles.values()),
            written,
            loc="outside upper center",
            ncols=columns,
            frameon=False,
            handlelength=2.4,
            columnspacing=1.2,
        )
        if columns == 1 or legend.get_window_extent().width <= drawn.bbox.width:
            return -(-len(handles) // columns)
        legend.remove()
    return 0
