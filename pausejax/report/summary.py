"""The table at the end of a run: one row per policy and axis value, mean ± 95 % interval over seeds."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from rich import box
from rich.table import Table
from rich.text import Text

from pausejax.report.statistics import band, healthy, lines

_COLUMNS: tuple[tuple[str, str, Callable[[xr.Dataset], np.ndarray], str], ...] = (
    ("final\naccuracy, %", "test_accuracy", lambda r: 100 * r["test_accuracy"].values[:, -1], ".1f"),
    ("simulated\ntime, s", "elapsed", lambda r: r["elapsed"].values[:, -1], ".1f"),
    ("maximum\nleakage", "max_leakage", lambda r: r["max_leakage"].values[:, -1], ".1f"),
    ("… of the\nupdate", "max_leakage_update", lambda r: r["max_leakage_update"].values[:, -1], ".2e"),
    ("cumulative\nregret", "regret", lambda r: r["regret"].values.sum(axis=1, dtype=np.float64), ".1f"),
    ("mean gap\nin (14)", "selection_gap", lambda r: mean_gap(r), ".3f"),
    ("rounds\nexact, %", "selection_gap", lambda r: 100 * exact_share(r), ".1f"),
)


def summary_table(result: xr.Dataset) -> Table:
    """Per policy and axis value: final accuracy, simulated time, leakage and regret over the seeds."""
    columns = [column for column in _COLUMNS if column[1] in result]
    seeds = len(np.unique(result["seed"].values))
    noun = "seed" if seeds == 1 else "seeds"
    table = Table(
        title=f"mean ± 95 % interval over {seeds} {noun}", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("policy", overflow="fold")
    for heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines(result):
        cells = [_measured(line.runs, name, read, shown) for _, name, read, shown in columns]
        table.add_row(Text(line.label), *cells)
    return table


_LEARNED = ("test_accuracy",)


def _measured(runs: xr.Dataset, name: str, read: Callable[[xr.Dataset], np.ndarray], shown: str) -> str:
    """One cell; what a diverged model learned does not count, and the cell says how many runs are left."""
    kept = healthy(runs) if name in _LEARNED else runs
    if not kept.sizes["run"]:
        return "–"
    left, every = kept.sizes["run"], runs.sizes["run"]
    return cell(read(kept), shown) + (f" ({left}/{every})" if left < every else "")


def mean_gap(runs: xr.Dataset) -> np.ndarray:
    """Mean of the gap over the rounds after everybody was explored, [runs]; NaN if there is none."""
    gap = runs["selection_gap"].values
    explored = np.isfinite(gap).sum(axis=1)
    return np.where(explored > 0, np.nansum(gap, axis=1) / np.maximum(explored, 1), np.nan)


def exact_share(runs: xr.Dataset) -> np.ndarray:
    """Share of the rounds after everybody was explored in which (14) was at its maximum, [runs].

    Up to float32 rounding of values that are of the order of ten.
    """
    gap = runs["selection_gap"].values
    return (gap <= 1e-5).sum(axis=1) / np.maximum(np.isfinite(gap).sum(axis=1), 1)


def diverged_runs(result: xr.Dataset) -> list[str]:
    """One line per run whose model ceased to be finite."""
    if "diverged_round" not in result:
        return []
    broken = np.flatnonzero(result["diverged_round"].values)
    return [
        f"diverged in round {int(result['diverged_round'][i])}: {result['policy'].values[i]}, "
        f"seed {int(result['seed'][i])}, run {result['identity'].values[i]}"
        for i in broken
    ]


def cell(samples: np.ndarray, shown: str) -> str:
    """Mean ± half-width of the 95 % interval, in a number format."""
    if np.isinf(samples).all():
        return "∞"
    mean, half_width = (float(number) for number in band(samples))
    return f"{mean:{shown}}" if np.isnan(half_width) else f"{mean:{shown}} ± {half_width:{shown}}"
