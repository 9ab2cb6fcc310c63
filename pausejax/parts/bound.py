"""A part with its static values: what a compiled program is shaped by."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from pausejax.parts.registry import Part


@dataclasses.dataclass(frozen=True)
class Bound:
    """A part whose static values are known. Equal ones shape equal programs, so it can be hashed."""

    part: Part = dataclasses.field(compare=False, repr=False)
    category: str
    name: str
    function: Any
    statics: tuple[tuple[str, Any], ...]
    traced: tuple[str, ...]
    """What is still missing, and differs between the runs of a program."""

    def build(self, *inputs: Any, **values: Any) -> Any:
        """Calls the part with its static values and with what it misses of some others."""
        return self.part.build(
            *inputs, **dict(self.statics), **{name: values[name] for name in self.traced if name in values}
        )


def bind(part: Part, values: Mapping[str, Any], given_traced: Collection[str] = ()) -> Bound:
    """A part with what it reads of some values, and with its own defaults where they say nothing.

    Args:
      part: any part.
      values: of parameters, and of what the simulation knows; more than it reads are no mistake.
      given_traced: names that it may be given later, besides its own traced parameters.
    """
    own = {name: parameter.default for name, parameter in part.parameters.items() if not parameter.traced}
    statics = own | {name: values[name] for name in part.reads & values.keys()}
    traced = {name for name, parameter in part.parameters.items() if parameter.traced}
    traced |= set(part.given) & set(given_traced)
    return Bound(
        part,
        part.category,
        part.name,
        part.function,
        tuple(sorted((name, value) for name, value in statics.items() if name not in traced)),
        tuple(sorted(traced)),
    )
