"""Tables of the variables and metrics of client selection."""

import numpy as np

from pausejax.analysis.quantities import Metric, Variable, count, series
from pausejax.federated.tasks import Task

VARIABLES: dict[str, Variable] = {
    "round_latency": series("s", "simulated duration of the round, (3)"),
    "elapsed": series("s", "simulated time since the start of the run"),
    "reward": series("1", "reward r(S_t, t) of the round, (9)"),
    "regret": series("1", "realized regret of the round, (15)"),
    "pseudo_regret": series("1", "value of (10) for the oracle's cohort minus that for the policy's cohort"),
    "expected_regret": series(
        "1", "largest expected reward (9) of any cohort minus that of the policy's cohort"
    ),
    "regret_own_history": series("1", "regret of the round against an oracle with its own participations"),
    "max_leakage": series("1", "largest leakage ε of any client so far"),
    "max_leakage_update": series("1", "largest leakage ε of any client so far, for whole updates"),
    "selection_gap": series("1", "maximum of (14) minus the value of (14) for the cohort"),
    "train_loss": series("nat", "mean loss of the cohort's local training, by aggregation weights"),
    "test_accuracy": Variable(
        ("eval",), "float32", np.nan, "1", "share of the test set that is classified correctly"
    ),
    "test_loss": Variable(("eval",), "float32", np.nan, "nat", "mean of the task's loss on the test set"),
    "selected": Variable(
        ("round", "slot"), "int32", -1, "1", "clients selected in the round, ascending; -1 pads"
    ),
    "arrived": Variable(
        ("round", "slot"),
        "int32",
        -1,
        "1",
        "clients whose update is aggregated in the round; -1 pads; absent if rounds do not overlap",
    ),
    "staleness": series("1", "mean age of the aggregated updates, server steps; absent without overlap"),
    "counts": count("number of rounds that selected the client, failures included; -1 pads", "client"),
    "releases": count("number of updates that the client has released, T_k; -1 pads", "client"),
    "available_count": count("number of available clients; absent if all clients are always available"),
    "failed_count": count("number of selected clients that failed; absent if no client can fail"),
    "late_count": count("number of selected clients that were late; absent if no client can be late"),
    "final_model": Variable(
        ("model_weight",), "float32", np.nan, "1", "weights of the model after the last round"
    ),
    "client_models": Variable(
        ("client", "client_weight"),
        "float32",
        np.nan,
        "1",
        "weights of each client's own model after the last round",
    ),
    "diverged_round": Variable(
        (),
        "int32",
        0,
        "1",
        "first round after which a weight was infinite or NaN, or the test loss NaN; 0: none",
    ),
}
REGRETS = ("reward", "regret", "pseudo_regret", "regret_own_history", "expected_regret", "selection_gap")
"""Variables that exist only if rounds wait for all clients. They assume that the slowest client ends a
round."""
OVERLAPPING = ("arrived", "staleness")
"""Variables that exist only if rounds overlap."""
KEPT = ("final_model", "client_models")
"""Variables of studies that keep their models."""
LEARNING_VARIABLES = ("max_leakage_update", "train_loss", "test_loss", "diverged_round", *KEPT)
"""Variables that only mode "training" has."""

