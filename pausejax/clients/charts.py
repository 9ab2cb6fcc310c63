"""Draws the charts of client selection: leakage, regrets, accuracy, participation."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from pausejax.analysis import metrics_of
from pausejax.analysis.mean_curves import Samples, samples, smooth, without_diverged
from pausejax.analysis.quantities import Metric
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import has, values_of
from pausejax.clients.variables import METRICS
from pausejax.plotting.chart import Chart
from pausejax.plotting.curves import AXES, Drawn, clocks_of, curves, mean_chart
from pausejax.plotting.data import Axis
from pausejax.plotting.grid import Grid, Line
from pausejax.privacy import PROTECTED

_SHARES = np.linspace(0.0, 100.0, 41)
"""Percentages of clients at which the chart of quantiles over clients has a point."""
_GAP_ROUNDS = 20
"""Number of rounds in the trailing mean of the gap to the exact maximum."""

DRAWN = frozenset(
    (
        *("elapsed", "max_leakage", "selected", "counts"),
        *("num_clients", "clients_per_round"),
    )
)
"""Variables and coordinates that these charts need."""


def charts(result: xr.Dataset, grid: Grid, *, smoothing: int) -> list[Chart]:
    """Returns all charts for which a result has the data.

    Args:
      result: the result of a study of client selection.
      grid: assigns runs to panels and lines.
      smoothing: number of evaluations that the trailing mean averages.
    """
    known = metrics_of(result)
    found = []
    tests = [one for one in known.values() if one.label and result[one.variable].dims == ("run", "eval")]
    for metric in tests:
        of_task = _of_lines(grid, _evaluated_by(metric, tests))
        if of_task.panels:
            found += [curves(of_task, metric, against, smoothing=smoothing) for against in clocks_of(result)]
    leakage = known["max_leakage"]
    y = Axis(leakage.axis_label, zero=True)
    found += [curves(grid, leakage, against, y=y, levels=_budget) for against in clocks_of(result)]
    selecting = _of_lines(grid, _selects_m)
    regrets = (
        ("cumulative_pseudo_regret", Axis("round", "log"), 0.1),
        # Realized regret may be negative in a round, so the scale is linear over a wider range around 0.
        ("cumulative_regret", None, 10),
        ("cumulative_expected_regret", None, 0.1),
    )
    for name, x, linear in regrets:
        if selecting.panels and name in known:
            found.append(_regret(selecting, known[name], x, linear=linear))
    if "selection_gap" in result:
        found.append(_selection_gap(grid))
    tenths = [metric for metric in known.values() if metric.reduce in ("lowest_tenth", "highest_tenth")]
    found += [_of_clients(grid, metric) for metric in tenths if "client" in result[metric.variable].dims]
    for name, metric in known.items():
        # Quantities that the user has registered; built-in metrics have other charts.
        if name not in METRICS and metric.label and result[metric.variable].dims == ("run", "round"):
            found.append(curves(grid, metric))
    if len(grid.panels) == 1 and selecting.panels:
        chart = _participation(selecting)
        found += [chart] if chart else []
    return found


def omitted(result: xr.Dataset, grid: Grid) -> list[str]:
    """Returns messages about the lines that the charts of regret and participation leave out, and why."""
    lines = {line.label: line for cell in grid.panels for line in cell.lines}
    large = [label for label, line in lines.items() if not _selects_m(line.runs)]
    why = "not in the charts of regret and participation, because some cohorts exceed clients_per_round"
    found = [f"{why}: {some(large)}"] if large else []
    if len(grid.panels) > 1:
        found.append("no chart of participation: it is drawn only for one panel. Select one panel by --where")
    mixed = [label for label, line in lines.items() if not _of_one_size(line.runs)]
    if mixed:
        why = "not in the chart of participation, because their runs differ in the number of clients"
        found.append(f"{why}: {some(mixed)}")
    return found


def _of_lines(grid: Grid, kept: Callable[[xr.Dataset], bool]) -> Grid:
    """Returns a grid with the lines for which `kept` is true, without empty panels."""
    cells = [
        cell._replace(lines=tuple(line for line in cell.lines if kept(line.runs))) for cell in grid.panels
    ]
    panels = tuple(cell for cell in cells if cell.lines)
    return grid._replace(panels=panels, columns=max(min(grid.columns, len(panels)), 1))


def _evaluated_by(metric: Metric, tests: Sequence[Metric]) -> Callable[[xr.Dataset], bool]:
    """Returns a function that says whether runs belong in the chart of a task's metric.

    Runs with a value of the metric do, and runs that have no value of any task's metric.
    """

    def has_value(runs: xr.Dataset, one: Metric) -> bool:
        return not np.isnan(runs[one.variable].values).all()

    def belong(runs: xr.Dataset) -> bool:
        return has_value(runs, metric) or not any(has_value(runs, one) for one in tests)

    return belong


def _budget(drawn: Drawn) -> tuple[tuple[str, float], ...]:
    """Returns the label and the value of the privacy budget, for a horizontal line; else ().

    There is a line if all private runs have the same budget and a leakage reaches half of it.
    """
    private = [line.runs for line, _ in drawn if not np.isinf(line.runs["max_leakage"].values).any()]
    if not all("privacy_budget" in runs.coords and has(runs, "privacy_budget").all() for runs in private):
        return ()  # a mechanism without a privacy budget
    budgets = {value for runs in private for value in np.unique(runs["privacy_budget"].values).tolist()}
    if len(budgets) != 1:
        return ()
    (budget,) = budgets
    if max(np.nanmax(runs["max_leakage"].values) for runs in private) < budget / 2:
        return ()
    told = [runs for runs in private if "clip" in runs.coords]
    clips = {clip for runs in told for clip in values_of(runs, "clip")} or {"vector"}
    protected = PROTECTED[min(clips)] if len(clips) == 1 else ""
    return ((f"budget ε̄ = {budget:g} {protected}".strip(), budget),)


def _regret(grid: Grid, metric: Metric, x: Axis | None, *, linear: float) -> Chart:
    """Draws a cumulative regret on a symlog scale, which is linear between -`linear` and `linear`."""
    drawn = curves(grid, metric, x=x)
    means = [one.y for panel in drawn.panels for one in panel.series]
    # Only means decide whether the axis starts at 0. An interval may reach below 0 even if no regret is
    # negative.
    zero = not any((mean < 0).any() for mean in means)
    y = Axis(metric.axis_label, "symlog", zero=zero, linear=linear)
    panels = tuple(dataclasses.replace(panel, y=y) for panel in drawn.panels)
    return Chart(drawn.name, drawn.caption, panels, drawn.columns)


def _selection_gap(grid: Grid) -> Chart:
    """Draws how far the cohorts' objective (14) is below its exact maximum, as a trailing mean."""
    metric = Metric("selection_gap", "each", False, "1", "gap to the maximum of (14)", name="selection_gap")

    def explored(line: Line) -> Samples:
        x, values, seeds = samples(line.runs, metric)
        there = np.isfinite(values).all(axis=0)
        return Samples(x[there], smooth(values[:, there], _GAP_ROUNDS), seeds)

    cells = [(cell.title, [(line, explored(line)) for line in cell.lines]) for cell in grid.panels]
    what = (
        f"Exact maximum of (14) minus the value of (14) for the selected cohort, as a trailing mean of "
        f"{_GAP_ROUNDS} rounds. A line has the rounds in which all of its runs have explored all available "
        "clients"
    )
    y = Axis(metric.meaning, zero=True)
    return mean_chart("selection_gap_vs_round", what, cells, grid, AXES["round"], y)


