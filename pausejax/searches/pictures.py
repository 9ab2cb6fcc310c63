"""The pictures of a search: how it went, what each parameter did, the front."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pausejax.analysis.choice import non_dominated
from pausejax.report.figure import Figure
from pausejax.report.style import PALETTE, styled_context, wrapped
from pausejax.searches.find import Found
from pausejax.searches.search import Ended
from pausejax.study.axes import Range

_MARKS = {"finished": "o", "stopped": "x", "budget": "+"}


def draw(found: Found) -> dict[str, Figure]:
    """All pictures, by file name."""
    figures = {"search_history": _history(found)}
    if len(found.goal.metrics) == 1:
        figures["search_slices"] = _slices(found)
    else:
        figures["search_front"] = _front(found)
    return figures


def _value(one: Ended, found: Found, place: int = 0) -> float:
    """What a setting has shown where it came to last, as the metric has it."""
    value = one.history[-1][1].values[place]
    return value if found.goal.maximize[place] else -value


def _label(found: Found, place: int = 0) -> tuple[str, float]:
    name = found.goal.metrics[place]
    metric = found.study.kind.metrics(found.study)[name]
    return metric.label or name.replace("_", " "), metric.scale


def _figure(rows: int, columns: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(2.4 * max(columns, 1.5), 2.6 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _history(found: Found) -> Figure:
    """What each setting showed, and the best of those that came to the end, against what was spent."""
    with styled_context():
        figure, grid = _figure(1, 2 if len(found.goal.metrics) > 1 else 1)
        for place, axes in enumerate(grid.flat):
            label, scale = _label(found, place)
            for why, mark in _MARKS.items():
                group = [one for one in found.ended if one.why == why and one.history]
                axes.plot(
                    [one.spent for one in group],
                    [scale * _value(one, found, place) for one in group],
                    mark,
                    markersize=3,
                    alpha=0.6,
                    color=PALETTE[list(_MARKS).index(why)],
                    label={"finished": "to the end", "stopped": "stopped", "budget": "budget ended"}[why],
                )
            if len(found.goal.metrics) == 1:
                ends = [one for one in found.ended if one.why == "finished"]
                best = np.maximum.accumulate(np.array([one.history[-1][1].values[0] for one in ends]))
                sign = 1 if found.goal.maximize[0] else -1
                spent = [one.spent for one in ends]
                axes.step(spent, sign * scale * best, where="post", color="black", label="best to the end")
            axes.set(xlabel="rounds × runs spent", ylabel=wrapped(label, 40))
            _finish(axes)
        grid[0, 0].legend(frameon=False, fontsize=6)
    return figure


def _slices(found: Found) -> Figure:
    """What settings showed against each parameter that was chosen."""
    dims = {d.key: d for dims in found.space.dimensions.values() for d in dims}
    ended = [one for one in found.ended if one.history]
    label, scale = _label(found)
    with styled_context():
        columns = min(max(len(dims), 1), 3)
        figure, grid = _figure(-(-max(len(dims), 1) // columns), columns)
        for axes in grid.flat[len(dims) :]:
            axes.set_visible(False)
        for axes, dim in zip(grid.flat, dims.values(), strict=False):
            name = dim.names[0]
            group = [one for one in ended if name in one.setting.values]
            values = [one.setting.values[name] for one in group]
            numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
            x = values if numeric else [str(value) for value in values]
            rungs = [one.history[-1][0] for one in group]
            points = axes.scatter(
                x, [scale * _value(one, found) for one in group], c=rungs, s=7, cmap="viridis", alpha=0.8
            )
            points.set_clim(0, len(found.goal.rungs) - 1)
            if isinstance(dim.values, Range) and dim.values.law == "log_uniform":
                axes.set_xscale("log")
            symbol = found.study.words.parameters[name].symbol
            axes.set(xlabel=f"{name.replace('_', ' ')}{f' {symbol}' if symbol else ''}")
            axes.set_ylabel(wrapped(label, 28) if axes in grid[:, 0] else "")
            _finish(axes)
        figure.suptitle("bright: came to a later rung", fontsize=7)
    return figure


def _front(found: Found) -> Figure:
    """The first two objectives of all settings that came to the end, and their front."""
    ends = [one for one in found.ended if one.why == "finished" and one.history[-1][1].violation == 0]
    values = np.array([one.history[-1][1].values for one in ends]).reshape(len(ends), -1)
    front = non_dominated(values, [True] * values.shape[1])
    with styled_context():
        figure, grid = _figure(1, 1)
        axes = grid[0, 0]
        (across, a), (up, b) = _label(found, 1), _label(found, 0)
        x = a * np.array([_value(one, found, 1) for one in ends])
        y = b * np.array([_value(one, found, 0) for one in ends])
        axes.plot(x[~front], y[~front], "o", markersize=2, color="0.6", label="beaten")
        along = np.flatnonzero(front)[np.argsort(x[front])]
        axes.plot(x[along], y[along], "o-", markersize=3, linewidth=0.8, color=PALETTE[0], label="front")
        axes.legend(frameon=False, fontsize=6)
        axes.set(xlabel=wrapped(across, 50), ylabel=wrapped(up, 40))
        _finish(axes)
    return figure


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
