"""Resolves requested names of metrics, runs and axes, and lists what the charts of a result omit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis import mean_ci, metrics_of
from pausejax.analysis.comparing import Incomparable, refuse_unlike, unlike
from pausejax.analysis.mean_curves import has_curve
from pausejax.analysis.metrics import direction
from pausejax.analysis.per_run import with_divergence
from pausejax.analysis.quantities import (
    Metric,
    apart_in,
    as_json,
    metrics_in,
    objectives_in,
    parameters_in,
)
from pausejax.analysis.selecting import select, some, written
from pausejax.analysis.settings import axes_of, has
from pausejax.plotting.data import file_names
from pausejax.plotting.grid import Grid, factors, for_lines, is_many, split, words_for
from pausejax.plotting.levels import MAX_AXES, charted_metrics, levels_of
from pausejax.spelling import nearest

_PER_ROUND = (("run", "round"), ("run", "eval"))


def resolve(
    result: xr.Dataset, measures: Sequence[str] = (), where: Mapping[str, Any] | None = None
) -> tuple[xr.Dataset, list[Metric]]:
    """Returns the runs and the metrics that a request names.

    Args:
      result: a result, or its outline before the simulation.
      measures: names of metrics, or of variables with a value for each round or evaluation.
      where: the value or values that the chosen runs have, by the name of the parameter.

    Returns:
      The runs, whose table of metrics contains every measure, and the metrics of the measures.

    Raises:
      ValueError: a name is unknown, or no run has the values of `where`.
    """
    measures = [measures] if isinstance(measures, str) else measures
    runs = select(result, where)
    found = []
    for name in dict.fromkeys(measures):
        metric = _named(runs, name)
        runs = runs.assign_attrs(metrics=as_json({**metrics_in(runs), metric.name: metric}))
        found.append(metric)
    return runs, found


def _named(result: xr.Dataset, name: str) -> Metric:
    """Returns the metric with a name, or makes a metric of the variable with this name."""
    table = metrics_of(result)
    if name in table:
        return table[name]
    if name not in result.data_vars:
        known = [*table, *(str(v) for v in result.data_vars if result[v].dims in _PER_ROUND)]
        listed = ", ".join(dict.fromkeys(known))
        raise ValueError(f"measure: {name}: must be one of {listed}{nearest(name, known)}")
    # The cumulative sum of a variable is preferred, because noise dominates the values of single rounds.
    for metric in table.values():
        if metric.variable == name and metric.is_sum:
            return metric
    array = result[name]
    if array.dims not in _PER_ROUND:
        made = [other for other, metric in table.items() if metric.variable == name]
        hint = f". Metrics of it: {', '.join(made)}" if made else ""
        raise ValueError(
            f"measure: {name}: must have one value per round, not values over "
            f"{', '.join(map(str, array.dims))}{hint}"
        )
    units, meaning = array.attrs.get("units", "1"), array.attrs.get("long_name", name.replace("_", " "))
    return Metric(name, "each", None, units, meaning, name=name)


def by_data_set(runs: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Splits runs by data set, into pairs of a name and its runs. A single data set has the name ""."""
    return split(runs, [name for name in apart_in(runs) if name in axes_of(runs)])


def endings(parts: Sequence[tuple[str, xr.Dataset]]) -> list[tuple[str, xr.Dataset]]:
    """Replaces the titles in pairs of a title and its runs by endings for the names of charts.

    Different titles get different endings. The ending for "" is "".
    """
    names = file_names([title for title, _ in parts])
    return [(f"_{name}" if title else "", runs) for name, (title, runs) in zip(names, parts, strict=True)]