def _of_clients(grid: Grid, tenth: Metric) -> Chart:
    """Draws a variable of clients from the worst client to the best, as quantiles over clients."""
    rising = tenth.reduce == "lowest_tenth"

    def quantiles(line: Line) -> Samples:
        runs = without_diverged(line.runs)
        values = runs[tenth.variable].values.astype(np.float64) * tenth.scale
        there = ~np.isnan(values).all(axis=1)
        shares = _SHARES if rising else 100 - _SHARES
        found = np.nanpercentile(values[there], shares, axis=1) if there.any() else np.zeros((len(shares), 0))
        return Samples(_SHARES, found.T, runs["seed"].values[there])

    words = tenth.variable.removeprefix("client_").replace("_", " ")
    unit = "%" if tenth.scale == 100 else "" if tenth.units == "1" else tenth.units
    what = (
        f"{words} of each client's model on the client's held-out samples, from the worst client to the best"
    )
    cells = [(cell.title, [(line, quantiles(line)) for line in cell.lines]) for cell in grid.panels]
    y = Axis(f"{words} of a client{f' ({unit})' if unit else ''}")
    x = Axis("clients, worst first (% of all clients)", zero=True)
    return mean_chart(f"{tenth.variable}_by_rank", what, cells, grid, x, y, learned=True)


def _participation(grid: Grid) -> Chart | None:
    """Draws how often each client was selected, one panel for each line whose runs have the same K."""
    cells = []
    for line in (line for cell in grid.panels for line in cell.lines if _of_one_size(line.runs)):
        counts = line.runs["counts"].values
        clients = np.flatnonzero((counts >= 0).all(axis=0))
        found = Samples(clients, counts[:, clients], line.runs["seed"].values)
        cells.append((line.label, [(line, found)]))
    if not cells:
        return None
    what, x = "Number of rounds in which each client was selected", Axis("client index")
    y, grid = Axis("rounds selected", zero=True), grid._replace(columns=min(len(cells), 4))
    return mean_chart("participation", what, cells, grid, x, y, levels=_equal, mark="point")


def _equal(drawn: Drawn) -> tuple[tuple[str, float], ...]:
    ((_, found),) = drawn
    return (("equal share", float(found.values.mean())),) if found.x.size else ()


def _of_one_size(runs: xr.Dataset) -> bool:
    """Returns whether all runs have the same number of clients."""
    return len(np.unique((runs["counts"].values >= 0).sum(axis=1))) <= 1


def _selects_m(runs: xr.Dataset) -> bool:
    sizes = (runs["selected"].values >= 0).sum(axis=2)
    return bool((sizes <= runs["clients_per_round"].values[:, None]).all())
