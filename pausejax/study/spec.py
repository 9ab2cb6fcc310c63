"""Checks a study's spec, one TOML document, completely before anything is computed.

`parse` returns a `Study`, which is defined in `study.py`.

A scalar fixes a parameter; a list or a range makes the parameter an axis. Each `[[policy]]` table adds a
policy and may override any parameter by its name without a section. All mistakes are reported together, one
in each line.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pausejax.analysis import schema
from pausejax.analysis.quantities import as_json
from pausejax.parts import File, PartError
from pausejax.parts.extensions import Layer, load
from pausejax.parts.files import digest_of_file
from pausejax.spelling import nearest
from pausejax.study import checks
from pausejax.study.axes import Axis, Sampling
from pausejax.study.document import SpecError as SpecError
from pausejax.study.document import printable as printable
from pausejax.study.document import read as read
from pausejax.study.reader import Reader, show
from pausejax.study.study import Kind, Study, words_of
from pausejax.study.vocabulary import Vocabulary
from pausejax.study.zipped import check_zip_groups, read_zip_groups


def parse(
    document: Mapping[str, Any],
    kinds: Sequence[Kind],
    *,
    source: str = "spec",
    overrides: Iterable[str] = (),
    use: Sequence[str] = (),
    folder: Path = Path(),
    flat: bool = False,
    searched: bool = False,
    parts: Layer | None = None,
) -> Study:
    """Checks a spec given as nested tables and returns its study.

    Args:
      document: the spec's tables.
      kinds: every kind of study; a spec without a `mode` is of the first kind.
      source: the name of the spec in error messages.
      overrides: `section.key=value` strings that replace or add keys; a value that is not TOML is a string.
      use: more files and modules with parts.
      folder: the folder from which relative paths of files start.
      flat: whether parameters may stand outside their sections.
      searched: whether a search chooses the values in ranges. Then no [sampling] is needed, and the check
        uses a few points of each range.
      parts: the parts that the spec can name; None executes the files of `use`.

    Raises:
      SpecError: the spec has mistakes. Each mistake is one line, which names the source, the key, the value
        and the allowed values.
    """
    try:
        document = dict(_copy(document))
    except RecursionError as error:
        raise SpecError([f"{source}: tables are nested too deeply"]) from error
    if searched:
        document.pop("sampling", None)
    problems: list[str] = []
    overrides = list(overrides)
    for override in overrides:
        # The vocabulary depends on these two keys.
        if override.partition("=")[0].strip() in ("mode", "use"):
            _override(document, override, None, problems)
    kind = next((kind for kind in kinds if document.get("mode") in kind.modes), kinds[0])
    entries = _entries(source, document, use, problems)
    try:
        parts = parts or load(entries, folder)
        words = words_of(
            kind, parts, document, " ".join(word for word in overrides if not word.startswith("use"))
        )
    except PartError as error:
        raise SpecError([*problems, str(error)]) from error
    reader = Reader(source, problems, words)
    document = with_symbols(document, words, reader.twice)
    if flat:
        document = reader.sorted_in(document)
    overridden = [(override, _override(document, override, words, problems)) for override in overrides]
    known = {*words.study, "use", "quantities", "seeds", "zip", "sampling", "policy", *words.sections}
    for key in document:
        if key not in known:
            reader.unknown(key, known, "")

    study = {key: reader.scalar(document, key, parameter) for key, parameter in words.study.items()}
    seeds = reader.seeds(document.get("seeds", 1))
    quantities = reader.names("quantities", document.get("quantities", []), words.parts.of("quantity"))
    zipped = read_zip_groups(reader.say, words, "zip", document.get("zip", []))
    in_zip = {name for group in zipped for name in group}
    axes: dict[str, Axis] = {name: (parameter.default,) for name, parameter in words.parameters.items()}
    for section in words.sections:
        table = document.get(section, {})
        if not isinstance(table, Mapping):
            reader.say(section, table, "must be a table")
            continue
        axes |= reader.axes(table, section, in_zip)
    policies = reader.policies(document.get("policy"), in_zip)
    sampling = Sampling(2, "sobol", 0) if searched else reader.sampling(document, axes, policies)
    check_zip_groups(reader.say, words, zipped, axes, policies)
    found = Study(
        kind=kind,
        words=words,
        parts=words.parts,
        **study,
        seeds=seeds,
        quantities=quantities,
        axes=axes,
        zipped=zipped,
        sampling=sampling,
        policies=policies,
        document=document,
        files=_files(reader, folder, [axes, *(policy.axes for policy in policies)]),
        folder=folder.resolve(),
    )
    if not problems:
        reader.check_effects(overridden, found)
        checks.check(reader.say, found)
    problems += [] if problems else _unreadable(source, found)
    try:
        found.outsiders  # noqa: B018 a part of the session may have no digest
    except PartError as error:
        problems.append(str(error))
    if problems:
        raise SpecError(problems)
    return found


def _unreadable(source: str, study: Study) -> list[str]:
    """Returns a problem for each metric, parameter, name or label that can't be an attribute of a result."""
    metrics = json.loads(as_json(study.outputs.metrics))
    spellings = {name: (p.aliases, p.symbol) for name, p in study.words.parameters.items()}
    said = {"metrics": metrics, "parameters": spellings}
    found = [(name, schema.problem(name, json.loads(json.dumps(value)))) for name, value in said.items()]
    labels = [study.name, *(policy.label for policy in study.policies)]
    found += [("name or label", schema.line_problem(label)) for label in labels]
    return [f"{source}: {name}: {wrong}" for name, wrong in found if wrong]


