"""What a study of client selection leaves: the one table of variables, and that of figures per run."""

import contextlib
import itertools
from typing import Any

import numpy as np

from pausejax import network, privacy
from pausejax.analysis.quantities import Metric, Variable, count, series
from pausejax.clients.parameters import learns
from pausejax.clients.quantities import metrics_of, variables_of
from pausejax.federated.tasks import Task, build
from pausejax.parts import PartError
from pausejax.study.checks import values_of
from pausejax.study.study import Outputs, Study

VARIABLES: dict[str, Variable] = {
    "round_latency": series("s", "simulated latency of the round, (3)"),
    "elapsed": series("s", "simulated time since the start"),
    "reward": series("1", "reward r(S_t, t), (9)"),
    "regret": series("1", "realized regret of the round, (15)"),
    "pseudo_regret": series("1", "regret of the round in expectation, by (10)"),
    "expected_regret": series("1", "regret of the round against the largest expected reward (9)"),
    "regret_own_history": series("1", "regret of the round against a genie that plays its own trajectory"),
    "max_leakage": series("1", "largest scheduled leakage of any client so far"),
    "max_leakage_update": series("1", "the same for the whole update vector"),
    "selection_gap": series("1", "what the cohort loses in (14) against the maximum"),
    "train_loss": series("nat", "weighted mean loss of the local minibatches"),
    "test_accuracy": Variable(
        ("eval",), "float32", np.nan, "1", "fraction of the test set classified rightly"
    ),
    "test_loss": Variable(("eval",), "float32", np.nan, "nat", "mean cross-entropy on the test set"),
    "selected": Variable(("round", "slot"), "int32", -1, "1", "selected clients, ascending; -1 pads"),
    "arrived": Variable(
        ("round", "slot"), "int32", -1, "1", "clients whose update is aggregated; absent if all wait"
    ),
    "staleness": series("1", "mean age of these updates in rounds, NaN without any; absent as `arrived`"),
    "counts": count("rounds that selected each client, failures among them; -1 beyond K", "client"),
    "releases": count("updates that each client has released, its T_k; -1 beyond K", "client"),
    "available_count": count("clients that could be selected; absent where it is always everyone"),
    "failed_count": count("selected clients that failed in mid-round; absent where none can"),
    "late_count": count("selected clients that came too late to count; absent where none can"),
    "diverged_round": Variable((), "int32", 0, "1", "round in which the model ceased to be finite; 0: never"),
}
REGRETS = ("reward", "regret", "pseudo_regret", "regret_own_history", "expected_regret", "selection_gap")
"""What only rounds have that wait for all: it is defined for cohorts of m whose slowest ends the round."""
LEARNING_VARIABLES = ("max_leakage_update", "train_loss", "test_loss", "diverged_round")
"""What only mode "training" has."""

_COORDINATES = (
    "run",
    "round",
    "eval",
    "slot",
    "client",
    "eval_round",
    "eval_elapsed",
    "policy",
    "algorithm",
    "seed",
    "identity",
)

_LEARNED = ("dataset", "task")
_WEIGHTS = ("generalization_weight", "generalization_exponent", "privacy_weight", "budget_decay")
_REWARD = ("min_latency", *_WEIGHTS)
"""What the reward (9) is made with: regrets and gaps of unlike rewards are no amounts of one thing."""

