"""The pictures of a study: one line per policy and axis value, seed mean with its 95 % band."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pausejax import network, regret
from pausejax.parts import File, everything
from pausejax.report.statistics import (
    Line,
    band,
    evaluation_times,
    learned,
    lines,
    on_common_clock,
    smooth,
)

# Okabe and Ito's colours, told apart under every common colour blindness and in grey by their order.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
DASHES = ("-", "--", ":", "-.")
MARKERS = "osD^vP*X"

_POINTS = 2000

# One column of a two-column paper, in inches.
_SIZE = (3.5, 2.7)
# Both columns, with the legend beside the picture: for more lines than a column has room for.
_WIDE = (7.0, 3.2)
_STYLE = {"font.size": 8, "axes.labelsize": 8.5, "legend.fontsize": 7, "pdf.fonttype": 42}


class Curve(NamedTuple):
    """A line of runs with its look, which is the same in every picture of a result."""

    label: str
    runs: xr.Dataset
    colour: str
    dash: str
    marker: str


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
    if "test_accuracy" in result:
        plots["accuracy_vs_latency"] = functools.partial(accuracy_vs_latency, smoothing=smoothing)
        plots["accuracy_vs_rounds"] = functools.partial(accuracy_vs_rounds, smoothing=smoothing)
    return {name: figure(plot, curves) for name, plot in plots.items()}


def save(figures: dict[str, Figure], directory: Path, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Writes each figure in each format; returns the paths."""
    paths = []
    for name, figure in figures.items():
        for suffix in formats:
            path = directory / f"{name}.{suffix}"
            figure.savefig(path, dpi=300, metadata={"CreationDate": None} if suffix == "pdf" else None)
            paths.append(path)
    return paths


def accuracy_vs_latency(axes: Axes, curves: list[Curve], smoothing: int = 1) -> None:
    """Test accuracy against simulated time, as the paper's Figs. 2, 4, 6 and 8."""
    for curve in curves:
        runs = learned(curve.runs)
        if runs.sizes["eval"]:
            accuracy = smooth(runs["test_accuracy"].values, smoothing)
            grid, samples = on_common_clock(evaluation_times(runs), accuracy)
            draw_band(axes, grid, 100 * samples, curve)
    axes.set(xlabel="simulated time (s)", ylabel="test accuracy (%)")
    axes.set_xlim(left=0)


def accuracy_vs_rounds(axes: Axes, curves: list[Curve], smoothing: int = 1) -> None:
    """Test accuracy against rounds."""
    for curve in curves:
        runs = learned(curve.runs)
        accuracy = smooth(runs["test_accuracy"].values, smoothing)
        draw_band(axes, runs["eval_round"].values, 100 * accuracy, curve)
    axes.set(xlabel="round", ylabel="test accuracy (%)")
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
    """Cumulative pseudo-regret, for PAUSE with a fit a + b log n; on top, the bound (17)."""
    shown = list(filter(_selects_m, curves))
    for curve in shown:
        rounds = curve.runs["round"].values
        regret = np.cumsum(curve.runs["pseudo_regret"].values, axis=1, dtype=np.float64)
        draw_band(axes, rounds, regret, curve)
        mean = regret.mean(axis=0)
        # The rounds that every run has played.
        shared = rounds[np.isfinite(mean)]
        late = (rounds >= rounds[-1] / 10) & np.isfinite(mean) if shared.size else rounds < 0
        if late.sum() >= 10 and (curve.runs["algorithm"].values == "pause").all():
            slope, level = np.polyfit(np.log(rounds[late]), mean[late], 1)
            fit = level + slope * np.log(rounds[late])
            axes.plot(rounds[late][fit > 0], fit[fit > 0], ":", color="black", linewidth=0.8)
    axes.plot([], [], ":", color="black", linewidth=0.8, label="fit a + b log n")
    axes.set(xlabel="round n", ylabel="cumulative pseudo-regret", xscale="log", yscale="log")
    axes.set_ylim(bottom=0.1)
    # Many decades lie between the regret and the bound, so the bound has a strip of its own.
    strip = axes.inset_axes((0.0, 1.04, 1.0, 0.13), sharex=axes)
    for curve in shown:
        strip.plot(curve.runs["round"].values, regret_bound_of(curve.runs), color=curve.colour, linewidth=0.8)
    strip.set(yscale="log", ylabel="(17)")
    strip.tick_params(labelbottom=False)
    strip.minorticks_off()


