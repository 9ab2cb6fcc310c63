"""A part with its static arguments put in: what a compiled program is made of and compared by."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pausejax.parts.parameter import File, Parameter
from pausejax.parts.registry import Part, PartError


@dataclasses.dataclass(frozen=True)
class Bound:
    """A part that waits for its traced numbers and the numbers in its files.

    Equal if part and static arguments are, so that it may shape a compiled program.
    """

    part: Part
    static: tuple[tuple[str, Any], ...]
    traced: tuple[str, ...] = ()
    """Names of the arguments that are traced."""
    files: tuple[str, ...] = ()
    """Names of the arguments that are the numbers in a file."""

    def build(self, hyper: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> Any:
        """What the part makes of one run's traced numbers (or, under vmap, of each run's)."""
        traced = {name: hyper[name] for name in self.traced}
        read = {name: (files or {})[name] for name in self.files}
        return self.part.build(**dict(self.static), **traced, **read)


def bind(
    part: Part,
    values: Mapping[str, Any],
    parameters: Mapping[str, Parameter],
    derived: Mapping[str, Any] | None = None,
) -> Bound:
    """Binds a part that runs on the device to the values of one group of runs.

    Args:
      part: the part.
      values: of static parameters, by name.
      parameters: all that a spec knows.
      derived: what the simulation knows besides.

    Raises:
      PartError: it wants something that nobody knows and that has no default.
    """
    known = {**values, **(derived or {})}
    traced, files, static = [], [], {}
    for name in sorted(part.reads):
        parameter = parameters.get(name)
        if parameter is not None and parameter.traced:
            traced.append(name)
        elif parameter is not None and parameter.kind is File:
            files.append(name)
        elif name in known:
            static[name] = known[name]
        elif name not in part.parameters:
            raise PartError(
                f"{part.file}: {part.category} {part.name}: {name}: is no parameter of a spec and has no default"
            )
    return Bound(part, tuple(sorted(static.items())), tuple(traced), tuple(files))
