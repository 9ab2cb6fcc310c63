"""Defines a search's goal (metrics and constraints at a round or a simulated time), and its trials."""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pausejax.analysis.metrics import REDUCTIONS, at_end
from pausejax.analysis.quantities import Metric
from pausejax.rounding import SPACING, within
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
    """A bound on the mean of a metric over seeds."""

    metric: str
    relation: str
    """The relation between metric and bound: "<=" or ">="."""
    bound: float

    def violation(self, value: float) -> float:
        """Returns by how much a value breaks the bound: 0 if the value keeps the bound, inf if it is NaN.

        The result is relative to the bound, or absolute if the bound is 0. A value keeps a bound that it
        equals up to float32 rounding: a share of 0.95 is stored as 0.94999999.
        """
        if np.isnan(value):
            return np.inf
        excess = _SIGN[self.relation](value, self.bound) / (abs(self.bound) or 1.0)
        return excess if excess > SPACING else 0.0


class Score(NamedTuple):
    """The score of a setting, from means over the setting's seeds at the horizon of the search."""

    values: tuple[float, ...]
    """The mean of each metric of the goal, with a sign such that more is better. NaN is worst. It also stands
    for a mean that is infinitely good."""
    violation: float = 0.0
    """The sum of the violations of all constraints; 0 if the setting keeps all constraints."""


class Trial(NamedTuple):
    """A setting that was tried, with its score and metrics."""

    number: int
    setting: Setting
    score: Score
    figures: np.ndarray
    """The metrics that `Goal.figures` names, at the horizon of the search, float64 [seeds, metrics]."""
    rounds: int
    """Number of simulated rounds, summed over the runs of the setting."""
    short: bool
    """Whether a run ended its last round before the simulated time at which settings are compared."""


class Row(NamedTuple):
    """A trial as plain data."""

    number: int
    policy: str
    values: dict[str, Any]
    """The values of the parameters that the search chose, without those of other policies."""
    rounds: int
    """Number of simulated rounds, summed over the runs of the setting."""
    figures: dict[str, float | None]
    """The mean over seeds of each metric at the horizon; None if the mean is not finite."""
    broken: bool
    """Whether the setting breaks a constraint."""


