"""Main effects: each measure against each axis, averaged over all the others."""

import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from pausejax.analysis.settings import has
from pausejax.report.curves import draw_line
from pausejax.report.figure import Figure
from pausejax.report.levels import (
    Levels,
    Measure,
    averaged,
    columns_for,
    is_logarithmic,
    levels_of,
    name_of,
    shown_each,
    spans_decades,
    values_of,
)
from pausejax.report.style import look, new_figure, styled_context, tidy

# Inches: of a panel, and what a tick label takes up: a character along it, and across when it stands upright.
_WIDTH, _WIDEST, _HEIGHT = 1.12, 2.6, 1.1
_CHARACTER, _LINE = 0.06, 0.12


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
        widths = [_width(_places(levels, axis)[1]) for axis in levels.axes]
        figure = new_figure(max(0.75 + sum(widths), 2.4), 0.6 + _HEIGHT * rows + above)
        figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
        grid = figure.subplots(rows, columns, sharey="row", squeeze=False, width_ratios=widths)
        for row, measure in enumerate(measures):
            drawn = []
            for column, axis in enumerate(levels.axes):
                panel = grid[row, column]
                found = averaged(levels, measure, ("policy", axis))
                drawn.append(_draw(panel, found, axis, values_of(levels, axis), policies))
                _x_axis(panel, levels, axis, labelled=row == rows - 1)
                tidy(panel)
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
        own = own.isel(setting=np.flatnonzero(has(own, axis))).sortby(axis)
        if not own.sizes["setting"]:
            continue
        x = own[axis].values if numeric else [values.index(value) for value in own[axis].values]
        own_look = look(place)
        mean, low, high = (own[name].values for name in ("mean", "low", "high"))
        every = own_look.on_line() | {"markevery": None}
        draw_line(panel, np.asarray(x), mean, low, high, label=policy, **every)
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


def _places(levels: Levels, axis: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """Where the levels of an axis lie, the same as shares of the axis, and whether it is logarithmic."""
    values = values_of(levels, axis)
    numeric = not isinstance(values[0], str | bool)
    positions = np.array(values if numeric else range(len(values)), float)
    logarithmic = numeric and spans_decades(positions)
    scaled = np.log(positions) if logarithmic else positions
    # A margin of 8 % at either end.
    return positions, (scaled - scaled[0]) / (scaled[-1] - scaled[0]) / 1.16, logarithmic


def _width(shares: np.ndarray) -> float:
    """Room for every level's number, upright ones next to each other at the least; inches."""
    return float(np.clip(_LINE / np.diff(shares).min() + 0.1, _WIDTH, _WIDEST))


def _x_axis(panel: Axes, levels: Levels, axis: str, *, labelled: bool) -> None:
    positions, shares, logarithmic = _places(levels, axis)
    if logarithmic:
        panel.set_xscale("log")
    scaled = np.log(positions) if logarithmic else positions
    margin = 0.08 * (scaled[-1] - scaled[0])
    ends = np.array([scaled[0] - margin, scaled[-1] + margin])
    panel.set_xlim(*(np.exp(ends) if logarithmic else ends))
    texts, inches = shown_each(values_of(levels, axis)), shares * _width(shares)
    lengths = np.array([len(text) for text in texts])
    # Numbers that would touch stand upright; beyond the widest panel those in between are left out.
    upright = bool((np.diff(inches) < _CHARACTER * (1 + (lengths[1:] + lengths[:-1]) / 2)).any())
    kept = _spaced(inches) if upright else list(range(len(texts)))
    names = [texts[place] if place in kept else "" for place in range(len(texts))]
    panel.set_xticks(positions, names if labelled else [""] * len(names), rotation=90 if upright else 0)
    panel.set_xticks([], minor=True)
    panel.tick_params(labelsize=6.5)
    if labelled:
        panel.set_xlabel(name_of(axis, levels.runs))


def _spaced(inches: np.ndarray) -> list[int]:
    """Both ends, and between them those upright numbers that touch no other."""
    kept, final = [0], len(inches) - 1
    for place in range(1, final):
        if inches[place] - inches[kept[-1]] >= 0.9 * _LINE and inches[final] - inches[place] >= 0.9 * _LINE:
            kept.append(place)
    return [*kept, final]
