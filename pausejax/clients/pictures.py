"""The pictures of client selection: one line per policy and axis value, seed mean with its 95 % band."""

import functools
from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pausejax.analysis import metrics_of
from pausejax.analysis.quantities import Metric, objectives_in
from pausejax.clients import reward_picture
from pausejax.clients.bound import regret_bound_of
from pausejax.clients.variables import METRICS
from pausejax.report.curves import Curve, draw_band, draw_points, figure, styled
from pausejax.report.statistics import evaluation_times, learned, lines, on_common_clock, smooth


def draw(result: xr.Dataset, *, smoothing: int = 1) -> dict[str, Figure]:
    """All pictures that a result has the data for, by file name.

    Args:
      result: as `pausejax run` writes it.
      smoothing: window of the trailing mean over evaluations, in evaluations.
    """
    curves = styled([line._replace(runs=line.runs.load()) for line in lines(result)])
    plots: dict[str, Callable[[Axes, list[Curve]], None]] = {
        "leakage_vs_rounds": leakage_vs_rounds,
        "leakage_vs_latency": leakage_vs_latency,
        "regret_vs_rounds": regret_vs_rounds,
        "pseudo_regret_vs_rounds": pseudo_regret_vs_rounds,
        "selection_counts": selection_counts,
    }
    if "selection_gap" in result:
        plots["selection_gap"] = selection_gap
    measured = objectives_in(result)[0]
    if measured in result and result[measured].dims[1:] == ("eval",):
        shown = metrics_of(result)[measured]
        for clock, plot in (("latency", learned_vs_latency), ("rounds", learned_vs_rounds)):
            name = f"{measured.removeprefix('test_')}_vs_{clock}"
            plots[name] = functools.partial(plot, name=measured, metric=shown, smoothing=smoothing)
    for name, metric in metrics_of(result).items():
        # A study's own quantities; what is built in has pictures of its own.
        if name not in METRICS and metric.label and result[metric.variable].dims == ("run", "round"):
            plots[f"{name}_vs_rounds"] = functools.partial(quantity_vs_rounds, metric=metric)
    drawn = {name: figure(plot, curves) for name, plot in plots.items()}
    return drawn | reward_picture.draw(result)


def learned_vs_latency(
    axes: Axes, curves: list[Curve], name: str, metric: Metric, smoothing: int = 1
) -> None:
    """What was learned against simulated time, as the paper's Figs. 2, 4, 6 and 8."""
    for curve in curves:
        runs = learned(curve.runs)
        if runs.sizes["eval"]:
            values = smooth(runs[name].values, smoothing)
            grid, samples = on_common_clock(evaluation_times(runs), values)
            draw_band(axes, grid, metric.scale * samples, curve)
    axes.set(xlabel="simulated time (s)", ylabel=metric.label)
    axes.set_xlim(left=0)


def learned_vs_rounds(axes: Axes, curves: list[Curve], name: str, metric: Metric, smoothing: int = 1) -> None:
    """What was learned against rounds."""
    for curve in curves:
        runs = learned(curve.runs)
        values = smooth(runs[name].values, smoothing)
        draw_band(axes, runs["eval_round"].values, metric.scale * values, curve)
    axes.set(xlabel="round", ylabel=metric.label)
    axes.set_xlim(left=0)


def quantity_vs_rounds(axes: Axes, curves: list[Curve], metric: Metric) -> None:
    """A quantity of the study's own in every round."""
    for curve in curves:
        draw_band(axes, curve.runs["round"].values, metric.scale * curve.runs[metric.variable].values, curve)
    axes.set(xlabel="round", ylabel=metric.label)
    axes.set_xlim(left=0)


