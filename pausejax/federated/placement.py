"""Places learning on a device: how much is computed in parallel, and how convolutions are computed.

The results of two placements differ only by float32 rounding, which training can amplify.
"""

from typing import Any, Literal, NamedTuple

from pausejax import measured

ConvVariant = Literal["im2col", "lax"]


class Placement(NamedTuple):
    """Placement of work on a device."""

    lanes: int
    """Number of clients that are trained in parallel."""
    eval_lanes: int
    """Number of global models that are evaluated in parallel."""
    eval_batch: int
    """Approximate number of test samples in an evaluation batch."""
    conv: ConvVariant


def choose(backend: str, *, convolutional: bool, num_parameters: int) -> Placement:
    """Returns the placement of the measured network that is most similar to a given network.

    Args:
      backend: the backend, "cpu", "gpu", ...
      convolutional: whether the network has convolutions.
      num_parameters: the number of parameters of the network.
    """
    found: Any = measured.nearest(backend, convolutional=convolutional, num_parameters=num_parameters)
    return Placement(**found)
