"""What is asked of a search, and whether it can be had."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from pausejax.searches.goal import Goal
from pausejax.searches.sampler import SAMPLERS
from pausejax.study.reader import MAX_SEED
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

# Rounds between two looks, or a little more: short enough for early rungs, long enough for the devices.
_STEP = 25
_REDUCTION = 3.0

MOST_ROUNDS = 10**12
"""Of a budget; more is a slip of the finger."""
MOST_FRESH = 2**20
_LEAST_SECONDS, _MOST_SECONDS = 1e-6, 1e9


class Options(NamedTuple):
    """What is asked of a search."""

    budget: int
    """Rounds × runs that may be played."""
    metrics: tuple[str, ...] = ()
    """Figures per run; without one the study's own."""
    maximize: bool | None = None
    """Which way is better, where the table of metrics does not say."""
    constraints: tuple[str, ...] = ()
    """As "max_leakage<=50"."""
    at_round: int | None = None
    """Settings are compared at this round; None: the study's last."""
    at_latency: float | None = None
    """Settings are compared at this simulated time, seconds."""
    sampler: str = "tpe"
    """One of `sampler.SAMPLERS`."""
    sampler_seed: int = 0
    reduction: float | None = None
    """Of those at a rung one in so many goes on; 1 stops nobody. None: 3 with a first rung, else 1."""
    first_rung: float | None = None
    """A round, or a time; None: one halving before the end."""
    most: int | None = None
    """The most runs side by side; None: what the devices are good for."""
    device_memory: int | None = None
    """Bytes that a program may use on each device; None: what there is."""
    data_placement: str | None = None
    """Where training inputs lie, as `Engine` says."""

    @property
    def stopping(self) -> float:
        """The reduction, settled."""
        if self.reduction is None:
            return 1.0 if self.first_rung is None else _REDUCTION
        return self.reduction


def up_to(study: Study, options: Options) -> Study:
    """The study up to the horizon.

    Raises:
      SpecError: there is none in it.
    """
    if not study.rounds:
        raise SpecError(["rounds: a search needs to know how many rounds a run has"])
    if study.stop_at_latency:
        raise SpecError(["stop_at_latency: not in a search; --at-latency says where settings are compared"])
    if (options.at_round or 0) > study.rounds:
        raise SpecError([f"--at-round {options.at_round}: must be at most rounds = {study.rounds}"])
    rounds = options.at_round or study.rounds
    document = {**study.document, "rounds": rounds}
    if options.at_latency is not None:
        document["stop_at_latency"] = options.at_latency
    return dataclasses.replace(
        study, rounds=rounds, stop_at_latency=options.at_latency or 0.0, document=document
    )


def step_of(study: Study) -> int:
    """Rounds between two looks: a multiple of those between two evaluations, so that all meet in them.

    Raises:
      SpecError: settings would be compared in a round without an evaluation.
    """
    table = study.kind.variables(study)
    if not any(table[m.variable].dims[:1] == ("eval",) for m in study.kind.metrics(study).values()):
        return min(_STEP, study.rounds)
    if study.rounds % study.eval_every:
        raise SpecError(
            [
                f"eval_every = {study.eval_every}: must divide the {study.rounds} rounds after which "
                "settings are compared"
            ]
        )
    return study.eval_every * max(_STEP // study.eval_every, 1)


def check(options: Options) -> None:
    """Sees to it that every option by itself is one.

    Raises:
      SpecError: with a line for each that is not.
    """
    if problems := list(_problems(options)):
        raise SpecError(problems)


def _problems(options: Options) -> Iterator[str]:
    if not _is_count(options.budget, MOST_ROUNDS):
        yield f"--budget {options.budget}: must be a number of rounds x runs, from 1 to {MOST_ROUNDS:,}"
    for option, given in (("--metric", options.metrics), ("--constraint", options.constraints)):
        if not isinstance(given, tuple) or not all(isinstance(one, str) for one in given):
            yield f"{option} {given!r}: must be texts"
    if options.maximize not in (None, True, False):
        yield f"--maximize {options.maximize!r}: must be true, false or left out"
    elif options.maximize is not None and len(options.metrics) > 1:
        told = "of several metrics each goes the way that is better by itself"
        yield f"--{'maximize' if options.maximize else 'minimize'}: with one metric; {told}"
    if options.at_round is not None and options.at_latency is not None:
        yield "--at-round and --at-latency: one of them, not both"
    if options.at_round is not None and not _is_count(options.at_round, 2**31):
        yield f"--at-round {options.at_round!r}: must be a round, an integer from 1"
    if options.at_latency is not None and not _is_between(options.at_latency, _LEAST_SECONDS, _MOST_SECONDS):
        yield f"--at-latency {options.at_latency!r}: must be a time from {_LEAST_SECONDS:g} to 1e9 seconds"
    if options.sampler not in SAMPLERS:
        yield f"--sampler {options.sampler}: must be one of {', '.join(SAMPLERS)}"
    if not (options.sampler_seed == 0 or _is_count(options.sampler_seed, MAX_SEED)):
        yield f"--sampler-seed {options.sampler_seed!r}: must be an integer from 0 to {MAX_SEED}"
    if options.reduction not in (None, 1) and not _is_between(options.reduction, 1.1, 1e6):
        yield f"--reduction {options.reduction!r}: must be from 1.1 to 1e6, or 1, which stops nobody"
    if options.first_rung is not None and not _is_between(options.first_rung, _LEAST_SECONDS, _MOST_SECONDS):
        yield f"--first-rung {options.first_rung!r}: must be above 0, a round or a time"
    if options.first_rung is not None and options.reduction == 1:
        yield "--first-rung: not with --reduction 1, which stops nobody"


def check_fresh(study: Study, seeds: Any) -> None:
    """Sees to it that there are so many seeds that the study does not use.

    Raises:
      SpecError: there are not.
    """
    if not _is_count(seeds, MOST_FRESH):
        raise SpecError([f"--fresh-seeds {seeds!r}: must be an integer from 1 to {MOST_FRESH:,}"])
    if max(study.seeds) + seeds > MAX_SEED:
        there = f"seeds end at {MAX_SEED}, and the spec uses {max(study.seeds)}"
        raise SpecError([f"--fresh-seeds {seeds}: {there}"])


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_between(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and low <= value <= high


def check_budget(study: Study, options: Options, goal: Goal, step: int) -> None:
    """Sees to it that one setting can come to the end, as far as that can be known before it is played.

    Raises:
      SpecError: it can't.
    """
    runs = len(study.seeds)
    rounds = step if goal.by_latency else study.rounds
    if options.budget < runs * rounds:
        what = f"{rounds} rounds" + ", after which settings are looked at" * goal.by_latency
        least = f"must be at least {runs * rounds}, one setting's {runs} runs of {what}"
        raise SpecError([f"--budget {options.budget}: {least}"])
