"""What runs side by side and how convolutions are done: the one place that knows about backends.

The results agree to float32 rounding whatever is chosen here.
"""

from typing import Literal, NamedTuple

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


# A core's second-level cache on the machine of the measurements, and what a job of n parameters keeps there:
# weights, gradient and two moments in float32.
_CACHE = 2**20
_BYTES_PER_PARAMETER = 16
_MOST_LANES = 16


def choose(backend: str, *, convolutional: bool, num_parameters: int) -> Placement:
    """The placement for a JAX backend and a network.

    On CPU as `scripts/bench/training.py` measured it: clients side by side while their weights fit the cache,
    and one at a time with convolutions, whose patches alone fill it; a few test images at a time for the
    same reason, but some hundreds for the matrix products of dense networks. Elsewhere a guess: launches
    dominate there, so much goes side by side.

    Args:
      backend: "cpu", "gpu", ...
      convolutional: whether the network has convolutions.
      num_parameters: of the network.
    """
    if backend == "cpu":
        fitting = _CACHE // (_BYTES_PER_PARAMETER * max(num_parameters, 1))
        lanes = 1 if convolutional else min(max(fitting, 1), _MOST_LANES)
        return Placement(lanes, eval_lanes=1, eval_batch=20 if convolutional else 500, conv="im2col")
    if convolutional:
        return Placement(256, eval_lanes=16, eval_batch=500, conv="im2col")
    return Placement(1024, eval_lanes=64, eval_batch=1000, conv="im2col")
