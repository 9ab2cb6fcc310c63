"""Pictures of studies with mode "ensemble": one picture of each kind per data set."""

import json
from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from pausejax.report.curves import Curve, draw_band, draw_points, figure, styled
from pausejax.report.figure import Figure
from pausejax.report.statistics import band, lines


def draw(result: xr.Dataset, *, smoothing: int = 1) -> dict[str, Figure]:
    """All pictures, by file name; there is nothing to smooth."""
    plots: dict[str, Callable[[Axes, list[Curve]], None]] = {
        "mse_vs_rounds": mse_vs_rounds,
        "regret_vs_rounds": regret_vs_rounds,
        "models_sent": models_sent,
    }
    figures = {}
    for dataset in dict.fromkeys(result["dataset"].values.tolist()):
        curves = styled(lines(_only(result, dataset)))
        for name, plot in plots.items():
            figures[f"{name}_{dataset}"] = figure(plot, curves)
    return figures


def _only(result: xr.Dataset, dataset: str) -> xr.Dataset:
    """The runs on one data set, up to its last round, with labels that do not name it."""
    runs = result.isel(run=np.flatnonzero(result["dataset"].values == dataset)).load()
    axes = [name for name in json.loads(result.attrs["axes"]) if name != "dataset"]
    last = int(runs["rounds_played"].max())
    return runs.sel(round=runs["round"] <= last).assign_attrs(axes=json.dumps(axes))


def mse_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Mean squared error so far against rounds, as the EFL-FG paper's Fig. 1."""
    for curve in curves:
        draw_band(axes, curve.runs["round"].values, 1e3 * curve.runs["mse"].values, curve)
    axes.set(xlabel="round", ylabel="MSE (10⁻³)", yscale="log")
    axes.set_xlim(left=0)


def regret_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Cumulative regret, EFL-FG (10); thin: the bound EFL-FG (11), where there is one. Log-log."""
    for curve in curves:
        rounds = curve.runs["round"].values
        draw_band(axes, rounds, np.maximum(curve.runs["regret"].values, 1e-3), curve)
        bound = curve.runs["regret_bound"].values
        if np.isfinite(bound).all():
            axes.plot(rounds, band(bound).mean, color=curve.colour, linestyle=curve.dash, linewidth=0.6)
    axes.set(xlabel="round", ylabel="cumulative regret (thin: bound)", xscale="log", yscale="log")


def models_sent(axes: Axes, curves: list[Curve]) -> None:
    """Share of the rounds in which each model was sent."""
    names = curves[0].runs["model"].values
    for curve in curves:
        rounds = curve.runs["rounds_played"].values[:, None]
        draw_points(axes, range(len(names)), 100 * curve.runs["sent_counts"].values / rounds, curve)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=5)
    axes.set(ylabel="rounds sent (%)")
    axes.set_ylim(bottom=0)
