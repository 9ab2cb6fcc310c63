"""What a study of client selection leaves: the one table of variables, and that of figures per run."""

import numpy as np

from pausejax.analysis.quantities import Metric, Variable, series

VARIABLES: dict[str, Variable] = {
    "round_latency": series("s", "simulated latency of the round, (3)"),
    "elapsed": series("s", "simulated time since the start"),
    "reward": series("1", "reward r(S_t, t), (9)"),
    "regret": series("1", "realized regret of the round, (15)"),
    "pseudo_regret": series("1", "regret of the round in expectation, by (10)"),
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
    "counts": Variable(("client",), "int32", -1, "1", "rounds that each client took part in; -1 beyond K"),
    "diverged_round": Variable((), "int32", 0, "1", "round in which the model ceased to be finite; 0: never"),
}
LEARNING_VARIABLES = ("max_leakage_update", "train_loss", "test_accuracy", "test_loss", "diverged_round")
"""What only mode "training" has."""

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
    ),
    "test_loss": Metric("test_loss", "last", False, "nat", "final test loss", learned=True),
    "train_loss": Metric("train_loss", "last", False, "nat", "local loss in the last round", learned=True),
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
        label="maximum leakage",
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
    "cumulative_reward": Metric("reward", "total", True, "1", "sum of the rewards (9)"),
    "cumulative_regret": Metric(
        "regret",
        "total",
        False,
        "1",
        "cumulative realized regret (15)",
        heading="cumulative\nregret",
        shown=".1f",
    ),
    "cumulative_pseudo_regret": Metric("pseudo_regret", "total", False, "1", "cumulative pseudo-regret"),
    "cumulative_regret_own_history": Metric(
        "regret_own_history", "total", False, "1", "cumulative regret against a genie's own trajectory"
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


def objectives(mode: str) -> tuple[str, str, str]:
    """What a front weighs: upwards, across, and in colour. Without training, accuracy is not known."""
    up = "test_accuracy" if mode == "training" else "participation_imbalance"
    return up, "mean_latency", "max_leakage"


def ranking(mode: str) -> str:
    """The metric by which a table of many settings picks the best."""
    return "test_accuracy" if mode == "training" else "mean_latency"
