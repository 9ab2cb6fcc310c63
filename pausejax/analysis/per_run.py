"""Computes metrics of each run, one block of runs at a time, so that memory does not grow with runs."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis.metrics import REDUCTIONS, at_end, metrics_of, recorded
from pausejax.analysis.quantities import Metric, metrics_in

MAX_BYTES = 1 << 22
ROUNDS = "rounds_played"
"""Name of the metric that counts the rounds of a run."""


def run_blocks(*arrays: xr.DataArray, max_bytes: int = MAX_BYTES) -> Iterator[slice]:
    """Yields slices of the runs that cover all of them in order, cut where the stored chunks end.

    A slice has as many chunks of runs as fit into `max_bytes`, but at least one chunk.

    Args:
      *arrays: arrays with the leading dimension `run`, all of the same length.
      max_bytes: largest size in bytes of the values of one slice, summed over all arrays.
    """
    runs = arrays[0].sizes["run"]
    chunk = max(_stored_chunk(array) for array in arrays)
    row = sum(array.nbytes for array in arrays) / max(runs, 1)
    width = chunk * max(int(max_bytes / max(row * chunk, 1)), 1)
    for first in range(0, runs, width):
        yield slice(first, min(first + width, runs))


def _stored_chunk(array: xr.DataArray) -> int:
    """Returns the number of runs in a stored chunk of an array; 1 if the array is in memory only."""
    preferred = array.encoding.get("preferred_chunks") or {}
    chunks = array.encoding.get("chunks")
    return int(preferred.get("run", chunks[0] if chunks else 1))


def finals(result: xr.Dataset, metrics: Sequence[str] | None = None) -> xr.Dataset:
    """Computes the metrics of each run at its end.

    A run that stopped early counts up to its last recorded round. Learned metrics of a run that diverged are
    NaN, so means leave them out. A quantity of the user with `reduce="last"` has its value in the last round
    that the run played. Stored chunks are read one block of runs at a time.

    Args:
      result: the result, as `pausejax.open` or this function returns it.
      metrics: names in `metrics_of(result)`; default: all of them.

    Returns:
      A data set over `run`, with a variable for each metric and all coordinates of `run`. With a sum over
      rounds there is also `rounds_played`, because sums can be compared only over equally many rounds.

    Raises:
      ValueError: a metric is unknown, a metric is learned and the result lacks `diverged_round`, or a metric
        needs the last round that each run played and the result lacks `elapsed`.
    """
    known = metrics_of(result)
    wanted = list(known if metrics is None else metrics)
    for name in wanted:
        if name not in known:
            raise ValueError(f"metric {name!r}: must be one of {', '.join(known)}")
    if ROUNDS in known and ROUNDS not in wanted and any(known[name].is_sum for name in wanted):
        wanted.append(ROUNDS)
    columns: dict[str, np.ndarray] = {}
    ready = [name for name in wanted if name in result and result[name].dims == ("run",)]
    by_variable: dict[str, dict[str, Metric]] = {}
    for name in wanted:
        if name not in ready:
            by_variable.setdefault(known[name].variable, {})[name] = known[name]
    at_ends = [name for own in by_variable.values() for name in own if known[name].reduce == "at_end"]
    played = _played(result, at_ends[0]) if at_ends else None
    for variable, own in by_variable.items():
        columns |= _reduce(result[variable], own, played)
    if learned := [name for name in columns if known[name].learned]:
        broken = diverged(result)
        columns |= {name: np.where(broken, np.nan, columns[name]) for name in learned}
    data: dict[str, Any] = {}
    for name in wanted:
        described = {"units": known[name].units, "long_name": known[name].meaning}
        data[name] = result[name].variable if name in ready else ("run", columns[name], described)
    coords = {name: coord.variable for name, coord in result.coords.items() if coord.dims == ("run",)}
    return xr.Dataset(data, coords, result.attrs)


def with_divergence(result: xr.Dataset, metrics: Sequence[str]) -> xr.Dataset:
    """Returns the `finals` of some metrics, with the metric `diverged_round` if the result has it."""
    also = ["diverged_round"] if "diverged_round" in metrics_of(result) else []
    return finals(result, list(dict.fromkeys([*metrics, *also])))


def diverged(result: xr.Dataset) -> np.ndarray:
    """Returns which runs diverged, bool [run]; no run, if the study has nothing that can diverge.

    Raises:
      ValueError: the result lacks the variable `diverged_round`, which its study recorded.
    """
    if "diverged_round" in result:
        return result["diverged_round"].values > 0
    if "diverged_round" in metrics_in(result):
        raise ValueError(
            "result: lacks diverged_round, without which a diverged run would count with its last accuracy "
            'or loss. Select this variable too, such as result[["test_accuracy", "diverged_round"]]'
        )
    return np.zeros(result.sizes["run"], bool)


def is_sum(result: xr.Dataset, metric: str) -> bool:
    """Returns whether a metric is a sum over the rounds of a run."""
    known = metrics_of(result).get(metric)
    return known is not None and known.is_sum


def _played(result: xr.Dataset, metric: str) -> np.ndarray:
    """Returns the number of rounds that each run played, [runs], which `metric` needs."""
    if ROUNDS in result.coords:  # of ensembles
        return result[ROUNDS].values
    if "elapsed" not in result:
        raise ValueError(
            f"result: lacks elapsed, which tells in which round a run ended. {metric} needs it. Select this "
            f'variable too, such as result[["{metric}", "elapsed"]]'
        )
    counts = Metric("elapsed", "rounds_played", None, "1", "")
    return _reduce(result["elapsed"], {ROUNDS: counts}, None)[ROUNDS]


def _reduce(
    array: xr.DataArray, metrics: dict[str, Metric], played: np.ndarray | None
) -> dict[str, np.ndarray]:
    parts: dict[str, list[np.ndarray]] = {name: [] for name in metrics}
    for runs in run_blocks(array):
        values = array.isel(run=runs).values
        values = values if array.dims == ("run",) else recorded(str(array.name), values)
        for name, metric in metrics.items():
            kept = values
            if metric.reduce == "at_end" and played is not None:
                rounds = array["eval_round" if array.dims[1] == "eval" else "round"].values
                kept = at_end(values, rounds, played[runs])
            parts[name].append(REDUCTIONS[metric.reduce](kept))
    return {name: np.concatenate(part) if part else np.zeros(0) for name, part in parts.items()}
