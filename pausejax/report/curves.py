"""Pictures of curves: one panel or small multiples with shared axes and one legend."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.container import Container

from pausejax.analysis.selecting import some
from pausejax.report.figure import Figure
from pausejax.report.grid import Grid, words_for
from pausejax.report.levels import Measure, columns_for, spans_decades
from pausejax.report.series import CLOCKS, Clock, Samples, Series, samples_of, summarized
from pausejax.report.style import (
    LEGEND_SIZE,
    SIZE,
    WIDE,
    Look,
    look,
    new_figure,
    styled_context,
    tidy,
    wrapped,
)

_POINTS = 2000
# Of one among several panels, in inches.
_PANEL = (1.9, 1.6)


class Curve(NamedTuple):
    """A line of runs with its look, which is the same in every picture of a result."""

    label: str
    runs: xr.Dataset
    look: Look


class Banded(Container):
    """A line and its band, and what the band says: who reads a figure need not guess whose band it is."""

    def __init__(self, parts: tuple[Any, Any], low: np.ndarray, high: np.ndarray) -> None:
        super().__init__(parts)
        self.low, self.high = low, high


Plot = Callable[[Axes, list[Curve]], None]
"""Draws the lines of one panel and labels its axes."""


def figure(plot: Plot, grid: Grid, *, each_its_own: bool = False) -> Figure:
    """A picture of a grid; of several panels the axes are shared and the legend is one.

    Args:
      plot: draws the lines of one panel.
      grid: the panels.
      each_its_own: every panel has a scale of its own upwards, and its title says whose it is.
    """
    several = len(grid.panels) > 1
    looks = _looks(grid)
    rows = -(-len(grid.panels) // grid.columns)
    with styled_context():
        if several:
            width, height = 0.5 + _PANEL[0] * grid.columns, 0.75 + _PANEL[1] * rows
            width = max(width, SIZE[0])
        else:
            width, height = WIDE if len(looks) > 6 else SIZE
        drawn = new_figure(width, height)
        table = drawn.subplots(
            rows, grid.columns, squeeze=False, sharex=several, sharey=several and not each_its_own
        )
        for axes, panel in zip(table.flat, grid.panels, strict=False):
            plot(axes, [Curve(line.label, line.runs, looks[line.label]) for line in panel.lines])
            tidy(axes)
            if several:
                axes.set_title(wrapped(panel.title, 34), fontsize=7)
        if several:
            _one_scale(table.flat[:1] if not each_its_own else table.flat[: len(grid.panels)])
            _one_label(drawn, table, len(grid.panels))
        if not (several and each_its_own):
            others = words_for(grid.averaged, grid.panels[0].lines[0].runs)
            title = f"mean over seeds and {others}" if others else ""
            legend(drawn, beside=len(looks) > 6 and not several, title=title)
        return drawn


def pair(plots: Sequence[Plot], titles: Sequence[str], grid: Grid) -> Figure:
    """Several pictures of the lines of one panel, side by side over one axis upwards."""
    looks = _looks(grid)
    with styled_context():
        drawn = new_figure(WIDE[0], SIZE[1] + 0.15 * len(looks) / 3)
        table = drawn.subplots(1, len(plots), squeeze=False, sharey=True)
        for axes, plot, title in zip(table.flat, plots, titles, strict=True):
            plot(axes, [Curve(line.label, line.runs, looks[line.label]) for line in grid.panels[0].lines])
            tidy(axes)
            axes.set_title(title)
        for axes in table.flat[1:]:
            axes.set_ylabel("")
        legend(drawn, beside=False)
        return drawn


def _looks(grid: Grid) -> dict[str, Look]:
    """A look for each line, the same in all panels."""
    labels = dict.fromkeys(line.label for panel in grid.panels for line in panel.lines)
    return {label: look(place) for place, label in enumerate(labels)}


def _one_scale(whole: Iterable[Axes]) -> None:
    """Room for the lines of all panels that share an axis; an end that a panel has fixed stays."""
    for axes in whole:
        (left, _), (bottom, _) = axes.get_xlim(), axes.get_ylim()
        free_x, free_y = axes.get_autoscalex_on(), axes.get_autoscaley_on()
        axes.autoscale()
        if not free_x:
            axes.set_xlim(left=left)
        if not free_y:
            axes.set_ylim(bottom=bottom)


def _one_label(drawn: Figure, table: np.ndarray, panels: int) -> None:
    """The labels of all axes once; numbers below the lowest panel of each column; no empty places."""
    first: Axes = table[0, 0]
    drawn.supxlabel(first.get_xlabel(), fontsize=8.5)
    drawn.supylabel(first.get_ylabel(), fontsize=8.5)
    columns = table.shape[1]
    for place, axes in enumerate(table.flat):
        axes.set(xlabel="", ylabel="")
        if place >= panels:
            axes.remove()
        elif place + columns >= panels:
            axes.tick_params(labelbottom=True)


def legend(drawn: Figure, *, beside: bool, title: str = "") -> None:
    """The lines of all panels, each once: above, or beside them."""
    handles: dict[str, Any] = {}
    for axes in drawn.axes:
        handles |= {n: h for h, n in zip(*axes.get_legend_handles_labels(), strict=True) if n not in handles}
    if not handles:
        return
    place: Literal["outside right upper", "outside upper center"]
    place = "outside right upper" if beside else "outside upper center"
    columns = 1 if beside else columns_for(list(handles), drawn.get_figwidth() - 0.3)
    look: Any = {"frameon": False, "handlelength": 2.6, "title": title, "title_fontsize": LEGEND_SIZE}
    drawn.legend(list(handles.values()), list(handles), loc=place, ncols=columns, **look)


def draw_series(axes: Axes, series: Series, look: Look) -> None:
    """Draws a curve with its band, at no more points than an eye can tell."""
    if not np.isfinite(series.mean).any():
        return
    kept: Any = slice(None)
    if series.x.size > _POINTS:
        even = np.linspace(0, series.x.size - 1, _POINTS // 2)
        early = np.geomspace(1, series.x.size, _POINTS // 2) - 1
        kept = np.unique(np.concatenate([even, early]).astype(int))
    values = (series.x[kept], series.mean[kept], series.low[kept], series.high[kept])
    draw_line(axes, *values, label=series.label, **look.on_line())


def draw_line(
    axes: Axes, x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any
) -> None:
    """Draws the finite part of a line, with the band that is its own where there is one."""
    if not np.isfinite(x + mean).any():
        return  # matplotlib finds no place for the markers of a line without a point
    (line,) = axes.plot(x, np.where(np.isfinite(mean), mean, np.nan), **look)
    if np.isfinite(low + high).any():
        band = axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.add_container(Banded((line, band), low, high))


def remark(axes: Axes, text: str) -> None:
    """Writes into a panel what its lines do not show."""
    look: Any = {"ha": "right", "va": "bottom", "fontsize": 5.5, "color": "0.3", "parse_math": False}
    axes.text(0.99, 0.01, wrapped(text, 60), transform=axes.transAxes, **look)


def measure_plot(measure: Measure, clock: Clock = "rounds", smoothing: int = 1, **settings: Any) -> Plot:
    """A picture of any measure with a curve; what is infinite is drawn up to there, and named.

    Args:
      measure: what goes upwards.
      clock: what goes across.
      smoothing: see `samples_of`.
      **settings: of the axes, such as `yscale`.
    """

    def plot(axes: Axes, curves: list[Curve]) -> None:
        endless, broken, low = [], [], np.inf
        for curve in curves:
            samples = samples_of(curve.runs, measure, clock, smoothing)
            series = summarized(curve.label, samples)
            if infinite := int(np.isinf(samples.values).any(axis=-1).sum()):
                endless.append(f"{curve.label} ({infinite} of {len(samples.values)} runs)")
            if gaps := _gaps(samples.values):
                broken.append(f"{curve.label} ({gaps} of {samples.values.shape[1]})")
            if np.isfinite(series.mean).any():
                draw_series(axes, series, curve.look)
                low = min(low, np.nanmin(series.mean))
        notes = [f"infinite, and without a line from there on: {some(endless)}"] if endless else []
        if broken:
            notes.append(f"without a mean where some run has no value: {some(broken)}")
        if notes:
            remark(axes, "; ".join(notes))
        axes.set(xlabel=CLOCKS[clock], ylabel=wrapped(measure.label, 40), **settings)
        if axes.get_yscale() == "log" and low <= 0:
            axes.set_yscale("symlog")
        if "xscale" not in settings:
            axes.set_xlim(left=0)

    return plot


def _gaps(values: np.ndarray) -> int:
    """At how many places a run has no value, though it has one later on; of curves [runs, n]."""
    there = ~np.isnan(values)
    later = np.flip(np.logical_or.accumulate(np.flip(there, axis=1), axis=1), axis=1)
    return int((~there & later).any(axis=0).sum())


def scale_for(values: np.ndarray) -> dict[str, Any]:
    """The scale of an axis that shows some final values: logarithmic over decades, below zero too."""
    finite = values[np.isfinite(values)]
    if spans_decades(finite):
        return {"yscale": "log"}
    reach = np.abs(finite[finite != 0])
    if reach.size and (finite < 0).any() and reach.max() / reach.min() >= 100:
        return {"yscale": "symlog"}
    return {}


def draw_points(
    axes: Axes, x: Sequence[int] | np.ndarray, samples: np.ndarray, curve: Curve, shift: float = 0.0
) -> None:
    """Draws the mean of samples [runs, n] as points with their 95 % intervals, moved sideways by a shift."""
    whole = Samples(np.asarray(x), samples, curve.runs["seed"].values)
    found = summarized(curve.label, whole)
    axes.errorbar(
        found.x + shift,
        found.mean,
        yerr=found.high - found.mean if np.isfinite(found.high).any() else None,
        color=curve.look.colour,
        linestyle="none",
        marker=curve.look.marker,
        markersize=2.5,
        elinewidth=0.7,
        label=curve.label,
    )
