"""What settings are judged by, metrics at a round or at a simulated time and constraints there; trials."""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pausejax.analysis.choice import non_dominated
from pausejax.analysis.metrics import REDUCTIONS
from pausejax.analysis.quantities import Metric
from pausejax.searches.options import SearchOptions
from pausejax.searches.space import Setting
from pausejax.spelling import nearest
from pausejax.study.simulation import Arrays
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

_CONSTRAINT = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+.\deE]+)\s*")
_SIGN: Mapping[str, Callable[[float, float], float]] = {
    "<=": operator.sub,
    ">=": lambda value, bound: bound - value,
}


class Constraint(NamedTuple):
    """A bound on the mean of a metric."""

    metric: str
    relation: str
    """"<=" or ">="."""
    bound: float

    def violation(self, value: float) -> float:
        """Returns by how much a value breaks the bound: relative to the bound if it is not 0; inf for NaN."""
        if np.isnan(value):
            return np.inf
        return max(_SIGN[self.relation](value, self.bound), 0.0) / (abs(self.bound) or 1.0)


class Score(NamedTuple):
    """What a setting is worth at the horizon, as means over its seeds."""

    values: tuple[float, ...]
    """The value of each objective, with its sign such that more is better; NaN is worst."""
    violation: float = 0.0
    """By how much it breaks the constraints, summed; 0: it keeps them."""


class Trial(NamedTuple):
    """A setting that was tried."""

    number: int
    setting: Setting
    score: Score
    figures: np.ndarray
    """The metrics of each seed at the horizon of the search, float64 [seeds, metrics]."""
    rounds: int
    """That its runs have played, summed over them."""
    short: bool
    """Whether some of its runs played all their rounds before the simulated time of the comparison."""


class Row(NamedTuple):
    """A trial as plain data."""

    number: int
    policy: str
    values: dict[str, Any]
    """Of what the search chose; parameters of other policies are left out."""
    rounds: int
    """That its runs have played, summed over them."""
    figures: dict[str, float | None]
    """At the horizon, averaged over its seeds; None where one has no value."""
    broken: bool
    """Whether it breaks a constraint."""


class Goal(NamedTuple):
    """What settings are judged by."""

    metrics: tuple[str, ...]
    maximize: tuple[bool, ...]
    constraints: tuple[Constraint, ...]
    horizon: float
    """The round, or the simulated second, at which settings are compared."""
    by_latency: bool
    """Whether the horizon is in simulated seconds."""

    @property
    def figures(self) -> tuple[str, ...]:
        """Every metric that is read."""
        return tuple(dict.fromkeys((*self.metrics, *(constraint.metric for constraint in self.constraints))))

    @property
    def where(self) -> str:
        """The horizon in words."""
        return f"{self.horizon:g} {'simulated seconds' if self.by_latency else 'rounds'}"

    def score(self, figures: np.ndarray) -> Score:
        """Scores a setting by its seeds' figures, [seeds, figures]; one seed's NaN makes a mean NaN."""
        means = dict(zip(self.figures, figures.mean(axis=0).tolist(), strict=True))
        ways = zip(self.metrics, self.maximize, strict=True)
        values = tuple(means[name] if up else -means[name] for name, up in ways)
        return Score(values, sum(c.violation(means[c.metric]) for c in self.constraints))


def order(scores: Sequence[Score]) -> np.ndarray:
    """Ranks settings: their places, best first; of equal ones the earlier comes first.

    Those that keep the constraints come before those that do not; among the former, fronts of
    non-dominated ones in their order, within a front those that are more alone first.
    """
    if not scores:
        return np.zeros(0, int)
    values = np.array([score.values for score in scores], np.float64)
    values = np.where(np.isnan(values), -np.inf, values)
    violation = np.array([score.violation for score in scores], np.float64)
    violation = np.where(np.isnan(violation), np.inf, violation)
    if values.shape[1] == 1:
        return np.lexsort((np.arange(len(scores)), -values[:, 0], violation))
    front, alone = fronts(values)
    return np.lexsort((np.arange(len(scores)), -alone, front, violation))


