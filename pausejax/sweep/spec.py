"""The study spec: one TOML table, checked whole before any compute.

Scalars fix a value, a list makes an axis, each `[[policy]]` table adds a policy and may override any
parameter by its plain name. Every mistake becomes one line; all of them are reported together.
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pausejax.ensemble import NUM_EXPERTS
from pausejax.policies import LEARNERS
from pausejax.sweep.parameters import Parameter
from pausejax.sweep.vocabulary import Vocabulary, vocabulary

MAX_SEED = 2**32 - 1

_POLICY_KEYS = ("name", "label")


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
    axes: Mapping[str, tuple[Any, ...]]


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
    axes: Mapping[str, tuple[Any, ...]]
    """Every parameter's values, defaults filled in; more than one makes an axis."""
    policies: tuple[PolicySpec, ...]
    document: Mapping[str, Any]
    """The spec as given, overrides applied: what `spec.toml` in the result holds."""


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
    for override in overrides:
        _override(document, override, problems)
    words = vocabulary(document.get("mode", ""))
    reader = _Reader(source, problems, words)
    known = {*words.study, "seeds", "policy", *words.sections}
    for key in document:
        if key not in known:
            reader.unknown(key, known, "")

    study = {key: reader.scalar(document, key, parameter) for key, parameter in words.study.items()}
    seeds = reader.seeds(document.get("seeds", 1))
    axes = {name: (parameter.default,) for name, parameter in words.parameters.items()}
    for section in words.sections:
        table = document.get(section, {})
        if not isinstance(table, Mapping):
            reader.say(section, table, "must be a table")
            continue
        axes |= reader.axes(table, section)
    policies = reader.policies(document.get("policy"))
    if not problems:
        check = _check_ensembles if study["mode"] == "ensemble" else _check_combinations
        check(reader, study, axes, policies)
    if problems:
        raise SpecError(problems)
    return Study(**study, seeds=seeds, axes=axes, policies=policies, document=document)


def _copy(table: Any) -> Any:
    if isinstance(table, Mapping):
        return {key: _copy(value) for key, value in table.items()}
    return [_copy(value) for value in table] if isinstance(table, list | tuple) else table


def _override(document: dict[str, Any], override: str, problems: list[str]) -> None:
    path, equals, text = override.partition("=")
    *sections, key = path.strip().split(".")
    if not equals or not key or len(sections) > 1:
        problems.append(f"--set {override}: must be section.key=value")
        return
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
            return
    for spelling in [alias for alias, target in words.aliases.items() if target == name]:
        table.pop(spelling, None)
    table[name] = value