def leakage_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Largest leakage of any client against rounds, as the paper's Fig. 3."""
    for curve in filter(_is_private, curves):
        draw_band(axes, curve.runs["round"].values, curve.runs["max_leakage"].values, curve)
    axes.set(xlabel="round", ylabel="maximum leakage")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def leakage_vs_latency(axes: Axes, curves: list[Curve]) -> None:
    """Largest leakage of any client against simulated time, as the paper's Figs. 5, 7 and 9."""
    for curve in filter(_is_private, curves):
        grid, samples = on_common_clock(curve.runs["elapsed"].values, curve.runs["max_leakage"].values)
        draw_band(axes, grid, samples, curve)
    axes.set(xlabel="simulated time (s)", ylabel="maximum leakage")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def regret_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Cumulative realized regret (15); policies that take more than m clients are left out."""
    for curve in filter(_selects_m, curves):
        regret = np.cumsum(curve.runs["regret"].values, axis=1, dtype=np.float64)
        draw_band(axes, curve.runs["round"].values, regret, curve)
    axes.set(xlabel="round", ylabel="cumulative regret")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlim(left=0)


def pseudo_regret_vs_rounds(axes: Axes, curves: list[Curve]) -> None:
    """Cumulative pseudo-regret, where it ends lowest with a fit a + b log n; on top, the bound (17)."""
    shown = list(filter(_selects_m, curves))
    last = [np.nansum(curve.runs["pseudo_regret"].values, axis=1).mean() for curve in shown]
    for curve, total in zip(shown, last, strict=True):
        rounds = curve.runs["round"].values
        regret = np.cumsum(curve.runs["pseudo_regret"].values, axis=1, dtype=np.float64)
        draw_band(axes, rounds, regret, curve)
        mean = regret.mean(axis=0)
        # The rounds that every run has played.
        shared = rounds[np.isfinite(mean)]
        late = (rounds >= rounds[-1] / 10) & np.isfinite(mean) if shared.size else rounds < 0
        if late.sum() >= 10 and total == min(last):
            slope, level = np.polyfit(np.log(rounds[late]), mean[late], 1)
            fit = level + slope * np.log(rounds[late])
            axes.plot(rounds[late][fit > 0], fit[fit > 0], ":", color="black", linewidth=0.8)
    axes.plot([], [], ":", color="black", linewidth=0.8, label="fit a + b log n")
    scale = "log" if max(last, default=0) > 0 else "linear"
    axes.set(xlabel="round n", ylabel="cumulative pseudo-regret", xscale="log", yscale=scale)
    axes.set_ylim(bottom=0.1 if scale == "log" else 0)
    # Many decades lie between the regret and the bound, so the bound has a strip of its own.
    strip = axes.inset_axes((0.0, 1.04, 1.0, 0.13), sharex=axes)
    for curve in shown:
        strip.plot(curve.runs["round"].values, regret_bound_of(curve.runs), color=curve.colour, linewidth=0.8)
    strip.set(yscale="log", ylabel="(17)")
    strip.tick_params(labelbottom=False)
    strip.minorticks_off()


def selection_gap(axes: Axes, curves: list[Curve]) -> None:
    """What each cohort loses in (14) against the exact maximum, as a mean over the last 20 rounds."""
    for curve in curves:
        gap = curve.runs["selection_gap"].values
        explored = np.isfinite(gap).all(axis=0)
        rounds = curve.runs["round"].values[explored]
        draw_band(axes, rounds, smooth(gap[:, explored], 20), curve)
    axes.set(xlabel="round", ylabel="gap to the maximum of (14)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def selection_counts(axes: Axes, curves: list[Curve]) -> None:
    """How often each client took part; policies that take everybody are left out."""
    for curve in filter(_selects_m, curves):
        counts = curve.runs["counts"].values
        clients = np.flatnonzero((counts >= 0).all(axis=0))
        draw_points(axes, clients, counts[:, clients], curve)
    axes.set(xlabel="client, fastest to slowest", ylabel="rounds taken part in")
    axes.set_ylim(bottom=0)


def _is_private(curve: Curve) -> bool:
    return not np.isinf(curve.runs["max_leakage"].values).any()


def _selects_m(curve: Curve) -> bool:
    sizes = (curve.runs["selected"].values >= 0).sum(axis=2)
    return bool((sizes <= curve.runs["clients_per_round"].values[:, None]).all())
