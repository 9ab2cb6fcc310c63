"""The pictures of a search: how it went, what each parameter did and how much it mattered, the front."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pausejax.analysis.choice import non_dominated
from pausejax.report.figure import Figure, Pictures
from pausejax.report.style import PALETTE, new_figure, styled_context, tidy, wrapped
from pausejax.searches.importance import importance
from pausejax.searches.record import Dimension, Record, Trial
from pausejax.searches.volume import hypervolume

_OUTCOMES = {
    "finished": ("o", "to the end"),
    "stopped": ("x", "stopped at a rung"),
    "budget": ("+", "budget ended"),
}
_MOST_LINES = 300
"""Of parallel coordinates: the best; an eye tells no more apart."""


def draw(record: Record) -> Pictures:
    """All pictures that a search has the data for, by file name."""
    with styled_context():
        figures = {"search_history": _history(record)}
        if record.dimensions:
            figures["search_slices"] = _slices(record)
        if weighed := _importance(record):
            figures["search_importance"] = weighed
        ends = record.ends
        if len(ends) > 1 and len(record.dimensions) > 1:
            figures["search_parallel"] = _parallel(record, ends)
        if len(record.metrics) > 1 and any(not one.broken for one in ends):
            figures |= {"search_front": _front(record), "search_volume": _volume(record)}
    return Pictures(figures)


def _grid(panels: int, columns: int, width: float = 2.4, height: float = 2.5) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels."""
    columns = min(max(panels, 1), columns)
    rows = -(-max(panels, 1) // columns)
    figure = new_figure(width * max(columns, 1.5), height * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[panels:]:
        axes.remove()
    return figure, grid[:panels]


def _shown(record: Record, trials: Sequence[Trial], place: int) -> np.ndarray:
    return record.metrics[place].scale * np.array([trial.figures[place] for trial in trials], float)


def _history(record: Record) -> Figure:
    """What each setting showed where it came to last, and the best so far at the end, by what was spent."""
    figure, grid = _grid(len(record.metrics), 2, 3.4, 2.7)
    for place, axes in enumerate(grid):
        for number, (outcome, (mark, label)) in enumerate(_OUTCOMES.items()):
            group = [one for one in record.trials if one.outcome == outcome and one.rung is not None]
            if group:
                spent = [one.spent for one in group]
                look: dict[str, Any] = {
                    "markersize": 3,
                    "alpha": 0.6,
                    "color": PALETTE[number],
                    "linestyle": "",
                }
                axes.plot(spent, _shown(record, group, place), marker=mark, label=label, **look)
        ends = [one for one in record.ends if not one.broken]
        if len(record.metrics) == 1 and ends:
            values = _shown(record, ends, 0)
            so_far = np.maximum if record.metrics[0].maximize else np.minimum
            best, spent = so_far.accumulate(values), [one.spent for one in ends]
            axes.step(spent, best, where="post", color="black", linewidth=1.2, label="best so far at the end")
        axes.set(xlabel="rounds × runs spent", ylabel=wrapped(record.metrics[place].label, 40))
        tidy(axes)
    if grid[0].get_legend_handles_labels()[0]:
        grid[0].legend(frameon=False, fontsize=6)
    return figure


def _slices(record: Record) -> Figure:
    """What settings showed against each parameter that was chosen."""
    there = [one for one in record.trials if one.rung is not None]
    figure, grid = _grid(len(record.dimensions), 3)
    for place, (axes, dimension) in enumerate(zip(grid, record.dimensions, strict=True)):
        group = [one for one in there if dimension.name in one.values]
        rungs = [record.rungs.index(one.rung) for one in group if one.rung is not None]
        points = axes.scatter(
            _along(group, dimension), _shown(record, group, 0), c=rungs, s=7, cmap="viridis", alpha=0.8
        )
        points.set_clim(-0.5, len(record.rungs) - 0.5)
        if dimension.log:
            axes.set_xscale("log")
        axes.set_xlabel(dimension.label)
        axes.set_ylabel(wrapped(record.metrics[0].label, 28) if place % 3 == 0 else "")
        tidy(axes)
    figure.suptitle("bright: came to a later rung", fontsize=7)
    return figure


def _along(trials: Sequence[Trial], dimension: Dimension) -> Any:
    values = [trial.values[dimension.name] for trial in trials]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return values if numeric else [str(value) for value in values]


def _importance(record: Record) -> Figure | None:
    """What shuffling each parameter costs a model that predicts the metric of settings it has not seen."""
    found = [importance(record, place) for place in range(len(record.metrics))]
    weighed = [(place, one) for place, one in enumerate(found) if one]
    if not weighed:
        return None
    figure, grid = _grid(len(weighed), 2, 3.4, 0.9 + 0.22 * len(record.dimensions))
    for axes, (place, one) in zip(grid, weighed, strict=True):
        order = np.argsort(one.mean, kind="stable")
        rows = np.arange(len(order))
        axes.barh(rows, one.mean[order], color=PALETTE[5], height=0.6)
        axes.hlines(rows, one.low[order], one.high[order], color="black", linewidth=1)
        axes.axvline(0.0, color="black", linewidth=0.6)
        axes.set_yticks(rows, [record.dimensions[place].label for place in order])
        axes.set_xlabel("share of variance that shuffling it costs, ± 95 %")
        told = f"{one.predicted:.0%} of the variance predicted, {one.settings} settings"
        axes.set_title(f"{record.metrics[place].label}\n{told}", fontsize=7)
        tidy(axes)
    return figure


def _parallel(record: Record, ends: list[Trial]) -> Figure:
    """Settings that came to the end as lines over their parameters, the best brightest and on top."""
    worth = record.points(ends)[:, 0]
    order = np.argsort(worth, kind="stable")[-_MOST_LINES:]
    heights = np.stack([_height(ends, dimension) for dimension in record.dimensions], axis=1)
    shown = _shown(record, ends, 0)
    figure = new_figure(max(3.5, 1.1 * len(record.dimensions) + 1.2), 2.9)
    axes = figure.subplots()
    low, high = np.quantile(shown, [0.1, 0.9]) if len(ends) > 9 else (shown.min(), shown.max())
    colours = figure.colorbar(
        _scale(low, high, reverse=not record.metrics[0].maximize),
        ax=axes,
        extend="both",
        label=record.metrics[0].label,
    )
    for place in order:
        colour = colours.cmap(colours.norm(shown[place]))
        axes.plot(range(heights.shape[1]), heights[place], color=colour, alpha=0.6, linewidth=0.8)
    names = [f"{dim.symbol or dim.name.replace('_', ' ')}" for dim in record.dimensions]
    spans = [_span(ends, dimension) for dimension in record.dimensions]
    labels = [f"{name}\n{span}" for name, span in zip(names, spans, strict=True)]
    axes.set_xticks(range(len(names)), labels, fontsize=6)
    axes.set_yticks([0, 1], ["low", "high"])
    axes.set_xlim(-0.2, len(names) - 0.8)
    tidy(axes)
    return figure


def _scale(low: float, high: float, *, reverse: bool) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(low, high), "viridis_r" if reverse else "viridis")


def _height(trials: Sequence[Trial], dimension: Dimension) -> np.ndarray:
    """Values as shares of their span, words by their order; NaN where a policy lacks the parameter."""
    numbers = np.full(len(trials), np.nan)
    there = [place for place, trial in enumerate(trials) if dimension.name in trial.values]
    along = _along([trials[place] for place in there], dimension)
    words = {word: place for place, word in enumerate(sorted({x for x in along if isinstance(x, str)}))}
    numbers[there] = [words.get(value, value) for value in along]
    numbers = np.log(numbers) if dimension.log else numbers
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return (numbers - low) / (high - low) if high > low else np.where(np.isnan(numbers), np.nan, 0.5)


def _span(trials: Sequence[Trial], dimension: Dimension) -> str:
    along = _along([trial for trial in trials if dimension.name in trial.values], dimension)
    if all(isinstance(value, str) for value in along):
        return ", ".join(sorted(set(along)))[:24]
    return f"{min(along):.3g} – {max(along):.3g}"


def _front(record: Record) -> Figure:
    """The first two objectives of all settings that came to the end, and the front of all objectives."""
    ends = [one for one in record.ends if not one.broken]
    front = non_dominated(record.points(ends), [True] * len(record.metrics))
    figure, (axes,) = _grid(1, 1, 2.4, 2.7)
    x, y = _shown(record, ends, 1), _shown(record, ends, 0)
    axes.plot(x[~front], y[~front], "o", markersize=2, color="0.6", label="beaten")
    along = np.flatnonzero(front)[np.argsort(x[front], kind="stable")]
    line = "-" if len(record.metrics) == 2 else ""
    axes.plot(
        x[along],
        y[along],
        marker="o",
        linestyle=line,
        markersize=3,
        linewidth=0.8,
        color=PALETTE[0],
        label="front",
    )
    axes.legend(frameon=False, fontsize=6)
    axes.set(xlabel=wrapped(record.metrics[1].label, 50), ylabel=wrapped(record.metrics[0].label, 40))
    tidy(axes)
    return figure


def _volume(record: Record) -> Figure:
    """How much the front so far dominates, against what was spent."""
    ends = [one for one in record.ends if not one.broken]
    points = record.points(ends)
    low, high = points.min(axis=0), points.max(axis=0)
    shares = (points - low) / np.where(high > low, high - low, 1.0)
    volumes: list[float] = []
    for count, point in enumerate(shares):
        beaten = (shares[:count] >= point).all(axis=1).any()
        volumes.append(
            volumes[-1] if beaten else hypervolume(shares[: count + 1], np.full(len(point), -1e-9))
        )
    figure, (axes,) = _grid(1, 1, 2.4, 2.7)
    spent = [one.spent for one in ends]
    axes.step(spent, volumes, where="post", color=PALETTE[0], linewidth=1.2)
    axes.set(xlabel="rounds × runs spent", ylabel="hypervolume, of the box of all\nsettings at the end")
    axes.set_ylim(0, 1)
    tidy(axes)
    return figure
