"""Draws the growth of cumulative pseudo-regret, its law in the last decade of rounds, and Theorem 3's bound.

    pausejax run sweeps/regret_growth.toml --out out/regret_growth
    python scripts/regret_growth.py out/regret_growth --picture docs/images/regret_growth.png [--by AXIS ...]

The law is fitted to the lowest line. The bound is that of Theorem 3, (17), with the smallest gap in μ as δ. A
line that averages settings with different bounds has no bound.
"""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr

import pausejax
from pausejax import network, parts, regret
from pausejax.analysis.selecting import some
from pausejax.analysis.settings import group, runs_table
from pausejax.plotting.chart import Chart, Panel, Series
from pausejax.plotting.grid import arrange

CHART = "cumulative_pseudo_regret_vs_round"
_POINTS = 60
# With fewer rounds, the laws can't be distinguished.
_ROUNDS = 1000
_WEIGHTS = ("generalization_weight", "privacy_weight")


class Growth(NamedTuple):
    """Law that fits a curve best."""

    law: str
    """Formula of the law; only that of a power has its fitted exponent."""
    rounds: np.ndarray
    """Rounds to which the law was fitted, [n]."""
    fitted: np.ndarray
    error: float
    """Root mean square of the relative errors."""


def growth(rounds: np.ndarray, mean: np.ndarray) -> Growth | None:
    """Fits a + b log n, a + b √n and c n^p over the last decade of rounds, and returns the best fit.

    The comparison of errors is fair, because each law has two fitted numbers. The rounds are spread evenly
    over log n, and errors are relative. Other laws may fit almost as well, and later rounds may differ.

    Args:
      rounds: the numbers of the rounds, [n], ascending from 1.
      mean: the cumulative regret, [n]; NaN after the end of the runs.

    Returns:
      The best law; None with fewer than 1,000 rounds, or if the curve is not positive or does not grow.
    """
    there = np.isfinite(mean)
    rounds, mean = rounds[there], mean[there]
    if not rounds.size or rounds[-1] < _ROUNDS:
        return None
    places = np.searchsorted(rounds, np.geomspace(rounds[-1] / 10, rounds[-1], _POINTS).round())
    n, value = rounds[np.unique(places)].astype(np.float64), mean[np.unique(places)].astype(np.float64)
    if value[0] <= 0 or value[-1] <= value[0]:
        return None
    found = [
        _linear("a + b log n", n, value, np.log),
        _linear("a + b √n", n, value, np.sqrt),
        _power(n, value),
    ]
    return min(found, key=lambda one: one.error)


def _linear(law: str, n: np.ndarray, value: np.ndarray, shape: Callable[[np.ndarray], np.ndarray]) -> Growth:
    slope, level = np.polyfit(shape(n), value, 1, w=1 / value)
    return _fit(law, n, value, level + slope * shape(n))


def _power(n: np.ndarray, value: np.ndarray) -> Growth:
    exponent, level = np.polyfit(np.log(n), np.log(value), 1)
    return _fit(f"∝ n^{exponent:.2f}", n, value, np.exp(level + exponent * np.log(n)))


def _fit(law: str, n: np.ndarray, value: np.ndarray, fitted: np.ndarray) -> Growth:
    return Growth(law, n, fitted, float(np.sqrt(np.mean((fitted / value - 1) ** 2))))


def regret_bound_of(runs: xr.Dataset) -> np.ndarray | None:
    """Computes the bound (17) of Theorem 3 that some runs share, [round]; None if their bounds differ."""
    table = runs_table(runs).drop(columns=["policy", "seed"])
    first = group(table, list(table.columns))[1]
    bounds = [_bound_of(runs.isel(run=place)) for place in first]
    shared = all(np.array_equal(bounds[0], other, equal_nan=True) for other in bounds)
    return bounds[0] if shared else None


