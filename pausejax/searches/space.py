"""The space that a search chooses from: the ranges and lists of a spec, for each policy."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from pausejax.study.axes import Range
from pausejax.study.plan import drop_unused, program_key, used_parameters
from pausejax.study.runs import Run
from pausejax.study.spec import SpecError
from pausejax.study.study import PolicySpec, Study
from pausejax.study.zipped import kept

MOST_PROGRAMS = 64


class Dimension(NamedTuple):
    """One choice that a sampler makes for a setting."""

    key: str
    """The name of the choice in the sampler. Policies with the same choice share this name."""
    names: tuple[str, ...]
    """The names of the parameters whose values this choice sets."""
    values: Range | tuple[tuple[Any, ...], ...]
    """A range of one parameter; or rows of values, with one value for each name in a row."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The text of each row of `values`."""
        assert not isinstance(self.values, Range)
        return tuple(str(row[0] if len(row) == 1 else row) for row in self.values)


class Setting(NamedTuple):
    """One point of the space: a policy with a value of each of its parameters."""

    policy: str
    """The label of the policy."""
    algorithm: str
    values: Mapping[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for equal settings."""
        return self.policy, *self.values.items()

    def runs(self, study: Study) -> list[Run]:
        """Returns one run of the setting for each seed of the study."""
        return [Run(self.policy, self.algorithm, seed, self.values) for seed in study.seeds]


Choose: TypeAlias = Callable[[str, Range | Sequence[str]], Any]
"""A function that takes the key of a choice with its range or the names of its rows.

It returns a number in the range, or the index of a row.
"""


class Space(NamedTuple):
    """All settings that a study allows: its choices, and its fixed values."""

    study: Study
    dimensions: Mapping[str, tuple[Dimension, ...]]
    """The choices of each policy, by the label of the policy."""
    fixed: Mapping[str, Mapping[str, Any]]
    """The values of the parameters that have one value, by the label of the policy."""

    def setting(self, choose: Choose) -> Setting:
        """Returns the setting for which `choose` makes every choice."""
        policies = self.study.policies
        place = choose("policy", [policy.label for policy in policies]) if len(policies) > 1 else 0
        policy = policies[place]
        values = dict(self.fixed[policy.label])
        for dimension in self.dimensions[policy.label]:
            if isinstance(dimension.values, Range):
                values[dimension.names[0]] = dimension.values.rounded(choose(dimension.key, dimension.values))
            else:
                row = dimension.values[choose(dimension.key, dimension.rows)]
                values |= dict(zip(dimension.names, row, strict=True))
        return self._read(policy, values)

    def defaults(self) -> Setting:
        """Returns the setting of the first policy in which all parameters that the search chooses have their
        defaults."""
        policy = self.study.policies[0]
        values = dict(self.fixed[policy.label])
        for dimension in self.dimensions[policy.label]:
            values |= {name: self.study.words.parameters[name].default for name in dimension.names}
        return self._read(policy, values)

    def corners(self) -> list[Setting]:
        """Returns settings that together need every compiled program and contain both ends of every range.

        Raises:
          SpecError: a policy has more than `MOST_PROGRAMS` programs.
        """
        found: list[Setting] = []
        parameters = self.study.words.parameters
        for place, policy in enumerate(self.study.policies):
            dimensions = self.dimensions[policy.label]
            static = [d for d in dimensions if not all(parameters[name].traced for name in d.names)]
            count = math.prod(len(d.values) for d in static if not isinstance(d.values, Range))
            if count > MOST_PROGRAMS:
                raise SpecError(
                    [
                        f"policy {policy.label}: the lists of static parameters make {count} programs; must "
                        f"be <= {MOST_PROGRAMS}, because each program is compiled separately"
                    ]
                )
            longest = max(
                (2 if isinstance(d.values, Range) else len(d.values) for d in dimensions), default=1
            )
            rows = [range(len(d.values)) for d in static if not isinstance(d.values, Range)]
            for chosen in itertools.product(*rows):
                fixed = dict(zip((dimension.key for dimension in static), chosen, strict=True))
                steps = range(longest)
                found += [self.setting(_corner({"policy": place, **fixed}, step)) for step in steps]
        return found

    def program_key(self, setting: Setting) -> tuple[Any, ...]:
        """Returns a key that is equal for settings that share a compiled program."""
        return program_key(self.study, setting.algorithm, setting.values)

    def _read(self, policy: PolicySpec, values: dict[str, Any]) -> Setting:
        names = used_parameters(self.study, policy.algorithm)
        point = {name: values[name] for name in names}
        drop_unused(self.study, policy.algorithm, point)
        return Setting(policy.label, policy.algorithm, point)


def _corner(fixed: Mapping[str, int], step: int) -> Choose:
    """Returns a function that makes choices: `fixed` has the row of some keys, and `step` decides all others.

    An even `step` chooses the lower end of a range, an odd `step` the upper end. Among n rows, `step` chooses
    the row with the index `step` mod n.
    """

    def choose(key: str, given: Range | Sequence[str]) -> Any:
        if isinstance(given, Range):
            return (given.low, given.high)[step % 2]
        return fixed.get(key, step % len(given))

    return choose


def space_of(study: Study) -> Space:
    """Returns the space of settings of a checked study.

    Raises:
      SpecError: there is nothing to choose, or a static parameter has a range.
    """
    words = study.words
    problems, dimensions, fixed = [], {}, {}
    for policy in study.policies:
        axes = {**study.axes, **policy.axes}
        read = set(used_parameters(study, policy.algorithm))
        groups = (*kept(study.zipped, policy.axes), *policy.zipped)
        group_of = {name: group for group in groups for name in group}
        found: dict[str, Dimension] = {}
        for name, axis in axes.items():
            # Without a parameter that the policy's table fixes, a zipped group has other rows.
            cut = any(name in group and not policy.axes.keys().isdisjoint(group) for group in study.zipped)
            own = f"{policy.label}: " if cut or name in policy.axes else ""
            if name not in read or (not isinstance(axis, Range) and len(axis) == 1):
                continue
            if isinstance(axis, Range):
                if not words.parameters[name].traced:
                    problems.append(
                        f"{words.parameters[name].section}.{name}: must be a list of values, not a range, "
                        "because each value needs its own compiled program"
                    )
                found[name] = Dimension(f"{own}{name}", (name,), axis)
            else:
                names = group_of.get(name, (name,))
                rows = tuple(dict.fromkeys(zip(*(axes[other] for other in names), strict=True)))
                found.setdefault(names[0], Dimension(f"{own}{names[0]}", names, rows))
        dimensions[policy.label] = tuple(found.values())
        fixed[policy.label] = {name: axis[0] for name, axis in axes.items() if not isinstance(axis, Range)}
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    if len(study.policies) == 1 and not any(dimensions.values()):
        raise SpecError(
            [
                "search: the spec has one policy, no list and no range, so there is nothing to search. Give "
                "a range, such as generalization_weight = {log_uniform = [1, 1000]}"
            ]
        )
    return Space(study, dimensions, fixed)
