"""The pictures of client selection: lines and panels as a grid says, seed means with their 95 % bands."""

import functools
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from pausejax.analysis import metrics_of
from pausejax.analysis.mean_curves import smooth
from pausejax.analysis.quantities import objectives_in
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import values_of
from pausejax.clients import reward_picture
from pausejax.clients.bound import regret_bound_of
from pausejax.clients.variables import METRICS, PROTECTED
from pausejax.report.curves import (
    Curve,
    Plot,
    draw_points,
    draw_series,
    figure,
    measure_plot,
    pair,
    remark,
)
from pausejax.report.figure import Figure
from pausejax.report.grid import Grid, Panel
from pausejax.report.growth import growth
from pausejax.report.levels import Measure, measure_of
from pausejax.report.series import Clock, Series, samples_of, series_of, summarized
from pausejax.report.statistics import lines

_CLOCKS: tuple[Clock, ...] = ("latency", "rounds")
_LINEAR = 0.1
"""Regrets nearer to 0 than this are drawn evenly, larger ones in decades, below 0 too."""

DRAWN = frozenset(
    (
        *("elapsed", "max_leakage", "regret", "pseudo_regret", "selected", "counts"),
        *("privacy_budget", "num_clients", "clients_per_round"),
    )
)
"""Variables and labels of runs without which these pictures can't be drawn."""


def draw(result: xr.Dataset, grid: Grid, *, smoothing: int) -> dict[str, Figure]:
    """All pictures that a result has the data for, by file name.

    Args:
      result: as `pausejax run` writes it.
      grid: who is in which panel and line.
      smoothing: window of the trailing mean over evaluations, in evaluations.
    """
    alone = len(grid.panels) == 1
    plots: dict[str, Plot] = {}
    for clock in _CLOCKS:
        plots[f"leakage_vs_{clock}"] = functools.partial(_leakage, clock=clock)
    plots |= {
        "pseudo_regret_vs_rounds": functools.partial(pseudo_regret_vs_rounds, alone=alone),
        "regret_vs_rounds": regret_vs_rounds,
    }
    if "expected_regret" in result:
        plots["expected_regret_vs_rounds"] = expected_regret_vs_rounds
    if "selection_gap" in result:
        plots["selection_gap"] = selection_gap
    measured = objectives_in(result)[0]
    if measured in result and result[measured].dims[1:] == ("eval",):
        measure = measure_of(measured, metrics_of(result)[measured])
        for clock in _CLOCKS:
            name = f"{measured.removeprefix('test_')}_vs_{clock}"
            plots[name] = measure_plot(measure, clock, smoothing)
    for name, metric in metrics_of(result).items():
        # A study's own quantities; what is built in has pictures of its own.
        if name not in METRICS and metric.label and result[metric.variable].dims == ("run", "round"):
            plots[f"{name}_vs_rounds"] = measure_plot(measure_of(name, metric)._replace(running="last"))
    drawn = {name: figure(plot, grid) for name, plot in plots.items()}
    if alone:
        drawn["leakage"] = leakage(grid)
        drawn["selection_counts"] = selection_counts(grid)
    return drawn | reward_picture.draw(result)


def unshown(result: xr.Dataset) -> list[str]:
    """Who is not in some of these pictures, and why."""
    whole = lines(result)
    clear = [line.label for line in whole if not _is_private(line.runs)]
    large = [line.label for line in whole if not _selects_m(line.runs)]
    found = []
    if clear:
        found.append(f"not in the pictures of leakage from where nothing bounds it: {some(clear)}")
    if large:
        found.append(
            "not in the pictures of regret and of participations, since rounds have more than "
            f"clients_per_round clients: {some(large)}"
        )
    return found


def _measure(runs: xr.Dataset, name: str) -> Measure:
    return measure_of(name, metrics_of(runs)[name])


def _leakage(axes: Axes, curves: list[Curve], clock: Clock) -> None:
    """Largest leakage of any client: against rounds the paper's Fig. 3, against time its Figs. 5, 7 and 9."""
    if not curves:
        return
    private = [curve for curve in curves if _is_private(curve.runs)]
    measure_plot(_measure(curves[0].runs, "max_leakage"), clock)(axes, curves)
    budgets = np.unique([curve.runs["privacy_budget"].values.max() for curve in private])
    highest = axes.get_ylim()[1]
    if len(budgets) == 1 and highest > budgets[0] / 2:
        name = f"budget ε̄ = {budgets[0]:g} {_protected(curves[0].runs)}"
        axes.axhline(budgets[0], color="black", linestyle=":", linewidth=0.8, label=name)
    axes.set_ylim(bottom=0)


def _protected(runs: xr.Dataset) -> str:
    """What ε̄ is a budget for, as far as it is one thing."""
    clips = values_of(runs, "clip") if "clip" in runs.coords else ["vector"]
    return PROTECTED[clips[0]] if len(clips) == 1 else ""


def leakage(grid: Grid) -> Figure:
    """The same against rounds and against time, side by side: faster rounds are more rounds in equal time."""
    return pair(
        [functools.partial(_leakage, clock="rounds"), functools.partial(_leakage, clock="latency")],
        ["after as many rounds", "in as much time"],
        grid,
    )


