"""What a study is: its kind, the checked spec, and the runs that it comes to."""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pausejax.analysis.quantities import Metric, Variable
from pausejax.parts import CATEGORIES, File, Parameter, registered_parts
from pausejax.parts.extensions import Layer, digest_of
from pausejax.study import vocabulary
from pausejax.study.axes import Axis, Factor, Sampling, columns, factors
from pausejax.study.runs import Group, Run
from pausejax.study.simulation import Simulation
from pausejax.study.vocabulary import Say, Vocabulary
from pausejax.study.zipped import PolicySpec as PolicySpec
from pausejax.study.zipped import kept

_WORD = re.compile(r"\w+")
FORMAT = 3
"""Of identities and results: a folder of another one is refused."""


def words_of(kind: "Kind", parts: Layer, document: Mapping[str, Any], more: str = "") -> Vocabulary:
    """Returns what a spec of a kind may say with some parts.

    Args:
      kind: of the spec.
      parts: what is registered.
      document: the spec; which parts it mentions, decides whose parameters count.
      more: further words of the spec.

    Raises:
      PartError: two parts, or a part and the kind, mean unlike things by one name.
    """
    # What a file is called mentions no part.
    said = {key: value for key, value in document.items() if key not in ("use", "name")}
    return vocabulary.make(
        kind.study_keys,
        kind.parameters,
        kind.for_policies,
        kind.policy_category,
        kind.categories,
        kind.ignored,
        parts,
        frozenset(_WORD.findall(f"{said} {more}")),
    )


@dataclasses.dataclass(frozen=True)
class Study:
    """A checked spec."""

    kind: "Kind"
    words: Vocabulary
    parts: Layer = dataclasses.field(compare=False)
    """The parts that the spec can name, also those from the study's own files."""
    name: str
    mode: str
    rounds: int
    eval_every: int
    selection_gap: bool
    expected_regret: bool
    stop_at_latency: float
    seeds: tuple[int, ...]
    quantities: tuple[str, ...]
    """What is recorded in every round besides, by the names of parts."""
    axes: Mapping[str, Axis]
    """Every parameter's values, defaults filled in; more than one makes an axis."""
    zipped: tuple[tuple[str, ...], ...]
    """Groups of parameters whose lists advance together."""
    sampling: Sampling | None
    """Given if there are ranges."""
    policies: tuple[PolicySpec, ...]
    document: Mapping[str, Any]
    """The spec as given, overrides applied: what `spec.toml` in the result holds."""
    files: Mapping[str, str]
    """Digests of the files that runs depend on, by the path that the spec gives."""
    folder: Path
    """Where the relative paths of files start."""

    def __reduce__(self) -> Any:
        # Functions of users' files travel with their layer alone.
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["words"]
        return _study, (fields,)

    @functools.cached_property
    def outputs(self) -> "Outputs":
        """What its runs leave.

        Raises:
          PartError: a quantity has the name of another variable, or a task can't be built.
        """
        outputs = self.kind.outputs(self)
        # Another file is another data set. Sorted, because the order of sets differs between processes.
        sources = tuple(sorted(name for name, by in self.words.readers.items() if "dataset" in by))
        metrics = {
            name: metric._replace(scaled_by=(*metric.scaled_by, *sources))
            if "dataset" in metric.scaled_by
            else metric
            for name, metric in outputs.metrics.items()
        }
        within = outputs.compare_within
        within = (*within, *sources) if "dataset" in within else within
        return outputs._replace(metrics=metrics, compare_within=within)

    @functools.cached_property
    def factors(self) -> dict[str, tuple[Factor, ...]]:
        """What multiplies to the points of each policy, by label: lists, zipped groups, and all ranges."""
        found = {}
        for policy in self.policies:
            axes = {**self.axes, **policy.axes}
            groups = (*kept(self.zipped, policy.axes), *policy.zipped)
            found[policy.label] = factors(axes, groups, columns(self.axes, axes), self.sampling)
        return found

    @functools.cached_property
    def _outsiders(self) -> dict[tuple[str, str], str]:
        """Digests of the parts from outside the package that no entry of `use` covers."""
        found = {
            (category, name): digest_of(part)
            for category in (self.kind.policy_category, *self.kind.categories, "quantity")
            for name, part in registered_parts().of(category).items()
        }
        return {place: digest for place, digest in found.items() if digest}

    def settings(self, algorithm: str, values: Mapping[str, Any]) -> str:
        """Returns everything but the seed that the numbers of a run depend on, in one spelling.

        Of files the content counts and not the name: parameters that name files, all files of `use`, and the
        file of any other part from outside the package that the run uses.
        """
        named = {category: values.get(CATEGORIES[category].key) for category in self.kind.categories}
        used = {
            *named.items(),
            (self.kind.policy_category, algorithm),
            *(("quantity", n) for n in self.quantities),
        }
        outside = [digest for place, digest in self._outsiders.items() if place in used]
        known = self.words.parameters
        document = {
            "format": FORMAT,
            "algorithm": algorithm,
            "values": {
                name: self.files.get(value, value) if isinstance(value, File) else value
                for name, value in values.items()
                if not (known[name].added and value == known[name].default)
            },
            "mode": self.mode,
            "rounds": self.rounds,
            "eval_every": self.eval_every,
            "use": sorted([*(source.digest for source in self.parts.sources), *outside]),
        }
        # Left out where it is off: what a study does not use changes no identity.
        for key in ("selection_gap", "expected_regret", "stop_at_latency", "quantities"):
            if setting := getattr(self, key):
                document[key] = setting
        return json.dumps(document, sort_keys=True)


