"""What every picture with lines is made of: looks, bands, points, and how figures are saved."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pausejax.report.figure import Figure
from pausejax.report.statistics import (
    Line,
    band,
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
_STYLE: dict[Any, Any] = {"font.size": 8, "axes.labelsize": 8.5, "legend.fontsize": 7, "pdf.fonttype": 42}


class Curve(NamedTuple):
    """A line of runs with its look, which is the same in every picture of a result."""

    label: str
    runs: xr.Dataset
    colour: str
    dash: str
    marker: str


def save(figures: Mapping[str, Any], directory: Path, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Writes each figure in each format; returns the paths."""
    paths = []
    for name, figure in figures.items():
        for suffix in formats:
            path = directory / f"{name}.{suffix}"
            figure.savefig(path, dpi=300, metadata={"CreationDate": None} if suffix == "pdf" else None)
            paths.append(path)
    return paths


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
            columns = 1 if many or len(labels) == 1 else 2
            place: Literal["outside right upper", "outside upper center"]
            place = "outside right upper" if many else "outside upper center"
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
