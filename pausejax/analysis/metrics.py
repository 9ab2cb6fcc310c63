"""The figures that describe a run, and which way is better: one table for each kind of study."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

# (14) is of the order of ten, so float32 rounding is of the order of 1e-6.
_EXACT = 1e-5


class Metric(NamedTuple):
    """One figure per run, computed from one variable of a result."""

    variable: str
    reduce: Callable[[np.ndarray], np.ndarray]
    """Values [runs, n], NaN after a run's last round -> [runs]."""
    maximize: bool | None
    """Which way is better; None where neither is."""
    units: str
    meaning: str
    learned: bool = False
    """Whether it has no meaning for a model that ceased to be finite."""


def last(values: np.ndarray) -> np.ndarray:
    """The last value of each row that is not NaN, [runs]; NaN where there is none."""
    present = ~np.isnan(values)
    place = values.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1)
    found = np.take_along_axis(values, place[:, None], axis=1)[:, 0]
    return np.where(present.any(axis=1), found, np.nan)


def rounds_played(values: np.ndarray) -> np.ndarray:
    """How many rounds each run has recorded, [runs]."""
    present = ~np.isnan(values)
    return np.where(present.any(axis=1), values.shape[1] - np.argmax(present[:, ::-1], axis=1), 0)


def total(values: np.ndarray) -> np.ndarray:
    """The sum over the recorded rounds, float64 [runs]; NaN where there are none."""
    present = ~np.isnan(values)
    summed = np.where(present, values, 0).sum(axis=1, dtype=np.float64)
    return np.where(present.any(axis=1), summed, np.nan)


def mean(values: np.ndarray) -> np.ndarray:
    """The mean over the recorded rounds, float64 [runs]."""
    return total(values) / np.maximum((~np.isnan(values)).sum(axis=1), 1)


def mean_latency(elapsed: np.ndarray) -> np.ndarray:
    """Simulated seconds per round, [runs]."""
    return last(elapsed) / np.maximum(rounds_played(elapsed), 1)


def imbalance(counts: np.ndarray) -> np.ndarray:
    """Total variation distance of the participation shares from equal ones, [runs]; -1 pads.

    0 where all clients took part equally often, 1 - m/K where the same m did every time.
    """
    clients = counts >= 0
    counts = np.where(clients, counts, 0)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    equal = clients / np.maximum(clients.sum(axis=1, keepdims=True), 1)
    distance = np.abs(share - equal).sum(axis=1) / 2
    return np.where(counts.any(axis=1), distance, np.nan)


def mean_gap(gap: np.ndarray) -> np.ndarray:
    """Mean of the gap over the rounds after everybody was explored, [runs]; NaN if there is none."""
    return mean(np.where(np.isfinite(gap), gap, np.nan))


def exact_share(gap: np.ndarray) -> np.ndarray:
    """Share of the rounds after everybody was explored in which (14) was at its maximum, [runs]."""
    explored = np.isfinite(gap).sum(axis=1)
    exact = (gap <= _EXACT).sum(axis=1) / np.maximum(explored, 1)
    return np.where(explored > 0, exact, np.nan)


def _identity(values: np.ndarray) -> np.ndarray:
    return values


CLIENTS: Mapping[str, Metric] = {
    "test_accuracy": Metric("test_accuracy", last, True, "1", "final test accuracy", learned=True),
    "test_loss": Metric("test_loss", last, False, "nat", "final test loss", learned=True),
    "train_loss": Metric("train_loss", last, False, "nat", "local loss in the last round", learned=True),
    "elapsed": Metric("elapsed", last, False, "s", "simulated time of the whole run"),
    "mean_latency": Metric("elapsed", mean_latency, False, "s", "simulated time per round"),
    "rounds_played": Metric("elapsed", rounds_played, None, "1", "rounds that the run lasted"),
    "max_leakage": Metric("max_leakage", last, False, "1", "largest scheduled leakage of any client"),
    "max_leakage_update": Metric(
        "max_leakage_update", last, False, "1", "largest leakage of a whole update vector"
    ),
    "cumulative_reward": Metric("reward", total, True, "1", "sum of the rewards (9)"),
    "cumulative_regret": Metric("regret", total, False, "1", "cumulative realized regret (15)"),
    "cumulative_pseudo_regret": Metric("pseudo_regret", total, False, "1", "cumulative pseudo-regret"),
    "cumulative_regret_own_history": Metric(
        "regret_own_history", total, False, "1", "cumulative regret against a genie's own trajectory"
    ),
    "participation_imbalance": Metric(
        "counts", imbalance, False, "1", "total variation distance of participation from equal shares"
    ),
    "mean_selection_gap": Metric(
        "selection_gap", mean_gap, False, "1", "mean loss in (14) once everybody was explored"
    ),
    "exact_share": Metric(
        "selection_gap", exact_share, True, "1", "share of those rounds in which (14) was at its maximum"
    ),
    "diverged_round": Metric(
        "diverged_round", _identity, None, "1", "round in which the model ceased to be finite; 0: never"
    ),
}
ENSEMBLE: Mapping[str, Metric] = {
    "mse": Metric("mse", last, False, "1", "mean squared error"),
    "best_expert_mse": Metric("best_expert_mse", last, None, "1", "mean squared error of the best model"),
    "regret": Metric("regret", last, False, "1", "cumulative regret, (10)"),
    "realized_regret": Metric("realized_regret", last, False, "1", "cumulative regret of incurred losses"),
    "regret_bound": Metric("regret_bound", last, None, "1", "bound (11) on the regret"),
    "violations": Metric("violations", last, False, "1", "share of rounds that cost more than the budget"),
    "cost": Metric("cost", last, False, "1", "mean cost sent per round; largest model = 1"),
}


def metrics_of(result: xr.Dataset) -> dict[str, Metric]:
    """The metrics that a result has the data for, by name."""
    table = ENSEMBLE if result.attrs.get("mode") == "ensemble" else CLIENTS
    return {name: metric for name, metric in table.items() if metric.variable in result or name in result}


def direction(result: xr.Dataset, name: str, maximize: bool | None) -> bool:
    """Whether more of a metric is better: what the caller says, or else the table.

    Raises:
      ValueError: neither says so.
    """
    known = metrics_of(result).get(name)
    if maximize is None and known is not None:
        maximize = known.maximize
    if maximize is None:
        raise ValueError(f"metric {name!r}: neither way is better by itself; say maximize=True or False")
    return maximize


def attributes(metric: Metric) -> dict[str, Any]:
    return {"units": metric.units, "long_name": metric.meaning}