def regret_bound_of(runs: xr.Dataset) -> np.ndarray:
    """Theorem 3's bound (17) for the setting of some runs, [round]; δ is the smallest gap in μ."""
    run = runs.isel(run=0)
    part = everything().of("latency").get(str(run["latency"].values))
    # What is in a file is not part of a result, and a law of one's own may be unknown here.
    if part is None or any(parameter.kind is File for parameter in part.parameters.values()):
        return np.full(runs.sizes["round"], np.nan)
    values = {name: run[name].item() for name in part.reads if name in run}
    floor = float(run["min_latency"])
    mu = network.expected_reward(network.floored(part.build(**values), floor), floor)
    largest = regret.gap_bound(mu, float(run["generalization_weight"]), float(run["privacy_weight"]))
    bound = regret.regret_bound(
        runs["round"].values,
        int(run["num_clients"]),
        int(run["clients_per_round"]),
        largest,
        regret.smallest_gap(mu),
    )
    return np.asarray(bound)


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


def styled_context() -> contextlib.AbstractContextManager[None]:
    """The fonts of every picture."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def figure(plot: Callable[[Axes, list[Curve]], None], curves: list[Curve]) -> Figure:
    """One picture, with the legend above it."""
    with styled_context():
        many = len(curves) > 6
        figure = Figure(figsize=_WIDE if many else _SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        plot(axes, curves)
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        _, labels = axes.get_legend_handles_labels()
        if labels:
            place = "outside right upper" if many else "outside upper center"
            columns = 1 if many or len(labels) == 1 else 2
            figure.legend(loc=place, ncols=columns, frameon=False, handlelength=1.6)
        return figure


def styled(whole: list[Line]) -> list[Curve]:
    """A colour of its own for each line, the dash changing where the colours begin anew."""
    curves: list[Curve] = []
    for position, line in enumerate(whole):
        again, hue = divmod(position, len(PALETTE))
        look = PALETTE[hue], DASHES[again % len(DASHES)], MARKERS[position % len(MARKERS)]
        curves.append(Curve(line.label, line.runs, *look))
    return curves


def draw_band(axes: Axes, x: np.ndarray, samples: np.ndarray, curve: Curve) -> None:
    """Draws the seed mean of samples [runs, n] with its 95 % band, at no more points than an eye can tell."""
    if not x.size:
        return
    if x.size > _POINTS:
        even = np.linspace(0, x.size - 1, _POINTS // 2)
        early = np.geomspace(1, x.size, _POINTS // 2) - 1
        kept = np.unique(np.concatenate([even, early]).astype(int))
        x, samples = x[kept], samples[:, kept]
    mean, half_width = band(samples)
    axes.plot(x, mean, label=curve.label, linewidth=1.2, color=curve.colour, linestyle=curve.dash)
    if np.isfinite(half_width).any():
        low, high = mean - half_width, mean + half_width
        axes.fill_between(x, low, high, color=curve.colour, alpha=0.2, linewidth=0)


def draw_points(axes: Axes, x: Sequence[int] | np.ndarray, samples: np.ndarray, curve: Curve) -> None:
    """Draws the seed mean of samples [runs, n] as points with their 95 % intervals."""
    mean, half_width = band(samples)
    axes.errorbar(
        x,
        mean,
        yerr=np.nan_to_num(half_width),
        color=curve.colour,
        linestyle="none",
        marker=curve.marker,
        markersize=2.5,
        elinewidth=0.7,
        label=curve.label,
    )


def _is_private(curve: Curve) -> bool:
    return not np.isinf(curve.runs["max_leakage"].values).any()


def _selects_m(curve: Curve) -> bool:
    sizes = (curve.runs["selected"].values >= 0).sum(axis=2)
    return bool((sizes <= curve.runs["clients_per_round"].values[:, None]).all())
