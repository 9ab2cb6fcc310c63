"""Defines the types of a study: its kind, its checked spec, and the runs that the spec describes.

`spec.parse` makes a `Study`, and `plan.make_plan` makes its `Plan`.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pausejax.analysis.quantities import Metric, Variable
from pausejax.parts import CATEGORIES, File, Parameter
from pausejax.parts.digest import digest_of
from pausejax.parts.extensions import Layer
from pausejax.study import vocabulary
from pausejax.study.axes import Axis, Factor, Sampling, columns, factors
from pausejax.study.runs import Group, Run
from pausejax.study.simulation import Arrays, Simulation
from pausejax.study.vocabulary import Say, Vocabulary
from pausejax.study.zipped import PolicySpec as PolicySpec
from pausejax.study.zipped import kept

_WORD = re.compile(r"\w+")
FORMAT = 3
"""Version of the format of identities and results; a folder with another version is refused."""


def words_of(kind: "Kind", parts: Layer, document: Mapping[str, Any], more: str = "") -> Vocabulary:
    """Returns the keys and parameters that a spec of a kind may use.

    Args:
      kind: the kind of the spec.
      parts: the registered parts.
      document: the spec; only parameters of the parts that it mentions are included.
      more: further text that may mention parts, such as overrides.

    Raises:
      PartError: a part and the kind use one name for different parameters.
    """
    # The name of a file, of the study or of a line in charts does not count as a mention of a part.
    said = {key: value for key, value in document.items() if key not in ("use", "name")}
    if isinstance(policies := document.get("policy"), list):
        said["policy"] = [{**t, "label": ""} if isinstance(t, Mapping) else t for t in policies]
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
    """Parts that the spec can name, including the parts from the study's own files."""
    name: str
    mode: str
    rounds: int
    eval_every: int
    selection_gap: bool
    expected_regret: bool
    client_metrics: bool
    keep_models: bool
    stop_at_latency: float
    seeds: tuple[int, ...]
    quantities: tuple[str, ...]
    """Names of the parts of category "quantity" that every round records."""
    axes: Mapping[str, Axis]
    """Values of every parameter, with defaults filled in; a parameter with several values is an axis."""
    zipped: tuple[tuple[str, ...], ...]
    """Groups of parameters whose lists advance together."""
    sampling: Sampling | None
    """Sampling of the ranges; None if there are no ranges."""
    policies: tuple[PolicySpec, ...]
    document: Mapping[str, Any]
    """The spec as given, with overrides applied; `spec.toml` in the result holds it."""
    files: Mapping[str, str]
    """Digests of the files that runs depend on, by the path in the spec."""
    folder: Path
    """Folder from which relative paths of files start."""

    def __reduce__(self) -> Any:
        # Functions of users' files can be pickled only together with the registry that holds them.
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["words"]
        return _study, (fields,)

    @functools.cached_property
    def outputs(self) -> "Outputs":
        """Variables and metrics of the study's runs.

        Raises:
          PartError: a quantity has the name of another variable, or a task can't be built.
        """
        outputs = self.kind.outputs(self)
        # A data set with other files counts as another data set. Names are sorted, because the order of sets
        # differs between processes.
        sources = tuple(sorted(name for name, by in self.words.readers.items() if "dataset" in by))
        metrics = {
            name: metric._replace(
                name=name, scaled_by=(*metric.scaled_by, *(sources if "dataset" in metric.scaled_by else ()))
            )
            for name, metric in outputs.metrics.items()
        }
        within = outputs.compare_within
        within = (*within, *sources) if "dataset" in within else within
        return outputs._replace(metrics=metrics, compare_within=within)

    @functools.cached_property
    def factors(self) -> dict[str, tuple[Factor, ...]]:
        """Factors of each policy, by the policy's label.

        A factor is a group of parameters that advance together. The policy's settings are the Cartesian
        product of the rows of its factors.
        """
        found = {}
        for policy in self.policies:
            axes = {**self.axes, **policy.axes}
            groups = (*kept(self.zipped, policy.axes), *policy.zipped)
            found[policy.label] = factors(axes, groups, columns(self.axes, axes), self.sampling)
        return found

    @functools.cached_property
    def outsiders(self) -> dict[tuple[str, str], str]:
        """Digests of the parts in use that are neither of the package nor in a file of `use`.

        If a file of `use` registers a function of a library, the digest of the library's file counts.

        Raises:
          PartError: a part has no digest.
        """
        axes = [values for axes in (self.axes, *(p.axes for p in self.policies)) for values in axes.values()]
        used = {value for values in axes if isinstance(values, tuple) for value in values}
        used |= {policy.algorithm for policy in self.policies} | set(self.quantities)
        found = {
            (category, name): part.content if part.is_of_use else digest_of(part)
            for category in (self.kind.policy_category, *self.kind.categories, "quantity")
            for name, part in self.parts.of(category).items()
            if name in used
        }
        return {place: digest for place, digest in found.items() if digest}

    @property
    def extent(self) -> dict[str, Any]:
        """The keys of the spec that are no parameters and that set what and how long runs record, by name."""
        limit = {"stop_at_latency": self.stop_at_latency} if self.stop_at_latency else {}
        return {"mode": self.mode, "rounds": self.rounds, "eval_every": self.eval_every, **limit}

    def code(self, algorithm: str, values: Mapping[str, Any]) -> list[str]:
        """Returns the digests of the files of `use`, then the names and digests of the other own parts."""
        named = {category: values.get(CATEGORIES[category].key) for category in self.kind.categories}
        used = {
            *named.items(),
            (self.kind.policy_category, algorithm),
            *(("quantity", n) for n in self.quantities),
        }
        outside = sorted(f"{' '.join(at)} {digest}" for at, digest in self.outsiders.items() if at in used)
        return [*(source.digest for source in self.parts.sources), *outside]

    def settings(self, algorithm: str, values: Mapping[str, Any]) -> str:
        """Returns what a run's results depend on, except the seed, as JSON with sorted keys.

        Files that parameters name, and those of `code`, count by their content and not by their names.
        """
        known, declared = self.words.parameters, self.words.declared_names(values)
        document = {
            **self.extent,
            "format": FORMAT,
            "algorithm": algorithm,
            "values": {
                declared[name]: self.files.get(value, value) if isinstance(value, File) else value
                for name, value in values.items()
                if not (known[name].added and value == known[name].default)
            },
            "use": self.code(algorithm, values),
        }
        # A feature that is off is left out. So identities of earlier releases without the feature stay valid.
        for key in ("selection_gap", "expected_regret", "client_metrics", "keep_models", "quantities"):
            if setting := getattr(self, key):
                document[key] = setting
        return json.dumps(document, sort_keys=True)