class Goal(NamedTuple):
    """The metrics, constraints and horizon by which settings are compared."""

    metrics: tuple[str, ...]
    maximize: tuple[bool, ...]
    constraints: tuple[Constraint, ...]
    horizon: float
    """The round, or the simulated second, at which settings are compared."""
    by_latency: bool
    """Whether the horizon is in simulated seconds."""

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of all metrics of the goal and of its constraints, each once."""
        return tuple(dict.fromkeys((*self.metrics, *(constraint.metric for constraint in self.constraints))))

    @property
    def where(self) -> str:
        """The horizon in words, with its unit."""
        return f"{self.horizon:g} {'simulated seconds' if self.by_latency else 'rounds'}"

    def score(self, figures: np.ndarray) -> Score:
        """Returns the score of a setting.

        Args:
          figures: the metrics that `figures` names, for each seed, [seeds, metrics]. A NaN makes the mean
            NaN.
        """
        means = dict(zip(self.figures, figures.mean(axis=0).tolist(), strict=True))
        ways = zip(self.metrics, self.maximize, strict=True)
        signed = (means[name] if up else -means[name] for name, up in ways)
        # No setting is infinitely good: such a mean comes from a division by 0, for example.
        values = tuple(math.nan if value == math.inf else value for value in signed)
        return Score(values, sum(c.violation(means[c.metric]) for c in self.constraints))


def constraint_of(text: str) -> Constraint:
    """Parses a constraint such as "max_leakage<=50".

    Raises:
      SpecError: the text is not a constraint.
    """
    found = _CONSTRAINT.fullmatch(text)
    try:
        bound = float(found[3]) if found else math.nan
    except ValueError:
        bound = math.nan
    if found is None or not math.isfinite(bound):
        allowed = "METRIC<=NUMBER or METRIC>=NUMBER, such as max_leakage<=50"
        raise SpecError([f"--constraint {text}: must be {allowed}"])
    return Constraint(found[1], found[2], bound)


def _contradiction(bounds: Sequence[Constraint]) -> Iterator[str]:
    for low in bounds:
        for high in bounds:
            above = low.relation == ">=" and high.relation == "<=" and low.bound > high.bound
            if above and low.metric == high.metric:
                told = f"no value is >= {low.bound:g} and <= {high.bound:g}"
                yield f"--constraint {low.metric}: {told}"


def goal_of(study: Study, options: SearchOptions) -> Goal:
    """Returns the goal of a search, after a check of the options that define it.

    Args:
      study: the study that is searched, with rounds up to the horizon.
      options: the options of the search.

    Raises:
      SpecError: the options have mistakes; the message has one line for each mistake.
    """
    known, problems = study.outputs.metrics, []
    bounds = [constraint_of(text) for text in options.constraints]
    names = options.metrics or (study.outputs.objectives[0],)
    ways = []
    for option, name in [("--metric", n) for n in names] + [("--constraint", c.metric) for c in bounds]:
        if name not in known:
            there = f'with mode = "{study.mode}", must be one of {", ".join(known)}{nearest(name, known)}'
            problems.append(f"{option} {name}: {there}")
        elif option == "--metric" and options.at_latency is not None and known[name].is_sum:
            problems.append(
                f"--metric {name}: is a sum over rounds, and settings play unequal numbers of rounds in the "
                "same time. Use --at-round in place of --at-latency, or another metric"
            )
        elif option == "--metric":
            asked = None if len(names) > 1 else options.maximize
            way = known[name].maximize if asked is None else asked
            if way is None:
                cure = "Leave it out of the front" if len(names) > 1 else "Give --maximize or --minimize"
                problems.append(f"--metric {name}: neither more nor less is better by definition. {cure}")
            ways.append(bool(way))
    problems += _contradiction(bounds)
    if len(set(names)) < len(names):
        problems.append(f"--metric: {', '.join(names)}: must name each metric once")
    if problems:
        raise SpecError(problems)
    horizon, by_latency = options.at_latency or study.rounds, options.at_latency is not None
    return Goal(names, tuple(ways), tuple(bounds), horizon, by_latency)


def figures_at(study: Study, goal: Goal, arrays: Arrays) -> np.ndarray:
    """Returns the metrics that `goal.figures` names at the horizon, float64 [runs, metrics].

    If the horizon is a simulated time, the rounds that have ended by this time count. A learned metric is NaN
    if the model of the run diverged up to the horizon.

    Args:
      study: the study of the runs.
      goal: the goal of the search, which names the metrics and the horizon.
      arrays: the variables of the runs, at least up to the horizon.
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
        # NaN marks rounds after the last one, and is left out.
        return within(elapsed, goal.horizon).sum(axis=1)
    return np.minimum(int(goal.horizon), (~np.isnan(elapsed)).sum(axis=1))


def _reduced(study: Study, metric: Metric, arrays: Arrays, last: np.ndarray) -> np.ndarray:
    dims, values = study.outputs.variables[metric.variable].dims, arrays[metric.variable]
    if metric.variable == "counts":
        selected = arrays["selected"]
        played = np.arange(selected.shape[1])[:, None] < last[:, None, None]
        runs = np.where(played, selected, -1).reshape(len(last), -1)
        counts = [np.bincount(run[run >= 0], minlength=values.shape[1]) for run in runs]
        values = np.where(values < 0, values, np.stack(counts))
    elif dims and dims != (
        "client",
    ):  # metrics of clients exist only at the end of a run, which is the horizon
        labels = study.kind.coordinates(study.mode, study.rounds, study.eval_every, arrays)[0]
        rounds = labels["eval_round"][1] if dims[0] == "eval" else labels["round"]
        values = np.where(rounds <= last[:, None], values, np.nan)
        values = at_end(values, rounds, last) if metric.reduce == "at_end" else values
    return REDUCTIONS[metric.reduce](values)
