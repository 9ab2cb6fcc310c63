"""What runs side by side and how convolutions are done: the one place that knows about backends.

The results agree to float32 rounding whatever is chosen here.
"""

from typing import Literal, NamedTuple

ConvVariant = Literal["im2col", "lax"]


class Layout(NamedTuple):
    """How work lies on a device."""

    lanes: int
    """Clients trained side by side."""
    eval_lanes: int
    """Global models evaluated side by side."""
    eval_batch: int
    """About so many test images at a time."""
    conv: ConvVariant


def choose(backend: str, *, convolutional: bool) -> Layout:
    """The layout for a JAX backend and a kind of network.

    On CPU as `scripts/bench/training.py` measured it: what a few images of a convolutional network need fits
    a core's cache, so it goes one client and a few images at a time; matrix products of dense networks want
    more rows. Elsewhere a guess: launches dominate there, so much side by side.

    Args:
      backend: "cpu", "gpu", ...
      convolutional: whether the network has convolutions.
    """
    if backend == "cpu":
        return Layout(1, 1, 20, "im2col") if convolutional else Layout(16, 1, 500, "im2col")
    return Layout(256, 16, 500, "im2col") if convolutional else Layout(1024, 64, 1000, "im2col")