def _study(fields: dict[str, Any]) -> Study:
    return Study(words=words_of(fields["kind"], fields["parts"], fields["document"]), **fields)


class Outputs(NamedTuple):
    """What the runs of a study leave, and how their figures are compared."""

    variables: Mapping[str, Variable]
    """By name."""
    metrics: Mapping[str, Metric]
    """Figures per run, by name; in the order of tables and pictures."""
    objectives: tuple[str, str, str]
    """Metrics that a front weighs: upwards, across, and in colour."""
    best_by: str
    """The metric by which a table of many settings picks the best."""
    compare_within: tuple[str, ...]
    """Parameters: results with different values of them are never compared or connected in a plot."""


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """One kind of study: everything that the rest of the house does not know of it."""

    name: str
    modes: tuple[str, ...]
    """The values of a spec's `mode` that mean this kind."""
    study_keys: Mapping[str, Parameter]
    """Study-level keys: they shape the result's dimensions, so they can't be axes."""
    parameters: Mapping[str, Parameter]
    """Those that are no part's own."""
    for_policies: frozenset[str]
    """Of these, what nothing but policies reads."""
    policy_category: str
    """The category of parts that [[policy]] tables name."""
    categories: tuple[str, ...]
    """Every category of parts that its specs name."""
    ignored: Mapping[str, frozenset[str]]
    """Parameters that no run of a mode reads, beyond those of parts that the mode has no use for."""
    check: Callable[[Say, Study], None]
    """Says what does not fit together in a checked spec."""
    outputs: Callable[[Study], "Outputs"]
    """What the runs of a study leave; `Study.outputs` asks once."""
    coordinates: Callable[[Study, dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
    """Splits what runs left into coordinates and variables, and adds the index coordinates."""
    simulation: Callable[..., Simulation]
    """Maps (study, group, sources, devices=, layout=) to the simulation that the engine plays."""
    programs: tuple[Any, ...]
    """The jitted functions that groups are played by, each compiled for every group."""

    def __reduce__(self) -> Any:
        # A kind is a constant of its module; a copy in another process would be another kind.
        return _kind, (self.name,)


def _kind(name: str) -> Kind:
    from importlib import import_module

    return import_module(f"pausejax.{name}.kind").KIND


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a study comes to. Nothing is computed yet."""

    study: Study
    runs: tuple[Run, ...]
    groups: tuple[Group, ...]

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Parameters that take more than one value within some policy."""
        seen: dict[tuple[str, str], Any] = {}
        swept: set[str] = set()
        for run in self._points:
            for name, value in run.values.items():
                if seen.setdefault((run.policy, name), value) != value:
                    swept.add(name)
        return tuple(name for name in self.study.words.parameters if name in swept)

    @functools.cached_property
    def identities(self) -> tuple[str, ...]:
        """The identity of every run."""
        return tuple(run.identity for run in self.runs)

    @property
    def _points(self) -> Iterator[Run]:
        """One run of each point: its seeds share one mapping of values."""
        return iter({id(run.values): run for run in self.runs}.values())
