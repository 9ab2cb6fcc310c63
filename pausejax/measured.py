"""How programs lie on a device that nobody has measured them on: what was measured elsewhere, by backend.

Rows of CPUs in `measured.json`, beside this file, were measured (docs/benchmarks.md). Rows of GPUs come from
the compiler's counts (docs/gpu.md), and from no device; `scripts/bench/gpu.py` prints measured ones. Rates of
CPUs were fitted to the programs of docs/benchmarks.md, "Estimates of `plan`".
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
    """What a device takes for what a traced program does, seconds each."""

    equation: float
    """Compiling one equation of a program."""
    operation: float
    number: float
    product: float
    """A FLOP of matrix products."""
    convolution: float
    """A FLOP of the library's convolutions."""


def rates(backend: str) -> Rates:
    """Returns the rates of one device of a kind; those of CPUs are of one core."""
    return Rates(**_of(backend)["seconds"])


def most_runs(backend: str) -> int:
    """The most runs that are put side by side where memory allows."""
    return _of(backend)["runs"]


def nearest(backend: str, *, convolutional: bool, num_parameters: int) -> dict[str, int | str]:
    """The layout of that measured network which is most like another one.

    Args:
      backend: "cpu", "gpu", ...
      convolutional: whether the network has convolutions.
      num_parameters: of the network; distance is that of logarithms.
    """
    alike = [row for row in _of(backend)["programs"] if row["convolutional"] == convolutional]
    size = math.log(max(num_parameters, 1))
    found = min(alike, key=lambda row: abs(math.log(row["parameters"]) - size))
    return {name: value for name, value in found.items() if name not in ("convolutional", "parameters")}
