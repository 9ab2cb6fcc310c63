"""The library's face: a study as one function call, and results as labelled data sets, kept and opened."""

import contextlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from pausejax import kinds
from pausejax.data.host import Sources
from pausejax.execution import tracking
from pausejax.execution.displays import default_form, showing
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play, play_in_memory
from pausejax.execution.progress import StudyMeter
from pausejax.execution.rounds import Progress
from pausejax.execution.stopping import StopRequested, stop_on_signals
from pausejax.execution.tracking import Tracker
from pausejax.parts import Parameter, PartError, registered_parts
from pausejax.parts.extensions import Layer
from pausejax.results import saving, store
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore, MemoryStore
from pausejax.searches import confirm
from pausejax.searches import search as searches
from pausejax.searches.options import SearchOptions, check_fresh
from pausejax.searches.progress import SearchMeter
from pausejax.searches.result import SearchResult
from pausejax.study.document import SpecError, asks_for_traceback
from pausejax.study.plan import make_plan
from pausejax.study.study import words_of


def simulate(
    policies: Sequence[str | Mapping[str, Any]] | str = "pause",
    *,
    seeds: int | Sequence[int] = 1,
    rounds: int = 200,
    eval_every: int = 10,
    mode: str = "training",
    data_dir: str | Path | None = None,
    progress: Progress | bool = False,
    tracker: Tracker | str | None = None,
    data_placement: str | None = None,
    out: str | Path | None = None,
    checkpoint_every: float = 300.0,
    **parameters: Any,
) -> xr.Dataset:
    """Simulates a study and returns its result.

    Without `out` nothing is written to disk, and an interrupt loses everything.

    Args:
      policies: names, or tables like a spec's `[[policy]]`: `{"name": "fedavg", "private": False}`.
      seeds: a count, or the seeds themselves.
      rounds: rounds per run.
      eval_every: rounds between evaluations on the test set.
      mode: "training", or "bandit" for selection and latency alone.
      data_dir: folder of prepared data sets; the embedded ones need none.
      progress: True shows on stderr how far the study is, as `pausejax run` does: a bar on a terminal or
        in a notebook, else a line every 30 s. Or a function, called after each segment with the number of
        rounds × runs that it has advanced; runs that `out` holds already do not count.
      tracker: gets every batch of runs that is finished: "mlflow", "tensorboard", "wandb", or a tracker of
        one's own; see `pausejax.execution.tracking`.
      data_placement: "replicated" puts all training data on every device, "sharded" an equal share of their
        inputs: the same selections, and other numbers up to float32 rounding and what training makes of it;
        without it they are sharded where they fit in no other way.
      out: a folder, or a URL, for the result. Runs that it holds are not simulated again, so the same call
        goes on where an interrupted one was, and one with more seeds or policies adds what is missing, as
        `pausejax run` does.
      checkpoint_every: seconds between checkpoints of runs in flight; with `out`.
      **parameters: any parameter of a spec by its name or symbol; a list makes an axis, and so does a
        range: `simulate(alpha={"log_uniform": [1, 100]}, sampling={"n": 64})`. Other keys of a spec too:
        `zip`, `selection_gap`, `expected_regret`, `stop_at_latency`, `use`.

    Returns:
      The data set that `pausejax run` writes: dims run, round, eval, slot, client.

    Raises:
      SpecError: (a ValueError) for mistakes in the arguments, before any compute.
      Interruption: (a KeyboardInterrupt) it was interrupted; `out` keeps what was finished or in flight, at
        SIGTERM and SIGUSR1 too. Without `out` nothing is kept.
    """
    if not checkpoint_every >= 0:
        raise SpecError([f"simulate: checkpoint_every = {checkpoint_every}: must be 0 s or more"])
    document = _document(policies, seeds, rounds, eval_every, mode, parameters)
    plan = make_plan(kinds.parse(document, source="simulate", flat=True))
    executor = LocalExecutor(Sources(data_dir), data_placement=data_placement)
    tracker = tracking.make(tracker) if isinstance(tracker, str) else tracker
    meter = StudyMeter(plan, executor.devices)
    advance = meter if isinstance(progress, bool) else progress
    with showing(meter, default_form() if progress is True else None):
        if out is None:
            try:
                return play_in_memory(plan, executor, progress=advance, tracker=tracker)
            except KeyboardInterrupt as stop:
                raise Interruption("nothing is kept; out=DIR would keep what was played") from stop
        store = FolderStore(
            Folder(str(out)), checkpoint_seconds=checkpoint_every, command="pausejax.simulate"
        )
        with contextlib.closing(executor), stop_on_signals() as stopping:
            try:
                play(plan, executor, store, progress=advance, tracker=tracker, stopping=stopping)
            except StopRequested as stop:
                raise Interruption(f"{out} keeps what was played; the same call goes on from there") from stop
    return open(store.folder.path()).load()


class Interruption(KeyboardInterrupt):
    """A study was interrupted; the message says what is kept of it."""

    def _render_traceback_(self) -> list[str]:
        """Returns what IPython shows: one line."""
        return traceback.format_exception(self) if asks_for_traceback() else [f"Interrupted: {self}"]


