"""Heat maps over each pair of axes, one triangular figure per measure and policy."""

from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from pausejax.analysis.settings import has
from pausejax.report.figure import Figure
from pausejax.report.levels import (
    Levels,
    Measure,
    averaged,
    colour_scale,
    name_of,
    shown_each,
    values_of,
)
from pausejax.report.style import new_figure, styled_context, wrapped

MAX_AXES = 4
"""That have heat maps: six pairs are what a page has room for."""

# Told apart under every common colour blindness, and in grey.
COLOURS = "viridis"
_MISSING = "0.85"
# Inches: room for a number of four characters, and for panels with few levels.
_CELL = (0.34, 0.25)
_PANEL = 1.15


def heat_maps(levels: Levels, measure: Measure, policy: str) -> Figure | None:
    """Means of a measure over seeds and all other axes, for each pair of axes; None without a pair.

    Of more than `MAX_AXES` axes the first ones have heat maps.

    All panels share one scale of colours. Grey: nothing was measured there.
    """
    axes, tables = levels.axes[:MAX_AXES], {}
    for row in range(1, len(axes)):
        for column in range(row):
            tables[row, column] = table(levels, measure, axes[row], axes[column])
    if not tables:
        return None
    values = np.concatenate([t.ravel() for t in tables.values()])
    norm = colour_scale(measure, values)
    side = len(axes) - 1
    widths = [max(_PANEL, _CELL[0] * len(values_of(levels, axis))) for axis in axes[:-1]]
    heights = [max(_PANEL, _CELL[1] * len(values_of(levels, axis))) for axis in axes[1:]]
    with styled_context():
        figure = new_figure(1.3 + sum(widths) + (1.0 if side == 1 else 0), 0.75 + sum(heights))
        figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
        shapes = {"width_ratios": widths, "height_ratios": heights}
        grid = figure.subplots(side, side, squeeze=False, gridspec_kw=shapes)
        for row in range(side):
            for column in range(side):
                panel = grid[row, column]
                if column > row:
                    panel.set(xticks=[], yticks=[])
                    panel.set_axis_off()
                    continue
                _panel(panel, tables[row + 1, column], norm)
                lowest, leftmost = row == side - 1, column == 0
                _ticks(panel, levels, axes[column], "x", lowest)
                _ticks(panel, levels, axes[row + 1], "y", leftmost)
        scale = ScalarMappable(norm, colormaps[COLOURS])
        label = wrapped(measure.label, int(11 * figure.get_figheight()))
        figure.colorbar(scale, ax=grid, label=label, shrink=0.8, aspect=30, fraction=0.06)
        others = " and the other axes" if len(levels.axes) > 2 else ""
        figure.suptitle(f"{policy}: mean over seeds{others}", fontsize=8)
        figure.align_labels()
        return figure


def table(levels: Levels, measure: Measure, row: str, column: str) -> np.ndarray:
    """Means for each level of two axes, [rows, columns], ascending; NaN where there is no run."""
    found = averaged(levels, measure, (row, column))
    found = found.isel(setting=np.flatnonzero(has(found, row) & has(found, column)))
    rows, columns = values_of(levels, row), values_of(levels, column)
    means = np.full((len(rows), len(columns)), np.nan)
    for i, j, value in zip(found[row].values, found[column].values, found["mean"].values, strict=True):
        means[rows.index(i), columns.index(j)] = value
    return means


def _panel(panel: Axes, means: np.ndarray, norm: Normalize) -> None:
    panel.set_facecolor(_MISSING)
    panel.pcolormesh(np.ma.masked_invalid(means), cmap=COLOURS, norm=norm, edgecolors="white", linewidth=0.4)
    panel.spines[:].set_visible(False)
    for (row, column), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            red, green, blue, _ = colormaps[COLOURS](norm(mean))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            ink, place = "white" if dark else "black", (column + 0.5, row + 0.5)
            panel.text(*place, _number(mean), color=ink, ha="center", va="center", fontsize=5.5)


def _number(value: float) -> str:
    """Three digits."""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.0f}" if value == 0 or abs(value) >= 99.95 else f"{value:#.3g}"


def _ticks(panel: Axes, levels: Levels, axis: str, which: Literal["x", "y"], outer: bool) -> None:
    """Every level's value at the outer panels; along x upright where the values are long."""
    values = shown_each(values_of(levels, axis))
    place = panel.xaxis if which == "x" else panel.yaxis
    crowded = which == "x" and sum(map(len, values)) > 14
    place.set_ticks(np.arange(len(values)) + 0.5, values if outer else [""] * len(values))
    panel.tick_params(axis=which, length=0, labelsize=6.5, rotation=90 if crowded else 0)
    if outer:
        place.set_label_text(name_of(axis, levels.runs))
