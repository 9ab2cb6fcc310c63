"""What of learning lies side by side on a device, and how convolutions are done.

The results agree up to float32 rounding, and what training makes of it, whatever is chosen here.
"""

from typing import Any, Literal, NamedTuple

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
