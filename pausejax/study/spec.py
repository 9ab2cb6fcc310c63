"""The study spec: one TOML table, checked whole before any compute.

Scalars fix a value, a list or a range makes an axis, each `[[policy]]` table adds a policy and may override
any parameter by its plain name. Every mistake becomes one line; all of them are reported together.
"""

import dataclasses
import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from pausejax.clients.checks import check_combinations
from pausejax.clients.parameters import Parameter
from pausejax.study.axes import SAMPLING, Axis, Factor, Range, Sampling, columns, factors, range_problem
from pausejax.study.vocabulary import Vocabulary, nearest, vocabulary
from pausejax.study.zipped import check_groups, kept, read_groups

MAX_SEED = 2**32 - 1

_POLICY_KEYS = ("name", "label", "zip")


class SpecError(ValueError):
    """A spec with mistakes; `problems` has one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """One `[[policy]]` table: the registered algorithm, its label in results, and its own axes."""

    algorithm: str
    label: str
    axes: Mapping[str, Axis]
    zipped: tuple[tuple[str, ...], ...] = ()
    """Groups of parameters whose lists advance together."""


@dataclasses.dataclass(frozen=True)
class Study:
    """A checked spec."""

    name: str
    mode: str
    rounds: int
    eval_every: int
    selection_gap: bool
    stop_at_latency: float
    seeds: tuple[int, ...]
    axes: Mapping[str, Axis]
    """Every parameter's values, defaults filled in; more than one makes an axis."""
    zipped: tuple[tuple[str, ...], ...]
    """Groups of parameters whose lists advance together."""
    sampling: Sampling | None
    """Given if there are ranges."""
    policies: tuple[PolicySpec, ...]
    document: Mapping[str, Any]
    """The spec as given, overrides applied: what `spec.toml` in the result holds."""

    @functools.cached_property
    def factors(self) -> dict[str, tuple[Factor, ...]]:
        """What multiplies to the points of each policy, by label: lists, zipped groups, and all ranges."""
        found = {}
        for policy in self.policies:
            axes = {**self.axes, **policy.axes}
            groups = (*kept(self.zipped, policy.axes), *policy.zipped)
            found[policy.label] = factors(axes, groups, columns(self.axes, axes), self.sampling)
        return found


