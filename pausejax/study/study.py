"""What a study is: its kind, the checked spec, and the runs that it comes to."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pausejax.analysis.quantities import Metric, Variable
from pausejax.parts import CATEGORIES, File, Parameter, everything
from pausejax.parts.extensions import Layer, digest_of
from pausejax.study import vocabulary
from pausejax.study.axes import Axis, Factor, Sampling, columns, factors
from pausejax.study.simulation import Simulation
from pausejax.study.trials import Variants
from pausejax.study.vocabulary import Say, Vocabulary
from pausejax.study.zipped import kept

FORMAT = 2
"""Of identities and results: a folder of another one is refused."""


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """One `[[policy]]` table: the registered algorithm, its label in results, and its own axes."""

    algorithm: str
    label: str
    axes: Mapping[str, Axis]
    zipped: tuple[tuple[str, ...], ...] = ()
    """Groups of parameters whose lists advance together."""


def words_of(kind: "Kind", parts: Layer) -> Vocabulary:
    """What the specs of a kind may say with some parts.

    Raises:
      PartError: two parts, or a part and the kind, mean unlike things by one name.
    """
    return vocabulary.make(
        kind.study, kind.parameters, kind.for_policies, kind.policies, kind.categories, kind.unread, parts
    )


@dataclasses.dataclass(frozen=True)
class Study:
    """A checked spec."""

    kind: "Kind"
    words: Vocabulary
    parts: Layer = dataclasses.field(compare=False)
    """What the spec's words stand for, parts of the study's own files among them."""
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
            for category in (self.kind.policies, *self.kind.categories, "quantity")
            for name, part in everything().of(category).items()
        }
        return {place: digest for place, digest in found.items() if digest}

    def settings(self, algorithm: str, values: Mapping[str, Any]) -> str:
        """Everything but the seed that the numbers of a run depend on, in one spelling.

        Of files the content counts and not the name: parameters that name files, all files of `use`, and the
        file of any other part from outside the package that the run uses.
        """
        named = {category: values.get(CATEGORIES[category].key) for category in self.kind.categories}
        used = {*named.items(), (self.kind.policies, algorithm), *(("quantity", n) for n in self.quantities)}
        outside = [digest for place, digest in self._outsiders.items() if place in used]
        document = {
            "format": FORMAT,
            "algorithm": algorithm,
            "values": {
                name: self.files.get(value, value) if isinstance(value, File) else value
                for name, value in values.items()
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
    return Study(words=words_of(fields["kind"], fields["parts"]), **fields)


def _identity(settings: str, seed: int) -> str:
    return hashlib.sha256(f"{settings}{seed}".encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """One kind of study: everything that the rest of the house does not know of it."""

    name: str
    modes: tuple[str, ...]
    """The values of a spec's `mode` that mean this kind."""
    study: Mapping[str, Parameter]
    """Study-level keys: they shape the result's dimensions, so they can't be axes."""
    parameters: Mapping[str, Parameter]
    """Those that are no part's own."""
    for_policies: frozenset[str]
    """Of these, what nothing but policies reads."""
    policies: str
    """The category of parts that [[policy]] tables name."""
    categories: tuple[str, ...]
    """Every category of parts that its specs name."""
    unread: Mapping[str, frozenset[str]]
    """Parameters that no run of a mode reads, beyond those of parts that the mode has no use for."""
    shape: Callable[[Mapping[str, Any]], Any]
    """What of a run's traced values shapes its program all the same."""
    check: Callable[[Say, Study], None]
    """Says what does not fit together in a checked spec."""
    variables: Callable[[Study], Mapping[str, Variable]]
    """Of a result, by name."""
    unrecorded: Callable[[Study], frozenset[str]]
    """Of these, what no run of a study leaves."""
    metrics: Callable[[Study], Mapping[str, Metric]]
    """Figures per run, by name; in the order of tables and pictures."""
    objectives: Callable[[Study], tuple[str, str, str]]
    """Metrics that a front weighs: upwards, across, and in colour."""
    ranking: Callable[[Study], str]
    """The metric by which a table of many settings picks the best."""
    apart: tuple[str, ...]
    """Parameters whose values are never mixed in one front or joined by one line."""
    labels: Callable[[Study, dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
    """Splits what runs left into coordinates and variables, and adds the index coordinates."""
    simulation: Callable[..., Simulation]
    """(plan, group, sources, devices=, layout=) to what the engine plays."""
    programs: tuple[Any, ...]
    """The jitted functions that groups are played by, each compiled for every group."""
    variants: Callable[..., Variants | None]
    """(plan, group, sources) to what may lie on the devices in several ways; None: nothing."""
    seconds: Callable[..., float]
    """(plan, group, simulation, FLOP/s of the device) to a rough time for all rounds of the group's runs."""
    draw: Callable[..., dict[str, Any]]
    """(result, grid, smoothing=) to figures by file name; what the panels and lines are, the grid says."""
    unshown: Callable[[Any], list[str]]
    """Result to one line for each thing that its own pictures leave out, and why."""

    def __reduce__(self) -> Any:
        # A kind is a constant of its module; a copy in another process would be another kind.
        return _kind, (self.name,)


def _kind(name: str) -> Kind:
    from importlib import import_module

    return import_module(f"pausejax.{name}.kind").KIND


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: all that its numbers depend on."""

    policy: str
    """The label in results."""
    algorithm: str
    seed: int
    values: Mapping[str, Any]
    """Every parameter that this run reads."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that one compiled program serves."""

    number: int
    """Its place in the plan's `groups`."""
    algorithm: str
    static: Mapping[str, Any]
    """Values of the static parameters that the runs read."""
    members: tuple[int, ...]
    """Places of its runs in the plan's `runs`; a row is a place in here."""


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
        """The identity of every run: a hash of all that its numbers depend on, and not of its place."""
        settings = {id(run.values): self.study.settings(run.algorithm, run.values) for run in self._points}
        return tuple(_identity(settings[id(run.values)], run.seed) for run in self.runs)

    def runs_of(self, group: Group) -> list[Run]:
        """The runs of a group, in the order of its rows."""
        return [self.runs[place] for place in group.members]

    @property
    def _points(self) -> Iterator[Run]:
        """One run of each point: its seeds share one mapping of values."""
        return iter({id(run.values): run for run in self.runs}.values())
