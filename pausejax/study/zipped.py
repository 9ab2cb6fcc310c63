"""Zip groups: parameters whose lists advance together and do not form a product."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pausejax.study.axes import Axis, Range
from pausejax.study.vocabulary import Say, Vocabulary


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """Content of a `[[policy]]` table: the registered policy, its label in results, and its own axes."""

    algorithm: str
    label: str
    axes: Mapping[str, Axis]
    zipped: tuple[tuple[str, ...], ...] = ()
    """Groups of parameters whose lists advance together."""


ZipGroup: TypeAlias = tuple[str, ...]
"""Type of a zip group: names of parameters. A `study.runs.Group` is something else, a group of runs."""


def read_zip_groups(say: Say, words: Vocabulary, key: str, value: Any) -> tuple[ZipGroup, ...]:
    """Reads the groups under a key, and returns them with symbols replaced by names.

    Reports an invalid group, and then returns no groups.
    """
    if not isinstance(value, list) or not all(
        isinstance(group, list) and len(group) > 1 and all(isinstance(name, str) for name in group)
        for group in value
    ):
        say(key, value, 'must be a list of groups of two or more names, such as [["alpha", "gamma"]]')
        return ()
    groups = tuple(tuple(words.aliases.get(name, name) for name in group) for group in value)
    seen: set[str] = set()
    for name in (name for group in groups for name in group):
        if name not in words.parameters:
            say(
                key,
                value,
                f"{name} must be a parameter{words.hint(name, [*words.parameters, *words.aliases])}",
            )
            return ()
        if name in seen:
            say(key, value, f"must name {name} only once")
            return ()
        seen.add(name)
    return groups


def kept(shared: Iterable[ZipGroup], own: Mapping[str, Axis]) -> list[ZipGroup]:
    """Returns the shared groups for one policy, without parameters that the policy fixes to one value."""
    fixed = {name for name, axis in own.items() if not isinstance(axis, Range) and len(axis) == 1}
    groups = [tuple(name for name in group if name not in fixed) for group in shared]
    return [group for group in groups if len(group) > 1]


def check_zip_groups(
    say: Say,
    words: Vocabulary,
    shared: Sequence[ZipGroup],
    axes: Mapping[str, Axis],
    policies: Sequence[PolicySpec],
) -> None:
    """Reports the zip groups whose lists can't advance together, in the sections and in each policy."""
    sound = []
    for group in shared:
        if problem := _problem(group, axes):
            say("zip", list(group), problem)
        else:
            sound.append(group)
    taken = {name for group in shared for name in group}
    for policy in policies:
        own, where = {**axes, **policy.axes}, f'policy "{policy.label}": zip'
        for group in policy.zipped:
            twice = [name for name in group if name in taken]
            idle = [name for name in group if words.is_idle(name, policy.algorithm)]
            if twice:
                say(where, list(group), f"the study zips {twice[0]} for all policies already")
            elif idle:
                say(where, list(group), f"the policy {policy.algorithm} does not read {idle[0]}")
            elif problem := _problem(group, own):
                say(where, list(group), problem)
        for group in kept(sound, policy.axes):
            if problem := _problem(group, own):
                say(where, list(group), problem)


def _problem(group: ZipGroup, axes: Mapping[str, Axis]) -> str | None:
    lengths: dict[str, int] = {}
    for name in group:
        axis = axes[name]
        if isinstance(axis, Range):
            return f"{name} must be a list, not a range. Ranges are sampled together anyway"
        lengths[name] = len(axis)
    first, *others = group
    other = next((name for name in others if lengths[name] != lengths[first]), others[0])
    if lengths[first] != lengths[other] or lengths[first] < 2:
        counts = " and ".join(f"{name} has {lengths[name]}" for name in (first, other))
        return f"the lists must have equal lengths of two or more: {counts}"
    rows = list(zip(*(axes[name] for name in group), strict=True))
    return "must not have a point twice" if len(set(rows)) < len(rows) else None