def regret_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Cumulative realized regret (15); policies that take more than m clients are left out."""
    for curve in _selecting(curves):
        measure = _measure(curve.runs, "cumulative_regret")
        draw_series(axes, series_of(curve.runs, measure, label=curve.label), curve.look)
    axes.set(xlabel="round", ylabel="cumulative realized regret")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlim(left=0)


def expected_regret_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Cumulative regret against the largest expected reward."""
    drawn = []
    for curve in _selecting(curves):
        measure = _measure(curve.runs, "cumulative_expected_regret")
        drawn.append(series_of(curve.runs, measure, label=curve.label))
        draw_series(axes, drawn[-1], curve.look)
    axes.set(xlabel="round", ylabel="cumulative expected regret")
    _from_nought(axes, drawn)
    axes.set_xlim(left=0)


def pseudo_regret_vs_rounds(axes: Axes, curves: list[Curve], alone: bool = True) -> None:
    """Cumulative pseudo-regret; alone: the law of growth of the lowest, and on top the bound (17)."""
    found: list[tuple[Curve, Any]] = []
    for curve in _selecting(curves):
        measure = _measure(curve.runs, "cumulative_pseudo_regret")
        series = series_of(curve.runs, measure, label=curve.label)
        draw_series(axes, series, curve.look)
        found.append((curve, series))
    axes.set(xlabel="round n", ylabel="cumulative pseudo-regret", xscale="log")
    _from_nought(axes, [series for _, series in found])
    if not alone or not found:
        return
    _, lowest = min(found, key=lambda one: np.nanmax(one[1].mean, initial=0))
    if law := growth(lowest.x, lowest.mean):
        look: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.4, "zorder": 5}
        axes.plot(law.rounds, law.fitted, label=f"last decade: {law.law}", **look)
    # Many decades lie between the regret and the bound, so the bound has a strip of its own.
    bounds = {curve.label: regret_bound_of(curve.runs) for curve, _ in found}
    if several := [label for label, bound in bounds.items() if bound is None]:
        remark(axes, f"without Theorem 3's bound, as their settings have several: {some(several)}")
    if len(several) == len(bounds):
        return
    strip = axes.inset_axes((0.0, 1.04, 1.0, 0.13), sharex=axes)
    for bound in bounds.values():
        if bound is not None:
            strip.plot(found[0][1].x, bound, color="0.3", linewidth=0.8)
    strip.set(yscale="log")
    strip.annotate(
        "Theorem 3's bound", (0.98, 0.12), xycoords="axes fraction", ha="right", va="bottom", fontsize=6.5
    )
    strip.tick_params(labelbottom=False)
    strip.minorticks_off()


def _from_nought(axes: Axes, drawn: list[Series]) -> None:
    """Decades upwards, and below 0 where a line goes there: a band alone may, though no regret does."""
    axes.set_yscale("symlog", linthresh=_LINEAR)
    if not any((series.mean < 0).any() for series in drawn):
        axes.set_ylim(bottom=0)


def selection_gap(axes: Axes, curves: list[Curve]) -> None:
    """What each cohort loses in (14) against the exact maximum, as a mean over the last 20 rounds."""
    for curve in curves:
        measure = Measure("selection_gap", "", variable="selection_gap")
        samples = samples_of(curve.runs, measure)
        explored = np.isfinite(samples.values).all(axis=0)
        gap = samples._replace(x=samples.x[explored], values=smooth(samples.values[:, explored], 20))
        draw_series(axes, summarized(curve.label, gap), curve.look)
    axes.set(xlabel="round", ylabel="gap to the maximum of (14)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def selection_counts(grid: Grid) -> Figure:
    """How often each client took part, a panel for each line; those that take everybody are left out."""
    kept = [line for panel in grid.panels for line in panel.lines if _selects_m(line.runs)]
    panels = tuple(Panel(line.label, (line,)) for line in kept)
    columns = min(len(panels), 4)
    return (
        figure(_counts, Grid(panels, max(columns, 1)), each_its_own=True) if panels else figure(_counts, grid)
    )


def _counts(axes: Axes, curves: list[Curve]) -> None:
    """The dotted line is an equal share."""
    for curve in curves:
        counts = curve.runs["counts"].values
        clients = np.flatnonzero((counts >= 0).all(axis=0))
        if not clients.size:
            continue
        draw_points(axes, clients, counts[:, clients], curve)
        axes.axhline(counts[:, clients].mean(), color="black", linestyle=":", linewidth=0.8)
    axes.set(xlabel="client, fastest to slowest", ylabel="rounds taken part in")
    axes.set_ylim(bottom=0)


def _selecting(curves: list[Curve]) -> list[Curve]:
    return [curve for curve in curves if _selects_m(curve.runs)]


def _is_private(runs: xr.Dataset) -> bool:
    return not np.isinf(runs["max_leakage"].values).any()


def _selects_m(runs: xr.Dataset) -> bool:
    sizes = (runs["selected"].values >= 0).sum(axis=2)
    return bool((sizes <= runs["clients_per_round"].values[:, None]).all())
