"""Descriptions of a result's variables, and of the metrics that are computed from them.

Each kind of study has a table of variables and a table of metrics. A result contains its table of metrics in
its attributes. So the result of a study with a user's parts can be read without these parts.
"""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pausejax.analysis import schema

if TYPE_CHECKING:
    import xarray as xr


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
COUNTS = frozenset(
    (
        "arrived",
        "available_count",
        "counts",
        "failed_count",
        "late_count",
        "releases",
        "reports",
        "selected",
        "sent_counts",
    )
)
"""Variables of all kinds of studies in which -1 stands for no value."""


class Variable(NamedTuple):
    """One variable of a result."""

    dims: tuple[str, ...]
    """Dimensions of the variable after `run`."""
    dtype: str
    fill: float
    """Value that stands for a missing value: beyond a run's clients, slots or last round."""
    units: str
    meaning: str


class Metric(NamedTuple):
    """Metric of a run: a number that is computed from one variable, and its form in tables and charts."""

    variable: str
    reduce: str
    """Name of the function in `metrics.REDUCTIONS` that computes the metric."""
    maximize: bool | None
    """Whether a larger value is better; None if neither direction is better."""
    units: str
    meaning: str
    learned: bool = False
    """Whether the metric describes the learned model. Such a metric has no meaning for a run that
    diverged."""
    label: str = ""
    """Label on the axis of a chart; "" if charts do not show the metric by default."""
    heading: str = ""
    """Heading of the metric's column in the table of a study; "" if the table does not show the metric."""
    scale: float = 1.0
    """Factor by which charts and the table multiply the metric."""
    shown: str = ".3g"
    """Number format of the metric in the table of a study."""
    share: bool = False
    """Whether the metric is a share of a whole. Charts show shares on a linear scale."""
    scaled_by: tuple[str, ...] = ()
    """Parameters that change the metric's meaning.

    Runs with different values of these parameters can't be compared by the metric.
    """
    if_negative: str = ""
    """Reason why the metric may be negative, if this is unexpected.

    The table shows the reason with a negative mean.
    """
    name: str = ""
    """Name of the metric in the table of metrics of a study or a result; "" in the table of a kind."""

    @property
    def is_sum(self) -> bool:
        """Whether the metric is a sum over the rounds of a run, such as the simulated time."""
        return self.reduce == "total" or (self.variable == "elapsed" and self.reduce == "last")

    @property
    def unit(self) -> str:
        """The unit in which charts and tables show the metric; "" if it has none."""
        unit = "" if self.units == "1" else self.units
        if self.scale == 1:
            return unit
        power = str(round(-math.log10(self.scale))).translate(_RAISED)
        return "%" if self.scale == 100 else f"10{power} {unit}".rstrip()

    @property
    def axis_label(self) -> str:
        """The label of the metric's axis in charts, with the unit."""
        return self.label or self.with_unit(self.meaning)

    @property
    def short_label(self) -> str:
        """The label of the metric's axis; without a label its name with the unit."""
        return self.label or self.with_unit(self.name.replace("_", " "))

    def with_unit(self, words: str) -> str:
        """Appends the metric's unit, if it has one, to some words."""
        return f"{words} ({self.unit})" if self.unit else words


def as_json(metrics: Mapping[str, Metric]) -> str:
    """Returns a table of metrics as JSON, for the attributes of a result."""
    table = {name: metric._asdict() for name, metric in metrics.items()}
    for fields in table.values():
        del fields["name"]
    return json.dumps(table)


def tables(variables: Mapping[str, Variable], metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Returns the variables and metrics of a study by name, for comparison with those of another study.

    Their meanings are left out: a meaning in words does not change what a number is.
    """
    told = {name: metric._replace(meaning="") for name, metric in metrics.items()}
    return {
        **{name: variable._replace(meaning="") for name, variable in variables.items()},
        "metrics": json.loads(as_json(told)),
    }


def format_number(value: float, form: str) -> str:
    """Formats a number by a format such as ".3g".

    Zero has no sign and no exponent. Infinity is written as ∞, and NaN as a dash.
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    text = f"{value:{form}}"
    if float(text) == 0:
        return text.lstrip("-") if form.endswith("f") else "0"
    return text


def series(units: str, meaning: str) -> Variable:
    """Returns the description of a variable with a number for each round."""
    return Variable(("round",), "float32", float("nan"), units, meaning)


def count(meaning: str, over: str = "round") -> Variable:
    """Returns the description of a variable with a count for each entry of the dimension `over`.

    -1 marks a missing value.
    """
    return Variable((over,), "int32", -1, "1", meaning)


def described(
    metrics: Mapping[str, Metric],
    objectives: tuple[str, ...],
    ranking: str,
    parameters: Mapping[str, tuple[tuple[str, ...], str]],
    apart: tuple[str, ...] = ("dataset",),
) -> dict[str, str]:
    """Returns the attributes that describe a result.

    Args:
      metrics: the table of metrics of the kind of study.
      objectives: names of the metrics of the Pareto front.
      ranking: name of the metric by which a table of many settings ranks them.
      parameters: the aliases and the symbol of every parameter.
      apart: the parameters whose values are never mixed in one front or joined by one line.
    """
    return {
        "metrics": as_json(metrics),
        "objectives": json.dumps(objectives),
        "ranking": ranking,
        "parameters": json.dumps(parameters),
        "apart": json.dumps(apart),
    }


def metrics_in(result: "xr.Dataset") -> dict[str, Metric]:
    """Returns the table of metrics in the attributes of a result."""
    found = {name: Metric(**fields) for name, fields in schema.read(result, "metrics").items()}
    return {
        name: metric._replace(name=name, scaled_by=tuple(metric.scaled_by)) for name, metric in found.items()
    }


def objectives_in(result: "xr.Dataset") -> tuple[str, ...]:
    """Returns the names of the metrics of the Pareto front of a result."""
    return tuple(schema.read(result, "objectives"))


def parameters_in(result: "xr.Dataset") -> dict[str, tuple[tuple[str, ...], str]]:
    """Returns the aliases and the symbol of every parameter of the study."""
    found = schema.read(result, "parameters")
    return {name: (tuple(aliases), symbol) for name, (aliases, symbol) in found.items()}


def apart_in(result: "xr.Dataset") -> tuple[str, ...]:
    """Returns the parameters whose values are never mixed in one front or joined by one line."""
    return tuple(schema.read(result, "apart"))
