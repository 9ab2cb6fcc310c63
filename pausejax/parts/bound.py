"""Binds parts to their static values, which together define a compiled program."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from pausejax.parts.digest import digest_of
from pausejax.parts.parameter import File
from pausejax.parts.part import CATEGORIES, Part, PartError
from pausejax.spelling import nearest


@dataclasses.dataclass(frozen=True)
class Bound:
    """Part with known static values. It can be hashed, because equal bound parts give equal programs."""

    part: Part = dataclasses.field(compare=False, repr=False)
    category: str
    name: str
    function: Any
    statics: tuple[tuple[str, Any], ...]
    traced: tuple[str, ...]
    """Names of the values that are given later and differ between the runs of a program."""
    digest: str = ""
    """Digest of a part; "" for the parts of this package and of files of `use`.

    A notebook can redefine objects that the part uses. Then the digest changes, and a new program is
    compiled.
    """

    def build(self, *inputs: Any, **values: Any) -> Any:
        """Calls the part with its static values and with those of `values` that it still needs."""
        return self.part.build(
            *inputs, **dict(self.statics), **{name: values[name] for name in self.traced if name in values}
        )


def bind(
    part: Part, values: Mapping[str, Any], given_traced: Collection[str] = (), *, complete: bool = False
) -> Bound:
    """Returns a part with the values that it reads, and with its own defaults for missing values.

    Args:
      part: any part.
      values: values of parameters and of the simulation; values that the part does not read are ignored.
      given_traced: names of values that may be given later, besides the part's own traced parameters and, on
        a device, the numbers in its files.
      complete: whether `values` and `given_traced` contain everything that the part can be given.

    Raises:
      PartError: the part needs an unknown value that has no default.
    """
    later = {name for name, parameter in part.parameters.items() if parameter.traced}
    if CATEGORIES[part.category].on_device:
        # The numbers of a file are also an argument of the program.
        later |= {name for name, parameter in part.parameters.items() if parameter.kind is File}
        later |= {name for name in part.given if isinstance(values.get(name), File)}
    own = {name: parameter.default for name, parameter in part.parameters.items() if name not in later}
    statics = own | part.values_from(values)
    traced = later | (set(part.given) & set(given_traced))
    unknown = sorted(set(part.given) - statics.keys() - traced)
    if complete and unknown:
        known = sorted({*values, *given_traced})
        raise PartError(
            f"{part.file}: {part.category} {part.name}: {unknown[0]}: must have a default, or be one of "
            f"{', '.join(known)}{nearest(unknown[0], known)}"
        )
    return Bound(
        part,
        part.category,
        part.name,
        part.function,
        tuple(sorted((name, value) for name, value in statics.items() if name not in traced)),
        tuple(sorted(traced)),
        "" if part.is_of_use else digest_of(part),
    )
