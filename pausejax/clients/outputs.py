"""Lists the variables and metrics of the runs of a study."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.analysis.quantities import COUNTS, Metric, Variable
from pausejax.clients.parameters import learns
from pausejax.clients.quantities import metrics_of, variables_of
from pausejax.clients.record import Record
from pausejax.clients.variables import (
    KEPT,
    LEARNED,
    LEARNING_VARIABLES,
    METRICS,
    OVERLAPPING,
    REGRETS,
    VARIABLES,
    client_metric,
    client_metric_name,
)
from pausejax.federated.tasks import Task, build
from pausejax.parts import File, Part, PartError
from pausejax.study.checks import together, values_of
from pausejax.study.reserved import COORDINATES
from pausejax.study.study import Outputs, Study


def tasks_of(study: Study) -> list[Task]:
    """Returns the tasks of a study, for the names and descriptions of metrics; none in mode "bandit".

    Raises:
      PartError: a task can't be built, its metric has the name of another variable, or what describes the
        metric depends on a parameter.
    """
    if not learns(study.mode):
        return []
    found: list[Task] = []
    for name in values_of(study, "task"):
        part = study.parts.get("task", name)
        task = _task(study, part)
        if not task.metric_name.isidentifier() or task.metric_name in _taken(study) - {
            "test_accuracy",
            "test_metric",
        }:
            raise PartError(
                f"{part.where}: metric_name = {task.metric_name!r}: must be an identifier, and not the name "
                "of another variable, coordinate, metric or key of the study"
            )
        if client_metric_name(task) in KEPT:
            wrong = "is the name of the clients' models in a result. Choose another name"
            raise PartError(
                f"{part.where}: metric_name = {task.metric_name!r}: {client_metric_name(task)} {wrong}"
            )
        if task.metric_name == "test_accuracy" and (task.unit != "1" or not task.higher_is_better):
            wrong = "is a share, and higher is better. Choose another name"
            raise PartError(f"{part.where}: metric_name = {task.metric_name!r}: {wrong}")
        for other in found:
            same = other.metric_name == task.metric_name
            if same and (other.higher_is_better, other.unit) != (task.higher_is_better, task.unit):
                what = "another task has this name, but another direction or unit. Choose another name"
                raise PartError(f"{part.where}: metric_name = {task.metric_name!r}: {what}")
        found.append(task)
    return found


def _task(study: Study, part: Part) -> Task:
    """Builds a task at every combination of its static values in a study; returns the first.

    Raises:
      PartError: the task can't be built, or the combinations describe the metric or the loss differently.
    """
    values = {name: axis[0] for name, axis in study.axes.items() if isinstance(axis, tuple)}
    static = _static(study, part)
    points = dict.fromkeys(point[1:] for point in together(study, ("task", *static)) if point[0] == part.name)
    tasks = [build(part, values | dict(zip(static, point, strict=True))) for point in points]
    for field in ("metric_name", "unit", "meaning", "higher_is_better", "loss_unit"):
        first, *others = dict.fromkeys(getattr(task, field) for task in tasks)
        if others:
            raise PartError(
                f"{part.where}: {field}: {first!r} or {others[0]!r}, by {' and '.join(static)}; must not "
                "depend on a parameter. Write two tasks"
            )
    return tasks[0]


def _static(study: Study, part: Part) -> list[str]:
    """Returns the names of a part's static parameters."""
    traced = {key for key, parameter in part.parameters.items() if parameter.traced}
    return sorted((part.reads - traced) & study.axes.keys())


def _taken(study: Study) -> frozenset[str]:
    """Returns the names that parts may not use for their variables.

    They are names of variables, records, metrics, coordinates, parameters and keys of a spec.
    """
    words = study.words
    spellings = [spelling for parameter in words.parameters.values() for spelling in parameter.spellings]
    known = (VARIABLES, METRICS, words.parameters, spellings, words.study)
    recorded = set(Record._fields) - {"own", "fault", "lost"}  # which `records.to_host` takes out
    # -1 stands for no value in a variable of these names, in every kind of study.
    return frozenset(COORDINATES).union(recorded, COUNTS, *known)


def outputs(study: Study) -> Outputs:
    """Returns the variables and metrics of runs of client selection.

    Raises:
      PartError: a quantity has the name of another variable, or a task can't be built.
    """
    learned = [task.metric_name for task in tasks_of(study)]
    # In mode "bandit" there is no accuracy.
    objectives = next(iter(learned), "participation_imbalance"), "mean_latency", "max_leakage"
    best_by = objectives[0] if learns(study.mode) else "mean_latency"
    return Outputs(variables(study), metrics(study), objectives, best_by, ("dataset", "task"))


