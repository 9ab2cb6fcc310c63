"""The functions of the package: simulate a study, search for its best settings, open and save a result."""

import contextlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from pausejax import kinds
from pausejax.data.host import DataCache
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
from pausejax.results import planned, saving, unfinished
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

    Without `out` nothing is written to disk, and an interrupted call returns nothing.

    Args:
      policies: names of policies, or tables as in `[[policy]]` of a spec: `{"name": "fedavg", "private":
        False}`.
      seeds: the number of seeds, or a list of seeds.
      rounds: number of rounds of each run.
      eval_every: number of rounds between two evaluations on the test set.
      mode: "training", or "bandit" to simulate only selection and latency.
      data_dir: folder of prepared data sets. Data sets that are part of the package need no folder.
      progress: True shows the progress of the study on stderr: a bar on a terminal or in a notebook, else a
        line every 30 s. A function is called after each segment of rounds, with the segment's number of
        rounds times runs. Runs that `out` already holds are not counted.
      tracker: receives every finished batch of runs: "mlflow", "tensorboard", "wandb", or your own tracker,
        an object like those in `pausejax.execution.tracking`.
      data_placement: "replicated" puts all training data on every device. "sharded" puts an equal share of
        the inputs on every device. Both placements select the same clients. Other numbers differ by float32
        rounding, which training can amplify. Default: "replicated" if the data fit, else "sharded".
      out: a folder or a URL for the result. Runs that the folder already holds are not simulated again. So
        the same call continues an interrupted call. A call with more seeds or policies simulates only the new
        runs.
      checkpoint_every: seconds between two checkpoints of unfinished runs; only used with `out`.
      **parameters: any parameter of a spec, by its name or symbol. A list or a range makes an axis:
        `simulate(alpha={"log_uniform": [1, 100]}, sampling={"n": 64})`. These keys of a spec are allowed too:
        `zip`, `selection_gap`, `expected_regret`, `client_metrics`, `keep_models`, `stop_at_latency`, `use`.

    Returns:
      The data set that `pausejax run` writes, with the dimensions run, round, eval, slot and client.

    Raises:
      SpecError: (a ValueError) the arguments have mistakes; raised before anything is computed.
      Interruption: (a KeyboardInterrupt) the call was interrupted. `out` then keeps finished and unfinished
        runs; SIGTERM and SIGUSR1 interrupt too. Without `out` nothing is kept.
      OSError: `out` can't be written, or another process has ended another study in it.
    """
    if not checkpoint_every >= 0:
        raise SpecError([f"simulate: checkpoint_every = {checkpoint_every}: must be >= 0 seconds"])
    document = _document(policies, seeds, rounds, eval_every, mode, parameters)
    plan = make_plan(kinds.parse(document, source="simulate", flat=True))
    executor = LocalExecutor(DataCache(data_dir), data_placement=data_placement)
    tracker = tracking.make(tracker) if isinstance(tracker, str) else tracker
    meter = StudyMeter(plan, executor.devices)
    advance = meter if isinstance(progress, bool) else progress
    with showing(meter, default_form() if progress is True else None):
        if out is None:
            try:
                return play_in_memory(plan, executor, progress=advance, tracker=tracker)
            except KeyboardInterrupt as stop:
                raise Interruption(
                    "no run was kept. Call simulate with out=DIR to keep finished runs"
                ) from stop
        held = FolderStore(Folder(str(out)), checkpoint_seconds=checkpoint_every, command="pausejax.simulate")
        with contextlib.closing(executor), stop_on_signals() as stopping:
            try:
                play(plan, executor, held, progress=advance, tracker=tracker, stopping=stopping)
            except StopRequested as stop:
                raise Interruption(
                    f"{out} keeps the finished and unfinished runs. The same call continues them"
                ) from stop
    return kinds.with_units(planned.loaded(held.folder.path(), plan))


class Interruption(KeyboardInterrupt):
    """Reports that a study was interrupted. The message says which runs are kept."""

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython shows: one line, or the traceback if the user has switched it on."""
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
    """Searches for the best values of parameters that are lists or ranges; writes nothing to disk.

    Args:
      policies: names of policies, or tables as in `[[policy]]` of a spec. The search chooses one of several
        policies.
      trials: number of settings to try.
      metric: name of the metric to optimize; default: the first objective of the study. For several metrics
        the search finds their Pareto front.
      maximize: whether a larger value of the metric is better; default: the metric's own direction.
      constraints: bounds on metrics that the best setting must keep, such as "max_leakage<=50".
      at_round: the round at which settings are compared; default: the last round.
      at_latency: the simulated time in seconds at which settings are compared, in place of `at_round`.
      sampler: "tpe", "cmaes", "nsga2" or "random".
      sampler_seed: seed of the sampler.
      fresh_seeds: number of fresh seeds on which the best setting, the second best and the defaults are
        simulated at the end.
      seeds: number of seeds, or list of seeds, with which the search simulates every setting.
      rounds: number of rounds of each run.
      eval_every: number of rounds between two evaluations; it must divide the round of the comparison.
      mode: "training", or "bandit" to simulate only selection and latency.
      data_dir: folder of prepared data sets.
      progress: whether to show the progress of the search on stderr.
      tracker: receives the finished runs of every setting: "mlflow", "tensorboard", "wandb", or your own
        tracker.
      data_placement: "replicated" or "sharded" training inputs; default: "replicated" if the data fit.
      **parameters: any parameter of a spec, by its name or symbol. Lists and ranges are searched:
        `search(trials=200, alpha={"log_uniform": [1, 1000]})`.

    Raises:
      SpecError: (a ValueError) the arguments have mistakes; raised before anything is computed.
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
    executor = LocalExecutor(DataCache(data_dir), data_placement=data_placement)
    tracker = tracking.make(tracker) if isinstance(tracker, str) else tracker
    with contextlib.closing(executor):
        search_meter = SearchMeter(study, options, executor.devices)
        with showing(search_meter, form):
            result = searches.search(
                study, options, executor, MemoryStore(), progress=search_meter, tracker=tracker
            )
        return confirm.confirm(result, fresh_seeds, executor, MemoryStore(), form=form)


def _with_parameters(function: Callable[..., Any]) -> inspect.Signature:
    """Returns a function's signature with all parameters of the package before `**parameters`.

    Editors and notebooks use the signature to complete names. The signature does not check any values: values
    are checked when the study is read.
    """
    signature = inspect.signature(function)
    own = {name: value for name, value in signature.parameters.items() if name != "parameters"}
    for kind in kinds.KINDS:
        # Parts of other packages are loaded when a study is read, which also reports their errors.
        try:
            words = words_of(kind, Layer(registered_parts(), ()), {})
        except PartError:  # two user parts contradict each other; reading a study reports this
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
    if "policy" in parameters:
        raise SpecError(["policy: is no parameter of this function. Give `policies` instead"])
    tables = policies if isinstance(policies, Sequence) and not isinstance(policies, str) else [policies]
    document: dict[str, Any] = {
        "seeds": _plain(seeds),
        "rounds": _plain(rounds),
        "eval_every": _plain(eval_every),
        "mode": mode,
        "policy": [_plain(table) if isinstance(table, Mapping) else {"name": table} for table in tables],
    }
    # Parameters need no section here: the study finds the section of each by its name.
    return document | {key: _plain(value) for key, value in parameters.items()}


def _plain(value: Any) -> Any:
    """Converts NumPy scalars, arrays, ranges and tuples, at any depth, to the scalars and lists of a spec."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | range) else value