def _bound_of(run: xr.Dataset) -> np.ndarray:
    """Computes the bound of one run, [round], with the smallest gap in μ as δ.

    The bound is NaN if the result does not hold everything that defines the run's latency law.
    """
    part = parts.registered_parts().of("latency").get(str(run["latency"].values))
    # A result holds neither the content of files nor the size of a model. A user's law may not be registered.
    files = part and any(parameter.kind is parts.File for parameter in part.parameters.values())
    if part is None or files or any(name not in run for name in part.given):
        return np.full(run.sizes["round"], np.nan)
    law = parts.bind(part, {name: run[name].item() for name in part.reads if name in run}, ["min_latency"])
    values = {name: float(run[name]) for name in {*law.traced, "min_latency", *_WEIGHTS} if name in run}
    if not {"min_latency", *_WEIGHTS} <= values.keys():
        return np.full(run.sizes["round"], np.nan)
    sizes = (int(run["num_clients"]), int(run["clients_per_round"]))
    if not 1 <= sizes[1] <= sizes[0] <= run.sizes["client"]:
        return np.full(run.sizes["round"], np.nan)
    return np.asarray(_bound(law, *sizes, values, np.float32(run["round"].values)))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _bound(
    law: parts.Bound, num_clients: int, m: int, values: Mapping[str, jax.Array], rounds: jax.Array
) -> jax.Array:
    floor = values["min_latency"]
    mu = network.expected_reward(network.floored(law.build(**values), floor), floor)
    largest = regret.gap_bound(mu, *(values[name] for name in _WEIGHTS))
    return regret.regret_bound(rounds, num_clients, m, largest, regret.smallest_gap(mu))


def chart_of(result: xr.Dataset, by: Sequence[str] = ()) -> Chart:
    """Makes the chart of cumulative pseudo-regret with its law of growth and its bounds.

    Args:
      result: a result, from `pausejax.open`.
      by: the axis of the lines, then the axes of columns and rows of panels, as for `pausejax.charts`.

    Raises:
      ValueError: the result has no such chart.
    """
    found, cells = pausejax.charts(result, by=by), arrange(result, by)
    if CHART not in found or cells is None:
        raise ValueError(
            f"no chart {CHART}: the result lacks the regret, or has too many settings. Name axes by --by"
        )
    runs = {(cell.title, line.label): line.runs for cell in cells.panels for line in cell.lines}
    panels = [
        explained(panel, {one.label: runs[panel.title, one.label] for one in panel.series})
        for panel in found[CHART].panels
    ]
    return dataclasses.replace(found[CHART], name="regret_growth", panels=tuple(panels))


def explained(panel: Panel, runs: Mapping[str, xr.Dataset]) -> Panel:
    """Returns a panel with the law of its lowest line, and with each different bound of its lines once."""
    series = list(panel.series)
    lowest = min(series, key=lambda one: np.nanmax(one.y, initial=0))
    if law := growth(lowest.x, lowest.y):
        few = np.linspace(0, len(law.rounds) - 1, 8).astype(int)
        label = f"last decade of {lowest.label}: {law.law}"
        series.append(Series(label, law.rounds[few], law.fitted[few], mark="cross", style=-1))
    bounds = {label: regret_bound_of(of_line) for label, of_line in runs.items()}
    different = {bound.tobytes(): bound for bound in bounds.values() if bound is not None}
    for bound in different.values():
        rounds = next(iter(runs.values()))["round"].values.astype(np.float64)
        series.append(Series("Theorem 3's bound (17)", rounds, bound.astype(np.float64), style=-1))
    notes = [panel.note] if panel.note else []
    if several := [label for label, bound in bounds.items() if bound is None]:
        notes.append(f"no bound of Theorem 3, because the bounds of the settings differ: {some(several)}")
    return dataclasses.replace(panel, series=tuple(series), note="; ".join(notes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="DIR", help="result of `pausejax run`")
    parser.add_argument("--picture", type=Path, required=True, metavar="PNG")
    parser.add_argument("--by", nargs="+", default=[], metavar="AXIS", help="axes of lines, columns and rows")
    options = parser.parse_args()
    try:
        chart = chart_of(pausejax.open(options.directory), options.by)
    except ValueError as mistake:
        raise SystemExit(f"{options.directory}: {mistake}") from mistake
    # The picture is tall, because nine decades lie between the regrets and the bound.
    chart.save(options.picture, *((5.0, 4.2) if len(chart.panels) == 1 else ()))


if __name__ == "__main__":
    main()