def variables(study: Study) -> dict[str, Variable]:
    """Returns every variable of a study's result, by name.

    Raises:
      PartError: a quantity has the name of another variable, or a task can't be built.
    """
    absent = _absent(study)
    found = {name: variable for name, variable in VARIABLES.items() if name not in absent}
    taken = _taken(study)
    for task in tasks_of(study):
        found[task.metric_name] = Variable(("eval",), "float32", np.nan, task.unit, task.meaning)
        if study.client_metrics:
            found[client_metric_name(task)] = client_metric(task)[0]
            taken |= client_metric(task)[1].keys()
    for name in ("train_loss", "test_loss") if learns(study.mode) else ():
        found[name] = found[name]._replace(units=_loss_units(study))
    return found | variables_of(study, taken | found.keys())


def _loss_units(study: Study) -> str:
    return " or ".join(sorted({task.loss_unit for task in tasks_of(study)}))


def _protected(study: Study) -> set[str]:
    """Returns what ε protects under the mechanisms of a study, such as "per update"; "" if unknown."""
    if not learns(study.mode):
        return {"per update"}
    names = values_of(study, "mechanism")
    return {
        unit or ""
        for name in names
        for unit in _read(study, "mechanism", name, lambda one: str(one.protects))
    }


def _read(study: Study, category: str, name: str, read: Callable[[Any], Any]) -> list[Any]:
    """Reads a part that is built at each combination of its static values in a study; None where this fails.

    The error of an invalid part is raised when the group's static values are built.
    """
    part, found = study.parts.get(category, name), []
    static = _static(study, part)
    num_clients = max(values_of(study, "num_clients"))
    later = {
        key: jax.ShapeDtypeStruct((1, num_clients) if parameter.kind is File else (), jnp.float32)
        for key, parameter in part.parameters.items()
        if parameter.traced or parameter.kind is File
    }

    # As in a program, traced values and files are arrays of a trace. A trace starts no backend of JAX. The
    # number of CPU devices can't be changed after a backend has started, and Ray must not fork then.
    def build_all(arrays: dict[str, jax.Array]) -> None:
        arguments = dict.fromkeys(part.given, 1.0) | arrays
        for values in itertools.product(*(values_of(study, key) for key in static)):
            known = None
            with contextlib.suppress(Exception):
                known = read(part.build(**(arguments | dict(zip(static, values, strict=True)))))
            found.append(known)

    jax.eval_shape(build_all, later)
    return found


def _absent(study: Study) -> set[str]:
    """Returns the names of `VARIABLES` that the result of a study does not have."""
    measured = {task.metric_name for task in tasks_of(study)}
    absent = {"test_accuracy"} - measured
    absent |= set() if learns(study.mode) else set(LEARNING_VARIABLES)
    absent |= {name for name in ("selection_gap", "expected_regret") if not getattr(study, name)}
    absent |= set() if study.keep_models else set(KEPT)
    for_all = late = overlapping = False
    for name in values_of(study, "ending"):
        outside = study.parts.get("ending", name).outside
        for known in _read(study, "ending", name, lambda one: (bool(one.waits_for_all), int(one.waiting))):
            waits, waiting = known or (False, 0)
            for_all |= waits
            # An ending from outside may drop updates of clients that have finished, also if rounds overlap.
            late |= not waits and (outside or not waiting)
            overlapping |= waiting > 0
    absent |= set() if for_all else set(REGRETS)
    absent |= set() if late else {"late_count"}
    absent |= set() if overlapping else set(OVERLAPPING)
    always = values_of(study, "availability") == ["always"] and values_of(study, "stop_at_epsilon") == [0.0]
    absent |= {"available_count"} if always and not overlapping else set()
    return absent | ({"failed_count"} if values_of(study, "failure_probability") == [0.0] else set())


def metrics(study: Study) -> dict[str, Metric]:
    """Returns every metric of a study's runs, by name."""
    absent = _absent(study)
    found = {name: metric for name, metric in METRICS.items() if metric.variable not in absent}
    protected = _protected(study)
    if len(protected) == 1 and "" not in protected:
        leakage = found["max_leakage"]
        found["max_leakage"] = leakage._replace(label=f"{leakage.label} ({min(protected)})")
    own: dict[str, Metric] = {}
    for key, task in zip(values_of(study, "task"), tasks_of(study), strict=False):
        name = task.metric_name
        label = f"{name.replace('_', ' ')}{'' if task.unit in ('1', '') else f' ({task.unit})'}"
        metric = own.get(name) or found.pop(name, None)
        metric = metric or Metric(
            name,
            "last",
            task.higher_is_better,
            task.unit,
            f"final {task.meaning}",
            learned=True,
            label=label,
            heading=f"final\n{name.removeprefix('test_')}",
            scaled_by=LEARNED,
        )
        if study.parts.get("task", key).outside:  # its metric may be NaN at a finite loss
            metric = metric._replace(reduce="at_end")
        own[name] = metric._replace(units=task.unit, meaning=f"final {task.meaning}")
        own |= client_metric(task)[1] if study.client_metrics else {}
    for loss in ("train_loss", "test_loss") if learns(study.mode) else ():
        found[loss] = found[loss]._replace(units=_loss_units(study))
    return own | found | metrics_of(study)
