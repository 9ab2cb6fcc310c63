"""Checks whether the values of a metric can be compared among runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis.per_run import ROUNDS, is_sum
from pausejax.analysis.quantities import metrics_in
from pausejax.analysis.selecting import some, written
from pausejax.analysis.settings import axes_of, group_by, has, symbols


class Incomparable(ValueError):
    """Error that the values of a metric can't be compared among some runs."""

    reason = "sums over unequally many rounds"
    """Why the values can't be compared. The text names no value."""


class UnlikeMeaning(Incomparable):
    """Error that a metric's meaning depends on a parameter whose values differ."""

    def __init__(
        self, metric: str, parameter: str, short: str, values: Sequence[Any], ask: str, *, is_axis: bool
    ) -> None:
        self.parameter, self.value, self.is_axis = short, values[0], is_axis
        shown = some(written(value) for value in values)
        self.reason = f"not comparable between runs with different {short}"
        self.problem = f"{metric}: {self.reason}, here {shown}"
        one, each = f"select(result, {parameter}={values[0]!r})", ""
        if ask:
            one = f"where={{{parameter!r}: {values[0]!r}}}"
            each = f", or for each value: {ask}={parameter!r}" if is_axis else ""
        super().__init__(f"{self.problem}. Compare only runs with one value: {one}{each}")


def refuse_unlike(
    result: xr.Dataset, metric: str, values: np.ndarray, groups: Sequence[str] = (), ask: str = "per"
) -> None:
    """Checks that a metric means the same for all runs of each group.

    The runs of a group must have equal values of all parameters on which the metric's meaning depends. If the
    metric is a sum over rounds, the runs must have equally many rounds.

    Args:
      result: the `finals` of a result, from `with_divergence`.
      metric: a name in `metrics_of(result)`.
      values: values of the metric, float [run]; runs with NaN are ignored.
      groups: names of coordinates; runs are only compared if they have equal values of these coordinates.
      ask: the argument by which the caller sets the groups, for the message; "" if there is none.

    Raises:
      UnlikeMeaning: within a group, a parameter differs on which the metric's meaning depends.
      Incomparable: the metric is a sum over rounds, and the runs lasted unequally many rounds, or the result
        lacks their number.
    """
    for name, seen in unlike(result, metric, values, groups).items():
        short, is_axis = symbols(result).get(name, name), name in axes_of(result)
        raise UnlikeMeaning(metric, name, short, seen, ask, is_axis=is_axis)
    if not is_sum(result, metric) or ROUNDS not in metrics_in(result):
        return
    if ROUNDS not in result:
        raise Incomparable(
            f"{metric}: is a sum over rounds, and the result does not tell how many. Select elapsed too, "
            'such as result[["reward", "elapsed"]], or rounds_played of finals'
        )
    there, owner = ~np.isnan(values), group_by(result, groups)[0]
    for one in np.unique(owner[there]):
        rounds = result[ROUNDS].values[there & (owner == one)]
        if rounds.min() < rounds.max():
            raise Incomparable(
                f"{metric}: is a sum over {rounds.min():g} to {rounds.max():g} rounds, so not comparable. "
                "Compare another metric, or simulate the study without stop_at_latency"
            )


def unlike(
    result: xr.Dataset, metric: str, values: np.ndarray | None = None, groups: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Returns the parameters that a metric's meaning depends on and that differ within a group of runs.

    The result has the list of values of each such parameter. The arguments are those of `refuse_unlike`;
    without `values`, no run is ignored.
    """
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
