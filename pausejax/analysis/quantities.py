"""What stands in a result and how it is shown: variables, and the figures per run that are made of them.

Each kind of study has one table of each; a result carries what a reader needs of them in its attributes, so
that a study with parts of its user's own is read without those parts.
"""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pausejax.analysis import schema

if TYPE_CHECKING:
    import xarray as xr


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Variable(NamedTuple):
    """One variable of a result."""

    dims: tuple[str, ...]
    """After `run`."""
    dtype: str
    fill: float
    """Where a run has no value: beyond its clients, its slots, its last round."""
    units: str
    meaning: str


class Metric(NamedTuple):
    """One figure per run, computed from one variable of a result, and how tables and pictures show it."""

    variable: str
    reduce: str
    """One of `metrics.REDUCTIONS`."""
    maximize: bool | None
    """Which way is better; None where neither is."""
    units: str
    meaning: str
    learned: bool = False
    """Whether it has no meaning for a model that ceased to be finite."""
    label: str = ""
    """On the axis of a picture; "" where pictures leave it out."""
    heading: str = ""
    """Of its column in the table of a study; "" where the table leaves it out."""
    scale: float = 1.0
    """What pictures and the table multiply it by."""
    shown: str = ".3g"
    """How the table writes it."""
    share: bool = False
    """Of something whole, so that a logarithmic scale would mislead."""
    scaled_by: tuple[str, ...] = ()
    """Parameters that change what it measures: across their values it can't be compared."""
    if_negative: str = ""
    """Why it may be below zero where a reader would not expect it; the table says so where it is."""
    name: str = ""
    """In the table of metrics that it was read from."""

    @property
    def axis_label(self) -> str:
        """Writes what charts show along its axis."""
        unit = "" if self.units == "1" else self.units
        if self.scale != 1:
            power = str(round(-math.log10(self.scale))).translate(_RAISED)
            unit = "%" if self.scale == 100 else f"10{power} {unit}".rstrip()
        return self.label or (f"{self.meaning} ({unit})" if unit else self.meaning)


def as_json(metrics: Mapping[str, Metric]) -> str:
    """Writes a table of metrics as a result carries it."""
    table = {name: metric._asdict() for name, metric in metrics.items()}
    for fields in table.values():
        del fields["name"]
    return json.dumps(table)


def format_number(value: float, form: str) -> str:
    """Writes a number in a format of `Metric.shown`; a zero has no sign and no exponent."""
    text = f"{value:{form}}"
    if float(text) == 0:
        return text.lstrip("-") if form.endswith("f") else "0"
    return text


def series(units: str, meaning: str) -> Variable:
    """Describes a number for each round."""
    return Variable(("round",), "float32", float("nan"), units, meaning)


def count(meaning: str, over: str = "round") -> Variable:
    """Describes a count for each round, or client; -1 is unknown."""
    return Variable((over,), "int32", -1, "1", meaning)


def described(
    metrics: Mapping[str, Metric],
    objectives: tuple[str, ...],
    ranking: str,
    parameters: Mapping[str, tuple[tuple[str, ...], str]],
    apart: tuple[str, ...] = ("dataset",),
) -> dict[str, str]:
    """Makes the attributes of a result by which it is read.

    Args:
      metrics: the kind's table.
      objectives: the metrics that a front weighs.
      ranking: the metric by which a table of many settings picks the best.
      parameters: aliases and symbol of every parameter.
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
    """Returns the table of metrics that a result carries."""
    found = {name: Metric(**fields) for name, fields in schema.read(result, "metrics").items()}
    return {
        name: metric._replace(name=name, scaled_by=tuple(metric.scaled_by)) for name, metric in found.items()
    }


def objectives_in(result: "xr.Dataset") -> tuple[str, ...]:
    """Returns the metrics that a front weighs."""
    return tuple(schema.read(result, "objectives"))


def parameters_in(result: "xr.Dataset") -> dict[str, tuple[tuple[str, ...], str]]:
    """Returns the aliases and the symbol of every parameter of the study."""
    found = schema.read(result, "parameters")
    return {name: (tuple(aliases), symbol) for name, (aliases, symbol) in found.items()}


def apart_in(result: "xr.Dataset") -> tuple[str, ...]:
    """Returns the parameters whose values are never mixed in one front or joined by one line."""
    return tuple(schema.read(result, "apart"))