METRICS: dict[str, Metric] = {
    "test_accuracy": Metric(
        "test_accuracy",
        "last",
        True,
        "1",
        "final test accuracy",
        learned=True,
        label="test accuracy (%)",
        heading="final\naccuracy, %",
        scale=100,
        shown=".1f",
        share=True,
        scaled_by=_LEARNED,
    ),
    "test_loss": Metric(
        "test_loss", "last", False, "nat", "final test loss", learned=True, scaled_by=_LEARNED
    ),
    "train_loss": Metric(
        "train_loss", "last", False, "nat", "local loss in the last round", learned=True, scaled_by=_LEARNED
    ),
    "elapsed": Metric(
        "elapsed",
        "last",
        False,
        "s",
        "simulated time of the whole run",
        heading="simulated\ntime, s",
        shown=".1f",
    ),
    "mean_latency": Metric(
        "elapsed", "mean_latency", False, "s", "simulated time per round", label="time per round (s)"
    ),
    "rounds_played": Metric("elapsed", "rounds_played", None, "1", "rounds that the run lasted"),
    "max_leakage": Metric(
        "max_leakage",
        "last",
        False,
        "1",
        "largest scheduled leakage of any client",
        label="maximum leakage ε",
        heading="maximum\nleakage",
        shown=".1f",
    ),
    "max_leakage_update": Metric(
        "max_leakage_update",
        "last",
        False,
        "1",
        "largest leakage of a whole update vector",
        heading="… of the\nupdate",
        shown=".2e",
    ),
    "cumulative_reward": Metric("reward", "total", True, "1", "sum of the rewards (9)", scaled_by=_REWARD),
    "cumulative_pseudo_regret": Metric(
        "pseudo_regret",
        "total",
        False,
        "1",
        "cumulative pseudo-regret: what the genie (10) has over the cohorts in expectation",
        label="cumulative pseudo-regret",
        heading="pseudo-\nregret",
        shown=".1f",
        scaled_by=_REWARD,
    ),
    "cumulative_regret": Metric(
        "regret",
        "total",
        False,
        "1",
        "cumulative realized regret (15)",
        heading="realized\nregret",
        shown=".1f",
        scaled_by=_REWARD,
        if_negative=(
            "the genie (10) maximizes the smallest of the expected rewards, but a round pays the smallest of "
            "the rewards themselves, so another cohort may earn more"
        ),
    ),
    "cumulative_expected_regret": Metric(
        "expected_regret",
        "total",
        False,
        "1",
        "cumulative regret against the cohort with the largest expected reward (9)",
        label="cumulative expected regret",
        heading="expected\nregret",
        shown=".1f",
        scaled_by=_REWARD,
    ),
    "cumulative_regret_own_history": Metric(
        "regret_own_history",
        "total",
        False,
        "1",
        "cumulative regret against a genie's own trajectory",
        scaled_by=_REWARD,
    ),
    "participation_imbalance": Metric(
        "counts",
        "imbalance",
        False,
        "1",
        "total variation distance of participation from equal shares",
        label="participation imbalance",
    ),
    "mean_selection_gap": Metric(
        "selection_gap",
        "mean_gap",
        False,
        "1",
        "mean loss in (14) once everybody was explored",
        heading="mean gap\nin (14)",
        shown=".3f",
        scaled_by=_REWARD,
    ),
    "exact_share": Metric(
        "selection_gap",
        "exact_share",
        True,
        "1",
        "share of those rounds in which (14) was at its maximum",
        heading="rounds\nexact, %",
        scale=100,
        shown=".1f",
    ),
    "diverged_round": Metric(
        "diverged_round", "itself", None, "1", "round in which the model ceased to be finite; 0: never"
    ),
}


def tasks_of(study: Study) -> list[Task]:
    """The tasks of a study, as far as naming and describing what they measure goes; none in mode "bandit".

    Raises:
      PartError: one can't be built, or its metric has the name of another variable.
    """
    if not learns(study.mode):
        return []
    values = {name: axis[0] for name, axis in study.axes.items() if isinstance(axis, tuple)}
    found = []
    for name in values_of(study, "task"):
        part = study.parts.get("task", name)
        task = build(part, values)
        if not task.metric_name.isidentifier() or task.metric_name in _taken(study) - {"test_accuracy"}:
            raise PartError(
                f"{part.where}: metric_name = {task.metric_name!r}: names something else, or nothing"
            )
        found.append(task)
    return found


def _taken(study: Study) -> frozenset[str]:
    """Names in every result that no part may give to something else."""
    words = study.words
    known = (VARIABLES, METRICS, words.parameters, words.aliases, words.study)
    return frozenset(_COORDINATES).union(*known)


