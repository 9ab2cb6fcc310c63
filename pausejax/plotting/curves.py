"""Draws mean curves with intervals, against rounds or simulated time."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from pausejax.analysis.intervals import interval
from pausejax.analysis.mean_curves import Against, Samples, samples, without_diverged
from pausejax.analysis.quantities import Metric
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import counted
from pausejax.plotting.chart import Chart
from pausejax.plotting.data import Axis, Panel, Series
from pausejax.plotting.grid import Grid, Line, words_for
from pausejax.plotting.levels import spans_decades

AXES: dict[Against, Axis] = {"round": Axis("round", zero=True), "time": Axis("simulated time (s)", zero=True)}
"""The x axes of curves."""

Drawn = Sequence[tuple[Line, Samples]]
"""Lines with the curves of their runs, as pairs."""


def curves(
    grid: Grid,
    metric: Metric,
    against: Against = "round",
    *,
    smoothing: int = 1,
    x: Axis | None = None,
    y: Axis | None = None,
    levels: Callable[[Drawn], tuple[tuple[str, float], ...]] | None = None,
) -> Chart:
    """Draws the mean of a metric over seeds for each line, with Student's t intervals.

    Args:
      grid: the assignment of runs to panels and lines.
      metric: the metric; `has_curve` must be true for it.
      against: "round", or "time" for simulated time.
      smoothing: number of evaluations that the trailing mean averages.
      x: the x axis, in place of the axis of `against`.
      y: the y axis, in place of the default axis, whose scale depends on the values.
      levels: a function that returns a panel's reference lines (name and y value), given the panel's lines
        and their curves.
    """
    cells = []
    for cell in grid.panels:
        drawn = [(line, samples(line.runs, metric, against, smoothing)) for line in cell.lines]
        cells.append((cell.title, drawn))
    evaluated = any(line.runs[metric.variable].dims[1] == "eval" for _, drawn in cells for line, _ in drawn)
    ending = f", mean of the last {smoothing} evaluations" if smoothing > 1 and evaluated else ""
    shown = metric._replace(label=metric.axis_label + ending)
    what = f"{metric.meaning.removeprefix('final ')}{ending}, against {AXES[against].label}"
    x = x or AXES[against]
    return mean_chart(f"{metric.name}_vs_{against}", what, cells, grid, x, y or shown, metric.learned, levels)


def mean_chart(
    name: str,
    what: str,
    cells: Sequence[tuple[str, Drawn]],
    grid: Grid,
    x: Axis,
    y: Axis | Metric,
    learned: bool = False,
    levels: Callable[[Drawn], tuple[tuple[str, float], ...]] | None = None,
    mark: Literal["line", "point"] = "line",
) -> Chart:
    """Draws means over seeds, with notes on lines that are missing or incomplete.

    Args:
      name: name of the chart.
      what: description of what the chart shows, for the caption.
      cells: for each panel its title and its lines, with the curves of their runs.
      grid: the grid that contains the lines.
      x: the x axis of all panels.
      y: the y axis of all panels; or a metric, for a scale that depends on its values.
      learned: whether runs that diverged are left out, because the metric depends on the trained model.
      levels: a function that returns a panel's reference lines (name and y value), given the panel's lines
        and their curves.
      mark: the mark of all series.
    """
    series = []
    for _, drawn in cells:
        series.append(tuple(mean_series(line.label, one, line.style, mark) for line, one in drawn))
    if isinstance(y, Metric):
        y = Axis(y.axis_label, _scale(y, [one for lines in series for one in lines]))
    panels = tuple(
        Panel(
            x,
            y,
            lines,
            levels=levels(drawn) if levels else (),
            title=title,
            note=missing(drawn, learned=learned) if mark == "line" else "",
        )
        for (title, drawn), lines in zip(cells, series, strict=True)
    )
    text = caption(what, [one for _, drawn in cells for one in drawn], grid, learned=learned)
    return Chart(name, text, panels, grid.columns)


def mean_series(label: str, found: Samples, style: int, mark: Literal["line", "point"] = "line") -> Series:
    """Returns the series of the mean over seeds of the curves `found`, with its 95 % interval.

    Runs with the same seed are averaged first.
    """
    if not found.values.size:
        return Series(label, np.zeros(0), np.zeros(0), mark=mark, style=style)
    mean, low, high, _ = interval(found.values.T, found.seeds)
    there = np.isfinite(mean) & ~np.isnan(found.values).any(axis=0)
    mean, low, high = (np.where(there, one, np.nan) for one in (mean, low, high))
    x, known = np.asarray(found.x, np.float64), np.isfinite(low).any()
    return Series(label, x, mean, low if known else None, high if known else None, mark, style)


def caption(what: str, drawn: Drawn, grid: Grid, *, learned: bool = False) -> str:
    """Returns a caption that says what the chart shows, over what it averages, and how many runs it omits.

    Args:
      what: description of what the chart shows.
      drawn: the lines, with the curves of their runs.
      grid: the grid that contains the lines.
      learned: whether runs that diverged are left out.
    """
    text = f"{what[:1].upper()}{what[1:]}"
    seeds = [len(np.unique(one.seeds)) for _, one in drawn if len(one.seeds)]
    if max(seeds, default=0) > 1:
        text += f": mean over {counted(seeds)} seeds with 95 % t intervals"
    else:
        text += ": one seed, so there are no intervals"
    if grid.averaged and drawn:
        text += f"; each seed is averaged over {words_for(grid.averaged, drawn[0][0].runs)} first"
    if grid.binned and drawn:
        binned = words_for(grid.binned, drawn[0][0].runs)
        text += f"; values of {binned} are divided into bins, and a seed's runs in a bin are averaged first"
    if learned and (diverged := _runs(drawn, diverged=True)):
        text += f". {len(diverged)} of {len(_runs(drawn))} runs diverged, so they are left out"
    return f"{text}."


def _runs(drawn: Drawn, diverged: bool = False) -> set[tuple[Any, ...]]:
    """Returns the runs of some lines as tuples of policy, identity and seed.

    With `diverged`, it returns only the runs that diverged.
    """
    found: set[tuple[Any, ...]] = set()
    for line, _ in drawn:
        runs = line.runs
        if diverged:
            runs = runs.isel(run=runs["diverged_round"].values > 0 if "diverged_round" in runs else [])
        names = [name for name in ("policy", "identity", "seed") if name in runs.coords]
        found |= set(zip(*(runs[name].values.tolist() for name in names), strict=True))
    return found


def clocks_of(result: xr.Dataset) -> tuple[Against, ...]:
    """Returns the x axes that a result's curves can have: rounds, and simulated time if it is recorded."""
    return ("round", "time") if "elapsed" in result else ("round",)