def search(
    policies: Sequence[str | Mapping[str, Any]] | str = "pause",
    *,
    trials: int = 64,
    metric: str | Sequence[str] = (),
    maximize: bool | None = None,
    constraints: str | Sequence[str] = (),
    at_round: int | None = None,
    at_latency: float | None = None,
    sampler: str = "tpe",
    sampler_seed: int = 0,
    fresh_seeds: int = 20,
    seeds: int | Sequence[int] = 1,
    rounds: int = 200,
    eval_every: int = 10,
    mode: str = "training",
    data_dir: str | Path | None = None,
    progress: bool = False,
    tracker: Tracker | str | None = None,
    data_placement: str | None = None,
    **parameters: Any,
) -> SearchResult:
    """Finds the best settings of parameters that are lists or ranges; nothing is written to disk.

    Args:
      policies: as for `simulate`; of several, the best is sought too.
      trials: settings that are tried.
      metric: the figure per run that counts, by default the study's own; of several a front is sought.
      maximize: which way is better, where the table of metrics does not say.
      constraints: what the best must keep to, as "max_leakage<=50".
      at_round: the round at which settings are compared; the last by default.
      at_latency: instead, the simulated time, seconds.
      sampler: "tpe", "cmaes", "nsga2" or "random".
      sampler_seed: of the sampler.
      fresh_seeds: on how many the best is played again, beside the second and the defaults.
      seeds: of every setting in the search.
      rounds: as for `simulate`.
      eval_every: as for `simulate`; it must divide the round at which settings are compared.
      mode: as for `simulate`.
      data_dir: as for `simulate`.
      progress: True shows on stderr how far the search is.
      tracker: gets the runs of every setting that has ended; as for `simulate`.
      data_placement: as for `simulate`.
      **parameters: as for `simulate`: `search(trials=200, alpha={"log_uniform": [1, 1000]})`.

    Raises:
      SpecError: (a ValueError) for mistakes in the arguments, before any compute.
    """
    document = _document(policies, seeds, rounds, eval_every, mode, parameters)
    study = kinds.parse(document, source="search", flat=True, searched=True)
    names = (metric,) if isinstance(metric, str) else tuple(metric)
    options = SearchOptions(
        trials=trials,
        metrics=names,
        maximize=maximize,
        constraints=(constraints,) if isinstance(constraints, str) else tuple(constraints),
        at_round=at_round,
        at_latency=at_latency,
        sampler=sampler,
        sampler_seed=sampler_seed,
    )
    check_fresh(study, fresh_seeds)
    form = default_form() if progress else None
    executor = LocalExecutor(Sources(data_dir), data_placement=data_placement)
    tracker = tracking.make(tracker) if isinstance(tracker, str) else tracker
    with contextlib.closing(executor):
        search_meter = SearchMeter(study, options, executor.devices)
        with showing(search_meter, form):
            result = searches.search(
                study, options, executor, MemoryStore(), progress=search_meter, tracker=tracker
            )
        return confirm.confirm(result, fresh_seeds, executor, MemoryStore(), form=form)


def _with_parameters(function: Callable[..., Any]) -> inspect.Signature:
    """Returns a function's signature with all parameters of the package in place of `**parameters`.

    Editors and notebooks complete names from it. They are checked where a study is read.
    """
    signature = inspect.signature(function)
    own = {name: value for name, value in signature.parameters.items() if name != "parameters"}
    for kind in kinds.KINDS:
        # Other packages' parts are loaded with a study, whose errors name them.
        try:
            words = words_of(kind, Layer(registered_parts(), ()), {})
        except PartError:  # two parts of the user's disagree: the study says so
            continue
        for name, parameter in {**words.study, **words.parameters}.items():
            own.setdefault(name, _keyword(name, parameter))
    more = signature.parameters["parameters"]
    return signature.replace(parameters=[*own.values(), more])


def _keyword(name: str, parameter: Parameter) -> inspect.Parameter:
    kind = Literal[parameter.choices] if parameter.choices else parameter.kind
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=parameter.default, annotation=kind)


def _document(
    policies: Sequence[str | Mapping[str, Any]] | str,
    seeds: Any,
    rounds: int,
    eval_every: int,
    mode: str,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    given = isinstance(policies, Sequence) and not isinstance(policies, str)
    tables = list(policies) if given else [policies]
    document: dict[str, Any] = {
        "seeds": _plain(seeds),
        "rounds": _plain(rounds),
        "eval_every": _plain(eval_every),
        "mode": mode,
        "policy": [_plain(table) if isinstance(table, Mapping) else {"name": table} for table in tables],
    }
    # Which section a parameter belongs to, the parts of the study say.
    return document | {key: _plain(value) for key, value in parameters.items()}


def _plain(value: Any) -> Any:
    """NumPy scalars, arrays, ranges and tuples, at any depth, as the scalars and lists that a spec holds."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | range) else value


def open(directory: str | Path) -> xr.Dataset:
    """Opens the result that `pausejax run` left in a folder.

    Raises:
      FileNotFoundError: there is none.
    """
    return kinds.with_units(store.read(directory))


def save(result: xr.Dataset, directory: str | Path) -> None:
    """Writes a result into a folder as `pausejax run` would have left it, with its spec and checksums.

    `pausejax.open`, `pausejax report` and `pausejax export` read the folder. `pausejax run` of the same spec
    finds these runs finished and simulates those that a selection left out. A result has no copies of the
    files with your own parts; the first `pausejax run` copies them into the folder.

    Args:
      result: from `simulate`, `open`, or `select` of either.
      directory: a folder or a URL. If it holds a result already, `result` must contain all of its runs.

    Raises:
      ValueError: it is no whole result, or the folder holds other runs; nothing was written.
      OSError: the folder can't be written to.
    """
    saving.save(result, directory)


for _function in (simulate, search):
    setattr(_function, "__signature__", _with_parameters(_function))  # noqa: B010 mypy knows no such attribute
