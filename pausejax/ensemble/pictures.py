"""Pictures of studies with mode "ensemble": a panel for each data set, and each data set on its own."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from pausejax.analysis import metrics_of
from pausejax.analysis.quantities import apart_in
from pausejax.analysis.settings import axes_of
from pausejax.report.curves import Curve, Plot, draw_points, draw_series, figure
from pausejax.report.figure import Figure
from pausejax.report.grid import Grid, Panel
from pausejax.report.levels import Measure, measure_of
from pausejax.report.series import Series, series_of
from pausejax.report.statistics import Line
from pausejax.report.style import file_names

_LINEAR = 1e-3
"""Regrets nearer to 0 than this are drawn evenly."""

DRAWN = frozenset(("mse", "regret", "regret_bound", "sent_counts", "rounds_played", "dataset"))
"""Variables and labels of runs without which these pictures can't be drawn."""


def draw(result: xr.Dataset, grid: Grid, *, smoothing: int = 1) -> dict[str, Figure]:
    """All pictures, by file name; there is nothing to smooth."""
    plots: dict[str, Plot] = {
        "mse_vs_rounds": mse_vs_rounds,
        "regret_vs_rounds": regret_vs_rounds,
        "models_sent": models_sent,
    }
    grid = _played(grid)
    figures: dict[str, Figure] = {}
    datasets = list(dict.fromkeys(result["dataset"].values.tolist()))
    for dataset, ending in zip(datasets, file_names(datasets), strict=True):
        own = _only(grid, dataset)
        figures |= {f"{name}_{ending}": figure(plot, own) for name, plot in plots.items()}
    if any(name in axes_of(result) for name in apart_in(result)):
        del plots["models_sent"]  # too wide for a panel
        figures |= {name: figure(plot, grid) for name, plot in plots.items()}
    return figures


def unshown(result: xr.Dataset) -> list[str]:
    """Nothing is left out."""
    return []


def _played(grid: Grid) -> Grid:
    """Every panel up to the last round that it knows: streams differ in length."""

    def cut(line: Line) -> Line:
        runs = line.runs.load()
        return line._replace(runs=runs.sel(round=runs["round"] <= int(runs["rounds_played"].max())))

    panels = tuple(Panel(panel.title, tuple(map(cut, panel.lines))) for panel in grid.panels)
    return grid._replace(panels=panels)


def _only(grid: Grid, dataset: str) -> Grid:
    """The panels of one data set."""
    own = tuple(
        panel._replace(title=panel.title if len(grid.panels) > 1 else "")
        for panel in grid.panels
        if set(panel.lines[0].runs["dataset"].values.tolist()) == {dataset}
    )
    return grid._replace(panels=own, columns=min(grid.columns, len(own)))


def _measure(runs: xr.Dataset, name: str) -> Measure:
    return measure_of(name, metrics_of(runs)[name])


def mse_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Mean squared error so far against rounds, as the EFL-FG paper's Fig. 1."""
    for curve in curves:
        series = series_of(curve.runs, _measure(curve.runs, "mse"), label=curve.label)
        draw_series(axes, series, curve.look)
    axes.set(xlabel="round", ylabel="MSE (10⁻³)", yscale="log")
    axes.set_xlim(left=0)


def regret_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Cumulative regret, EFL-FG (10), in decades above 0 and below; thin: the bound EFL-FG (11), if any."""
    for curve in curves:
        runs = curve.runs
        draw_series(axes, series_of(runs, _measure(runs, "regret"), label=curve.label), curve.look)
        bound: Series = series_of(runs, _measure(runs, "regret_bound"))
        if np.isfinite(bound.mean).all():
            thin: dict[str, Any] = {
                "color": curve.look.colour,
                "linestyle": curve.look.dash,
                "linewidth": 0.6,
            }
            axes.plot(bound.x, bound.mean, **thin)
    axes.set(xlabel="round", ylabel="cumulative regret (thin: bound)", xscale="log")
    axes.set_yscale("symlog", linthresh=_LINEAR)


def models_sent(axes: Axes, curves: list[Curve]) -> None:
    """Share of the rounds in which each model was sent."""
    names = curves[0].runs["model"].values
    for curve in curves:
        rounds = curve.runs["rounds_played"].values[:, None]
        draw_points(axes, range(len(names)), 100 * curve.runs["sent_counts"].values / rounds, curve)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=5)
    axes.set(ylabel="rounds sent (%)")
    axes.set_ylim(bottom=0)
