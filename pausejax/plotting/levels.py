"""Bins the values of swept parameters into a few levels, and formats the levels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import finals, mean_ci, metrics_of, settings
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import axes_of, has, symbols
from pausejax.plotting.data import Axis

MAX_LEVELS = 8
MAX_AXES = 4
"""Largest number of axes that have heat maps; four axes make six pairs."""
# Least ratio of the largest to the smallest value for which the scale is logarithmic.
_DECADE = 10


class Levels(NamedTuple):
    """Final metrics of the runs of one or more policies, with the swept parameters that have several
    values."""

    runs: xr.Dataset
    """The data set that `analysis.finals` returns. A parameter with more than `MAX_LEVELS` numbers is binned:
    each value is replaced by the median of its bin."""
    axes: tuple[str, ...]
    """Names of the parameters with at least two values."""
    bins: dict[str, dict[float, str]] = {}  # noqa: RUF012, never written to
    """For each binned parameter, the range of each bin's values in words, by the bin's median."""
    unbinned: dict[str, np.ndarray] = {}  # noqa: RUF012, never written to
    """For each binned parameter, the value of each run, [runs]."""


def charted_metrics(result: xr.Dataset) -> list[Metric]:
    """Returns the metrics that charts show by default: those with a label and a finite value in some run."""
    shown = {name: metric for name, metric in metrics_of(result).items() if metric.label}
    found = finals(result, list(shown))
    return [metric for name, metric in shown.items() if np.isfinite(found[name].values).any()]


def levels_of(runs: xr.Dataset) -> Levels:
    """Bins the swept parameters of `runs`, the data set of final metrics that `analysis.finals` returns.

    Parameters with a single value are left out.
    """
    cut: dict[str, np.ndarray] = {}
    bins: dict[str, dict[float, str]] = {}
    for name in axes_of(runs):
        column, present = runs[name].values, has(runs, name)
        if len(np.unique(column[present])) > 1:
            cut[name], ranges = _binned(column, present) if column.dtype.kind in "iuf" else (column, {})
            if ranges:
                bins[name] = ranges
    binned = runs.assign_coords({name: ("run", column) for name, column in cut.items()})
    return Levels(binned, tuple(cut), bins, {name: runs[name].values for name in bins})


def at_own_medians(levels: Levels, axis: str, settings: xr.Dataset) -> xr.Dataset:
    """Places the bins of a parameter at the medians of each policy's own values; keeps other parameters.

    Args:
      levels: the runs.
      axis: a parameter.
      settings: a data set with the coordinates "policy" and `axis`, whose values are those of `levels`.
    """
    if axis not in levels.bins:
        return settings
    policies, bins, values = levels.runs["policy"].values, levels.runs[axis].values, levels.unbinned[axis]
    column = settings[axis].values.copy()
    for place in np.flatnonzero(has(settings, axis)):
        mine = (policies == settings["policy"].values[place]) & (bins == column[place])
        column[place] = np.median(values[mine])
    return settings.assign_coords({axis: (settings[axis].dims, column)})


def _binned(column: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, dict[float, str]]:
    """Replaces each value of a parameter by the median of its quantile bin, if many values differ.

    Args:
      column: the value of each run, [runs].
      present: whether each run has the parameter, bool [runs].

    Returns:
      The values, [runs], and the range of each bin in words, by the bin's median. With at most `MAX_LEVELS`
      different values, nothing is binned, and there are no ranges.
    """
    values = column[present]
    if len(np.unique(values)) <= MAX_LEVELS:
        return column, {}
    edges = np.quantile(np.unique(values), np.linspace(0, 1, MAX_LEVELS + 1)[1:-1])
    bins = np.searchsorted(edges, values, side="right")
    # No bin is empty, because there are more distinct values than bins.
    medians = np.array([np.median(values[bins == b]) for b in range(MAX_LEVELS)])
    brief = np.array([float(f"{median:.2g}") for median in medians])
    if len(np.unique(brief)) == MAX_LEVELS:
        medians = brief
    found = np.full(column.shape, np.nan)
    found[present] = medians[bins]
    ends = [(values[bins == b].min(), values[bins == b].max()) for b in range(MAX_LEVELS)]
    low, high = format_levels([float(a) for a, _ in ends]), format_levels([float(b) for _, b in ends])
    ranges = [f"{a} to {b}" if a != b else a for a, b in zip(low, high, strict=True)]
    return found, dict(zip(medians.tolist(), ranges, strict=True))


def values_of(levels: Levels, axis: str) -> list:
    """Returns the levels of an axis in ascending order."""
    return sorted(settings.values_of(levels.runs, axis))


def averaged(levels: Levels, metric: Metric, kept: Sequence[str]) -> xr.Dataset:
    """Averages the finite values of a metric for each combination of values of the axes `kept`.

    The values of each seed are first averaged over all other axes. The mean and its 95 % interval are then
    computed over seeds.

    Returns:
      A data set with `mean`, `low`, `high` and `count`, one value for each combination. `low` and `high` are
      the ends of the interval, and `count` is the number of seeds. All but `count` are multiplied by the
      metric's scale.
    """
    over = [*(name for name in axes_of(levels.runs) if name not in kept), "seed"]
    finite = levels.runs[metric.name].where(np.isfinite(levels.runs[metric.name]))
    found = mean_ci(levels.runs.assign({metric.name: finite}), metric.name, over=over)
    return found.assign({name: metric.scale * found[name] for name in ("mean", "low", "high")})


def left_out(levels: Levels, metric: Metric) -> str:
    """Returns a sentence on the number of runs that `averaged` leaves out; "" if there are none."""
    lost = int((~np.isfinite(levels.runs[metric.name].values)).sum())
    return f" Left out: {lost} of {levels.runs.sizes['run']} runs, without a finite value." if lost else ""


def spans_decades(values: np.ndarray) -> bool:
    """Returns whether all finite values are positive and the largest is at least ten times the smallest."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() / values.min() >= _DECADE)


def axis_for(metric: Metric, values: np.ndarray) -> Axis:
    """Returns a chart's axis for values of a metric.

    The axis is logarithmic if all finite values are positive and the largest is at least ten times the
    smallest. An axis of shares is always linear.
    """
    return Axis(metric.axis_label, "log" if not metric.share and spans_decades(values) else "linear")


def name_of(axis: str, runs: xr.Dataset) -> str:
    """Returns the symbol of a parameter, or else its name in words."""
    return symbols(runs).get(axis, axis.replace("_", " "))


def format_levels(values: Sequence[object]) -> list[str]:
    """Formats levels for ticks and labels, with all digits if the short forms of two levels are equal."""
    return settings.told_apart([format_level(value) for value in values], [str(value) for value in values])


def format_level(value: object) -> str:
    """Formats a level; a number is rounded to three digits if it would take more than five characters."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:g}" if len(f"{value:g}") <= 5 else f"{value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e")
