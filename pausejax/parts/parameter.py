"""Parameters of a study: default, type, range, and whether the parameter is traced.

The values of a traced parameter are an array axis of the compiled program. A static parameter compiles a new
program for each value.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SMALLEST, LARGEST = 1e-15, 1e15
"""Bounds on the absolute value of real numbers except 0.

Within these bounds, squares and sums of millions of squares are normal float32 numbers.
"""
_LARGEST_COUNT = 2**31 - 1

MISSING: Any = inspect.Parameter.empty


class File(str):
    """Path of a file. A run depends on the file's content, not on its name.

    `File` can annotate a part's keyword argument. A part on the host, such as a data set, gets the path. A
    part on the device, such as a latency law, gets the numbers in the file, float32 [rows, columns].
    """

    @property
    def path(self) -> Path:
        return Path(str(self))


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Parameter of a study.

    A part declares a parameter as the default of a keyword argument, or in an annotation
    `Annotated[float, Parameter(...)]`. Unlike a plain default, a `Parameter` also has bounds, section and
    symbol.
    """

    default: Any = MISSING
    help: str = ""
    _: dataclasses.KW_ONLY
    name: str = ""
    section: str = ""
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """Whether `low` itself is out of range."""
    high_open: bool = False
    """Whether `high` itself is out of range."""
    choices: tuple[str, ...] = ()
    traced: bool = False
    zero_is_static: bool = False
    """Whether the value 0 of a traced parameter compiles a separate program without the parameter's term."""
    aliases: tuple[str, ...] = ()
    """Short names, which specs accept and results repeat."""
    symbol: str = ""
    """Symbol of the parameter in papers and pictures; specs accept it."""
    added: bool = False
    """Whether the parameter was added after a release. Then its default is left out of runs' identities, so
    that older results stay valid."""
    unread_with: tuple[str, frozenset[Any]] | None = None
    """Name of another parameter, and the values of that parameter with which no run depends on this
    parameter."""
    units: str = ""
    """Unit as a symbol, such as "s"; "" for pure numbers, counts and words. Results repeat the unit."""

    @property
    def kind(self) -> type:
        return type(self.default)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Names besides `name` that a spec may use for the parameter."""
        return tuple(dict.fromkeys((*self.aliases, *filter(None, [self.symbol]))))

    def allowed(self) -> str:
        """Returns the values that pass `problem`, in words."""
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is File:
            return "the path of a file"
        if self.kind is str:
            return "a string"
        noun = "an integer" if self.kind is int else "a finite number"
        bounds = []
        if self.low > -math.inf:
            bounds.append(f"{'>' if self.low_open else '>='} {self.low}")
        if self.high < math.inf:
            bounds.append(f"{'<' if self.high_open else '<='} {self.high}")
        return " ".join([noun, " and ".join(bounds)]).strip()

    def problem(self, value: Any) -> str | None:
        """Returns why a value is not allowed, or None."""
        if self.kind is bool:
            ok = isinstance(value, bool)
        elif issubclass(self.kind, str):
            ok = isinstance(value, str) and (not self.choices or value in self.choices)
            if ok and not value.isprintable():
                return "must not contain control characters"
        else:
            number = (int,) if self.kind is int else (int, float)
            ok = isinstance(value, number) and not isinstance(value, bool) and _is_finite(value)
            if ok and self.kind is int:
                ok = self._within(value) and abs(value) <= _LARGEST_COUNT
            elif ok and value and not SMALLEST <= abs(value) <= LARGEST:
                return f"must be {self.allowed()}; absolute values except 0: from {SMALLEST:g} to {LARGEST:g}"
            elif ok:
                # The device gets the value in float32, in which 1 + 1e-9 is 1.
                ok = self._within(float(np.float32(value)))
        return None if ok else f"must be {self.allowed()}"

    def _within(self, value: float) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)

    def agrees_with(self, other: "Parameter") -> bool:
        """Returns whether two parts may share a parameter."""
        return not self.differences(other)

    def differences(self, other: "Parameter") -> list[str]:
        """Returns the fields that keep two parts from sharing a parameter.

        Different `help` does not count, and different `units` count only if both parameters have a unit.
        """
        names = [field.name for field in dataclasses.fields(self) if field.name != "help"]
        unlike = [name for name in names if getattr(self, name) != getattr(other, name)]
        return [name for name in unlike if name != "units" or (self.units and other.units)]


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond any float
        return False


def table(**sections: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Returns parameters by name, each with its name and its section of the spec filled in."""
    return {
        name: dataclasses.replace(parameter, name=name, section=section)
        for section, parameters in sections.items()
        for name, parameter in parameters.items()
    }


def default_of(function: Callable[..., Any], argument: str) -> Any:
    """Returns the default of a function's argument, so that the default is written in one place.

    Raises:
      KeyError: the function has no such argument.
    """
    return inspect.signature(function).parameters[argument].default
