"""The trade-off between objectives: every setting as a point, those that no other beats outlined."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from pausejax.analysis import mean_ci, metrics_of, non_dominated
from pausejax.analysis.choice import share_left_out
from pausejax.report.figure import Figure
from pausejax.report.levels import Measure, colour_scale, columns_for, is_logarithmic
from pausejax.report.style import MARKERS, look, new_figure, styled_context, tidy, wrapped

_COLOURS = colormaps["viridis"]
_UNBOUNDED = "0.6"
_OUTLINED: dict[str, Any] = {"s": 15, "edgecolor": "black", "linewidth": 0.6}
_PLAIN: dict[str, Any] = {"s": 8, "linewidth": 0}
_SIZE = (4.6, 3.2)


def trade_off(finals: xr.Dataset, across: Measure, up: Measure, colour: Measure | None) -> Figure | None:
    """Seed means of two measures, coloured by a third; None where no setting has both.

    Outlined: on the Pareto front of all three. Line: the front of the two that are drawn. Crossed out:
    settings with a larger share of runs without a value than others; the mean of the rest may be luck.

    Args:
      finals: of a result, on one data set.
      across: whichever way is better.
      up: whichever way is better.
      colour: whichever way is better, grey where it is infinite; None: policies are told by colours.
    """
    measures = (across, up) if colour is None else (across, up, colour)
    means = [mean_ci(finals, measure.name) for measure in measures]
    values = np.stack([found["mean"].values for found in means], axis=1)
    lost = np.max([share_left_out(found) for found in means], axis=0)
    there = np.isfinite(values[:, :2]).all(axis=1)
    values, policy, lost = values[there], means[0]["policy"].values[there], lost[there]
    if not len(values):
        return None
    weighed = lost == lost.min()
    table = metrics_of(finals)
    ways = [bool(table[measure.name].maximize) for measure in measures]
    # An infinite leakage is the worst there is, and still to be weighed against the others.
    trusted = np.where(weighed[:, None], values, np.nan)
    front, drawn_front = non_dominated(trusted, ways), non_dominated(trusted[:, :2], ways[:2])
    values = values * [measure.scale for measure in measures]
    with styled_context():
        figure = new_figure(*_SIZE)
        axes = figure.add_subplot()
        axes.set(xlabel=wrapped(across.label, 50), ylabel=wrapped(up.label, 40))
        norm = colour_scale(colour, values[:, 2]) if colour else None
        _points(axes, values, policy, front, norm)
        if not weighed.all():
            label = f"with runs that diverged, on no front: {(~weighed).sum()}"
            x, y = values[~weighed, :2].T
            axes.scatter(x, y, marker="x", color="black", linewidth=0.6, s=8, label=label)
        steps = np.unique(values[drawn_front, :2], axis=0)
        if len(steps) > 1:
            drawstyle = "steps-pre" if ways[0] else "steps-post"
            line: dict[str, Any] = {"color": "0.3", "linewidth": 0.8, "drawstyle": drawstyle, "zorder": 1}
            axes.plot(steps[:, 0], steps[:, 1], label="front of the two axes" if colour else "front", **line)
        for column, scale in ((0, axes.set_xscale), (1, axes.set_yscale)):
            if is_logarithmic(measures[column], values[:, column]):
                scale("log")
        tidy(axes)
        if colour and np.isfinite(values[:, 2]).any():
            scale_of_colours = ScalarMappable(norm, _COLOURS)
            figure.colorbar(scale_of_colours, ax=axes, label=wrapped(colour.label, 45), aspect=30)
        _, labels = axes.get_legend_handles_labels()
        columns = min(columns_for(labels, _SIZE[0]), 2)
        figure.legend(loc="outside upper center", ncols=columns, frameon=False, handlelength=1.6)
        return figure


def _points(
    axes: Axes, values: np.ndarray, policy: np.ndarray, front: np.ndarray, norm: Normalize | None
) -> None:
    """Settings that something beats first, so that the front lies on top; a marker for each policy."""
    bounded = np.isfinite(values).all(axis=1)
    policies = list(dict.fromkeys(policy.tolist()))
    for place, name in enumerate(policies):
        marker, own = MARKERS[place % len(MARKERS)], look(place).colour
        if len(policies) > 1:
            axes.scatter([], [], marker=marker, color=own if norm is None else "0.4", s=14, label=name)
        for chosen, drawn in ((~front, _PLAIN), (front, _OUTLINED)):
            for finite in (True, False):
                mine = chosen & (policy == name) & (bounded == finite)
                tint: Any = _UNBOUNDED if norm else own
                if norm and finite:
                    tint = _COLOURS(norm(values[mine, 2]))
                x, y = values[mine, :2].T
                axes.scatter(x, y, c=tint, marker=marker, zorder=3 if drawn is _OUTLINED else 2, **drawn)
    of_all = f"on the front{' of all three' if norm else ''}: {front.sum()} of {len(front)}"
    axes.scatter([], [], marker="o", facecolor="white", label=of_all, **_OUTLINED)
    if not bounded.all():
        axes.scatter([], [], color=_UNBOUNDED, s=12, label="unbounded")