def _study(fields: dict[str, Any]) -> Study:
    words = words_of(fields["kind"], fields["parts"], fields["document"])
    return Study(words=words, **{**fields, "parts": words.parts})


class Outputs(NamedTuple):
    """Variables and metrics of a study's runs, and how the metrics are compared."""

    variables: Mapping[str, Variable]
    """Variables of the result, by name."""
    metrics: Mapping[str, Metric]
    """Metrics of a run, by name, in the order of tables and pictures."""
    objectives: tuple[str, str, str]
    """Metrics of a Pareto front: on the vertical axis, on the horizontal axis, and in colour."""
    best_by: str
    """Metric by which a table of many settings ranks them."""
    compare_within: tuple[str, ...]
    """Names of parameters. Results that differ in one of them are never compared or connected in a chart."""


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """One kind of study, with the functions and tables that are specific to this kind.

    Charts and the table of variables are found by the kind's name: `kinds.py` imports the modules
    `pausejax.NAME.charts` and `pausejax.NAME.variables` when they are needed.
    """

    name: str
    modes: tuple[str, ...]
    """Values of a spec's `mode` that select this kind."""
    study_keys: Mapping[str, Parameter]
    """Keys of the whole study. They set the result's dimensions, so they can't be axes."""
    parameters: Mapping[str, Parameter]
    """Parameters that belong to no part."""
    for_policies: frozenset[str]
    """Names in `parameters` that only policies read."""
    policy_category: str
    """Category of the parts that [[policy]] tables name."""
    categories: tuple[str, ...]
    """All other categories of parts that specs of this kind name."""
    ignored: Mapping[str, frozenset[str]]
    """By mode: parameters that no run reads, besides the parameters of parts that the mode does not use."""
    check: Callable[[Say, Study], None]
    """Function that reports the values of a checked spec that contradict each other."""
    outputs: Callable[[Study], "Outputs"]
    """Function that returns the outputs of a study; `Study.outputs` calls it once."""
    coordinates: Callable[[str, int, int, dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
    """Function (mode, rounds, eval_every, arrays) that splits the arrays of runs into coordinates and
    variables, and adds index coordinates."""
    complete: Callable[[Mapping[str, Variable], Arrays], Arrays]
    """Function (variables, arrays of runs) that adds the study's variables that the arrays lack. An extended
    study may have more variables than a file of its runs."""
    optional: frozenset[str]
    """Names of variables that runs of some policies lack even after `complete`."""
    simulation: Callable[..., Simulation]
    """Function (study, group, cache, devices=, layout=) that builds the simulation of a group."""
    jitted: tuple[Any, ...]
    """Jitted functions that simulate a group. `devices.forget` clears their caches of compiled programs."""

    def __reduce__(self) -> Any:
        # A kind is pickled by name, because it is a constant of its module and a copy would be another
        # object.
        return _kind, (self.name,)


def _kind(name: str) -> Kind:
    from importlib import import_module

    return import_module(f"pausejax.{name}.kind").KIND


@dataclasses.dataclass(frozen=True)
class Plan:
    """Runs of a study and their groups, before anything is computed."""

    study: Study
    runs: tuple[Run, ...]
    groups: tuple[Group, ...]

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Names of the parameters that take more than one value within some policy."""
        seen: dict[tuple[str, str], Any] = {}
        swept: set[str] = set()
        for run in self._points:
            for name, value in run.values.items():
                if seen.setdefault((run.policy, name), value) != value:
                    swept.add(name)
        return tuple(name for name in self.study.words.parameters if name in swept)

    @functools.cached_property
    def identities(self) -> tuple[str, ...]:
        """Identity of every run, in the order of `runs`."""
        return tuple(run.identity for run in self.runs)

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """Identities of all runs."""
        return frozenset(self.identities)

    @property
    def _points(self) -> Iterator[Run]:
        """Iterator over one run of each point; the runs of a point differ in the seed alone."""
        return iter({id(run.values): run for run in self.runs}.values())