def incomparable(runs: xr.Dataset, metric: Metric) -> str:
    """Returns why the values of a metric can not be compared among some runs; "" if they can."""
    if differing := unlike(runs, metric.name):
        *others, last = differing
        names = f"{', '.join(others)}{' and ' if others else ''}{last}"
        return f"not comparable between runs with different {names}"
    try:
        figures = with_divergence(runs, [metric.name])
        refuse_unlike(figures, metric.name, figures[metric.name].values)
    except Incomparable as mistake:
        return f"not comparable: {mistake.reason}"
    return ""


def directions(runs: xr.Dataset, metrics: Sequence[Metric]) -> tuple[list[bool], str]:
    """Returns for each metric whether more is better, and why the metrics have no Pareto front.

    The reason is "" if there is a front. Otherwise the list of directions is empty.
    """
    for metric in metrics:
        if why := incomparable(runs, metric):
            return [], f"{metric.name} is {why}"
    try:
        return [direction(runs, metric.name, None) for metric in metrics], ""
    except ValueError:
        neither = [metric.name for metric in metrics if metric.maximize is None]
        return [], f"neither more nor less of {', '.join(neither)} is better by definition"


def omitted(runs: xr.Dataset, wanted: Sequence[Metric], grid: Grid | None) -> list[str]:
    """Returns lines of text on what the charts omit, with the option that would show it if there is one.

    Args:
      runs: the runs, as `resolve` returns them.
      wanted: the requested metrics, as `resolve` returns them; if empty, the default charts are drawn.
      grid: the grid of the runs, as `plotting.grid.arrange` returns it; None if too many axes vary.
    """
    shown = wanted or charted_metrics(runs)
    figures = with_divergence(runs, [metric.name for metric in shown]).load()
    lines = [*_curves(runs, grid), *_without_a_number(runs, figures[[metric.name for metric in shown]])]
    if not wanted:
        return [*lines, *_unasked(runs, figures, shown)]
    for metric in wanted:
        if not np.isfinite(figures[metric.name].values).any():
            lines.append(f"{metric.name}: no run has a finite value")
        elif not has_curve(runs, metric):
            lines.append(f"{metric.name}: has only one value for each run, so it has no curve")
    beyond = dict[str, None]()
    for _, part in by_data_set(runs):
        policies = part["policy"].values
        for policy in dict.fromkeys(policies.tolist()):
            own = levels_of(part.isel(run=policies == policy)).axes
            beyond |= dict.fromkeys(_short(part, name) for name in own[MAX_AXES:])
    if names := ", ".join(beyond):
        lines.append(
            f"no heat maps of {names}: heat maps show {MAX_AXES} axes at most. Fix other axes by --where"
        )
    for alike, data, why, fix in _unlike(figures, wanted):
        lines.append(f"{', '.join(alike)}{data}: drawn as asked, but {why}{fix}")
    if len(wanted) > 1:
        lines += _no_front(figures, wanted[:3])
    if len(wanted) > 3:
        lines.append(f"the front is of the first three measures, without {some(m.name for m in wanted[3:])}")
    return lines


def _curves(runs: xr.Dataset, grid: Grid | None) -> list[str]:
    if grid is None:
        first = next(name for name in factors(runs) if name != "policy")
        value = written(runs[first].values[np.argmax(has(runs, first))].item())
        varying = [_short(runs, name) for name in factors(runs)]
        fix = f"fix some axes: --where {_short(runs, first)}={value}"
        if axes := ",".join(_short(runs, name) for name in for_lines(runs)[:2]):
            fix = f"average over all axes except those of lines and panels: --by {axes}. Or {fix}"
        fix = fix[:1].upper() + fix[1:]
        return [f"no curves: too many axes for one grid of panels ({', '.join(varying)}). {fix}"]
    if grid.averaged:
        averaged = words_for(grid.averaged, runs)
        return [f"curves are means over {averaged} too. To separate the values, use --where or --by"]
    return []


