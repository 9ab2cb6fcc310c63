"""The library's face: a study as one function call, and results as labelled data sets, kept and opened."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pausejax import kinds
from pausejax.data.host import Sources
from pausejax.devices import local_devices
from pausejax.engine import local
from pausejax.engine.engine import Progress
from pausejax.engine.progress import default_form, reporting
from pausejax.engine.tracking import Tracker
from pausejax.results import saving, store
from pausejax.searches import confirm, find
from pausejax.searches import progress as searching
from pausejax.searches.options import Options, check_fresh
from pausejax.searches.searched import Searched
from pausejax.study.plan import make_plan

if TYPE_CHECKING:
    from pausejax.report.overview import Overview


def simulate(
    policies: Sequence[str | Mapping[str, Any]] | str = "pause",
    *,
    seeds: int | Sequence[int] = 1,
    rounds: int = 200,
    eval_every: int = 10,
    mode: str = "training",
    data_dir: str | Path | None = None,
    progress: Progress | bool = False,
    tracker: Tracker | None = None,
    tune: bool = False,
    data_placement: str | None = None,
    **parameters: Any,
) -> xr.Dataset:
    """Simulates a study and returns its result; nothing is written to disk.

    Args:
      policies: names, or tables like a spec's `[[policy]]`: `{"name": "fedavg", "private": False}`.
      seeds: a count, or the seeds themselves.
      rounds: rounds per run.
      eval_every: rounds between evaluations on the test set.
      mode: "training", or "bandit" for selection and latency alone.
      data_dir: folder of prepared data sets; the embedded ones need none.
      progress: True shows on stderr how far the study is, as `pausejax run` does: a bar on a terminal or
        in a notebook, else a line every 30 s. Or a function, called after each segment with the number of
        rounds × runs that it has advanced.
      tracker: told of every chunk of runs that has been finished; see `pausejax.engine.tracking`.
      tune: lie on the devices in the way that was measured to be the fastest there, or is now, where that
        pays, as `pausejax run` does. Without it two calls give the same bits whatever was measured between.
      data_placement: "replicated" puts all training data on every device, "sharded" an equal share of their
        inputs, with the same results to float32 rounding; without it they are sharded where they fit in no
        other way.
      **parameters: any parameter of a spec by its name or symbol; a list makes an axis, and so does a
        range: `simulate(alpha={"log_uniform": [1, 100]}, sampling={"n": 64})`. Other keys of a spec too:
        `zip`, `selection_gap`, `expected_regret`, `stop_at_latency`, `use`.

    Returns:
      The data set that `pausejax run` writes: dims run, round, eval, slot, client.

    Raises:
      SpecError: (a ValueError) for mistakes in the arguments, before any compute.
    """
    document = _document(policies, seeds, rounds, eval_every, mode, parameters)
    plan = make_plan(kinds.parse(document, source="simulate", flat=True))
    settings: dict[str, Any] = {"tune": tune, "data_placement": data_placement}
    if not isinstance(progress, bool):
        return local.run(plan, Sources(data_dir), progress, tracker, **settings)
    form = default_form() if progress else None
    with reporting(plan, form, local_devices() if progress else "") as told:
        told(0)  # nothing was there before
        return local.run(plan, Sources(data_dir), told, tracker, **settings)


def search(
    policies: Sequence[str | Mapping[str, Any]] | str = "pause",
    *,
    budget: int,
    metric: str | Sequence[str] = (),
    maximize: bool | None = None,
    constraints: str | Sequence[str] = (),
    at_round: int | None = None,
    at_latency: float | None = None,
    sampler: str = "tpe",
    sampler_seed: int = 0,
    reduction: float | None = None,
    first_rung: float | None = None,
    fresh_seeds: int = 20,
    seeds: int | Sequence[int] = 1,
    rounds: int = 200,
    eval_every: int = 10,
    mode: str = "training",
    data_dir: str | Path | None = None,
    progress: bool = False,
    tracker: Tracker | None = None,
    data_placement: str | None = None,
    **parameters: Any,
) -> Searched:
    """Finds the best settings of parameters that are lists or ranges; nothing is written to disk.

    Args:
      policies: as for `simulate`; of several, the best is sought too.
      budget: rounds × runs that may be played, without those on fresh seeds.
      metric: the figure per run that counts, by default the study's own; of several a front is sought.
      maximize: which way is better, where the table of metrics does not say.
      constraints: what the best must keep to, as "max_leakage<=50".
      at_round: the round at which settings are compared; the last by default.
      at_latency: instead, the simulated time, seconds.
      sampler: "tpe", "cmaes", "nsga2", "sobol", "random" or "grid".
      sampler_seed: of the sampler.
      reduction: of the settings at a rung one in so many goes on; 1 stops nobody. By default 1, or 3 where
        there is a first rung.
      first_rung: in rounds or seconds; by default one halving before the end.
      fresh_seeds: on how many the best is played again, beside the second and the defaults.
      seeds: of every setting in the search.
      rounds: as for `simulate`.
      eval_every: as for `simulate`; it must divide the round at which settings are compared.
      mode: as for `simulate`.
      data_dir: as for `simulate`.
      progress: True shows on stderr how far the search is.
      tracker: told of the runs of every setting that has ended.
      data_placement: as for `simulate`.
      **parameters: as for `simulate`: `search(budget=10**6, alpha={"log_uniform": [1, 1000]})`.

    Raises:
      SpecError: (a ValueError) for mistakes in the arguments, before any compute.
    """
    document = _document(policies, seeds, rounds, eval_every, mode, parameters)
    study = kinds.parse(document, source="search", flat=True, searched=True)
    names = (metric,) if isinstance(metric, str) else tuple(metric)
    options = Options(
        budget=budget,
        metrics=names,
        maximize=maximize,
        constraints=(constraints,) if isinstance(constraints, str) else tuple(constraints),
        at_round=at_round,
        at_latency=at_latency,
        sampler=sampler,
        sampler_seed=sampler_seed,
        reduction=reduction,
        first_rung=first_rung,
        data_placement=data_placement,
    )
    check_fresh(study, fresh_seeds)
    sources = Sources(data_dir)
    form = default_form() if progress else None
    with searching.reporting(study, options, form, local_devices() if progress else "") as told:
        found = find.search(study, options, sources, progress=told, tracker=tracker)
    plan = make_plan(confirm.confirmation(found, fresh_seeds))
    confirmed = local.run(plan, sources, data_placement=data_placement)
    return Searched(found, confirm.compare(found, confirmed), confirmed)


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
    return store.read(directory)


def overview(result: xr.Dataset | str | Path) -> "Overview":
    """A result at a glance: printed, or as a notebook's cell, a table of means with intervals and curves.

    Args:
      result: from `simulate`, `open` or `select`, or a folder that `pausejax run` wrote.
    """
    from pausejax.report.overview import Overview  # matplotlib is loaded for whoever looks

    return Overview(open(result) if isinstance(result, str | Path) else result)


def save(result: xr.Dataset, directory: str | Path) -> None:
    """Writes a result into a folder as `pausejax run` would have left it: spec, checksums and all.

    `pausejax.open`, `pausejax report` and `pausejax export` read it, and `pausejax run` of the same spec
    finds these runs finished; of a selection it simulates the rest. Copies of files with parts of one's own
    are not in a result; the first `pausejax run` puts them there.

    Args:
      result: from `simulate`, `open`, or `select` of either.
      directory: a folder or a URL; if it holds a result, all of its runs must be among these.

    Raises:
      ValueError: it is no whole result, or the folder holds other runs; nothing was written.
      OSError: the folder can't be written to.
    """
    saving.save(result, directory)
