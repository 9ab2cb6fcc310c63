"""What a search is after: metrics at a round or at a simulated time, constraints, rungs, and a budget."""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pausejax.analysis.metrics import REDUCTIONS
from pausejax.analysis.quantities import Metric
from pausejax.searches.halving import Shown
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
        """By how much a value breaks it, in units of the bound where that is not 0; NaN does for ever."""
        if np.isnan(value):
            return np.inf
        return max(_SIGN[self.relation](value, self.bound), 0.0) / (abs(self.bound) or 1.0)


class Goal(NamedTuple):
    """What settings are judged by."""

    metrics: tuple[str, ...]
    maximize: tuple[bool, ...]
    constraints: tuple[Constraint, ...]
    rungs: tuple[float, ...]
    """Ascending: rounds, or simulated seconds; the last is the horizon."""
    by_latency: bool
    """Whether rungs are simulated seconds."""

    @property
    def figures(self) -> tuple[str, ...]:
        """Every metric that is read."""
        return tuple(dict.fromkeys((*self.metrics, *(constraint.metric for constraint in self.constraints))))

    def shown(self, figures: np.ndarray, rung: int) -> Shown:
        """What a setting shows by its seeds' figures, [seeds, figures]; one seed's NaN makes a mean NaN.

        A bound is for the end. Before it nobody breaks a bound on what grows from round to round, and who
        spends most looks best; so there the bounded figures count as objectives, and fronts go on.
        """
        means = dict(zip(self.figures, figures.mean(axis=0).tolist(), strict=True))
        values = tuple(
            means[name] if up else -means[name] for name, up in zip(self.metrics, self.maximize, strict=True)
        )
        if rung < len(self.rungs) - 1:
            bounded = {
                c.metric: means[c.metric] * (-1 if c.relation == "<=" else 1) for c in self.constraints
            }
            return Shown((*values, *bounded.values()))
        return Shown(values, sum(c.violation(means[c.metric]) for c in self.constraints))


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


def goal_of(
    study: Study,
    metrics: Sequence[str],
    maximize: bool | None,
    constraints: Sequence[str],
    *,
    horizon: float,
    by_latency: bool,
    reduction: float,
    first: float | None,
    step: int,
) -> Goal:
    """Checks what a search is after.

    Args:
      study: what is searched.
      metrics: names of figures per run; without one the study's own.
      maximize: which way is better; by default what the table of metrics says.
      constraints: as `constraint_of` reads them.
      horizon: the round, or the simulated time, at which settings are compared.
      by_latency: whether it is a time.
      reduction: of those at a rung one in so many goes on.
      first: the first rung; by default one halving before the horizon.
      step: rounds between two looks at a run: rungs in rounds are multiples of it.

    Raises:
      SpecError: with one line per mistake.
    """
    known, problems = study.kind.metrics(study), []
    bounds = [constraint_of(text) for text in constraints]
    names = tuple(metrics) or (study.kind.objectives(study)[0],)
    ways = []
    for option, name in [("--metric", n) for n in names] + [("--constraint", c.metric) for c in bounds]:
        if name not in known:
            there = f'mode "{study.mode}" has no such figure{nearest(name, known)}'
            problems.append(f"{option} {name}: {there} (it has {', '.join(known)})")
        elif option == "--metric":
            way = known[name].maximize if maximize is None or len(names) > 1 else maximize
            if way is None:
                cure = "not in a front" if len(names) > 1 else "--maximize or --minimize"
                problems.append(f"--metric {name}: neither way is better by itself; {cure}")
            ways.append(bool(way))
    problems += _contradiction(bounds)
    if len(set(names)) < len(names):
        problems.append(f"--metric: {', '.join(names)}: one is named twice")
    if problems:
        raise SpecError(problems)
    rungs = _rungs(horizon, reduction, first, 0 if by_latency else step)
    return Goal(names, tuple(ways), tuple(bounds), rungs, by_latency)


def _rungs(horizon: float, reduction: float, first: float | None, step: int) -> tuple[float, ...]:
    lowest = 1.0 if step else 1e-6 * horizon
    if first is not None and not lowest <= first <= horizon:
        raise SpecError([f"--first-rung {first:g}: must be from {lowest:g} to the horizon, {horizon:g}"])
    least = first if first is not None else max(horizon / reduction, step or 0.0)
    found = [horizon]
    while reduction > 1 and found[-1] / reduction >= least * (1 - 1e-9):
        found.append(found[-1] / reduction)
    if step:
        found = [float(step * max(round(rung / step), 1)) for rung in found]
    return tuple(sorted(set(found)))


def figures_at(study: Study, goal: Goal, arrays: Arrays, rung: float) -> np.ndarray:
    """The figures of some runs at a rung, float64 [runs, figures].

    At a simulated time count the rounds that have ended by then; what a model learned that had ceased to be
    finite by then is NaN.

    Args:
      study: of the runs.
      goal: whose figures.
      arrays: what the runs have left, at least up to the rung.
      rung: a round or a time.
    """
    known = study.kind.metrics(study)
    last = _last_round(arrays, rung, by_latency=goal.by_latency)
    broken = np.zeros(len(last), bool)
    if "diverged_round" in arrays:
        broken = (arrays["diverged_round"] > 0) & (arrays["diverged_round"] <= last)
    found = []
    for name in goal.figures:
        values = np.asarray(_reduced(study, known[name], arrays, last), np.float64)
        found.append(np.where(broken, np.nan, values) if known[name].learned else values)
    return np.stack(found, axis=1)


def _last_round(arrays: Arrays, rung: float, *, by_latency: bool) -> np.ndarray:
    elapsed = arrays["elapsed"]
    if by_latency:
        return (elapsed <= rung).sum(axis=1)  # NaN, beyond the last round, is not
    return np.minimum(int(rung), (~np.isnan(elapsed)).sum(axis=1))


def _reduced(study: Study, metric: Metric, arrays: Arrays, last: np.ndarray) -> np.ndarray:
    dims, values = study.kind.variables(study)[metric.variable].dims, arrays[metric.variable]
    if dims == ("client",):
        selected = arrays["selected"]
        played = np.arange(selected.shape[1])[:, None] < last[:, None, None]
        runs = np.where(played, selected, -1).reshape(len(last), -1)
        counts = [np.bincount(run[run >= 0], minlength=values.shape[1]) for run in runs]
        values = np.where(values < 0, values, np.stack(counts))
    elif dims:
        labels = study.kind.labels(study, arrays)[0]
        rounds = labels["eval_round"][1] if dims[0] == "eval" else labels["round"]
        values = np.where(rounds <= last[:, None], values, np.nan)
    return REDUCTIONS[metric.reduce](values)
