"""The metrics of a run: how each is computed from a variable, and in which direction it is better."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import COUNTS, Metric, metrics_in

# Largest gap that counts as 0. Values of (14) are about 10, so their float32 rounding error is about 1e-6.
_EXACT = 1e-5


def is_count(name: str, values: np.ndarray) -> bool:
    """Returns whether -1 stands for no value in a variable: in integers, and in counts that became floats.

    `xarray` makes floats of integers if it adds missing values, for example in `where` or `concat`.
    """
    return values.dtype.kind in "iu" or name in COUNTS


def recorded(name: str, values: np.ndarray) -> np.ndarray:
    """Returns the values of a variable, in the same shape, with NaN where a run recorded no value."""
    return np.where(values < 0, np.nan, values) if is_count(name, values) else values


def last(values: np.ndarray) -> np.ndarray:
    """Returns the last value of each row that is not NaN, [runs]; NaN if all values of the row are NaN."""
    present = ~np.isnan(values)
    place = values.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1)
    found = np.take_along_axis(values, place[:, None], axis=1)[:, 0]
    return np.where(present.any(axis=1), found, np.nan)


def at_end(values: np.ndarray, rounds: np.ndarray, played: np.ndarray) -> np.ndarray:
    """Returns `values`, [runs, n], with NaN everywhere but in the last column that each run recorded.

    So the last value of a run is never one of an earlier round.

    Args:
      values: the values of n rounds or evaluations, [runs, n].
      rounds: the rounds of the columns, [n].
      played: number of rounds that each run played, [runs].
    """
    ends = np.max(np.where(rounds <= played[:, None], rounds, 0), axis=1)
    return np.where(rounds == ends[:, None], values, np.nan)


def rounds_played(values: np.ndarray) -> np.ndarray:
    """Returns the number of the last recorded round of each run, [runs]; 0 if there is none."""
    present = ~np.isnan(values)
    return np.where(present.any(axis=1), values.shape[1] - np.argmax(present[:, ::-1], axis=1), 0)


def total(values: np.ndarray) -> np.ndarray:
    """Returns the sum of `values`, [runs, rounds], over the recorded rounds, float64 [runs]; NaN if there are
    none."""
    present = ~np.isnan(values)
    summed = np.where(present, values, 0).sum(axis=1, dtype=np.float64)
    return np.where(present.any(axis=1), summed, np.nan)


def mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean of `values`, [runs, rounds], over the recorded rounds, float64 [runs]."""
    return total(values) / np.maximum((~np.isnan(values)).sum(axis=1), 1)


def mean_latency(elapsed: np.ndarray) -> np.ndarray:
    """Returns the mean number of simulated seconds per round, [runs]."""
    return last(elapsed) / np.maximum(rounds_played(elapsed), 1)


def imbalance(counts: np.ndarray) -> np.ndarray:
    """Returns the total variation distance of the clients' shares of participation from equal shares.

    The shape is [runs]. The distance is 0 if all clients took part equally often. It is 1 - m/K if the same m
    of K clients took part in every round, and NaN if no client took part.

    Args:
      counts: number of rounds in which each client took part, [runs, clients]; -1 stands for no client.
    """
    clients = counts >= 0
    counts = np.where(clients, counts, 0).astype(np.float64)
    number, total = clients.sum(axis=1, keepdims=True), counts.sum(axis=1, keepdims=True)
    # All terms are integers, so the sum is exact up to 2^53, and permuted counts have equal distances.
    apart = np.where(clients, np.abs(number * counts - total), 0).sum(axis=1)
    distance = apart / np.maximum(2 * number * total, 1)[:, 0]
    return np.where(counts.any(axis=1), distance, np.nan)


def mean_gap(gap: np.ndarray) -> np.ndarray:
    """Returns each run's mean gap to the exact maximum of (14), [runs].

    The mean is over the rounds after all clients were explored; NaN without such rounds.
    """
    return mean(np.where(np.isfinite(gap), gap, np.nan))


def exact_share(gap: np.ndarray) -> np.ndarray:
    """Returns the share of the rounds after all clients were explored in which (14) was at its maximum.

    The shape is [runs]; NaN without such rounds.
    """
    explored = np.isfinite(gap).sum(axis=1)
    exact = (gap <= _EXACT).sum(axis=1) / np.maximum(explored, 1)
    return np.where(explored > 0, exact, np.nan)