def with_symbols(
    document: dict[str, Any], words: Vocabulary, twice: Callable[[str, str, Any], None] | None = None
) -> dict[str, Any]:
    """Returns the document with the key "first.width" in place of a table `first` with the key `width`.

    `twice` reports a parameter that is given in both ways. The checked document of a study needs none.
    """

    def flat(table: Any, where: str = "") -> Any:
        if not isinstance(table, dict):
            return table
        found: dict[str, Any] = {}
        for key, value in table.items():
            inner = value if isinstance(value, dict) else {}
            named = {name: item for name, item in inner.items() if f"{key}.{name}" in words.aliases}
            given = {f"{key}.{name}": item for name, item in named.items()}
            if not named or len(named) < len(inner):
                given[key] = {name: value[name] for name in inner if name not in named} if named else value
            if twice:
                for second in [one for one in given if one in found]:
                    twice(where, second, given[second])
            found |= given
        return found

    tables = {
        key: [flat(item, f"{key}.") for item in value] if isinstance(value, list) else flat(value, f"{key}.")
        for key, value in document.items()
    }
    return flat(tables)


def _entries(
    source: str, document: dict[str, Any], more: Sequence[str], problems: list[str]
) -> tuple[str, ...]:
    """Returns the entries of `use` in the spec, followed by `more`. Writes all of them into the document."""
    entries = document.get("use", [])
    if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
        problems.append(
            f'{source}: use = {show(entries)}: must be a list of files and modules, such as ["my_policy.py"]'
        )
        entries = []
    if found := tuple(dict.fromkeys((*entries, *more))):
        document["use"] = list(found)
    return found


def _files(reader: Reader, folder: Path, tables: Sequence[Mapping[str, Axis]]) -> dict[str, str]:
    """Returns the digest of every file that a parameter names; reports files that can't be read."""
    found: dict[str, str] = {}
    for axes in tables:
        for name, axis in axes.items():
            if reader.words.parameters[name].kind is File and isinstance(axis, tuple):
                for value in filter(None, axis):
                    key = f"{reader.words.parameters[name].section}.{name}"
                    path = folder / value
                    try:
                        if not path.is_file():
                            raise OSError(f"there is no file {path}")
                        found[value] = digest_of_file(path)
                    except (OSError, ValueError) as error:
                        reader.say(key, value, f"can't be read: {getattr(error, 'strerror', None) or error}")
    return found


def refuse_changed_files(study: Study) -> None:
    """Checks that the files of a study still have the content that the identities of its runs cover.

    Raises:
      SpecError: a file has changed since the spec was parsed.
    """
    changed = []
    way_out = "Run the same command again with the old content, or in another folder"
    for name, digest in study.files.items():
        try:
            same = digest_of_file(study.folder / name) == digest
        except OSError:
            same = False
        if not same:
            changed.append(f"{study.folder / name}: changed after the command had read it. {way_out}")
    if changed:
        raise SpecError(changed)


def _copy(table: Any) -> Any:
    if isinstance(table, Mapping):
        return {key if isinstance(key, str) else str(key): _copy(value) for key, value in table.items()}
    return [_copy(value) for value in table] if isinstance(table, list | tuple) else table


def _override(
    document: dict[str, Any], override: str, words: Vocabulary | None, problems: list[str]
) -> str | None:
    """Writes an override into the document; returns the name of the key, or None for an invalid override."""
    path, equals, text = override.partition("=")
    *sections, key = path.strip().split(".")
    if words and sections and f"{sections[-1]}.{key}" in words.aliases:
        key = f"{sections.pop()}.{key}"
    if not equals or not key or len(sections) > 1:
        problems.append(f"--set {override}: must be section.key=value")
        return None
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {"value": text.strip()}
    if len(read) > 1:
        problems.append(f"--set {override}: must set one key, not {len(read)}")
        return None
    value = read["value"]
    if not sections and key == "policy" and (kept := _names(value)):
        value = _policies_named(document, kept, override, problems)
    aliases, parameters = (words.aliases, words.parameters) if words else ({}, {})
    name = aliases.get(key, key)
    if not sections and name in parameters:
        sections = [parameters[name].section]
    table = document
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            problems.append(f"--set {override}: {section} must be a table. --set can't change [[{section}]]")
            return None
    for spelling in [alias for alias, target in aliases.items() if target == name]:
        table.pop(spelling, None)
    table[name] = value
    return name


def _names(value: Any) -> list[str]:
    """Returns the names in a value that is a string or a list of strings; else an empty list."""
    names = [value] if isinstance(value, str) else value
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _policies_named(document: dict[str, Any], kept: list[str], override: str, problems: list[str]) -> Any:
    """Returns the [[policy]] tables with the given labels or names, in the spec's order."""
    tables = document.get("policy")
    called = [
        (table, [table[key] for key in ("label", "name") if isinstance(table.get(key), str)])
        for table in (tables if isinstance(tables, list) else [tables])
        if isinstance(table, dict)
    ]
    known = list(dict.fromkeys(name for _, names in called for name in names))
    for name in kept:
        if name not in known:
            hint = nearest(name, known)
            problems.append(
                f"--set {override}: {show(name)}: must be among {', '.join(known) or 'none'}{hint}"
            )
    return [table for table, names in called if not set(names).isdisjoint(kept)] or tables
