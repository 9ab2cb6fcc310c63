"""The options of a search, and checks of them."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from pausejax.study.reader import MAX_SEED
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

SAMPLERS = ("tpe", "cmaes", "nsga2", "random")

_MAX_TRIALS = 1_000_000
_MAX_FRESH_SEEDS = 2**20
_LEAST_SECONDS, _MOST_SECONDS = 1e-6, 1e9


class SearchOptions(NamedTuple):
    """The options of a search."""

    trials: int = 64
    """Number of settings to try."""
    metrics: tuple[str, ...] = ()
    """Names of the metrics to optimize; if empty, the first objective of the study."""
    maximize: bool | None = None
    """Whether a larger value of the metric is better; None: the metric's own direction."""
    constraints: tuple[str, ...] = ()
    """Bounds on metrics, such as "max_leakage<=50"."""
    at_round: int | None = None
    """The round at which settings are compared; None: the last round of the study."""
    at_latency: float | None = None
    """The simulated time in seconds at which settings are compared; None: at a round."""
    sampler: str = "tpe"
    """Name of the sampler, one of `SAMPLERS`."""
    sampler_seed: int = 0
    max_width: int | None = None
    """Largest number of runs of one program that are simulated together; None: the number that was measured
    for such devices."""

    @property
    def asked(self) -> dict[str, Any]:
        """The options that affect which settings are tried and how they are compared, by name."""
        return {name: value for name, value in self._asdict().items() if name != "max_width"}


def with_horizon(study: Study, options: SearchOptions) -> Study:
    """Returns the study with runs that end at the horizon.

    The horizon is the round or the simulated time at which settings are compared.

    Raises:
      SpecError: the study does not reach the horizon, or can not be searched.
    """
    if not study.rounds:
        raise SpecError(["rounds: must be set for a search"])
    if "elapsed" not in study.outputs.variables:
        raise SpecError([f'mode = "{study.mode}": a search needs a study of client selection'])
    if study.stop_at_latency:
        raise SpecError(["stop_at_latency: not allowed in a search. Use --at-latency instead"])
    if study.keep_models:
        raise SpecError(
            ["keep_models: not allowed in a search. Search first, then run the best settings with this key"]
        )
    if study.client_metrics and options.at_latency is not None:
        raise SpecError(
            ["client_metrics: not allowed with --at-latency: they are known only after the last round"]
        )
    if (options.at_round or 0) > study.rounds:
        raise SpecError([f"--at-round {options.at_round}: must be at most rounds = {study.rounds}"])
    rounds = options.at_round or study.rounds
    document = {**study.document, "rounds": rounds}
    if options.at_latency is not None:
        document["stop_at_latency"] = options.at_latency
    evaluates = any("eval" in variable.dims for variable in study.outputs.variables.values())
    if evaluates and rounds % study.eval_every:
        raise SpecError(
            [
                f"eval_every = {study.eval_every}: must divide {rounds}, the largest number of rounds of a "
                "run in this search"
            ]
        )
    return dataclasses.replace(
        study, rounds=rounds, stop_at_latency=options.at_latency or 0.0, document=document
    )


def check(options: SearchOptions) -> None:
    """Checks each option separately.

    Raises:
      SpecError: an option is wrong; the message has one line for each wrong option.
    """
    if problems := list(_problems(options)):
        raise SpecError(problems)


def _problems(options: SearchOptions) -> Iterator[str]:
    if not _is_count(options.trials, _MAX_TRIALS):
        yield f"--trials {options.trials!r}: must be an integer from 1 to {_MAX_TRIALS:,}"
    for option, given in (("--metric", options.metrics), ("--constraint", options.constraints)):
        if not isinstance(given, tuple) or not all(isinstance(one, str) for one in given):
            yield f"{option} {given!r}: must be strings"
    if options.maximize not in (None, True, False):
        yield f"--maximize {options.maximize!r}: must be true, false or left out"
    elif options.maximize is not None and len(options.metrics) > 1:
        told = "Leave it out: with several metrics, each metric defines whether more or less is better"
        yield f"--{'maximize' if options.maximize else 'minimize'}: allowed only with one metric. {told}"
    if options.at_round is not None and options.at_latency is not None:
        yield "--at-round, --at-latency: give only one of them"
    if options.at_round is not None and not _is_count(options.at_round, 2**31):
        yield f"--at-round {options.at_round!r}: must be an integer >= 1"
    if options.at_latency is not None and not _is_between(options.at_latency, _LEAST_SECONDS, _MOST_SECONDS):
        yield f"--at-latency {options.at_latency!r}: must be from {_LEAST_SECONDS:g} to 1e9 seconds"
    if options.sampler not in SAMPLERS:
        yield f"--sampler {options.sampler}: must be one of {', '.join(SAMPLERS)}"
    if not (options.sampler_seed == 0 or _is_count(options.sampler_seed, MAX_SEED)):
        yield f"--sampler-seed {options.sampler_seed!r}: must be an integer from 0 to {MAX_SEED}"


def check_fresh(study: Study, seeds: Any) -> None:
    """Checks that there are `seeds` further seeds after the largest seed of the study.

    Raises:
      SpecError: there are too few such seeds, or `seeds` is not a valid number.
    """
    if not _is_count(seeds, _MAX_FRESH_SEEDS):
        raise SpecError([f"--fresh-seeds {seeds!r}: must be an integer from 1 to {_MAX_FRESH_SEEDS:,}"])
    if max(study.seeds) + seeds > MAX_SEED:
        there = f"too many, because the largest seed is {MAX_SEED} and the spec uses {max(study.seeds)}"
        raise SpecError([f"--fresh-seeds {seeds}: {there}"])


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_between(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and low <= value <= high