def open(directory: str | Path, *, partial: bool = False) -> xr.Dataset:
    """Opens the result that `pausejax run` wrote into a folder.

    Args:
      directory: the path or URL of the folder.
      partial: whether to read a study that is still running, or was killed. Its finished runs are then loaded
        into memory, with the variables, coordinates and labels of the final result. The attribute `partial`
        says how many runs are finished: "37 of 120 runs are finished". A finished study is opened as without
        `partial` and lacks the attribute. The folder does not change. Without `partial`, a warning says that
        the result lacks runs of a larger study that is unfinished in the folder.

    Raises:
      FileNotFoundError: the folder holds no result; with `partial`, no finished run.
      ValueError: the result is damaged.
      OSError: other processes changed the folder during each attempt to read it.
    """
    found = unfinished.read(directory, kinds.KINDS) if partial else planned.opened(directory)
    return kinds.with_units(found)


def save(result: xr.Dataset, directory: str | Path) -> None:
    """Writes a result into a folder in the form in which `pausejax run` writes it, with spec and checksums.

    `pausejax.open`, `pausejax report` and `pausejax export` can read the folder. `pausejax run` with the same
    spec simulates only the runs that are not in the folder. A result does not contain the files with your own
    parts; the first `pausejax run` copies these files into the folder.

    Args:
      result: the result, as `simulate` or `open` returns it, or a selection of its runs by `select`.
      directory: a folder or a URL. If the folder already holds a result, `result` must contain all runs of
        that result.

    Raises:
      ValueError: `result` is not a complete result, or the folder holds other runs. Nothing was written.
      OSError: the folder can't be written to.
    """
    saving.save(result, directory)


for _function in (simulate, search):
    setattr(_function, "__signature__", _with_parameters(_function))  # noqa: B010 mypy knows no such attribute