def fronts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of each point's front, from 0, and its crowding distance there (Deb et al. 2002).

    Args:
      values: [n, d], more is better, without NaN.
    """
    front, alone = np.full(len(values), -1), np.zeros(len(values))
    level = 0
    while (left := np.flatnonzero(front < 0)).size:
        best = left[non_dominated(values[left], [True] * values.shape[1])]
        front[best] = level
        alone[best] = _crowding(values[best])
        level += 1
    return front, alone


def _crowding(values: np.ndarray) -> np.ndarray:
    distances = np.zeros(len(values))
    for column in np.where(np.isfinite(values), values, np.finfo(float).min / 4).T:
        along = np.argsort(column, kind="stable")
        gaps = np.zeros(len(values))
        gaps[along[[0, -1]]] = np.inf
        width = column[along[-1]] - column[along[0]]
        if width > 0:
            gaps[along[1:-1]] = (column[along[2:]] - column[along[:-2]]) / width
        distances = distances + gaps
    return distances


def constraint_of(text: str) -> Constraint:
    """Reads "max_leakage<=50".

    Raises:
      SpecError: it can't be read.
    """
    found = _CONSTRAINT.fullmatch(text)
    try:
        bound = float(found[3]) if found else math.nan
    except ValueError:
        bound = math.nan
    if found is None or not math.isfinite(bound):
        allowed = "METRIC<=NUMBER or METRIC>=NUMBER, as max_leakage<=50"
        raise SpecError([f"--constraint {text}: must be {allowed}"])
    return Constraint(found[1], found[2], bound)


def _contradiction(bounds: Sequence[Constraint]) -> Iterator[str]:
    for low in bounds:
        for high in bounds:
            above = low.relation == ">=" and high.relation == "<=" and low.bound > high.bound
            if above and low.metric == high.metric:
                told = f"no value is at least {low.bound:g} and at most {high.bound:g}"
                yield f"--constraint {low.metric}: {told}"


def goal_of(study: Study, options: SearchOptions) -> Goal:
    """Checks what a search is after.

    Args:
      study: what is searched, up to the horizon.
      options: what is asked.

    Raises:
      SpecError: with one line per mistake.
    """
    known, problems = study.outputs.metrics, []
    bounds = [constraint_of(text) for text in options.constraints]
    names = options.metrics or (study.outputs.objectives[0],)
    ways = []
    for option, name in [("--metric", n) for n in names] + [("--constraint", c.metric) for c in bounds]:
        if name not in known:
            there = f'mode "{study.mode}" has no such figure{nearest(name, known)}'
            problems.append(f"{option} {name}: {there} (it has {', '.join(known)})")
        elif option == "--metric":
            asked = None if len(names) > 1 else options.maximize
            way = known[name].maximize if asked is None else asked
            if way is None:
                cure = "not in a front" if len(names) > 1 else "--maximize or --minimize"
                problems.append(f"--metric {name}: neither way is better by itself; {cure}")
            ways.append(bool(way))
    problems += _contradiction(bounds)
    if len(set(names)) < len(names):
        problems.append(f"--metric: {', '.join(names)}: one is named twice")
    if problems:
        raise SpecError(problems)
    horizon, by_latency = options.at_latency or study.rounds, options.at_latency is not None
    return Goal(names, tuple(ways), tuple(bounds), horizon, by_latency)


def figures_at(study: Study, goal: Goal, arrays: Arrays) -> np.ndarray:
    """Returns the figures of some runs at the horizon, float64 [runs, figures].

    At a simulated time count the rounds that have ended by then; what a model learned that had ceased to be
    finite by then is NaN.

    Args:
      study: of the runs.
      goal: whose figures and horizon.
      arrays: what the runs have left, at least up to the horizon.
    """
    known = study.outputs.metrics
    last = _last_round(arrays, goal)
    broken = np.zeros(len(last), bool)
    if "diverged_round" in arrays:
        broken = (arrays["diverged_round"] > 0) & (arrays["diverged_round"] <= last)
    columns = []
    for name in goal.figures:
        values = np.asarray(_reduced(study, known[name], arrays, last), np.float64)
        columns.append(np.where(broken, np.nan, values) if known[name].learned else values)
    return np.stack(columns, axis=1)


def _last_round(arrays: Arrays, goal: Goal) -> np.ndarray:
    elapsed = arrays["elapsed"]
    if goal.by_latency:
        return (elapsed <= goal.horizon).sum(axis=1)  # NaN, beyond the last round, is not
    return np.minimum(int(goal.horizon), (~np.isnan(elapsed)).sum(axis=1))


def _reduced(study: Study, metric: Metric, arrays: Arrays, last: np.ndarray) -> np.ndarray:
    dims, values = study.outputs.variables[metric.variable].dims, arrays[metric.variable]
    if dims == ("client",):
        selected = arrays["selected"]
        played = np.arange(selected.shape[1])[:, None] < last[:, None, None]
        runs = np.where(played, selected, -1).reshape(len(last), -1)
        counts = [np.bincount(run[run >= 0], minlength=values.shape[1]) for run in runs]
        values = np.where(values < 0, values, np.stack(counts))
    elif dims:
        labels = study.kind.coordinates(study, arrays)[0]
        rounds = labels["eval_round"][1] if dims[0] == "eval" else labels["round"]
        values = np.where(rounds <= last[:, None], values, np.nan)
    return REDUCTIONS[metric.reduce](values)
