"""What pictures of many settings show: a result's figures, scaled, over axes of a few levels each."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.colors import LogNorm, Normalize
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from pausejax.analysis import finals, mean_ci, metrics_of, settings
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import axes_of, has, symbols
from pausejax.report.style import LEGEND_SIZE

MAX_LEVELS = 8

# A legend's line, and what lies between its columns, in inches.
_HANDLE, _BETWEEN = 0.36, 0.2

# Values further apart than this factor are drawn on a logarithmic scale.
_DECADES = 10


class Measure(NamedTuple):
    """A metric as pictures show it."""

    name: str
    label: str
    scale: float = 1
    share: bool = False
    """Of something whole, so that a logarithmic scale would mislead."""
    variable: str = ""
    """What it is made of."""
    running: str = "last"
    """How its curve is made of the variable, one of `metrics.RUNNING`; of others there is no curve."""
    learned: bool = False
    """Whether it has no meaning for a model that ceased to be finite."""


class Levels(NamedTuple):
    """Figures of one policy or several, each axis cut to a few levels."""

    runs: xr.Dataset
    """The finals; numeric axes with many values hold the median of the bin that the value is in."""
    axes: tuple[str, ...]
    """Axes with two levels or more."""


def measure_of(name: str, metric: Metric) -> Measure:
    """A metric as pictures show it."""
    unit = "" if metric.units == "1" else f" ({metric.units})"
    label = metric.label or f"{metric.meaning}{unit}"
    curve = (metric.variable, metric.reduce, metric.learned)
    return Measure(name, label, metric.scale, metric.share, *curve)


def measures_of(result: xr.Dataset) -> list[Measure]:
    """What pictures show unasked and a result has the data for, with some value that is finite."""
    shown = [measure_of(name, metric) for name, metric in metrics_of(result).items() if metric.label]
    found = finals(result, [measure.name for measure in shown])
    return [measure for measure in shown if np.isfinite(found[measure.name].values).any()]


def levels_of(runs: xr.Dataset) -> Levels:
    """Cuts the axes of some finals into levels; those that do not vary are left out."""
    cut = {}
    for name in axes_of(runs):
        column, present = runs[name].values, has(runs, name)
        if len(np.unique(column[present])) > 1:
            cut[name] = _binned(column, present) if column.dtype.kind in "iuf" else column
    binned = runs.assign_coords({name: ("run", column) for name, column in cut.items()})
    return Levels(binned, tuple(cut))


def _binned(column: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Values, or the rounded medians of their quantile bins where there are more than `MAX_LEVELS`."""
    values = column[present]
    if len(np.unique(values)) <= MAX_LEVELS:
        return column
    edges = np.quantile(np.unique(values), np.linspace(0, 1, MAX_LEVELS + 1)[1:-1])
    bins = np.searchsorted(edges, values, side="right")
    # No bin is empty: there are more different values than bins.
    medians = np.array([np.median(values[bins == b]) for b in range(MAX_LEVELS)])
    brief = np.array([float(f"{median:.2g}") for median in medians])
    if len(np.unique(brief)) == MAX_LEVELS:
        medians = brief
    found = np.full(column.shape, np.nan)
    found[present] = medians[bins]
    return found


def values_of(levels: Levels, axis: str) -> list:
    """The levels of an axis, ascending."""
    return sorted(settings.values_of(levels.runs, axis))


def averaged(levels: Levels, measure: Measure, kept: Sequence[str]) -> xr.Dataset:
    """Mean and 95 % interval over seeds of a measure for each policy and level of the kept axes, scaled."""
    over = [*(name for name in axes_of(levels.runs) if name not in kept), "seed"]
    found = mean_ci(_finite(levels.runs, measure.name), measure.name, over=over)
    return found.assign({name: measure.scale * found[name] for name in ("mean", "low", "high")})


def _finite(runs: xr.Dataset, metric: str) -> xr.Dataset:
    """An infinite leakage is no number to average or to draw."""
    return runs.assign({metric: runs[metric].where(np.isfinite(runs[metric]))})


def spans_decades(values: np.ndarray) -> bool:
    """Whether values are all positive and far enough apart for a logarithmic scale."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() / values.min() >= _DECADES)


def name_of(axis: str, runs: xr.Dataset) -> str:
    """An axis as pictures write it: by its symbol, or in words."""
    return symbols(runs).get(axis, axis.replace("_", " "))


def shown_each(values: Sequence[object]) -> list[str]:
    """Levels as tick labels or names of lines, with all digits where three leave two of them alike."""
    return settings.told_apart([shown(value) for value in values], [str(value) for value in values])


def shown(value: object) -> str:
    """A level as a tick label: short, three digits at least."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:g}" if len(f"{value:g}") <= 5 else f"{value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def is_logarithmic(measure: Measure, values: np.ndarray) -> bool:
    """Whether values of a measure are drawn on a logarithmic scale."""
    return not measure.share and spans_decades(values)


def colour_scale(measure: Measure, values: np.ndarray) -> Normalize:
    """A scale of colours for the finite ones of some values."""
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0, 1)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return LogNorm(low, high) if is_logarithmic(measure, finite) else Normalize(low, high)


def columns_for(labels: Sequence[str], width: float) -> int:
    """How many columns of a legend fit into so many inches; four at most. One is filled after the other."""
    font = FontProperties(size=LEGEND_SIZE)
    measure = text_to_path.get_text_width_height_descent
    widths = np.array([measure(label, font, False)[0] / 72 for label in labels])
    for columns in range(min(len(labels), 4), 1, -1):
        longest = [part.max() + _HANDLE for part in np.array_split(widths, columns)]
        if sum(longest) + _BETWEEN * (columns - 1) <= width:
            return columns
    return 1
