"""Lists the charts of studies with mode "ensemble", with a panel for each data set."""

import numpy as np
import xarray as xr

from pausejax.analysis import metrics_of
from pausejax.analysis.mean_curves import Samples, samples
from pausejax.plotting.chart import Chart
from pausejax.plotting.curves import curves, mean_chart, mean_series
from pausejax.plotting.data import Axis, Panel, Series
from pausejax.plotting.grid import Grid, Line

_LINEAR = 1e-3
"""Absolute value of the regret below which the axis is linear."""

DRAWN = frozenset(("mse", "regret", "sent_counts", "rounds_played", "dataset"))
"""The variables and labels of runs that these charts need."""


def charts(result: xr.Dataset, grid: Grid, *, smoothing: int = 1) -> list[Chart]:
    """Returns the charts of error, regret and sent models. `smoothing` is ignored."""
    grid, known = _played(grid), metrics_of(result)
    x = Axis("round", zero=True)
    error = curves(grid, known["mse"], x=x, y=Axis("MSE (10⁻³)", "log"))
    return [error, _regret(grid, result), _models_sent(grid)]


def omitted(result: xr.Dataset, grid: Grid) -> list[str]:
    """Returns an empty list, because all charts show all lines."""
    return []


def _played(grid: Grid) -> Grid:
    """Cuts every line of a grid after the last played round of its runs: data streams differ in length."""

    def cut(line: Line) -> Line:
        runs = line.runs.load()
        return line._replace(runs=runs.sel(round=runs["round"] <= int(runs["rounds_played"].max())))

    return grid._replace(
        panels=tuple(cell._replace(lines=tuple(map(cut, cell.lines))) for cell in grid.panels)
    )


def _regret(grid: Grid, result: xr.Dataset) -> Chart:
    """Draws cumulative regret, EFL-FG (10), on a symmetric log axis, with the bounds EFL-FG (11).

    If the result has no run with a bound, the regrets are drawn alone.
    """
    known = metrics_of(result)
    x, y = Axis("round", "log"), Axis("cumulative regret", "symlog", linear=_LINEAR)
    drawn = curves(grid, known["regret"], x=x, y=y)
    if "regret_bound" not in known:
        return drawn
    panels = []
    for cell, panel in zip(grid.panels, drawn.panels, strict=True):
        bounds = []
        for line in cell.lines:
            bound = mean_series("", samples(line.runs, known["regret_bound"]), -1)
            if bound.y.size and np.isfinite(bound.y).all():
                bounds.append(Series(f"bound, EFL-FG (11), of {line.label}", bound.x, bound.y, style=-1))
        panels.append(Panel(x, y, (*panel.series, *bounds), title=panel.title, note=panel.note))
    text = f"{drawn.caption} Dotted: the bound on the regret, EFL-FG (11)."
    return Chart(drawn.name, text, tuple(panels), drawn.columns)


def _models_sent(grid: Grid) -> Chart:
    """Draws the share of the rounds in which each model was sent."""

    def shares(line: Line) -> Samples:
        share = 100 * line.runs["sent_counts"].values / line.runs["rounds_played"].values[:, None]
        return Samples(np.arange(share.shape[1]), share, line.runs["seed"].values)

    cells = [(cell.title, [(line, shares(line)) for line in cell.lines]) for cell in grid.panels]
    x = Axis("model", names=tuple(map(str, grid.panels[0].lines[0].runs["model"].values)))
    what, y = "Share of the rounds in which each model was sent", Axis("rounds sent (%)", zero=True)
    return mean_chart("models_sent", what, cells, grid._replace(columns=1), x, y, mark="point")