def lowest_tenth(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the lowest tenth of the values of each row that are not NaN, float64 [runs].

    The tenth of n values is n / 10 rounded up. The mean is NaN if all values of a row are NaN.

    Args:
      values: values of each client, [runs, clients].
    """
    present = ~np.isnan(values)
    tenth = -(-present.sum(axis=1) // 10)
    ascending = np.sort(values, axis=1).astype(np.float64)  # NaN comes last
    lowest = np.arange(values.shape[1]) < tenth[:, None]
    total = np.where(lowest, ascending, 0).sum(axis=1)
    return np.where(tenth > 0, total / np.maximum(tenth, 1), np.nan)


def highest_tenth(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the highest tenth of the values of each row that are not NaN, float64 [runs]."""
    return -lowest_tenth(-values)


def spread(values: np.ndarray) -> np.ndarray:
    """Returns the standard deviation of the values of each row that are not NaN, float64 [runs].

    The divisor is the number of values, not this number minus 1. The result is NaN if all values are NaN.

    Args:
      values: values of each client, [runs, clients].
    """
    present = ~np.isnan(values)
    count = np.maximum(present.sum(axis=1), 1)
    mean = np.where(present, values, 0).sum(axis=1, dtype=np.float64) / count
    with np.errstate(invalid="ignore"):  # infinite values have no standard deviation
        squares = np.where(present, np.square(values.astype(np.float64) - mean[:, None]), 0).sum(axis=1)
    return np.where(present.any(axis=1), np.sqrt(squares / count), np.nan)


REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "last": last,
    "at_end": last,  # of values that `at_end` has left
    "rounds_played": rounds_played,
    "total": total,
    "mean": mean,
    "each": mean,  # the curve of such a metric shows the value of each round
    "mean_latency": mean_latency,
    "imbalance": imbalance,
    "mean_gap": mean_gap,
    "exact_share": exact_share,
    "itself": lambda values: values,
    "lowest_tenth": lowest_tenth,
    "highest_tenth": highest_tenth,
    "spread": spread,
}
"""Functions from the values of runs, [runs, n] with NaN after the last round, to one number per run,
[runs]."""


def _running_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean of each run's values so far, [runs, n]; NaN where `_running_total` is NaN."""
    count = np.cumsum(~np.isnan(values), axis=1)
    return _running_total(values) / np.maximum(count, 1)


def _running_total(values: np.ndarray) -> np.ndarray:
    """Returns the cumulative sums of each run's values, [runs, n].

    The sums are NaN before the first value of a run and after the last one.
    """
    present = ~np.isnan(values)
    summed = np.cumsum(np.where(present, values, 0), axis=1, dtype=np.float64)
    begun = np.logical_or.accumulate(present, axis=1)
    follows = np.logical_or.accumulate(present[:, ::-1], axis=1)[:, ::-1]
    return np.where(begun & follows, summed, np.nan)


def _running_share(gap: np.ndarray) -> np.ndarray:
    return _running_mean(np.where(np.isfinite(gap), gap <= _EXACT, np.nan))


RUNNING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "last": lambda values: values,
    "at_end": lambda values: values,
    "total": _running_total,
    "mean": _running_mean,
    "each": lambda values: values,
    "mean_latency": lambda elapsed: elapsed / np.arange(1, elapsed.shape[1] + 1),
    "mean_gap": lambda gap: _running_mean(np.where(np.isfinite(gap), gap, np.nan)),
    "exact_share": _running_share,
}
"""Functions from values [runs, n] to the metric after every round, [runs, n], by name in `REDUCTIONS`.

Reductions that have no such curve are absent.
"""


def metrics_of(result: xr.Dataset) -> dict[str, Metric]:
    """Returns the metrics that a result has the data for, by name.

    Raises:
      ValueError: the result lacks rounds before its last round, or the evaluation of its last round.
    """
    _refuse_selected_rounds(result)
    table = metrics_in(result)
    return {name: metric for name, metric in table.items() if metric.variable in result or name in result}


def _refuse_selected_rounds(result: xr.Dataset) -> None:
    """Checks that a result has all of its rounds, and that its last round is evaluated.

    Otherwise means and sums would lack rounds. Participation would be that of all rounds. Accuracy and time
    would be those of different rounds. Ensembles are not checked: all their metrics are the last value of a
    variable that counts from round 1.

    Raises:
      ValueError: rounds or evaluations were selected.
    """
    if result.attrs.get("kind") != "clients" or "round" not in result.coords:
        return
    rounds = result["round"].values
    whole = rounds.size >= result.attrs.get("rounds", 0)
    fits = whole and np.array_equal(rounds, np.arange(1, rounds.size + 1))
    if fits and "eval_round" in result.coords:
        evaluated = np.atleast_1d(result["eval_round"].values)
        fits = np.array_equal(evaluated[-1:], rounds[-1:])
    if not fits:
        raise ValueError(
            "result: rounds or evaluations were selected. Metrics and curves need all of them. Select rounds "
            "of a variable instead, such as result.reward.sel(round=slice(21, 40))"
        )


def direction(result: xr.Dataset, name: str, maximize: bool | None) -> bool:
    """Returns whether a larger value of a metric is better.

    Returns `maximize` if it is given, else what the result's table of metrics says.

    Raises:
      ValueError: neither the caller nor the table says which way is better.
    """
    known = metrics_of(result).get(name)
    if maximize is None and known is not None:
        maximize = known.maximize
    if maximize is None:
        raise ValueError(
            f"metric {name!r}: neither more nor less is better by definition. Give maximize=True or "
            "maximize=False; for a quantity of your own, give it to the decorator"
        )
    return maximize
