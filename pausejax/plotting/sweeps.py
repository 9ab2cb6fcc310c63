"""Builds the charts of large sweeps: main effects, heat maps, the Pareto chart, the table of settings."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis import mean_ci, metrics_of, non_dominated
from pausejax.analysis.choice import weighed_means
from pausejax.analysis.per_run import with_divergence
from pausejax.analysis.quantities import Metric, apart_in, objectives_in
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import axes_of, counted, has
from pausejax.plotting.chart import Chart
from pausejax.plotting.data import Axis, Panel, Series, Sweep
from pausejax.plotting.grid import factors, split, styles, words_for
from pausejax.plotting.levels import (
    MAX_AXES,
    Levels,
    at_own_medians,
    averaged,
    axis_for,
    charted_metrics,
    format_levels,
    left_out,
    levels_of,
    name_of,
    spans_decades,
    values_of,
)
from pausejax.plotting.request import by_data_set, directions, endings, incomparable


def sweep_charts(result: xr.Dataset) -> dict[str, Chart]:
    """Returns main effects and the Pareto chart of a large sweep; reads only the final metrics."""
    metrics = charted_metrics(result)
    whole = with_divergence(result, [metric.name for metric in metrics]).load()
    # A mean over different rewards has no meaning. So such metrics are drawn only on request (`measures`).
    drawn = effects(whole, metrics, comparable=True)
    known = {metric.name: metric for metric in metrics}
    if set(objectives_in(result)) <= set(known):
        drawn |= fronts(whole, [known[name] for name in objectives_in(result)])
    return drawn


def charts_of(result: xr.Dataset, metrics: Sequence[Metric]) -> dict[str, Chart]:
    """Returns heat maps and main effects of some metrics, and the Pareto chart of the first three metrics."""
    whole = with_divergence(result, [metric.name for metric in metrics]).load()
    drawn = effects(whole, metrics) | heat_maps(whole, metrics)
    return drawn | (fronts(whole, metrics[:3]) if len(metrics) > 1 else {})


def effects(whole: xr.Dataset, metrics: Sequence[Metric], *, comparable: bool = False) -> dict[str, Chart]:
    """Draws each metric of the runs `whole` against each parameter, averaged over all other parameters.

    Args:
      whole: the runs.
      metrics: the metrics.
      comparable: whether to leave out a metric of a data set if its values can't be compared between runs.

    Returns:
      The charts by name, one for each metric and data set.
    """
    drawn = {}
    for ending, runs in endings(by_data_set(whole)):
        levels = levels_of(runs)
        for metric in metrics if levels.axes else ():
            if comparable and incomparable(runs, metric):
                continue
            if np.isfinite(runs[metric.name].values).any():
                name = f"main_effects_{metric.name}{ending}"
                drawn[name] = _effects(name, levels, metric, styles(whole))
    return drawn


def heat_maps(whole: xr.Dataset, metrics: Sequence[Metric]) -> dict[str, Chart]:
    """Draws each metric of the runs `whole` over each pair of the first `MAX_AXES` axes.

    Returns:
      The charts by name, one for each metric, policy and data set.
    """
    drawn, cells = {}, []
    for data, runs in by_data_set(whole):
        policies = split(runs, ["policy"])
        for policy, own in policies:
            words = [policy] if len(policies) > 1 else []
            cells.append((", ".join([*words, data] if data else words), own))
    for ending, runs in endings(cells):
        levels = levels_of(runs)
        for metric in metrics if len(levels.axes) > 1 else ():
            if np.isfinite(runs[metric.name].values).any():
                name = f"heatmap_{metric.name}{ending}"
                drawn[name] = _heat_map(name, levels, metric)
    return drawn


def fronts(whole: xr.Dataset, metrics: Sequence[Metric]) -> dict[str, Chart]:
    """Draws the trade-off of two or three metrics (y axis, x axis, colour), for each data set."""
    drawn: dict[str, Chart] = {}
    for ending, runs in endings(by_data_set(whole)):
        if not directions(runs, metrics)[1]:
            chart = _pareto(f"pareto{ending}", runs, metrics, styles(whole))
            drawn |= {chart.name: chart} if chart else {}
    return drawn


def sweep_table(result: xr.Dataset) -> Sweep | None:
    """Returns every setting with its parameters and metrics.

    Returns None if there are several data sets, if an objective of the study is neither in charts nor in
    tables, or if no value is finite.
    """
    shown = {name: metric for name, metric in metrics_of(result).items() if metric.label or metric.heading}
    objectives = objectives_in(result)
    if any(name in axes_of(result) for name in apart_in(result)) or not set(objectives) <= set(shown):
        return None
    whole = with_divergence(result, list(shown)).load()
    means = {name: mean_ci(whole, name) for name in shown}
    if not any(np.isfinite(one["mean"].values).any() for one in means.values()):
        return None
    some = means[objectives[0]]
    columns = [_column(some, name, name_of(name, whole)) for name in factors(whole)]
    parameters = len(columns)
    for name, metric in shown.items():
        values = metric.scale * means[name]["mean"].values
        if np.isfinite(values).any():
            columns.append((axis_for(metric, values), values))
    lost = np.max([one["left_out"].values for one in means.values()], axis=0)
    if lost.any():
        columns.append((Axis("runs without a value"), lost.astype(np.float64)))
    found = [name for name in shown if np.isfinite(means[name]["mean"].values).any()]
    ways = directions(whole, [shown[name] for name in objectives])[0]
    up, across, color = (parameters + (found.index(name) if name in found else 0) for name in objectives)
    labels = tuple(map(str, some["label"].values))
    weighed = weighed_means([means[name] for name in objectives])
    front = non_dominated(weighed, ways) if ways else np.zeros(len(labels), bool)
    axes, values = zip(*columns, strict=True)
    return Sweep(labels, axes, np.stack(values, axis=1), parameters, front, (across, up, color))


def _over(seeds: Sequence[int]) -> str:
    """Returns a text such as "5 seeds" for the numbers of seeds of some means."""
    return f"{counted(seeds)} seeds" if max(seeds, default=0) > 1 else "one seed"


def _bins(levels: Levels, axes: Sequence[str]) -> str:
    """Returns a sentence on the binned axes; "" if no axis is binned."""
    binned = [axis for axis in axes if axis in levels.bins]
    words = words_for(binned, levels.runs)
    return f" Values of {words} are in bins, each at its median." if binned else ""


def _effects(name: str, levels: Levels, metric: Metric, styles: Mapping[str, int]) -> Chart:
    """Draws the main effects of a metric: a panel for each axis, with a line for each policy that has this
    axis."""
    drawn = []
    seeds: list[int] = []
    band: dict[str, Any]
    for axis in levels.axes:
        found = at_own_medians(levels, axis, averaged(levels, metric, ("policy", axis)))
        x, places = _column(found, axis, name_of(axis, levels.runs))
        lines = []
        for policy in dict.fromkeys(levels.runs["policy"].values.tolist()):
            mine = np.flatnonzero((found["policy"].values == policy) & has(found, axis))
            mine = mine[np.argsort(places[mine], kind="stable")]
            mean, low, high = (found[key].values[mine] for key in ("mean", "low", "high"))
            band = {"low": low, "high": high} if np.isfinite(low).any() else {}
            if mine.size:
                lines.append(Series(policy, places[mine], mean, style=styles[policy], **band))
                seeds += found["count"].values[mine][np.isfinite(mean)].tolist()
        drawn.append((x, tuple(lines)))
    means = np.concatenate([np.zeros(0), *(one.y for _, lines in drawn for one in lines)])
    y = axis_for(metric, means)
    bands = "; bands: 95 % t intervals over seeds" if max(seeds, default=0) > 1 else ""
    what = f"{metric.meaning[:1].upper()}{metric.meaning[1:]} by each parameter"
    caption = f"{what}: means over {_over(seeds)} and all other parameters{bands}.{left_out(levels, metric)}"
    panels = tuple(Panel(x, y, lines) for x, lines in drawn)
    return Chart(name, caption + _bins(levels, levels.axes), panels, min(len(panels), 4))


def _heat_map(name: str, levels: Levels, metric: Metric) -> Chart:
    """Draws a metric of one policy: a panel for each pair of the first `MAX_AXES` axes.

    A cell is the mean over seeds and over all other axes.
    """
    axes = levels.axes[:MAX_AXES]
    panels = []
    seeds: list[int] = []
    for row, column in ((axes[j], axes[i]) for i, j in itertools.combinations(range(len(axes)), 2)):
        rows, columns = values_of(levels, row), values_of(levels, column)
        found = averaged(levels, metric, (row, column))
        found = found.isel(setting=np.flatnonzero(has(found, row) & has(found, column)))
        seeds += found["count"].values[np.isfinite(found["mean"].values)].tolist()
        cells = np.full((len(rows), len(columns)), np.nan)
        for i, j, value in zip(found[row].values, found[column].values, found["mean"].values, strict=True):
            cells[rows.index(i), columns.index(j)] = value
        x, y = (
            Axis(name_of(axis, levels.runs), names=tuple(format_levels(values)))
            for axis, values in ((column, columns), (row, rows))
        )
        panels.append(Panel(x, y, cells=cells))
    every = np.concatenate([panel.cells.ravel() for panel in panels if panel.cells is not None])
    others = " and the other parameters" if len(levels.axes) > 2 else ""
    policy = levels.runs["policy"].values[0]
    caption = (
        f"{policy}: {metric.meaning} by {words_for(axes, levels.runs)}, mean over {_over(seeds)}{others}. "
        f"Cells without a finite value are empty.{left_out(levels, metric)}{_bins(levels, axes)}"
    )
    return Chart(name, caption, tuple(panels), min(3, len(panels)), axis_for(metric, every))


def _pareto(
    name: str, whole: xr.Dataset, metrics: Sequence[Metric], looks: Mapping[str, int]
) -> Chart | None:
    """Draws each setting's mean over seeds: the first metric on the y axis, the second on the x axis.

    A third metric is the colour. Returns None if no setting has finite values of the first two metrics.
    """
    means = [mean_ci(whole, metric.name) for metric in metrics]
    trusted, ways = weighed_means(means), directions(whole, metrics)[0]
    pairs = zip(metrics, means, strict=True)
    values = np.stack([metric.scale * found["mean"].values for metric, found in pairs])
    up, across = values[:2]
    there = np.isfinite(up + across)
    if not there.any():
        return None
    weighed = ~np.isnan(trusted).all(axis=1)
    # A setting with an infinite value is not drawn, but may be on the front.
    every_front, known = non_dominated(trusted, ways), ~np.isnan(up + across)
    front = every_front & there
    of_two = non_dominated(trusted[:, :2], ways[:2]) & there
    policy, labels = means[0]["policy"].values, np.array(means[0]["label"].values, object)
    third = values[2] if len(metrics) > 2 else None

    def points(label: str, mine: np.ndarray, **more: Any) -> Series:
        color = None if third is None else third[mine]
        return Series(label, across[mine], up[mine], color=color, names=tuple(labels[mine]), **more)

    drawn = [
        points(str(one), there & weighed & (policy == one), mark="point", style=looks[one])
        for one in dict.fromkeys(policy.tolist())
    ]
    drawn.append(_steps(across[of_two], up[of_two], ways, third is not None))
    noise = {}
    if np.isfinite(means[0]["low"].values[front]).any():
        noise = {key: metrics[0].scale * means[0][key].values[front] for key in ("low", "high")}
    of_all = "on the front of all three metrics" if third is not None else "on the front"
    of_all += f": {every_front.sum()} of {known.sum()}"
    drawn.append(points(of_all, front, mark="ring", style=6, **noise))
    if (lost := there & ~weighed).any():
        without = f"some runs have no value, so on no front: {lost.sum()}"
        drawn.append(points(without, lost, mark="cross", style=6))
    axes = [axis_for(metric, row[there]) for metric, row in zip(metrics, values, strict=True)]
    unbounded = third is not None and not np.isfinite(third[there]).all()
    caption = (
        "Every setting, as means over its seeds. Rings: the Pareto front of all metrics"
        f"{', with 95 % intervals as bars' if noise else ''}. Line: the Pareto front of the two axes."
        f"{' Grey: no finite value of the colour.' if unbounded else ''}"
    )
    endless = known & ~there
    on_front = f" ({(every_front & endless).sum()} of them on the front)" if endless.any() else ""
    note = (
        f"not drawn, because a value is infinite: {some(labels[endless])}{on_front}" if endless.any() else ""
    )
    panel = Panel(axes[1], axes[0], tuple(drawn), note=note)
    return Chart(name, caption, (panel,), color=axes[2] if third is not None else None)


def _steps(across: np.ndarray, up: np.ndarray, ways: Sequence[bool], several: bool) -> Series:
    """Returns the series of a front as a step function, because no setting lies between its points.

    Args:
      across: x values of the front's points, [n].
      up: y values of the front's points, [n].
      ways: whether more is better, on the y axis and on the x axis.
      several: whether the chart also has a front of three metrics.
    """
    # A step keeps its y value up to the next point, so points are ordered from good to bad on the x axis.
    order = np.lexsort((up, across))
    order = order[::-1] if ways[1] else order
    label = "front of the two axes" if several else "front"
    return Series(label, across[order], up[order], mark="step", style=6)


def _column(settings: xr.Dataset, name: str, label: str) -> tuple[Axis, np.ndarray]:
    """Returns the axis of a parameter, and the position of each setting on it, float64 [settings]."""
    column, present = settings[name].values, has(settings, name)
    if column.dtype.kind in "iuf":
        places = np.where(present, column.astype(np.float64), np.nan)
        return Axis(label, "log" if spans_decades(places) else "linear"), places
    names = list(dict.fromkeys(column[present].tolist()))
    names = names if name == "policy" else sorted(names)
    places = np.array(
        [float(names.index(one)) if there else np.nan for one, there in zip(column, present, strict=True)]
    )
    return Axis(label, names=tuple(map(str, names))), places