def nearest(key: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known key, or nothing."""
    match = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


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
        return value

    def seeds(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEED:
            return tuple(range(value))
        if isinstance(value, list) and value:
            ok = all(isinstance(s, int) and not isinstance(s, bool) and 0 <= s <= MAX_SEED for s in value)
            if ok and len(set(value)) == len(value):
                return tuple(value)
        self.say("seeds", value, f"must be a count >= 1 or a list of distinct integers from 0 to {MAX_SEED}")
        return (0,)

    def axes(self, table: Mapping[str, Any], section: str) -> dict[str, tuple[Any, ...]]:
        """The axes of one table of parameters: a section's own, or any in a policy's table (section "")."""
        known = {name: p for name, p in self.words.parameters.items() if not section or p.section == section}
        where = f"{section}." if section else "policy."
        found: dict[str, tuple[Any, ...]] = {}
        for key, value in table.items():
            name = self.words.aliases.get(key, key)
            if name not in known:
                self.unknown(key, known, where)
            elif name in found:
                self.say(where + key, value, f"is a second value for {name}")
            else:
                found[name] = self.axis(where + key, known[name], value)
        return found

    def axis(self, key: str, parameter: Parameter, value: Any) -> tuple[Any, ...]:
        values = value if isinstance(value, list) else [value]
        if not values:
            self.say(key, value, "an axis needs at least one value")
        for item in values:
            if problem := parameter.problem(item):
                self.say(key, item, problem)
                return (parameter.default,)
        if parameter.kind is float:
            values = [float(item) for item in values]
        if len(set(values)) < len(values):
            self.say(key, value, "an axis must not repeat a value")
        return tuple(values)

    def policies(self, tables: Any) -> tuple[PolicySpec, ...]:
        if isinstance(tables, Mapping):
            tables = [tables]
        if not isinstance(tables, list) or not tables or not all(isinstance(t, Mapping) for t in tables):
            self.say("policy", tables, "must be one or more [[policy]] tables")
            return ()
        found = [spec for spec in map(self.policy, tables) if spec]
        seen: set[str] = set()
        for spec in found:
            if spec.label in seen:
                self.say("policy.label", spec.label, "is used twice; give each [[policy]] its own label")
            seen.add(spec.label)
        return tuple(found)

    def policy(self, table: Mapping[str, Any]) -> PolicySpec | None:
        algorithm = table.get("name")
        known = self.words.policies
        if not isinstance(algorithm, str) or algorithm not in known:
            hint = nearest(algorithm, known) if isinstance(algorithm, str) else ""
            self.say("policy.name", algorithm, f"must be one of {', '.join(sorted(known))}{hint}")
            return None
        axes = self.axes({k: v for k, v in table.items() if k not in _POLICY_KEYS}, "")
        for name in axes:
            if self.words.is_idle(name, algorithm):
                self.say(f"policy.{name}", table.get(name), f"the policy {algorithm} does not read it")
        plain = algorithm if axes.get("private") != (False,) else f"{algorithm}_no_privacy"
        label = table.get("label", plain)
        if not isinstance(label, str) or not label:
            self.say("policy.label", label, "must be a non-empty string")
            label = plain
        return PolicySpec(algorithm, label, axes)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _check_ensembles(
    reader: _Reader,
    study: Mapping[str, Any],
    shared: Mapping[str, tuple[Any, ...]],
    policies: Sequence[PolicySpec],
) -> None:
    if study["selection_gap"]:
        reader.say("selection_gap", True, 'goes with client selection, not with mode = "ensemble"')
    if study["rounds"] % study["eval_every"]:
        reader.say("eval_every", study["eval_every"], f"must divide rounds = {study['rounds']}")
    points = [{**shared, **policy.axes} for policy in policies]
    lowest = {name: min(min(point[name]) for point in points) for name in ("budget", "uplink")}
    if lowest["budget"] < 1:
        reader.say(
            "network.budget", lowest["budget"], "must be >= 1, the dearest model's cost: condition (a3)"
        )
    if lowest["uplink"] <= NUM_EXPERTS:
        reader.say(
            "network.uplink", lowest["uplink"], f"must be >= {NUM_EXPERTS + 1}, a report on every model"
        )
    for section, name in (("weights", "exploration_rate"), ("pool", "fit_fraction")):
        for value in {value for point in points for value in point[name]}:
            if value == 1 or (value == 0 and name == "fit_fraction"):
                reader.say(f"{section}.{name}", value, "must be between 0 and 1")


def _check_combinations(
    reader: _Reader,
    study: Mapping[str, Any],
    shared: Mapping[str, tuple[Any, ...]],
    policies: Sequence[PolicySpec],
) -> None:
    for policy in policies:
        if study["mode"] == "bandit" and policy.algorithm in LEARNERS:
            reader.say(
                "policy.name", policy.algorithm, 'selects by what clients learn: needs mode = "training"'
            )
    if study["mode"] == "bandit":
        points = [{**shared, **policy.axes} for policy in policies]
        if any(point["partition"] != ("iid",) for point in points):
            reader.say("data.partition", "unequal", 'mode = "bandit" knows equal shares only: "iid"')
        if any(False in point["private"] for point in points):
            reader.say("privacy.private", False, 'mode = "bandit" has no updates to protect or to release')
    for policy in policies:
        axes = {**shared, **policy.axes}
        largest, smallest = max(axes["clients_per_round"]), min(axes["num_clients"])
        if largest > smallest:
            reader.say("network.clients_per_round", largest, f"must be <= network.num_clients = {smallest}")
            break
    for policy in policies:
        axes = {**shared, **policy.axes}
        for file in axes["trace_file"]:
            if ("trace" in axes["latency"]) != bool(file):
                reader.say(
                    "network.trace_file", file, 'goes with network.latency = "trace", and only with it'
                )
                return
