"""From a checked study to its runs, and from runs to groups that share one compiled program."""

from typing import Any

from pausejax.study.axes import points
from pausejax.study.study import Group, Plan, PolicySpec, Run, Study


def make_plan(study: Study) -> Plan:
    """Expands a study into runs (policy-major, then axes, then seeds) and groups them by static part.

    Points of a policy that agree in everything it reads are one point.
    """
    runs: list[Run] = []
    groups: dict[Any, list[int]] = {}
    for policy in study.policies:
        for values in _grid(study, policy):
            static = tuple((n, v) for n, v in values.items() if not study.words.parameters[n].traced)
            # The proximal term costs a pass over the weights, so programs without it leave it out.
            shape = (policy.algorithm, static, study.kind.shape(values))
            members = groups.setdefault(shape, [])
            members += range(len(runs), len(runs) + len(study.seeds))
            runs += [Run(policy.label, policy.algorithm, seed, values) for seed in study.seeds]
    found = (
        Group(number, algorithm, dict(static), tuple(members))
        for number, ((algorithm, static, _), members) in enumerate(groups.items())
    )
    return Plan(study, tuple(runs), tuple(found))


def _grid(study: Study, policy: PolicySpec) -> list[dict[str, Any]]:
    """The distinct points of a policy, over the parameters that it reads."""
    words = study.words
    names = [name for name in study.axes if words.is_read(name, study.mode, policy.algorithm)]
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points(study.factors[policy.label], names):
        for name in names:
            if not words.is_read_at(name, policy.algorithm, point):
                del point[name]
        distinct.setdefault(tuple(point.items()), point)
    return list(distinct.values())
