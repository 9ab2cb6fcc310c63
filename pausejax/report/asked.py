"""What a reader asks for by name: measures, runs, and which axis is what, checked before it is drawn."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from pausejax.analysis import metrics_of
from pausejax.analysis.comparing import unlike
from pausejax.analysis.metrics import direction
from pausejax.analysis.quantities import Metric, metrics_in
from pausejax.analysis.selecting import select
from pausejax.report.grid import arrange
from pausejax.report.levels import Measure, measure_of
from pausejax.spelling import nearest

_PER_ROUND = (("run", "round"), ("run", "eval"))


def chosen(
    result: xr.Dataset,
    measures: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
) -> tuple[xr.Dataset, list[Measure]]:
    """The runs and measures that are asked for.

    Args:
      result: a result, or the outline of one.
      measures: names of metrics or of variables with a value for each round or evaluation.
      where: as in `analysis.select`.
      by: as in `grid.arrange`.

    Returns:
      The runs, whose table of metrics has every measure in it, and the measures.

    Raises:
      ValueError: one of the names is unknown, or there is no such run.
    """
    runs = select(result, where)
    found = []
    for name in dict.fromkeys(measures):
        name, metric, running = _named(runs, name)
        runs = _with_metric(runs, name, metric)
        found.append(measure_of(name, metric)._replace(running=running))
    if by:
        arrange(runs, by)
    return runs, found


def _named(result: xr.Dataset, name: str) -> tuple[str, Metric, str]:
    """The metric that a name means, by its own name, and how its curve is made."""
    table = metrics_of(result)
    if name in table:
        return name, table[name], table[name].reduce
    if name not in result.data_vars:
        known = [*table, *(str(v) for v in result.data_vars if result[v].dims in _PER_ROUND)]
        listed = ", ".join(dict.fromkeys(known))
        raise ValueError(f"measure: {name}: unknown here{nearest(name, known)}; known: {listed}")
    # Of what is added up over the rounds, single rounds are mostly noise.
    for other, metric in table.items():
        if metric.variable == name and metric.reduce == "total":
            return other, metric, metric.reduce
    array = result[name]
    if array.dims not in _PER_ROUND:
        made = [other for other, metric in table.items() if metric.variable == name]
        hint = f"; its measures: {', '.join(made)}" if made else ""
        raise ValueError(
            f"measure: {name}: has dims {', '.join(map(str, array.dims))}, no value a round{hint}"
        )
    units, meaning = array.attrs.get("units", "1"), array.attrs.get("long_name", name.replace("_", " "))
    return name, Metric(name, "mean", None, units, meaning), "last"


def _with_metric(result: xr.Dataset, name: str, metric: Metric) -> xr.Dataset:
    table = {**metrics_in(result), name: metric}
    return result.assign_attrs(metrics=json.dumps({key: value._asdict() for key, value in table.items()}))


def on_one_scale(runs: xr.Dataset, measure: Measure) -> str:
    """Why a measure is no amount of one thing over some runs; "" where it is."""
    differing = unlike(runs, measure.name)
    if not differing:
        return ""
    *others, last = differing
    return f"means something else for each {', '.join(others)}{' and ' if others else ''}{last}"


def ways_of(runs: xr.Dataset, measures: Sequence[Measure]) -> tuple[list[bool], str]:
    """Which way is better for each measure, and why they make no front; "" where they do."""
    for measure in measures:
        if why := on_one_scale(runs, measure):
            return [], f"{measure.name} {why}"
    try:
        return [direction(runs, measure.name, None) for measure in measures], ""
    except ValueError:
        neither = [m.name for m in measures if metrics_of(runs)[m.name].maximize is None]
        return [], f"neither way of {', '.join(neither)} is better"
