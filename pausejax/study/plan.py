"""Expands a checked study into runs, and groups the runs that share one compiled program.

The types are defined elsewhere: `Plan` in `study.py`, `Run` and `Group` in `runs.py`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pausejax.parts import File
from pausejax.study.axes import points
from pausejax.study.runs import Group, Run
from pausejax.study.study import Plan, PolicySpec, Study


def make_plan(study: Study) -> Plan:
    """Expands a study into runs, ordered by policy, then axes, then seeds, and groups them by static values.

    Points of a policy with the same values of all parameters that the policy reads count as one point.
    """
    runs = [
        Run(policy.label, policy.algorithm, seed, values)
        for policy in study.policies
        for values in _grid(study, policy)
        for seed in study.seeds
    ]
    return plan_of(study, runs)


def plan_of(study: Study, runs: Iterable[Run]) -> Plan:
    """Groups runs by the values that define their programs, and gives each run its identity."""
    groups: dict[Any, list[Run]] = {}
    # Runs that differ only in the seed have the same `values` object, which is a point of the axes. The
    # settings, `program_key` and sources of each point are computed once.
    of_point: dict[int, tuple[str, Any, str]] = {}
    identified = []
    for run in runs:
        if id(run.values) not in of_point:
            settings = study.settings(run.algorithm, run.values)
            key = program_key(study, run.algorithm, run.values)
            of_point[id(run.values)] = settings, key, _sources(study, run.algorithm, run.values)
        settings, key, sources = of_point[id(run.values)]
        identity = hashlib.sha256(f"{settings}{run.seed}".encode()).hexdigest()[:16]
        identified.append(dataclasses.replace(run, identity=identity, sources=sources))
        groups.setdefault(key, []).append(identified[-1])
    made = (Group(_name(key), key[0], dict(key[1]), tuple(own)) for key, own in groups.items())
    return Plan(study, tuple(identified), tuple(made))


def _sources(study: Study, algorithm: str, values: Mapping[str, Any]) -> str:
    named = (value for value in values.values() if isinstance(value, File))
    found = study.code(algorithm, values) + [study.files[file] for file in named if file in study.files]
    return hashlib.sha256(" ".join(found).encode()).hexdigest()[:16] if found else ""


def _name(key: tuple[Any, ...]) -> str:
    """Returns the name of the group with a given `program_key`: the policy and a digest of the key."""
    digest = hashlib.sha256(json.dumps(key, default=str).encode()).hexdigest()
    return f"{key[0]} {digest[:16]}"


def program_key(study: Study, algorithm: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the values that define a compiled program: policy, static values, and optional terms in use.

    Optional terms, such as a proximal term or failures, cost time. Therefore programs with and without such a
    term are separate. Whether two runs share a program depends on these two runs alone. The shapes of the
    program's arrays depend on all runs of the group: for example, there is one partition for each seed.
    """
    static = tuple((name, value) for name, value in values.items() if not _is_traced(study, name))
    parameters = study.words.parameters
    terms = tuple((name, value > 0) for name, value in values.items() if parameters[name].zero_is_static)
    return algorithm, static, terms


def _is_traced(study: Study, name: str) -> bool:
    return study.words.parameters[name].traced


def _grid(study: Study, policy: PolicySpec) -> list[dict[str, Any]]:
    """Returns the distinct points of a policy, over the parameters that it reads."""
    names = used_parameters(study, policy.algorithm)
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points(study.factors[policy.label], names):
        drop_unused(study, policy.algorithm, point)
        distinct.setdefault(tuple(point.items()), point)
    return list(distinct.values())


def used_parameters(study: Study, algorithm: str) -> list[str]:
    """Returns the parameters that some run of a policy may depend on, in the vocabulary's order."""
    return [name for name in study.axes if study.words.is_read(name, study.mode, algorithm)]


def drop_unused(study: Study, algorithm: str, point: dict[str, Any]) -> None:
    """Removes the parameters that a run at a point does not read; the point holds `used_parameters`."""
    for name in list(point):
        if not study.words.is_read_at(name, algorithm, point):
            del point[name]
