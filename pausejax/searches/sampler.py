"""Where settings come from: Optuna's samplers, by ask and tell."""

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from pausejax.searches.halving import Shown
from pausejax.searches.space import Setting, Space
from pausejax.study.axes import Range
from pausejax.study.spec import SpecError

SAMPLERS = ("tpe", "cmaes", "nsga2", "sobol", "random", "grid")
_SEVERAL = ("tpe", "nsga2", "sobol", "random", "grid")
"""Those that know what to do with several objectives."""
_MOST_POINTS = 100_000
_STARTUP = 5
"""Settings that TPE draws at random before it learns; what docs/search.md reports of small budgets."""


class Sampler:
    """Suggests settings, and is told what came of them; deterministic in its seed and what it is told."""

    def __init__(self, space: Space, name: str, seed: int, objectives: int, *, constrained: bool) -> None:
        """Makes a sampler.

        Raises:
          SpecError: Optuna is not installed, or the sampler does not fit.
        """
        try:
            import optuna
        except ImportError:
            raise SpecError(
                ["search: Optuna is not installed; pip install 'pausejax[search]' brings it"]
            ) from None
        if problem := _unfit(space, name, objectives, constrained=constrained):
            raise SpecError([f"--sampler {name}: {problem}"])
        self._optuna, self._space = optuna, space
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns of what is new in it
            made = _make(optuna, space, name, seed, _violation if constrained else None)
            self._study = optuna.create_study(directions=["maximize"] * objectives, sampler=made)
            for point in _grid(space) if name == "grid" else ():
                self._study.enqueue_trial(point)
        self._several = objectives > 1
        self._open: dict[int, Any] = {}

    def ask(self) -> tuple[int, Setting]:
        """The next setting and its number, from 0."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            setting = self._space.setting(lambda key, given: _choose(trial, key, given))
        self._open[trial.number] = trial
        return trial.number, setting

    def tell(self, number: int, history: Sequence[tuple[int, Shown]], *, finished: bool) -> None:
        """Says what a setting has shown.

        Args:
          number: from `ask`.
          history: (step, what it showed there), steps ascending; none for a setting that came to nothing.
          finished: whether the last of them is the end; else it was stopped there.
        """
        trial, states = self._open.pop(number), self._optuna.trial.TrialState
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not history:
                self._study.tell(trial, state=states.FAIL)
                return
            last = history[-1][1]
            trial.set_user_attr("violation", last.violation)
            if finished:
                self._study.tell(trial, [_finite(value) for value in last.values])
                return
            if not self._several:
                for step, shown in history:
                    trial.report(_finite(shown.values[0]), step)
            self._study.tell(trial, state=states.PRUNED)


def _finite(value: float) -> float:
    """Optuna takes no NaN: the worst, then."""
    return value if value == value and abs(value) < 1e300 else -1e300


def _violation(trial: Any) -> tuple[float]:
    return (trial.user_attrs.get("violation", 0.0),)


def _choose(trial: Any, key: str, given: Range | int) -> Any:
    if not isinstance(given, Range):
        return trial.suggest_categorical(key, list(range(given)))
    if given.law == "int_uniform":
        return trial.suggest_int(key, int(given.low), int(given.high))
    return trial.suggest_float(key, given.low, given.high, log=given.law == "log_uniform")


def _unfit(space: Space, name: str, objectives: int, *, constrained: bool) -> str:
    """Why a sampler can't do what is asked; "": it can."""
    ranges = {d.key for dims in space.dimensions.values() for d in dims if isinstance(d.values, Range)}
    if objectives > 1 and name not in _SEVERAL:
        return f"takes one metric; for several: {', '.join(_SEVERAL)}"
    if name == "sobol" and not ranges:
        return "spreads points over ranges, and the spec has lists alone; grid plays them all"
    if name != "cmaes":
        return ""
    if len(space.dimensions) > 1:
        return "takes one policy; for several: tpe, nsga2, random"
    if len(ranges) < 2:
        return f"needs two ranges, and the spec has {'one' if ranges else 'no'} range; tpe needs none"
    return "knows no constraints; tpe and nsga2 do" if constrained else ""


def _make(optuna: Any, space: Space, name: str, seed: int, constraints: Any) -> Any:
    samplers = optuna.samplers
    if name == "tpe":
        return samplers.TPESampler(
            seed=seed,
            n_startup_trials=_STARTUP,
            multivariate=True,
            group=True,
            constant_liar=True,
            constraints_func=constraints,
        )
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed, constraints_func=constraints)
    if name == "sobol":
        return samplers.QMCSampler(
            seed=seed, scramble=True, independent_sampler=samplers.RandomSampler(seed=seed)
        )
    if name == "random":
        return samplers.RandomSampler(seed=seed)
    if name == "grid":
        return samplers.RandomSampler(seed=seed)  # it has nothing left to choose
    try:
        import cmaes  # noqa: F401
    except ImportError:
        raise SpecError(["--sampler cmaes: needs cmaes; pip install 'pausejax[search]' brings it"]) from None
    return samplers.CmaEsSampler(seed=seed, independent_sampler=samplers.RandomSampler(seed=seed))


def _grid(space: Space) -> Iterator[dict[str, int]]:
    """Every point of the lists of each policy, the last list's values running fastest.

    Raises:
      SpecError: there is a range, or no end of them.
    """
    policies = space.study.policies
    for place, policy in enumerate(policies):
        dimensions = space.dimensions[policy.label]
        for dimension in dimensions:
            if isinstance(dimension.values, Range):
                raise SpecError(
                    [f"--sampler grid: {dimension.names[0]} has a range; a grid is made of lists of values"]
                )
        counts = [len(d.values) for d in dimensions if not isinstance(d.values, Range)]
        if math.prod(counts) > _MOST_POINTS:
            raise SpecError([f"--sampler grid: {math.prod(counts):,} points; at most {_MOST_POINTS:,}"])
        first = {"policy": place} if len(policies) > 1 else {}
        for rows in itertools.product(*map(range, counts)):
            yield first | dict(zip((d.key for d in dimensions), rows, strict=True))
