"""The sampler of a search. It suggests settings by ask and tell, and wraps Optuna's samplers."""

import contextlib
import importlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pausejax.searches.goal import Goal, Score
from pausejax.searches.options import SearchOptions
from pausejax.searches.space import Setting, Space
from pausejax.study.axes import Range
from pausejax.study.spec import SpecError

_NAME = "search"
_STARTUP = 5
"""Number of settings that TPE draws at random before it learns; see docs/search.md on small searches."""


class Sampler:
    """A sampler that suggests settings and learns from their scores.

    Its suggestions depend only on its seed and on these scores.
    """

    def __init__(self, space: Space, goal: Goal, options: SearchOptions) -> None:
        """Makes a sampler.

        Raises:
          SpecError: a library is not installed, or the sampler does not support the space or the goal.
        """
        optuna = _library("optuna", "search: Optuna")
        if problem := _unsupported(space, goal, options.sampler):
            raise SpecError([f"--sampler {options.sampler}: {problem}"])
        self._optuna, self._space, self._goal = optuna, space, goal
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage = optuna.storages.InMemoryStorage()
        ways: list[Any] = ["maximize" if up else "minimize" for up in goal.maximize]
        with _without_warnings():
            sampler = _make(optuna, options, _violation if goal.constraints else None)
            self._study = optuna.create_study(
                storage=self._storage, study_name=_NAME, directions=ways, sampler=sampler
            )
            self._study.set_metric_names(list(goal.metrics))
        # With the seed of the sampler itself, `random` would draw its own settings again.
        self._random = optuna.samplers.RandomSampler(seed=(options.sampler_seed + 1) % 2**32)
        self._open: dict[int, Any] = {}

    def ask(self, *, at_random: bool = False) -> tuple[int, Setting]:
        """Draws the next setting; returns its number, from 0, and the setting.

        Args:
          at_random: whether the setting is drawn at random, whatever the sampler has learned.
        """
        sampler = self._study.sampler
        with _without_warnings():
            self._study.sampler = self._random if at_random else sampler
            trial = self._study.ask()
            setting = self._space.setting(lambda key, given: _choose(trial, key, given))
            self._study.sampler = sampler
        self._open[trial.number] = trial
        return trial.number, setting

    def tell(self, number: int, score: Score | None) -> None:
        """Tells the sampler the score of a setting.

        Args:
          number: the number of the setting, as `ask` returned it.
          score: the score at the horizon; None for a setting that is already known and not simulated.
        """
        trial = self._open.pop(number)
        with _without_warnings():
            if score is None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                return
            trial.set_user_attr("violation", min(score.violation, 1e300))
            pairs = zip(score.values, self._goal.maximize, strict=True)
            self._study.tell(trial, [_finite(value) * (1 if up else -1) for value, up in pairs])

    def log(self) -> bytes:
        """Returns the bytes of a file with every trial, in the format that optuna-dashboard reads."""
        storages = self._optuna.storages
        with tempfile.TemporaryDirectory() as folder, _without_warnings():
            path = Path(folder) / "optuna.log"
            journal = storages.JournalStorage(storages.journal.JournalFileBackend(str(path)))
            self._optuna.copy_study(from_study_name=_NAME, from_storage=self._storage, to_storage=journal)
            return path.read_bytes()


def versions(name: str) -> dict[str, str]:
    """Returns the versions of the libraries on which a sampler's suggestions depend.

    Raises:
      SpecError: one of these libraries is not installed.
    """
    libraries = {"optuna": _library("optuna", "search: Optuna")}
    if name == "cmaes":
        libraries["cmaes"] = _library("cmaes", "--sampler cmaes: cmaes")
    return {library: str(module.__version__) for library, module in libraries.items()}


def _library(name: str, what: str) -> Any:
    """Imports a library; `what` names it in the message that says that it is not installed."""
    try:
        # In a notebook Optuna would warn about missing widgets, which nothing here uses.
        with _without_warnings():
            return importlib.import_module(name)
    except ImportError as error:
        raise SpecError([f"{what} is not installed. Install it: pip install 'pausejax[search]'"]) from error


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides Optuna's warnings about its newer features, and about missing widgets in a notebook."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _finite(value: float) -> float:
    """Returns the value. NaN and absolute values of 1e300 or more become the worst value, -1e300.

    Optuna accepts no NaN.
    """
    return value if value == value and abs(value) < 1e300 else -1e300


def _violation(trial: Any) -> tuple[float]:
    return (trial.user_attrs.get("violation", 0.0),)


def _choose(trial: Any, key: str, given: Range | Sequence[str]) -> Any:
    if not isinstance(given, Range):
        return given.index(trial.suggest_categorical(key, given))
    if given.law == "int_uniform":
        return trial.suggest_int(key, int(given.low), int(given.high))
    return trial.suggest_float(key, given.low, given.high, log=given.law == "log_uniform")


def _unsupported(space: Space, goal: Goal, name: str) -> str:
    """Returns why a sampler does not support the space or the goal; "" if it does."""
    if name != "cmaes":
        return ""
    if len(goal.metrics) > 1:
        return "allows only one metric. The samplers tpe, nsga2 and random allow several"
    if len(space.dimensions) > 1:
        return "allows only one policy. The samplers tpe, nsga2 and random allow several"
    ranges = {d.key for dims in space.dimensions.values() for d in dims if isinstance(d.values, Range)}
    if len(ranges) < 2:
        return f"needs two ranges, but the spec has {'one' if ranges else 'no'} range. Use --sampler tpe"
    return "allows no constraints. The samplers tpe and nsga2 allow them" if goal.constraints else ""


def _make(optuna: Any, options: SearchOptions, constraints: Any) -> Any:
    samplers, seed = optuna.samplers, options.sampler_seed
    if options.sampler == "tpe":
        return samplers.TPESampler(
            seed=seed,
            n_startup_trials=_STARTUP,
            multivariate=True,
            group=True,
            constant_liar=True,
            constraints_func=constraints,
        )
    if options.sampler == "nsga2":
        return samplers.NSGAIISampler(seed=seed, constraints_func=constraints)
    if options.sampler == "random":
        return samplers.RandomSampler(seed=seed)
    return samplers.CmaEsSampler(seed=seed, independent_sampler=samplers.RandomSampler(seed=seed))
