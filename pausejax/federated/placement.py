"""What of learning lies side by side on a device, and how convolutions are done.

The results agree to float32 rounding whatever is chosen here.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from pausejax import measured

ConvVariant = Literal["im2col", "lax"]


class Placement(NamedTuple):
    """How work lies on a device."""

    lanes: int
    """Clients trained side by side."""
    eval_lanes: int
    """Global models evaluated side by side."""
    eval_batch: int
    """About so many test images at a time."""
    conv: ConvVariant


def choose(backend: str, *, convolutional: bool, num_parameters: int) -> Placement:
    """The placement of a network that nobody has measured: that of the measured one which is most like it.

    Args:
      backend: "cpu", "gpu", ...
      convolutional: whether the network has convolutions.
      num_parameters: of the network.
    """
    found: Any = measured.nearest(backend, convolutional=convolutional, num_parameters=num_parameters)
    return Placement(**found)


def read(values: Mapping[str, Any]) -> Placement:
    """A placement from values by name.

    Raises:
      ValueError: they are none.
    """
    if values.keys() != set(Placement._fields):
        raise ValueError(f"a placement has {', '.join(Placement._fields)}, not {', '.join(values)}")
    found = Placement(**values)
    for name, value in zip(Placement._fields[:-1], found[:-1], strict=True):
        if type(value) is not int or not 1 <= value <= 2**20:
            raise ValueError(f"{name}: {value!r} is no count")
    if found.conv not in get_args(ConvVariant):
        raise ValueError(f"conv: {found.conv!r} is none of {', '.join(get_args(ConvVariant))}")
    return found
