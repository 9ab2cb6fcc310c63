"""Reads a spec's tables, and collects every problem as one line."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from pausejax.parts import File, Parameter
from pausejax.spelling import nearest
from pausejax.study.axes import SAMPLING, Axis, Range, Sampling, range_problem
from pausejax.study.study import PolicySpec, Study
from pausejax.study.vocabulary import Vocabulary
from pausejax.study.zipped import read_zip_groups

MAX_SEED = 2**32 - 1
MAX_SEEDS = 2**20

_MOST_SHOWN = 200
"""Largest number of characters of a value in a message."""
_POLICY_KEYS = ("name", "label", "zip")


class Reader:
    """Reader of one document, which collects the document's problems."""

    def __init__(self, source: str, problems: list[str], words: Vocabulary) -> None:
        self.source = source
        self.problems = problems
        self.words = words

    def say(self, key: str, value: Any, allowed: str) -> None:
        self.problems.append(f"{self.source}: {key} = {show(value)}: {allowed}")

    def twice(self, where: str, key: str, value: Any) -> None:
        """Reports a parameter that is given twice, with the second key and its value."""
        name = self.words.aliases.get(key, key)
        self.say(where + key, value, f"gives {name} a second value. Leave one of them out")

    def unknown(self, key: str, known: Iterable[str], where: str) -> None:
        name = self.words.aliases.get(key, key)
        home = self.words.parameters[name].section if name in self.words.parameters else None
        hint = f"; it belongs in [{home}]" if home else self.words.hint(key, known)
        if not (home or where or key in self.words.ambiguous):
            # The key may be a misspelt parameter outside its section, or a misspelt symbol (gama for gamma).
            aliases = [alias for alias in self.words.aliases if len(alias) > 3]
            hint = nearest(key, [*known, *self.words.parameters, *aliases])
        self.problems.append(f"{self.source}: {where}{key}: unknown key{hint}")

    def sorted_in(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the document with every parameter in its section; reports those that it gives twice."""
        found: dict[str, Any] = {}
        for key, value in document.items():
            parameter = self.words.parameters.get(self.words.aliases.get(key, key))
            if key in self.words.sections and isinstance(value, Mapping):
                section, given = key, value
            elif parameter and isinstance(found.get(parameter.section, {}), dict):
                section, given = parameter.section, {key: value}
            else:
                found[key] = value
                continue
            held = found.setdefault(section, {})
            for second in [one for one in given if one in held]:
                self.twice(f"{section}.", second, given[second])
            held.update(given)
        return found

    def scalar(self, document: Mapping[str, Any], key: str, parameter: Parameter) -> Any:
        value = document.get(key, parameter.default)
        if problem := parameter.problem(value):
            self.say(key, value, problem + (", not a list" if isinstance(value, list) else ""))
            return parameter.default
        return float(value) if parameter.kind is float else value

    def names(self, key: str, value: Any, known: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns a value that is a list of distinct registered names; reports any other value."""
        if not isinstance(value, list) or len({str(name) for name in value}) < len(value):
            self.say(key, value, "must be a list of different names")
            return ()
        for name in value:
            if not isinstance(name, str) or name not in known:
                there = ", ".join(sorted(known)) or "none; a file in `use` may register some"
                hint = nearest(name, known) if isinstance(name, str) else ""
                self.say(key, name, f"must be among {there}{hint}")
                return ()
        return tuple(value)

    def seeds(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
            return tuple(range(value))
        if isinstance(value, list) and value:
            ok = all(isinstance(s, int) and not isinstance(s, bool) and 0 <= s <= MAX_SEED for s in value)
            if ok and len(set(value)) == len(value):
                return tuple(value)
        self.say(
            "seeds",
            value,
            f"must be a count from 1 to {MAX_SEEDS}, or a list of distinct integers from 0 to {MAX_SEED}",
        )
        return (0,)

    def axes(self, table: Mapping[str, Any], section: str, zipped: Set[str]) -> dict[str, Axis]:
        """Reads the axes in a table, and reports mistakes in them.

        `section` is the section of the table. It is "" for a policy's table, which may name any parameter.
        """
        known = {name: p for name, p in self.words.parameters.items() if not section or p.section == section}
        where = f"{section}." if section else "policy."
        found: dict[str, Axis] = {}
        for key, value in table.items():
            name = self.words.aliases.get(key, key)
            if name not in known:
                self.unknown(key, known, where)
            elif name in found:
                self.twice(where, key, value)
            else:
                found[name] = self.axis(where + key, known[name], value, name in zipped)
        return found

    def axis(self, key: str, parameter: Parameter, value: Any, zipped: bool) -> Axis:
        if isinstance(value, Mapping):
            if problem := range_problem(parameter, value):
                self.say(key, value, problem)
                return (parameter.default,)
            ((law, ends),) = value.items()
            return Range(law, *map(parameter.kind, ends))
        values = value if isinstance(value, list) else [value]
        if not values:
            self.say(key, value, "must list one value or more")
        for item in values:
            if problem := parameter.problem(item):
                self.say(key, item, problem)
                return (parameter.default,)
        if parameter.kind in (float, File):
            values = [parameter.kind(item) for item in values]
        if len(set(values)) < len(values) and not zipped:
            self.say(key, value, "must not list a value twice")
        return tuple(values)

    def policies(self, tables: Any, zipped: Set[str]) -> tuple[PolicySpec, ...]:
        if isinstance(tables, Mapping):
            tables = [tables]
        if not isinstance(tables, list) or not tables or not all(isinstance(t, Mapping) for t in tables):
            self.say("policy", tables, "must be one or more [[policy]] tables")
            return ()
        found = [spec for table in tables if (spec := self.policy(table, zipped))]
        seen: set[str] = set()
        for spec in found:
            shown = unicodedata.normalize("NFC", spec.label)  # the same letters may have several codes
            if shown in seen:
                self.say("policy.label", spec.label, "is used twice. Give each [[policy]] its own label")
            seen.add(shown)
        return tuple(found)

    def policy(self, table: Mapping[str, Any], zipped: Set[str]) -> PolicySpec | None:
        algorithm = table.get("name")
        known = self.words.policies
        if not isinstance(algorithm, str) or algorithm not in known:
            hint = nearest(algorithm, known) if isinstance(algorithm, str) else ""
            self.say("policy.name", algorithm, f"must be one of {', '.join(sorted(known))}{hint}")
            return None
        groups = read_zip_groups(self.say, self.words, "policy.zip", table.get("zip", []))
        in_zip = {*zipped, *(name for group in groups for name in group)}
        axes = self.axes({k: v for k, v in table.items() if k not in _POLICY_KEYS}, "", in_zip)
        for name in axes:
            if self.words.is_idle(name, algorithm):
                self.say(
                    f"policy.{name}",
                    table.get(name),
                    f"the policy {algorithm} does not read it. Leave it out",
                )
        plain = algorithm if axes.get("private") != (False,) else f"{algorithm}_no_privacy"
        label = table.get("label", plain)
        if not isinstance(label, str) or not label or not label.isprintable():
            self.say("policy.label", label, "must be a non-empty string without control characters")
            label = plain
        if label != " ".join(label.split()):
            hidden = "a page shows neither spaces at the ends nor several spaces in a row"
            self.say("policy.label", label, f"must have single spaces between words: {hidden}")
        if label.startswith("_"):
            self.say("policy.label", label, "must not begin with _: a legend omits labels that begin with _")
        return PolicySpec(algorithm, label, axes, groups)

    def sampling(
        self, document: Mapping[str, Any], axes: Mapping[str, Axis], policies: Sequence[PolicySpec]
    ) -> Sampling | None:
        """Reads the table [sampling], and reports mistakes. Exactly the specs with ranges have this table."""
        ranges = [f"{self.words.parameters[name].section}.{name}" for name in _ranged(axes)]
        ranges += [f"policy.{name}" for policy in policies for name in _ranged(policy.axes)]
        if "sampling" not in document:
            for key in dict.fromkeys(ranges):
                self.problems.append(
                    f"{self.source}: {key}: a range needs a table [sampling] with n, the number of points"
                )
            return None
        table = document["sampling"]
        if not isinstance(table, Mapping):
            self.say("sampling", table, "must be a table")
            return None
        for key in table:
            if key not in SAMPLING:
                self.unknown(key, SAMPLING, "sampling.")
        values = {}
        for key, parameter in SAMPLING.items():
            values[key] = table.get(key, parameter.default)
            if key == "n" and key not in table:
                self.problems.append(
                    f"{self.source}: sampling.n: missing. Set the number of points to sample"
                )
            elif problem := parameter.problem(values[key]):
                self.say(f"sampling.{key}", values[key], problem)
                values[key] = parameter.default
        if not ranges and not self.problems:
            self.say("sampling", table, "needs a range, such as alpha = {log_uniform = [1, 100]}")
        return Sampling(**values)

    def check_effects(self, overridden: Iterable[tuple[str, str | None]], study: Study) -> None:
        """Reports the overrides and the axes that no run reads."""
        for override, name in overridden:
            if name is None or name not in self.words.parameters:
                continue
            readers = [policy for policy in study.policies if self._reads(policy, name, study)]
            if not readers:
                self.problems.append(f"--set {override}: has no effect: no run of this study reads it")
            elif all(name in policy.axes for policy in readers):
                labels = ", ".join(f'"{policy.label}"' for policy in readers)
                self.problems.append(
                    f"--set {override}: has no effect: all policies that read it set it themselves: {labels}"
                )
        set_here = {name for _, name in overridden}
        for name, axis in study.axes.items():
            idle = not any(self._reads(policy, name, study) for policy in study.policies)
            if idle and _is_many(axis) and name not in set_here:
                self._say_idle(f"{self.words.parameters[name].section}.{name}", axis)
        for policy in study.policies:
            for name, axis in policy.axes.items():
                if _is_many(axis) and not self._reads(policy, name, study):
                    self._say_idle(f"policy.{name}", axis)

    def _reads(self, policy: PolicySpec, name: str, study: Study) -> bool:
        """Returns whether some run of a policy may depend on a parameter."""
        if not self.words.is_read(name, study.mode, policy.algorithm):
            return False
        axes = {**study.axes, **policy.axes}
        of_keys = [key for key in self.words.readers.get(name, {}) if key]
        if name not in self.words.policies[policy.algorithm].reads and (
            unread := self.words.parameters[name].unread_with
        ):
            axis = axes[unread[0]]
            return isinstance(axis, Range) or not unread[1].issuperset(axis)
        named = ((key, axes[key]) for key in of_keys)
        points = ({key: value} for key, axis in named if isinstance(axis, tuple) for value in axis)
        return self.words.is_read_at(name, policy.algorithm, {}) or any(
            self.words.is_read_at(name, policy.algorithm, point) for point in points
        )

    def _say_idle(self, key: str, axis: Axis) -> None:
        value = {axis.law: [axis.low, axis.high]} if isinstance(axis, Range) else list(axis)
        self.say(key, value, "must be one value, because no run of this study reads it")


def show(value: Any) -> str:
    """Returns a value in TOML's spelling, shortened if it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key} = {show(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, list):
        text = f"[{', '.join(map(show, value))}]"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _is_many(axis: Axis) -> bool:
    return isinstance(axis, Range) or len(axis) > 1


def _ranged(axes: Mapping[str, Axis]) -> list[str]:
    return [name for name, axis in axes.items() if isinstance(axis, Range)]
