"""From the records of rounds, segment by segment, to what a chunk's runs leave in the result."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pausejax.results import layout
from pausejax.results.layout import Arrays
from pausejax.study.spec import Study


class Segment(NamedTuple):
    """What some rounds in a row have recorded."""

    first_round: int
    lanes: np.ndarray
    """int [n], the chunk's places that were played; one may be there again as padding."""
    records: Arrays
    """By variable, [n, rounds, ...]."""

    @property
    def last_round(self) -> int:
        return self.first_round + self.records["round_latency"].shape[1] - 1


def to_host(first: int, lanes: np.ndarray, record: Any, rounds: int) -> Segment:
    """The records of a segment, [rounds, n, ...] on the devices, without the rows beyond the last round."""
    played = min(record.reward.shape[0], rounds + 1 - first)
    records = {
        name: np.moveaxis(np.asarray(leaf[:played]), 0, 1)
        for name, leaf in record._asdict().items()
        if leaf is not None
    }
    return Segment(first, lanes, records)


def running(segments: Sequence[Segment], lanes: int, stop_at_latency: float) -> np.ndarray:
    """The places below `lanes` of the runs that have not reached a simulated time, ascending."""
    elapsed = np.zeros(lanes)
    for segment in segments:
        real = segment.lanes < lanes
        # Repeated places hold the same run, so it does not matter which of them is kept.
        so_far = segment.records["round_latency"].sum(axis=1, dtype=np.float64)
        added = np.zeros(lanes)
        added[segment.lanes[real]] = so_far[real]
        elapsed += added
    return np.flatnonzero(elapsed < stop_at_latency)


def finish(study: Study, segments: Sequence[Segment], lanes: int, num_clients: int) -> Arrays:
    """What the runs of a chunk leave in the result, each up to the round in which it stops.

    Args:
      study: of mode "training" or "bandit".
      segments: all rounds that were played, in order.
      lanes: how many places of the chunk are no padding.
      num_clients: K.
    """
    table = layout.variables(study.mode)
    history = _history(study, segments, lanes)
    history["elapsed"] = np.cumsum(history["round_latency"], axis=1, dtype=np.float64)
    evaluated = layout.evaluated_rounds(study.rounds, study.eval_every)
    for name in ("test_accuracy", "test_loss"):
        history[name] = history[name][:, evaluated - 1]
    last = np.full(lanes, study.rounds)
    if study.stop_at_latency:
        reached = history["elapsed"] >= study.stop_at_latency
        last = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, last)
        for name, array in history.items():
            rounds = evaluated if "eval" in table[name].dims else np.arange(1, study.rounds + 1)
            array[rounds > last[:, None]] = table[name].fill
    history["diverged_round"] = history["diverged_round"][np.arange(lanes), last - 1]
    members = np.where(history["selected"] < 0, num_clients, history["selected"]).reshape(lanes, -1)
    history["counts"] = np.stack(
        [np.bincount(run, minlength=num_clients + 1)[:num_clients] for run in members]
    )
    absent = () if study.mode == "training" else layout.LEARNING_VARIABLES
    for name in (*absent, *(() if study.selection_gap else ("selection_gap",))):
        del history[name]
    return {name: np.asarray(array, table[name].dtype) for name, array in history.items()}


def _history(study: Study, segments: Sequence[Segment], lanes: int) -> Arrays:
    """All rounds' records in order, [lanes, rounds, ...]; what was not played holds fill values."""
    table = layout.variables(study.mode)
    history = {
        name: np.full((lanes, study.rounds, *part.shape[2:]), table[name].fill, part.dtype)
        for name, part in segments[0].records.items()
    }
    for segment in segments:
        real = segment.lanes < lanes
        rounds = slice(segment.first_round - 1, segment.last_round)
        for name, part in segment.records.items():
            history[name][segment.lanes[real], rounds] = part[real]
    return history
