"""What is asked of a search, and whether it can be had."""

import dataclasses
from typing import NamedTuple

from pausejax.searches.goal import Goal
from pausejax.searches.sampler import SAMPLERS
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

# Rounds between two looks, or a little more: short enough for early rungs, long enough for the devices.
_STEP = 25


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
    reduction: float = 3.0
    """Of those at a rung one in so many goes on; "1" stops nobody."""
    first_rung: float | None = None
    """A round, or a time; None: one halving before the end."""
    most: int | None = None
    """The most runs side by side; None: what the devices are good for."""
    device_memory: int | None = None
    """Bytes that a program may use on each device; None: what there is."""


def up_to(study: Study, options: Options) -> Study:
    """The study up to the horizon.

    Raises:
      SpecError: there is none in it.
    """
    if options.at_round is not None and options.at_latency is not None:
        raise SpecError(["--at-round and --at-latency: one of them, not both"])
    if not isinstance(options.at_round, int | None) or (options.at_round or 1) < 1:
        raise SpecError([f"--at-round {options.at_round}: must be a round, from 1"])
    if options.at_latency is not None and not 0 < options.at_latency < 1e9:
        raise SpecError([f"--at-latency {options.at_latency}: must be a time, above 0 and below 1e9 seconds"])
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
    problems = []
    if options.sampler not in SAMPLERS:
        problems.append(f"--sampler {options.sampler}: must be one of {', '.join(SAMPLERS)}")
    if not (options.reduction == 1 or 1.1 <= options.reduction <= 1e6):
        problems.append(f"--reduction {options.reduction:g}: must be at least 1.1, or 1, which stops nobody")
    if options.budget < 1:
        problems.append(f"--budget {options.budget}: must be a number of rounds, from 1")
    if problems:
        raise SpecError(problems)


def check_budget(study: Study, options: Options, goal: Goal) -> None:
    runs = len(study.seeds)
    least = runs * study.rounds
    if not goal.by_latency and options.budget < least:
        raise SpecError(
            [
                f"--budget {options.budget}: must be at least {least}, one setting's {runs} runs of "
                f"{study.rounds} rounds"
            ]
        )
