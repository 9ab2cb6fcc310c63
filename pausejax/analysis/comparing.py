"""What can be compared among runs, and what can't."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import metrics_in
from pausejax.analysis.selecting import some, written
from pausejax.analysis.settings import group_by, has, symbols


class Incomparable(ValueError):
    """A metric means something else for each value of a parameter, and there are several."""

    def __init__(self, metric: str, parameter: str, short: str, values: Sequence[Any], ask: str) -> None:
        self.parameter, self.value = short, values[0]
        shown = some(written(value) for value in values)
        self.problem = f"{metric}: means something else for each {short}, which is {shown} here"
        inside = f", or compare within each, {ask}={parameter!r}" if ask else ""
        super().__init__(f"{self.problem}: choose one, where={{{parameter!r}: {values[0]!r}}}{inside}")


def refuse_unlike(
    result: xr.Dataset, metric: str, values: np.ndarray, groups: Sequence[str] = (), ask: str = "per"
) -> None:
    """Sees to it that figures can be compared: that nothing which their scale depends on differs.

    Args:
      result: a result, or its `finals`.
      metric: a name out of `metrics_of(result)`.
      values: float [run], of the metric; runs without a value do not count.
      groups: coordinates; figures are compared within each of their values alone.
      ask: the argument by which the caller asks for groups; "" if there is none.

    Raises:
      Incomparable: something differs.
    """
    for name, seen in unlike(result, metric, values, groups).items():
        raise Incomparable(metric, name, symbols(result).get(name, name), seen, ask)


def unlike(
    result: xr.Dataset, metric: str, values: np.ndarray | None = None, groups: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Finds what a metric's scale depends on and what differs among runs of one group, with its values."""
    found: dict[str, list[Any]] = {}
    known = metrics_in(result).get(metric)
    there = np.ones(result.sizes["run"], bool) if values is None else ~np.isnan(values)
    owner, _ = group_by(result, groups)
    for name in known.scaled_by if known else ():
        if name not in result.coords:
            continue
        column = result[name].values
        mine = there & has(result, name)
        for one in np.unique(owner):
            seen = np.unique(column[mine & (owner == one)]).tolist()
            if len(seen) > 1:
                found[name] = seen
    return found