LEARNED = ("dataset", "task")
"""Parameters that define losses and accuracies. Only runs with equal values are compared by these metrics."""
_WEIGHTS = ("generalization_weight", "generalization_exponent", "privacy_weight", "budget_decay")
_REWARD = ("min_latency", *_WEIGHTS, "clock", "stop_at_epsilon")
"""Parameters that define the reward (9). Only runs with equal values are compared by regrets and gaps."""

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
        scaled_by=LEARNED,
    ),
    "test_loss": Metric(
        "test_loss", "last", False, "nat", "final test loss", learned=True, scaled_by=LEARNED
    ),
    "train_loss": Metric(
        "train_loss",
        "last",
        False,
        "nat",
        "mean local loss in the last round with an update",
        learned=True,
        scaled_by=LEARNED,
    ),
    "elapsed": Metric(
        "elapsed",
        "last",
        False,
        "s",
        "simulated time of the whole run",
        heading="simulated\ntime, s",
        shown=".1f",
        scaled_by=("stop_at_epsilon",),
    ),
    "mean_latency": Metric(
        "elapsed",
        "mean_latency",
        False,
        "s",
        "mean simulated duration of a round",
        label="time per round (s)",
        scaled_by=("stop_at_epsilon",),
    ),
    "rounds_played": Metric("elapsed", "rounds_played", None, "1", "number of rounds that the run lasted"),
    "max_leakage": Metric(
        "max_leakage",
        "last",
        False,
        "1",
        "largest leakage ε of any client",
        label="maximum leakage ε",
        heading="maximum\nleakage",
        shown=".1f",
        scaled_by=("mechanism", "clip", "delta"),
    ),
    "max_leakage_update": Metric(
        "max_leakage_update",
        "last",
        False,
        "1",
        "largest leakage ε of any client for whole updates",
        heading="leakage of\nupdate",
        shown=".2e",
        scaled_by=("mechanism", "delta"),
    ),
    "cumulative_reward": Metric(
        "reward", "total", True, "1", "sum of the rewards (9) over the rounds", scaled_by=_REWARD
    ),
    "cumulative_pseudo_regret": Metric(
        "pseudo_regret",
        "total",
        False,
        "1",
        "cumulative pseudo-regret: values of (10) for the oracle's minus those for the policy's cohorts",
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
            "the oracle (10) maximizes the smallest expected speed of its cohort. The reward counts the "
            "smallest drawn speed. Another cohort may earn more"
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
        "cumulative regret against an oracle with its own participations",
        scaled_by=_REWARD,
    ),
    "participation_imbalance": Metric(
        "counts",
        "imbalance",
        False,
        "1",
        "total variation distance between the clients' shares of participation and equal shares",
        label="participation imbalance",
    ),
    "mean_selection_gap": Metric(
        "selection_gap",
        "mean_gap",
        False,
        "1",
        "mean of the maximum of (14) minus its value for the cohort, after all clients are explored",
        label="mean gap to the maximum of (14)",
        heading="mean gap\nin (14)",
        shown=".3f",
        scaled_by=(*_REWARD, "exploitation_gain"),
    ),
    "exact_share": Metric(
        "selection_gap",
        "exact_share",
        True,
        "1",
        "share of rounds in which the cohort maximizes (14), after all clients are explored",
        label="rounds at the maximum of (14) (%)",
        heading="rounds\nexact, %",
        scale=100,
        shown=".1f",
    ),
    "diverged_round": Metric(
        "diverged_round",
        "itself",
        None,
        "1",
        "first round after which a weight was infinite or NaN, or the test loss NaN; 0: none",
    ),
}


def client_metric_name(task: Task) -> str:
    """Returns the name of the variable with the task's metric of each client: "client_accuracy"."""
    return f"client_{task.metric_name.removeprefix('test_')}"


def client_metric(task: Task) -> tuple[Variable, dict[str, Metric]]:
    """Returns the variable with the task's metric of each client, and the metrics of a run that sum it up."""
    name = client_metric_name(task)
    words, unit = name.removeprefix("client_").replace("_", " "), task.unit
    told = f"{words} of each client's model on the client's held-out samples; NaN without such samples"
    known = METRICS.get(task.metric_name)
    scale, shown, share = (known.scale, known.shown, known.share) if known else (1.0, ".3g", False)
    percent = ", %" if scale == 100 else ""
    shown_unit = " (%)" if percent else "" if unit == "1" else f" ({unit})"
    worst = "lowest_tenth" if task.higher_is_better else "highest_tenth"
    tenth = Metric(
        name,
        worst,
        task.higher_is_better,
        unit,
        f"mean {words} over the worst tenth of the clients",
        learned=True,
        label=f"{words} of the worst tenth of clients{shown_unit}",
        heading=f"worst\ntenth{percent}",
        scale=scale,
        shown=shown,
        share=share,
        scaled_by=LEARNED,
    )
    spread = Metric(
        name,
        "spread",
        False,
        unit,
        f"standard deviation of the {words} over the clients",
        learned=True,
        label=f"standard deviation of {words} over clients{shown_unit}",
        heading=f"spread over\nclients{percent}",
        scale=scale,
        shown=shown,
        scaled_by=LEARNED,
    )
    metrics = {f"worst_{name}": tenth, f"{name}_spread": spread}
    return Variable(("client",), "float32", np.nan, unit, told), metrics
