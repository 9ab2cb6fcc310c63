"""Main effects: each measure against each axis, averaged over all the others."""

import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pausejax.report.curves import DASHES, MARKERS, PALETTE, styled_context
from pausejax.report.figure import Figure
from pausejax.report.levels import (
    Levels,
    Measure,
    averaged,
    columns_for,
    is_logarithmic,
    levels_of,
    name_of,
    shown,
    spans_decades,
    values_of,
)

_WIDTH, _HEIGHT = 1.12, 1.1
# Width of a character of a tick label, as a share of the axis.
_CHARACTER = 0.06


def main_effects(finals: xr.Dataset, measures: list[Measure]) -> Figure | None:
    """A row per measure, a column per axis, a line per policy that has the axis; None without an axis.

    The band is the 95 % interval of the mean over seeds, each seed averaged over all other axes first.
    """
    levels = levels_of(finals)
    if not levels.axes or not measures:
        return None
    policies = list(dict.fromkeys(finals["policy"].values.tolist()))
    rows, columns = len(measures), len(levels.axes)
    with styled_context():
        above = 0.3 * -(-len(policies) // 4) if len(policies) > 1 else 0.05
        figure = Figure(figsize=(max(0.75 + _WIDTH * columns, 2.4), 0.45 + _HEIGHT * rows + above))
        figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, sharey="row", squeeze=False)
        for row, measure in enumerate(measures):
            drawn = []
            for column, axis in enumerate(levels.axes):
                panel = grid[row, column]
                found = averaged(levels, measure, ("policy", axis))
                drawn.append(_draw(panel, found, axis, values_of(levels, axis), policies))
                _x_axis(panel, levels, axis, labelled=row == rows - 1)
                panel.grid(alpha=0.3, linewidth=0.5)
                panel.spines[["top", "right"]].set_visible(False)
            grid[row, 0].set_ylabel(textwrap.fill(measure.label, 14))
            _y_axis(grid[row, 0], measure, np.concatenate(drawn))
        if len(policies) > 1:
            handles: dict[str, Any] = {}
            for panel in grid.flat:
                handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
            columns = columns_for(list(handles), figure.get_figwidth())
            lines, names = list(handles.values()), list(handles)
            figure.legend(lines, names, loc="outside upper center", ncols=columns, frameon=False)
        figure.align_ylabels()
        return figure


def _draw(panel: Axes, found: xr.Dataset, axis: str, values: list, policies: list[str]) -> np.ndarray:
    """One line per policy; returns what was drawn."""
    drawn = [np.zeros(0)]
    numeric = found[axis].dtype.kind in "iuf"
    for place, policy in enumerate(policies):
        own = found.isel(setting=np.flatnonzero((found["policy"] == policy).values))
        own = own.isel(setting=[value in values for value in own[axis].values.tolist()]).sortby(axis)
        if not own.sizes["setting"]:
            continue
        x = own[axis].values if numeric else [values.index(value) for value in own[axis].values]
        again, hue = divmod(place, len(PALETTE))
        look: dict[str, Any] = {
            "color": PALETTE[hue],
            "linestyle": DASHES[again % len(DASHES)],
            "linewidth": 1.1,
        }
        look |= {"marker": MARKERS[place % len(MARKERS)], "markersize": 2.5}
        panel.plot(x, own["mean"].values, label=policy, **look)
        panel.fill_between(x, own["low"], own["high"], color=PALETTE[hue], alpha=0.2, linewidth=0)
        drawn.append(own["mean"].values)
    return np.concatenate(drawn)


def _y_axis(panel: Axes, measure: Measure, means: np.ndarray) -> None:
    """Room for the means and as much of the bands again: those of few seeds would flatten everything."""
    if is_logarithmic(measure, means):
        panel.set_yscale("log")
    elif np.isfinite(means).any():
        low, high = np.nanmin(means), np.nanmax(means)
        reach = max(high - low, 1e-3 * abs(high))
        least, most = panel.get_ylim()
        panel.set_ylim(max(least, low - reach), min(most, high + reach))


def _x_axis(panel: Axes, levels: Levels, axis: str, *, labelled: bool) -> None:
    values = values_of(levels, axis)
    numeric = not isinstance(values[0], str | bool)
    positions = np.array(values if numeric else range(len(values)), float)
    scaled = positions
    if numeric and spans_decades(positions):
        panel.set_xscale("log")
        scaled = np.log(positions)
    margin = 0.08 * (scaled[-1] - scaled[0])
    ends = np.array([scaled[0] - margin, scaled[-1] + margin])
    panel.set_xlim(*(np.exp(ends) if scaled is not positions else ends))
    texts = [shown(value) for value in values]
    kept = _spaced((scaled - scaled[0]) / (scaled[-1] - scaled[0]), texts)
    panel.set_xticks(positions[kept], [texts[i] for i in kept] if labelled else [""] * len(kept))
    panel.set_xticks([], minor=True)
    panel.tick_params(labelsize=6.5)
    if labelled:
        panel.set_xlabel(name_of(axis, levels.runs))


def _spaced(places: np.ndarray, texts: list[str]) -> list[int]:
    """Both ends, and between them those whose labels touch no other."""

    def apart(one: int, other: int) -> bool:
        room = _CHARACTER * (1 + (len(texts[one]) + len(texts[other])) / 2)
        return places[other] - places[one] >= room

    kept, final = [0], len(places) - 1
    for place in range(1, final):
        if apart(kept[-1], place) and apart(place, final):
            kept.append(place)
    return [*kept, final]
