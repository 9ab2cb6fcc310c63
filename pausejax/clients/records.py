"""Conversion of the records of rounds, in segments, to the arrays of runs in the result."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pausejax.analysis.quantities import Variable
from pausejax.clients.inputs import StaticConfig
from pausejax.clients.variables import KEPT, OVERLAPPING, REGRETS
from pausejax.parts import PartError
from pausejax.policies.check import Fault, refuse_faults
from pausejax.privacy import Leakage
from pausejax.rounding import reaches, within
from pausejax.study.simulation import Arrays, Segment
from pausejax.study.spec import SpecError
from pausejax.study.study import Study


def evaluated_rounds(rounds: int, eval_every: int) -> np.ndarray:
    """Returns the evaluated rounds, int32 [evaluations]: every `eval_every`-th round and the last round."""
    return np.unique(np.append(np.arange(eval_every, rounds + 1, eval_every), rounds)).astype(np.int32)


def to_host(first: int, positions: np.ndarray, record: Any, rounds: int) -> Segment:
    """Copies a segment's records to the host as [n, rounds, ...], without rounds beyond the last round T."""
    played = min(record.round_latency.shape[0], rounds + 1 - first)
    fields = record._asdict()
    for name in ("fault", "lost"):  # `refuse` reads them
        fields.pop(name, None)
    fields |= fields.pop("own")
    records = {
        name: np.moveaxis(np.asarray(leaf)[:played], 0, 1)
        for name, leaf in fields.items()
        if leaf is not None
    }
    return Segment(first, first + played - 1, positions, records)


def refuse(config: StaticConfig, segment: Segment, record: Any) -> None:
    """Checks the rounds of a segment for invalid values from parts outside the package.

    Args:
      config: the static values of the segment.
      segment: the segment, from `to_host`.
      record: the segment's `Record`, [rounds, runs].

    Raises:
      PartError: a part has returned an invalid value. The message names the part and the round.
    """
    played = segment.last_round + 1 - segment.first_round
    if record.fault is not None:
        faults = Fault(*(np.asarray(leaf)[:played].T for leaf in record.fault))
        selected = segment.records["selected"]
        refuse_faults(config.policy.part, faults, selected, config.num_clients, segment.first_round)
    if config.law.part.outside:
        unfit = ~np.isfinite(segment.records["round_latency"]).all(axis=0)
        if unfit.any():
            number = segment.first_round + int(np.argmax(unfit))
            what = "a latency or its expectation is not finite"
            raise PartError(f"{config.law.part.where}: round {number}: {what}")
    if config.ending.part.outside:
        duration = segment.records["round_latency"]
        wrong = {
            "the duration must be finite and >= 0, factors in [0, 1], clients may continue only with "
            "Ending(waiting=…), and all updates must count with waits_for_all": ~(
                np.isfinite(duration) & (duration >= 0)
            ),
            "more clients finish or still train than the ending has slots": np.zeros_like(duration, bool)
            if record.lost is None
            else np.asarray(record.lost)[:played].T,
        }
        for problem, where in wrong.items():
            if where.any():
                number = segment.first_round + int(np.argmax(where.any(axis=0)))
                raise PartError(f"{config.ending.part.where}: round {number}: {problem}")


def running(segments: Sequence[Segment], positions: np.ndarray, stop_at_latency: float) -> np.ndarray:
    """Returns whether each run has not yet reached the simulated time `stop_at_latency`, bool [n].

    `positions`, int [n], are distinct positions of runs in the batch. `stop_at_latency` is in seconds.
    """
    elapsed = np.zeros(len(positions))
    for segment in segments:
        here, there = _places(segment, positions)
        elapsed[here] += segment.records["round_latency"][there].sum(axis=1, dtype=np.float64)
    return ~reaches(elapsed, stop_at_latency)