def _without_a_number(runs: xr.Dataset, shown: xr.Dataset) -> list[str]:
    """Returns lines of text on how many runs are left out of means, and why."""
    lines, count = [], runs.sizes["run"]
    if "diverged_round" in runs and (broken := int((runs["diverged_round"].values > 0).sum())):
        left = "means, curves, heat maps and main effects of learned metrics leave them out"
        lines.append(f"{broken} of {count} runs diverged: {left}")
    for name, values in shown.data_vars.items():
        infinite = int(np.isinf(values.values).sum())
        if 0 < infinite < count:
            left = "Heat maps and main effects are means over the other runs"
            lines.append(f"{name}: infinite in {infinite} of {count} runs. {left}")
    return lines


def _unasked(runs: xr.Dataset, figures: xr.Dataset, charted: Sequence[Metric]) -> list[str]:
    table = metrics_of(runs)
    shown = {metric.name for metric in charted}
    others = [name for name in table if name not in shown and table[name].reduce != "itself"]
    lines = [f"--measure NAME draws other metrics: {some(others, 20)}"] if others else []
    if is_many(runs):
        lines.append("--measure NAME draws heat maps of a metric")
        for names, data, why, fix in _unlike(figures, charted):
            lines.append(
                f"{', '.join(names)}: no main effects{data}, because {why}{fix}. "
                f"To draw them anyway: --measure {' '.join(names)}"
            )
        objectives = objectives_in(runs)
        if lacking := [name for name in objectives if name not in shown]:
            lines.append(
                f"no front: no run has a finite {' or '.join(lacking)}. --measure draws other fronts"
            )
        else:
            lines += _no_front(figures, [table[name] for name in objectives])
    return lines


def _unlike(runs: xr.Dataset, metrics: Sequence[Metric]) -> list[tuple[list[str], str, str, str]]:
    """Returns which metrics can't be compared among the runs that main effects average.

    The result has tuples of names of metrics, the data set in words, the reason, and a way out in words.
    """
    found = []
    for data, part in by_data_set(runs):
        by_reason: dict[str, list[Metric]] = {}
        for metric in metrics if levels_of(part).axes else ():
            drawn = np.isfinite(part[metric.name].values).any()
            if drawn and (why := incomparable(part, metric)):
                by_reason.setdefault(why, []).append(metric)
        for why, alike in by_reason.items():
            found.append(([metric.name for metric in alike], _of(data), why, _fix(part, alike)))
    return found


def _no_front(runs: xr.Dataset, metrics: Sequence[Metric]) -> list[str]:
    """Returns a line of text for each data set whose settings have no Pareto front of the metrics."""
    lines = []
    for data, part in by_data_set(runs):
        means = [mean_ci(part, metric.name)["mean"].values for metric in metrics[:2]]
        why = directions(part, metrics)[1]
        if not why and not np.isfinite(means).all(axis=0).any():
            why = f"no setting has a finite mean of both {metrics[0].name} and {metrics[1].name}"
        if why:
            lines.append(f"no front{_of(data)}: {why}{_fix(part, metrics)}")
    return lines


def _of(data: str) -> str:
    return f" of {data}" if data else ""


def _fix(runs: xr.Dataset, wanted: Sequence[Metric]) -> str:
    differing = list(dict.fromkeys(name for metric in wanted for name in unlike(runs, metric.name)))
    if not differing:
        return ""
    # The values are those of one run, because no run may have the first value of every parameter.
    known = np.stack([has(runs, name) for name in differing])
    one = int(np.argmax(known.sum(axis=0)))
    places = [one if there[one] else int(np.argmax(there)) for there in known]
    values = {n: runs[n].values[place].item() for n, place in zip(differing, places, strict=True)}
    chosen = ",".join(f"{_short(runs, name)}={written(value)}" for name, value in values.items())
    return f". Choose one value: --where {chosen}"


def _short(runs: xr.Dataset, name: str) -> str:
    """Returns the first alias of a parameter, or its name if there is no alias."""
    aliases, _ = parameters_in(runs).get(name, ((), ""))
    return aliases[0] if aliases else name
