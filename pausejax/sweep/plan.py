"""From a checked study to its runs, and from runs to groups that share one compiled program."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import Any

from pausejax.sweep.spec import Study
from pausejax.sweep.vocabulary import Vocabulary, vocabulary


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
        document = {
            "algorithm": self.algorithm,
            "seed": self.seed,
            "values": dict(self.values),
            "mode": study.mode,
            "rounds": study.rounds,
            "eval_every": study.eval_every,
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


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

    @property
    def axes(self) -> tuple[str, ...]:
        """Parameters that take more than one value within some policy."""
        values: dict[tuple[str, str], set[Any]] = {}
        for run in self.runs:
            for name, value in run.values.items():
                values.setdefault((run.policy, name), set()).add(value)
        swept = {name for (_, name), seen in values.items() if len(seen) > 1}
        return tuple(name for name in vocabulary(self.study.mode).parameters if name in swept)


def make_plan(study: Study) -> Plan:
    """Expands a study into runs (policy-major, then axes, then seeds) and groups them by static part."""
    words = vocabulary(study.mode)
    runs = tuple(
        Run(policy.label, policy.algorithm, seed, values)
        for policy in study.policies
        for values in _grid(study, policy.algorithm, {**study.axes, **policy.axes})
        for seed in study.seeds
    )
    groups: dict[Any, list[int]] = {}
    for position, run in enumerate(runs):
        groups.setdefault((run.algorithm, _static(run.values, words)), []).append(position)
    return Plan(
        study,
        runs,
        tuple(
            Group(algorithm, {k: v for k, v in static if k in words.parameters}, tuple(members))
            for (algorithm, static), members in groups.items()
        ),
    )


def _grid(study: Study, algorithm: str, axes: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    words = vocabulary(study.mode)
    names = [name for name in axes if words.is_read(name, study.mode, algorithm)]
    return [
        dict(zip(names, point, strict=True)) for point in itertools.product(*(axes[name] for name in names))
    ]


def _static(values: Mapping[str, Any], words: Vocabulary) -> tuple[tuple[str, Any], ...]:
    static = [(name, value) for name, value in values.items() if not words.parameters[name].traced]
    # The proximal term costs a pass over the weights, so programs without it leave it out.
    return (*static, ("", values.get("proximal_weight", 0.0) > 0))