def load(path: str | Path, overrides: Iterable[str] = ()) -> Study:
    """Reads and checks a spec file.

    Args:
      path: a TOML file.
      overrides: `section.key=value` strings that replace or add keys; the value is TOML, or else a string.

    Raises:
      SpecError: the file can't be read, is no TOML, or has mistakes.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError([f"{path}: can't be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError([f"{path}: is no valid TOML: {error}"]) from None
    return parse(document, source=str(path), overrides=overrides)


def parse(document: Mapping[str, Any], *, source: str = "spec", overrides: Iterable[str] = ()) -> Study:
    """Checks a spec given as nested tables.

    Raises:
      SpecError: with one line per mistake, each naming the source, the key, the value and what is allowed.
    """
    document = dict(_copy(document))
    problems: list[str] = []
    overridden = [(override, _override(document, override, problems)) for override in overrides]
    words = vocabulary(document.get("mode", ""))
    reader = _Reader(source, problems, words)
    known = {*words.study, "seeds", "zip", "sampling", "policy", *words.sections}
    for key in document:
        if key not in known:
            reader.unknown(key, known, "")

    study = {key: reader.scalar(document, key, parameter) for key, parameter in words.study.items()}
    seeds = reader.seeds(document.get("seeds", 1))
    zipped = read_groups(reader.say, words, "zip", document.get("zip", []))
    in_zip = {name for group in zipped for name in group}
    axes: dict[str, Axis] = {name: (parameter.default,) for name, parameter in words.parameters.items()}
    for section in words.sections:
        table = document.get(section, {})
        if not isinstance(table, Mapping):
            reader.say(section, table, "must be a table")
            continue
        axes |= reader.axes(table, section, in_zip)
    policies = reader.policies(document.get("policy"), in_zip)
    sampling = reader.sampling(document, axes, policies)
    check_groups(reader.say, words, zipped, axes, policies)
    found = Study(
        **study,
        seeds=seeds,
        axes=axes,
        zipped=zipped,
        sampling=sampling,
        policies=policies,
        document=document,
    )
    if not problems:
        reader.check_overrides(overridden, found)
        check_combinations(reader.say, found)
    if problems:
        raise SpecError(problems)
    return found


def _copy(table: Any) -> Any:
    if isinstance(table, Mapping):
        return {key: _copy(value) for key, value in table.items()}
    return [_copy(value) for value in table] if isinstance(table, list | tuple) else table


def _override(document: dict[str, Any], override: str, problems: list[str]) -> str | None:
    """Puts an override in; returns the name of the key that it sets."""
    path, equals, text = override.partition("=")
    *sections, key = path.strip().split(".")
    if not equals or not key or len(sections) > 1:
        problems.append(f"--set {override}: must be section.key=value")
        return None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    words = vocabulary(document.get("mode", ""))
    name = words.aliases.get(key, key)
    if not sections and name in words.parameters:
        sections = [words.parameters[name].section]
    table = document
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            problems.append(f"--set {override}: {section} is no table; --set can't reach into [[{section}]]")
            return None
    for spelling in [alias for alias, target in words.aliases.items() if target == name]:
        table.pop(spelling, None)
    table[name] = value
    return name


class _Reader:
    """Collects the problems of one document."""

    def __init__(self, source: str, problems: list[str], words: Vocabulary) -> None:
        self.source = source
        self.problems = problems
        self.words = words

    def say(self, key: str, value: Any, allowed: str) -> None:
        self.problems.append(f"{self.source}: {key} = {_show(value)}: {allowed}")

    def unknown(self, key: str, known: Iterable[str], where: str) -> None:
        name = self.words.aliases.get(key, key)
        home = self.words.parameters[name].section if name in self.words.parameters else None
        hint = f"; it belongs in [{home}]" if home else nearest(key, known)
        self.problems.append(f"{self.source}: {where}{key}: unknown key{hint}")

    def scalar(self, document: Mapping[str, Any], key: str, parameter: Parameter) -> Any:
        value = document.get(key, parameter.default)
        if problem := parameter.problem(value):
            self.say(key, value, problem + (", not an axis" if isinstance(value, list) else ""))
            return parameter.default
        return float(value) if parameter.kind is float else value

    def seeds(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEED:
            return tuple(range(value))
        if isinstance(value, list) and value:
            ok = all(isinstance(s, int) and not isinstance(s, bool) and 0 <= s <= MAX_SEED for s in value)
            if ok and len(set(value)) == len(value):
                return tuple(value)
        self.say("seeds", value, f"must be a count >= 1 or a list of distinct integers from 0 to {MAX_SEED}")
        return (0,)

    def axes(self, table: Mapping[str, Any], section: str, zipped: Set[str]) -> dict[str, Axis]:
        """The axes of one table of parameters: a section's own, or any in a policy's table (section "")."""
        known = {name: p for name, p in self.words.parameters.items() if not section or p.section == section}
        where = f"{section}." if section else "policy."
        found: dict[str, Axis] = {}
        for key, value in table.items():
            name = self.words.aliases.get(key, key)
            if name not in known:
                self.unknown(key, known, where)
            elif name in found:
                self.say(where + key, value, f"is a second value for {name}")
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
            self.say(key, value, "an axis needs at least one value")
        for item in values:
            if problem := parameter.problem(item):
                self.say(key, item, problem)
                return (parameter.default,)
        if parameter.kind is float:
            values = [float(item) for item in values]
        if len(set(values)) < len(values) and not zipped:
            self.say(key, value, "an axis must not repeat a value")
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
            if spec.label in seen:
                self.say("policy.label", spec.label, "is used twice; give each [[policy]] its own label")
            seen.add(spec.label)
        return tuple(found)

    def policy(self, table: Mapping[str, Any], zipped: Set[str]) -> PolicySpec | None:
        algorithm = table.get("name")
        known = self.words.policies
        if not isinstance(algorithm, str) or algorithm not in known:
            hint = nearest(algorithm, known) if isinstance(algorithm, str) else ""
            self.say("policy.name", algorithm, f"must be one of {', '.join(sorted(known))}{hint}")
            return None
        groups = read_groups(self.say, self.words, "policy.zip", table.get("zip", []))
        in_zip = {*zipped, *(name for group in groups for name in group)}
        axes = self.axes({k: v for k, v in table.items() if k not in _POLICY_KEYS}, "", in_zip)
        for name in axes:
            if self.words.is_idle(name, algorithm):
                self.say(f"policy.{name}", table.get(name), f"the policy {algorithm} does not read it")
        plain = algorithm if axes.get("private") != (False,) else f"{algorithm}_no_privacy"
        label = table.get("label", plain)
        if not isinstance(label, str) or not label:
            self.say("policy.label", label, "must be a non-empty string")
            label = plain
        return PolicySpec(algorithm, label, axes, groups)

    def sampling(
        self, document: Mapping[str, Any], axes: Mapping[str, Axis], policies: Sequence[PolicySpec]
    ) -> Sampling | None:
        """The table [sampling]; there must be one if and only if there are ranges."""
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
                self.problems.append(f"{self.source}: sampling.n: missing; the number of points")
            elif problem := parameter.problem(values[key]):
                self.say(f"sampling.{key}", values[key], problem)
                values[key] = parameter.default
        if not ranges and not self.problems:
            self.say("sampling", table, "no parameter has a range, as alpha = {log_uniform = [1, 100]}")
        return Sampling(**values)

    def check_overrides(self, overridden: Iterable[tuple[str, str | None]], study: Study) -> None:
        """Says which overrides no policy sees, since their own tables say otherwise."""
        for override, name in overridden:
            readers = [
                policy
                for policy in study.policies
                if name in self.words.parameters and self.words.is_read(name, study.mode, policy.algorithm)
            ]
            if readers and all(name in policy.axes for policy in readers):
                labels = ", ".join(f'"{policy.label}"' for policy in readers)
                self.problems.append(
                    f"--set {override}: has no effect: every policy that reads it sets it itself: {labels}"
                )


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _ranged(axes: Mapping[str, Axis]) -> list[str]:
    return [name for name, axis in axes.items() if isinstance(axis, Range)]
