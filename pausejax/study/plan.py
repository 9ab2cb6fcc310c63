"""From a checked study to its runs, and from runs to groups that share one compiled program."""

from collections.abc import Mapping, Sequence
from typing import Any

from pausejax.study.axes import points
from pausejax.study.study import Group, Plan, PolicySpec, Run, Study


def make_plan(study: Study) -> Plan:
    """Expands a study into runs (policy-major, then axes, then seeds) and groups them by static part.

    Points of a policy that agree in everything it reads are one point.
    """
    runs = [
        Run(policy.label, policy.algorithm, seed, values)
        for policy in study.policies
        for values in _grid(study, policy)
        for seed in study.seeds
    ]
    return plan_of(study, runs)


def plan_of(study: Study, runs: Sequence[Run]) -> Plan:
    """Groups runs by what their programs are made of."""
    groups: dict[Any, list[int]] = {}
    shapes: dict[int, Any] = {}
    for place, run in enumerate(runs):
        # The seeds of a setting share one mapping of values.
        if id(run.values) not in shapes:
            shapes[id(run.values)] = program_key(study, run.algorithm, run.values)
        groups.setdefault(shapes[id(run.values)], []).append(place)
    found = (
        Group(number, algorithm, dict(static), tuple(members))
        for number, ((algorithm, static, _), members) in enumerate(groups.items())
    )
    return Plan(study, tuple(runs), tuple(found))


def program_key(study: Study, algorithm: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What runs that share a compiled program have in common: algorithm, static values, and what else shapes.

    The proximal term costs a pass over the weights, so programs without it leave it out.
    """
    static = tuple((name, value) for name, value in values.items() if not _is_traced(study, name))
    return algorithm, static, study.kind.shape(values)


def _is_traced(study: Study, name: str) -> bool:
    return study.words.parameters[name].traced


def _grid(study: Study, policy: PolicySpec) -> list[dict[str, Any]]:
    """The distinct points of a policy, over the parameters that it reads."""
    names = read_by(study, policy.algorithm)
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points(study.factors[policy.label], names):
        drop_unread(study, policy.algorithm, point)
        distinct.setdefault(tuple(point.items()), point)
    return list(distinct.values())


def read_by(study: Study, algorithm: str) -> list[str]:
    """The parameters that some run of a policy may depend on, in the vocabulary's order."""
    return [name for name in study.axes if study.words.is_read(name, study.mode, algorithm)]


def drop_unread(study: Study, algorithm: str, point: dict[str, Any]) -> None:
    """Takes out of a point, which holds all that is `read_by` the policy, what a run there does not read."""
    for name in list(point):
        if not study.words.is_read_at(name, algorithm, point):
            del point[name]
