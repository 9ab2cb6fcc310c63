"""From a checked study to its runs, and from runs to groups that share one compiled program."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pausejax.study.axes import points
from pausejax.study.spec import PolicySpec, Study
from pausejax.study.vocabulary import Vocabulary, vocabulary


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: all that its numbers depend on."""

    policy: str
    """The label in results."""
    algorithm: str
    seed: int
    values: Mapping[str, Any]
    """Every parameter that this run reads."""

    def identity(self, study: Study) -> str:
        """A hash of everything that the run's numbers depend on; not of its place in the study."""
        return _identity(_settings(self, study), self.seed)


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that one compiled program serves."""

    algorithm: str
    static: Mapping[str, Any]
    """Values of the static parameters that the runs read."""
    members: tuple[int, ...]
    """Positions in the plan's `runs`."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a study comes to. Nothing is computed yet."""

    study: Study
    runs: tuple[Run, ...]
    groups: tuple[Group, ...]

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Parameters that take more than one value within some policy."""
        seen: dict[tuple[str, str], Any] = {}
        swept: set[str] = set()
        for run in self._points:
            for name, value in run.values.items():
                if seen.setdefault((run.policy, name), value) != value:
                    swept.add(name)
        return tuple(name for name in vocabulary(self.study.mode).parameters if name in swept)

    @functools.cached_property
    def identities(self) -> tuple[str, ...]:
        """The identity of every run."""
        settings = {id(run.values): _settings(run, self.study) for run in self._points}
        return tuple(_identity(settings[id(run.values)], run.seed) for run in self.runs)

    @property
    def _points(self) -> Iterator[Run]:
        """One run of each point: its seeds share one mapping of values."""
        return iter({id(run.values): run for run in self.runs}.values())


def make_plan(study: Study) -> Plan:
    """Expands a study into runs (policy-major, then axes, then seeds) and groups them by static part.

    Points of a policy that agree in everything it reads are one point.
    """
    words = vocabulary(study.mode)
    runs: list[Run] = []
    groups: dict[Any, list[int]] = {}
    for policy in study.policies:
        for values in _grid(study, policy, words):
            members = groups.setdefault((policy.algorithm, _static(values, words)), [])
            members += range(len(runs), len(runs) + len(study.seeds))
            runs += [Run(policy.label, policy.algorithm, seed, values) for seed in study.seeds]
    return Plan(
        study,
        tuple(runs),
        tuple(
            Group(algorithm, {k: v for k, v in static if k in words.parameters}, tuple(members))
            for (algorithm, static), members in groups.items()
        ),
    )


def _grid(study: Study, policy: PolicySpec, words: Vocabulary) -> list[dict[str, Any]]:
    """The distinct points of a policy, over the parameters that it reads."""
    names = [name for name in study.axes if words.is_read(name, study.mode, policy.algorithm)]
    conditions = {name: words.conditions[name] for name in names if name in words.conditions}
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points(study.factors[policy.label], names):
        unread = [name for name, (other, readers) in conditions.items() if point[other] not in readers]
        for name in unread:
            del point[name]
        distinct.setdefault(tuple(point.items()), point)
    return list(distinct.values())


def _settings(run: Run, study: Study) -> str:
    """Everything but the seed that a run's numbers depend on, in one spelling."""
    document = {
        "algorithm": run.algorithm,
        "values": dict(run.values),
        "mode": study.mode,
        "rounds": study.rounds,
        "eval_every": study.eval_every,
    }
    # Left out where it is off: what a study does not use changes no identity.
    for key in ("selection_gap", "stop_at_latency"):
        if setting := getattr(study, key):
            document[key] = setting
    return json.dumps(document, sort_keys=True)


def _identity(settings: str, seed: int) -> str:
    return hashlib.sha256(f"{settings}{seed}".encode()).hexdigest()[:16]


def _static(values: Mapping[str, Any], words: Vocabulary) -> tuple[tuple[str, Any], ...]:
    static = [(name, value) for name, value in values.items() if not words.parameters[name].traced]
    # The proximal term costs a pass over the weights, so programs without it leave it out.
    return (*static, ("", values.get("proximal_weight", 0.0) > 0))
