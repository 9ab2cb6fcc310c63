"""Defines the tables of the variables and of the metrics of an ensemble study."""

import numpy as np

from pausejax.analysis.quantities import Metric, Variable, series

VARIABLES: dict[str, Variable] = {
    "mse": series("1", "mean squared error of the ensemble so far, MSE_t of the EFL-FG paper"),
    "best_expert_mse": series("1", "mean squared error so far of the model that is the best so far"),
    "regret": series("1", "cumulative regret in expected losses, EFL-FG (10)"),
    "realized_regret": series("1", "cumulative regret in incurred losses"),
    "regret_bound": series("1", "bound on the cumulative regret, EFL-FG (11); only for EFL-FG"),
    "violations": series("1", "share of the rounds so far whose cost exceeded the budget B"),
    "cost": series("1", "mean cost of the models sent in a round so far; the largest model costs 1"),
    "reports": Variable(("round",), "int32", -1, "1", "number of reports from clients so far"),
    "sent_counts": Variable(("model",), "int32", -1, "1", "number of rounds in which the model was sent"),
    "model_cost": Variable(
        ("model",), "float32", np.nan, "1", "cost of the model; the largest model costs 1"
    ),
    # Coordinates of `run` that the simulation sets, because their default may depend on the data.
    "rounds_played": Variable((), "int32", 0, "1", "T, number of rounds of the run"),
    "learning_rate": Variable((), "float64", np.nan, "1", "η of the run; 1/√T if the spec does not set it"),
    "exploration_rate": Variable(
        (), "float64", np.nan, "1", "ξ of the run; 1/√T if the spec does not set it"
    ),
}
COORDINATES = ("rounds_played", "learning_rate", "exploration_rate")

_METRICS: dict[str, Metric] = {
    "mse": Metric(
        "mse",
        "at_end",
        False,
        "1",
        "mean squared error of the ensemble",
        label="MSE (10⁻³)",
        heading="MSE,\n10⁻³",
        scale=1e3,
        shown=".2f",
    ),
    "best_expert_mse": Metric(
        "best_expert_mse",
        "last",
        None,
        "1",
        "mean squared error of the best single model",
        heading="best expert's\nMSE, 10⁻³",
        scale=1e3,
        shown=".2f",
    ),
    "regret": Metric(
        "regret",
        "at_end",
        False,
        "1",
        "cumulative regret in expected losses, EFL-FG (10)",
        label="regret, EFL-FG (10)",
        heading="regret,\nEFL-FG (10)",
        shown=".1f",
    ),
    "realized_regret": Metric(
        "realized_regret", "at_end", False, "1", "cumulative regret in incurred losses"
    ),
    "regret_bound": Metric(
        "regret_bound",
        "last",
        None,
        "1",
        "bound on the cumulative regret, EFL-FG (11)",
        heading="bound,\nEFL-FG (11)",
        shown=".0f",
    ),
    "violations": Metric(
        "violations",
        "last",
        False,
        "1",
        "share of the rounds whose cost exceeded the budget B",
        label="rounds over budget (%)",
        heading="rounds over\nbudget, %",
        scale=100,
        shown=".1f",
        share=True,
    ),
    "cost": Metric(
        "cost",
        "last",
        False,
        "1",
        "mean cost of the models sent in a round; the largest model costs 1",
        label="cost per round",
        heading="cost per\nround",
        shown=".2f",
    ),
}

_OF_REPORTS = ("regret", "realized_regret", "regret_bound")
"""Metrics that are sums over all reports. The clients, stream length and uplink set the number of reports."""
_REPORTS = ("num_clients", "fit_fraction", "uplink")

METRICS = {
    name: metric._replace(scaled_by=("dataset", *(_REPORTS if name in _OF_REPORTS else ())))
    for name, metric in _METRICS.items()
}
"""The metrics by name. Their values are comparable only within a data set."""