def _scale(metric: Metric, drawn: Sequence[Series]) -> Literal["linear", "log", "symlog"]:
    """Returns the scale of a metric's axis, given the mean curves in `drawn`.

    The scale is log or symlog if the last values of the curves span a factor of 10, or of 100 if some are
    negative. The scale of a share is linear.
    """
    last = np.concatenate([*(one.y[np.isfinite(one.y)][-1:] for one in drawn), np.zeros(0)])
    if metric.share or not last.size:
        return "linear"
    if spans_decades(last):
        return "log" if min(np.nanmin(one.y) for one in drawn if np.isfinite(one.y).any()) > 0 else "symlog"
    reach = np.abs(last[last != 0])
    wide = reach.size and (last < 0).any() and reach.max() / reach.min() >= 100
    return "symlog" if wide else "linear"


def missing(drawn: Drawn, *, learned: bool = False) -> str:
    """Returns a note on lines that are missing, lack runs or have gaps, with the reasons; "" if none are.

    Args:
      drawn: the lines, with the curves of their runs.
      learned: whether runs that diverged are left out. The caption counts these runs, and the note does not.
    """
    endless = "the line has no point where a run's value is infinite"
    diverged, empty, apart = (
        f"no line, because its runs {why}" for why in ("diverged", "have no value", "have no point in common")
    )
    fewer, broken = (
        "runs without a value are left out",
        "the line has gaps, because some runs have no value at these points",
    )
    notes: dict[str, list[str]] = {why: [] for why in (endless, diverged, empty, apart, fewer, broken)}
    for line, one in drawn:
        absent = np.isnan(one.values)
        count = (without_diverged(line.runs) if learned else line.runs).sizes["run"]
        if not absent.size or absent.any(axis=0).all():
            notes[apart if len(absent) else empty if count else diverged].append(line.label)
            continue
        later = np.flip(np.logical_or.accumulate(np.flip(~absent, axis=1), axis=1), axis=1)
        infinite, gaps = np.isinf(one.values).any(axis=1).sum(), (absent & later).any(axis=0).sum()
        for why, number, of in (
            (fewer, count - len(absent), f"{count} runs"),
            (endless, infinite, f"{len(absent)} runs"),
            (broken, gaps, f"{absent.shape[1]}"),
        ):
            notes[why] += [f"{line.label} ({number} of {of})"] if number else []
    return "; ".join(f"{why}: {some(labels)}" for why, labels in notes.items() if labels)