def outputs(study: Study) -> Outputs:
    """What runs of client selection leave.

    Raises:
      PartError: a quantity has the name of another variable, or a task can't be built.
    """
    learned = [task.metric_name for task in tasks_of(study)]
    # Without training, accuracy is not known.
    objectives = next(iter(learned), "participation_imbalance"), "mean_latency", "max_leakage"
    best_by = objectives[0] if learns(study.mode) else "mean_latency"
    return Outputs(variables(study), metrics(study), objectives, best_by, ("dataset", "task"))


def variables(study: Study) -> dict[str, Variable]:
    """Every variable that the result of a study has, by name; as `outputs`."""
    absent = _absent(study)
    found = {name: variable for name, variable in VARIABLES.items() if name not in absent}
    for task in tasks_of(study):
        found[task.metric_name] = Variable(("eval",), "float32", np.nan, task.unit, task.meaning)
        for name in ("train_loss", "test_loss"):
            found[name] = found[name]._replace(units=task.loss_unit)
    return found | variables_of(study, _taken(study) | found.keys())


def _protected(study: Study) -> set[str]:
    """Says what ε bounds the leakage of, by the mechanisms of a study."""
    if not learns(study.mode):
        return {"per update"}
    names = values_of(study, "mechanism")
    return {built.protects for name in names for built in _built(study, "mechanism", name)}


def _built(study: Study, category: str, name: str) -> list[Any]:
    """Builds a part at every combination of its static values in a study, as far as that goes.

    A part that is wrong is refused when the program is built.
    """
    part, found = study.parts.get(category, name), []
    traced = {key for key, parameter in part.parameters.items() if parameter.traced}
    static = sorted((part.reads - traced) & study.axes.keys())
    for values in itertools.product(*(values_of(study, key) for key in static)):
        given = dict.fromkeys(part.given, 1.0) | dict(zip(static, values, strict=True))
        with contextlib.suppress(PartError, TypeError, ValueError):
            found.append(part.build(**given))
    return [built for built in found if isinstance(built, (network.Ending, privacy.Mechanism))]


def _absent(study: Study) -> set[str]:
    """Names of `VARIABLES` that no run of a study leaves."""
    measured = {task.metric_name for task in tasks_of(study)}
    absent = {"test_accuracy"} - measured
    absent |= set() if learns(study.mode) else set(LEARNING_VARIABLES)
    absent |= {name for name in ("selection_gap", "expected_regret") if not getattr(study, name)}
    endings = values_of(study, "ending")
    absent |= set() if "all" in endings else set(REGRETS)
    absent |= {"late_count"} if endings == ["all"] else set()
    if not any(built.waiting for name in endings for built in _built(study, "ending", name)):
        absent |= {"arrived", "staleness"}
    always = values_of(study, "availability") == ["always"] and values_of(study, "stop_at_epsilon") == [0.0]
    absent |= {"available_count"} if always else set()
    return absent | ({"failed_count"} if values_of(study, "failure_probability") == [0.0] else set())


def metrics(study: Study) -> dict[str, Metric]:
    """Every figure per run of a study, by name."""
    absent = _absent(study)
    found = {name: metric for name, metric in METRICS.items() if metric.variable not in absent}
    protected = _protected(study)
    if len(protected) == 1:
        leakage = found["max_leakage"]
        found["max_leakage"] = leakage._replace(label=f"{leakage.label} ({min(protected)})")
    own = {}
    for task in tasks_of(study):
        name = task.metric_name
        label = f"{name.replace('_', ' ')}{'' if task.unit == '1' else f' ({task.unit})'}"
        own[name] = (
            found.pop(name)
            if name in found
            else Metric(
                name,
                "last",
                task.higher_is_better,
                task.unit,
                f"final {task.meaning}",
                learned=True,
                label=label,
                heading=f"final\n{name.removeprefix('test_')}",
                scaled_by=_LEARNED,
            )
        )
        own[name] = own[name]._replace(units=task.unit, meaning=f"final {task.meaning}")
        for loss in ("train_loss", "test_loss"):
            found[loss] = found[loss]._replace(units=task.loss_unit)
    return own | found | metrics_of(study)
