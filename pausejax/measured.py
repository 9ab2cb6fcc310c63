"""Provides layouts and rates of programs by backend, measured on other devices of the same kind.

The numbers are in `measured.json`, beside this file. The layouts of CPUs were measured (docs/benchmarks.md).
The layouts of GPUs come from the compiler's counts (docs/gpu.md), not from a device; `scripts/bench/gpu.py`
prints measured rows. The rates of CPUs were fitted to measured programs (docs/benchmarks.md, "Estimates of
`plan`").
"""

import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_suffix(".json")


@functools.cache
def _table() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def _of(backend: str) -> dict[str, Any]:
    return _table().get(backend) or _table()["elsewhere"]


class Rates(NamedTuple):
    """Rates of a device: the seconds that it takes for each unit of `execution.work.Work`."""

    equation: float
    """Seconds to compile one equation of a program."""
    operation: float
    """Seconds per operation."""
    number: float
    """Seconds per weighted number."""
    product: float
    """Seconds per FLOP of matrix products."""
    convolution: float
    """Seconds per FLOP of the library's convolutions."""


def rates(backend: str) -> Rates:
    """Returns the rates of one device of a backend. A CPU device is one core."""
    return Rates(**_of(backend)["seconds"])


def max_width(backend: str) -> int:
    """Returns the number of runs that are computed in parallel if they fit into memory."""
    return _of(backend)["runs"]


def nearest(backend: str, *, convolutional: bool, num_parameters: int) -> dict[str, int | str]:
    """Returns the layout of the measured network that is most similar to a given network.

    Args:
      backend: the name of the backend, such as "cpu" or "gpu".
      convolutional: whether the given network has convolutions.
      num_parameters: the number of parameters of the given network. Similarity is the difference of
        logarithms of this number.
    """
    alike = [row for row in _of(backend)["programs"] if row["convolutional"] == convolutional]
    size = math.log(max(num_parameters, 1))
    found = min(alike, key=lambda row: abs(math.log(row["parameters"]) - size))
    return {name: value for name, value in found.items() if name not in ("convolutional", "parameters")}
