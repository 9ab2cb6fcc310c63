"""Simulates the best settings of a search again on fresh seeds.

On the search's seeds, the means of the best settings are too good, because these means decided the choice.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis.intervals import interval
from pausejax.execution.displays import Form, showing
from pausejax.execution.play import Executor, play
from pausejax.execution.progress import StudyMeter
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.parts import PartError
from pausejax.results.stores import Store
from pausejax.searches.goal import figures_at
from pausejax.searches.result import Finalist, SearchResult
from pausejax.searches.space import Setting
from pausejax.study import spec
from pausejax.study.plan import make_plan
from pausejax.study.study import Study

DEFAULT = "default"


def finalists(result: SearchResult) -> dict[str, Setting]:
    """Returns the finalists by label: the best settings and the setting of the defaults.

    With one metric these are the best two settings. With several metrics these are at most six settings of
    the front.
    """
    several = len(result.goal.metrics) > 1
    best = result.leading(6) if several else result.ranked(2)
    labels = [f"front {place + 1}" for place in range(len(best))] if several else ["best", "second"]
    chosen = {label: trial.setting for label, trial in zip(labels, best, strict=False)}
    default = result.space.defaults()
    if default.key not in {setting.key for setting in chosen.values()}:
        chosen[DEFAULT] = default
    return chosen


def confirmation(result: SearchResult, seeds: int, *, with_default: bool = True) -> Study:
    """Returns a study of the finalists on fresh seeds, with rounds up to the horizon of the search.

    The default setting is left out if it does not fit the fixed values of the spec, or without
    `with_default`.
    """
    study = result.study
    first = max(study.seeds) + 1
    own = set(result.open_parameters)
    own |= {name for policy in study.policies for name in policy.axes}
    document: dict[str, Any] = {
        key: _without(value, own, study) if isinstance(value, Mapping) else value
        for key, value in study.document.items()
        if key not in ("zip", "policy", "seeds", "sampling")
    }
    document["seeds"] = list(range(first, first + seeds))
    tables = {
        label: {
            "name": setting.algorithm,
            "label": label,
            **{name: value for name, value in setting.values.items() if name in own},
        }
        for label, setting in finalists(result).items()
        if with_default or label != DEFAULT
    }

    def parsed(labels: Iterable[str]) -> Study:
        whole = {**document, "policy": [tables[label] for label in labels]}
        # The parts of the search: a file of `use` may have changed since.
        source = "the best on fresh seeds"
        return spec.parse(whole, (study.kind,), source=source, folder=study.folder, parts=study.parts)

    try:
        return parsed(tables)
    except spec.SpecError:
        return parsed(label for label in tables if label != DEFAULT)


def confirm(
    result: SearchResult,
    seeds: int,
    executor: Executor,
    store: Store,
    *,
    form: Form | None = None,
    stopping: StopSignal = NO_STOP,
) -> SearchResult:
    """Simulates the finalists on fresh seeds, and compares them.

    The default setting is left out if it does not fit the spec or the data.

    Args:
      result: the result of the search.
      seeds: number of fresh seeds.
      executor: the executor that simulates the runs.
      store: the store of these runs.
      form: the form in which progress is shown; None shows nothing.
      stopping: the signal to stop.

    Raises:
      SpecError: a file of the study has changed since the search began.
    """

    def played(study: Study) -> xr.Dataset:
        spec.refuse_changed_files(result.study)  # the executor still holds what the search has read
        plan = make_plan(study)
        meter = StudyMeter(plan, executor.devices)
        with showing(meter, form):
            play(plan, executor, store, progress=meter, stopping=stopping)
        return store.result(plan)

    study = confirmation(result, seeds)
    try:
        return compare(result, played(study))
    except (spec.SpecError, PartError) as mistake:
        # The default setting may not fit the data, such as 30 clients and few samples, or fail in its rounds.
        if DEFAULT not in {policy.label for policy in study.policies}:
            raise
        if isinstance(mistake, PartError):
            store.discard()  # runs of the default may have ended, and a smaller study can't leave them out
        try:
            return compare(result, played(confirmation(result, seeds, with_default=False)))
        except (spec.SpecError, PartError) as again:
            raise mistake from again


def compare(result: SearchResult, confirmed: xr.Dataset) -> SearchResult:
    """Returns a search's result with the finalists added, each with its metrics on fresh seeds.

    The finalists have the order that `finalists` gives.

    Args:
      result: the result of the search.
      confirmed: the result of the study that `confirmation` returns.
    """
    arrays = {str(name): variable.values for name, variable in confirmed.data_vars.items()}
    figures = figures_at(result.study, result.goal, arrays)
    labels = confirmed["policy"].values
    compared: list[Finalist] = []
    for label, setting in finalists(result).items():
        rows = figures[labels == label]
        if not len(rows):
            continue
        means = interval(rows.T)
        with np.errstate(invalid="ignore"):  # two infinite figures have no difference
            first = compared[0].figures if compared else np.full(rows.shape, np.nan)
            difference = interval((first - rows).T)
        compared.append(Finalist(label, setting, rows, *means[:3], *difference[:3]))
    return result._replace(finalists=tuple(compared), confirmation=confirmed)


def _without(table: Mapping[str, Any], names: set[str], study: Study) -> dict[str, Any]:
    aliases = study.words.aliases
    return {key: value for key, value in table.items() if aliases.get(key, key) not in names}