def _places(segment: Segment, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the runs of a segment that are also in `positions`, which are distinct positions in the batch.

    Returns the indices of these runs in `positions`, and their indices in the segment.
    """
    played, there = np.unique(segment.positions, return_index=True)
    order = np.argsort(positions)
    here = np.searchsorted(positions, played, sorter=order).clip(max=len(positions) - 1)
    found = positions[order[here]] == played
    return order[here][found], there[found]


def finish(
    study: Study, segments: Sequence[Segment], positions: np.ndarray, num_clients: int, metric: str
) -> tuple[Arrays, np.ndarray]:
    """Returns the arrays of the runs at distinct positions, each run up to the round in which it stops.

    The program may have played later rounds of this run: up to the end of a segment, or until it dropped the
    run. The arrays hold fill values in these rounds.

    Args:
      study: a study of client selection.
      segments: all rounds that were played, in order.
      positions: int [n], the positions of the runs.
      num_clients: K, the number of clients.
      metric: the name of the variable for the test metric.

    Returns:
      The arrays by variable, and a second value that is no variable of the result: the largest number of
      releases of any client up to each round, int [n, rounds]. It is −1 after the end of a run.
    """
    table = study.outputs.variables
    segments = [segment._replace(records=_named(segment.records, metric)) for segment in segments]
    history = _history(study, table, segments, positions)
    history["elapsed"] = np.cumsum(history["round_latency"], axis=1, dtype=np.float64)
    released, releases = history.pop("released", history["selected"]), history.pop("max_releases")
    evaluated = evaluated_rounds(study.rounds, study.eval_every)
    history = {name: array for name, array in history.items() if name in table}
    for name in history:
        if "eval" in table[name].dims:
            history[name] = history[name][:, evaluated - 1]
    last = _last_played(segments, positions)
    if study.stop_at_latency:
        reached = reaches(history["elapsed"], study.stop_at_latency)
        last = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, last)
        for name, array in history.items():
            rounds = evaluated if "eval" in table[name].dims else np.arange(1, study.rounds + 1)
            array[rounds > last[:, None]] = table[name].fill
    if "diverged_round" in history:
        history["diverged_round"] = history["diverged_round"][np.arange(len(positions)), last - 1]
    selected = history["selected"]
    history["counts"] = _count(selected, selected >= 0, num_clients)
    released = np.where(np.isnan(history["round_latency"])[:, :, None], -1, released)
    history["releases"] = _count(released, released >= 0, num_clients)
    found = {name: np.asarray(array, table[name].dtype) for name, array in history.items()}
    ended = np.isnan(found["round_latency"])
    return complete(table, found), np.where(ended, -1, releases)


_ALWAYS = ("test_loss", "counts", "releases")
"""Variables that have the dimensions of a task's metric but exist for every task."""


def complete(table: Mapping[str, Variable], arrays: Arrays) -> Arrays:
    """Returns the arrays of runs, with the variables of the study that these runs did not record.

    Runs record only what their settings can change. A count that the settings fix gets its true value in
    every played round: 0 failed clients, 0 late clients, all clients available. Other variables get fill
    values: regrets of rounds that do not wait for all clients, metrics of other tasks, models that are not
    kept, and variables of overlapping rounds.

    Args:
      table: the variables of the study, by name.
      arrays: the arrays of the runs, by name; arrays that are not in the table are left out.
    """
    found = {name: arrays[name] for name in table if name in arrays}
    played = ~np.isnan(arrays["elapsed"])
    everyone = (arrays["counts"] >= 0).sum(axis=1, keepdims=True)
    for name, fixed in (("failed_count", 0), ("late_count", 0), ("available_count", everyone)):
        if name in table:
            fill = table[name].fill
            kept = found.get(name, np.full(played.shape, fill))
            found[name] = np.where(played & (kept == fill), fixed, kept).astype(table[name].dtype)
    lengths: dict[str, int] = {}
    for name, array in found.items():
        lengths |= dict(zip(table[name].dims, array.shape[1:], strict=True))
    for name, variable in table.items():
        measured = variable.dims in (("eval",), ("client",)) and name not in _ALWAYS
        if name not in found and (measured or name in (*REGRETS, *OVERLAPPING, *KEPT)):
            shape = (len(played), *(lengths.get(dim, 0) for dim in variable.dims))
            found[name] = np.full(shape, variable.fill, variable.dtype)
    return found


def ledger(config: StaticConfig, files: Arrays, hyper: Arrays, releases: np.ndarray) -> Arrays:
    """Computes the leakage of the client with the most releases, after every round of some runs.

    Args:
      config: the static values of the runs.
      files: tables that all runs share.
      hyper: traced hyper-parameters by name, float32 [n] each.
      releases: int [n, rounds], the number of the client's releases so far; -1 after a run has ended.

    Returns:
      `max_leakage` and `max_leakage_update`, float32 [n, rounds]; NaN after a run has ended.
    """
    learning, played = config.learning, releases >= 0

    def leakage(values: Arrays, releases: np.ndarray) -> Leakage:
        mechanism = config.build_mechanism(values, files)
        return mechanism.leakage(np.maximum(releases, 0), learning.num_parameters if learning else 1)

    if config.mechanism.part.outside:  # a user's function is written for the numbers of one run
        runs = [{name: values[run] for name, values in hyper.items()} for run in range(len(releases))]
        alone = [leakage(values, row) for values, row in zip(runs, releases, strict=True)]
        found = Leakage(*map(np.stack, zip(*alone, strict=True)))
    else:
        found = leakage({name: values[:, None] for name, values in hyper.items()}, releases)
    if learning and learning.in_the_clear:
        leaked = np.where(releases > 0, np.float32(np.inf), np.float32(0))
        found = found._replace(release=leaked, update=leaked)
    return {
        "max_leakage": np.where(played, found.release, np.float32(np.nan)),
        "max_leakage_update": np.where(played, found.update, np.float32(np.nan)),
    }


def release_limit(config: StaticConfig, files: Arrays, hyper: Arrays, rounds: int) -> np.ndarray:
    """Computes how many updates a client may release before its leakage would exceed `stop_at_epsilon`.

    Args:
      config: the static values of the runs.
      files: tables that all runs share.
      hyper: traced hyper-parameters by name, float32 [n] each.
      rounds: the number of rounds of a run, which is also the largest number of releases.

    Returns:
      float32 [n], whole numbers.
    """
    limit = hyper["stop_at_epsilon"]
    releases = np.broadcast_to(np.arange(rounds + 1), (len(limit), rounds + 1))
    spent = ledger(config, files, hyper, releases)["max_leakage"]
    # A limit that is computed as the leakage of n releases allows n releases.
    return (within(spent, limit[:, None]).sum(axis=1) - 1).clip(0).astype(np.float32)


def refuse_limits(config: StaticConfig, files: Arrays, hyper: Arrays) -> None:
    """Checks that the `stop_at_epsilon` of every run is at least the leakage of one release.

    Args:
      config: the static values of the runs.
      files: tables that all runs share.
      hyper: traced hyper-parameters by name, float32 [n] each.

    Raises:
      SpecError: the `stop_at_epsilon` of a run is smaller.
    """
    limit = hyper["stop_at_epsilon"]
    spent = ledger(config, files, hyper, np.ones((len(limit), 1), int))["max_leakage"][:, 0]
    if not (kept := within(spent, limit)).all():
        place = int(np.argmin(kept))
        least = f"must be >= {spent[place]!s}, the leakage of a client's first release"
        raise SpecError([f"privacy.stop_at_epsilon = {limit[place]:g}: {least}"])


def _count(selected: np.ndarray, counts: np.ndarray, num_clients: int) -> np.ndarray:
    """Counts how often each client is in the slots of `selected`, [n, rounds, slots], for which `counts` is
    true, int [n, K]."""
    members = np.where(counts, selected, num_clients).reshape(len(selected), -1)
    return np.stack([np.bincount(run, minlength=num_clients + 1)[:num_clients] for run in members])


def _named(records: Arrays, metric: str) -> Arrays:
    return {metric if name == "test_metric" else name: part for name, part in records.items()}


def _last_played(segments: Sequence[Segment], positions: np.ndarray) -> np.ndarray:
    """Returns the last played round of each run, int [n], given distinct positions in the batch."""
    last = np.zeros(len(positions), int)
    for segment in segments:
        here, _ = _places(segment, positions)
        last[here] = segment.last_round
    return last


def _history(
    study: Study, table: Mapping[str, Variable], segments: Sequence[Segment], positions: np.ndarray
) -> Arrays:
    """Returns the records of all rounds of the runs at distinct positions in the batch, [n, rounds, ...].

    Rounds that were not played hold fill values.
    """
    fills = {name: variable.fill for name, variable in table.items()} | {"released": -1, "arrived": -1}
    history = {
        name: np.full((len(positions), study.rounds, *part.shape[2:]), fills.get(name, False), part.dtype)
        for name, part in segments[0].records.items()
    }
    for segment in segments:
        here, there = _places(segment, positions)
        rounds = slice(segment.first_round - 1, segment.last_round)
        for name, part in segment.records.items():
            history[name][here, rounds] = part[there]
    return history
