"""Defines every parameter of a study with `mode = "ensemble"`."""

from typing import get_args

from pausejax.ensemble.experts import FeatureScaling, KernelParameters
from pausejax.parts import Parameter, table

STUDY: dict[str, Parameter] = table(
    **{
        "": {
            "rounds": Parameter(0, "number of rounds of each run; 0: one pass over the data stream", low=0),
            "eval_every": Parameter(1, "number of rounds between two records", low=1),
            "mode": Parameter("ensemble", "kind of study", choices=("training", "bandit", "ensemble")),
            "name": Parameter("", "title of the study"),
            "selection_gap": Parameter(False, "read only by studies of client selection"),
            "expected_regret": Parameter(False, "read only by studies of client selection"),
            "client_metrics": Parameter(False, "read only by studies of client selection"),
            "keep_models": Parameter(False, "read only by studies of client selection"),
            "stop_at_latency": Parameter(0.0, "read only by studies of client selection", low=0),
        }
    }
)

PARAMETERS: dict[str, Parameter] = table(
    network={
        "num_clients": Parameter(
            100, "N, number of clients in the network", low=1, aliases=("N",), symbol="N"
        ),
        "uplink": Parameter(
            50,
            "b_t / b_ℓ, largest number of losses that all clients together report in a round",
            low=1,
            traced=True,
        ),
        "budget": Parameter(
            3.0,
            "B, largest summed cost of the models sent in a round; the largest model costs 1",
            low=0,
            low_open=True,
            traced=True,
            aliases=("B",),
            symbol="B",
        ),
        "spending": Parameter(
            1.0, "FedBoost: expected cost of a round divided by B", low=0, low_open=True, high=1, traced=True
        ),
    },
    data={
        "dataset": Parameter("diabetes", "regression data set"),
        "feature_scaling": Parameter("min_max", "scaling of the features", choices=get_args(FeatureScaling)),
    },
    pool={
        "fit_fraction": Parameter(0.1, "share of the rows on which the models are fitted", low=0, high=1),
        "pool_seed": Parameter(0, "seed that draws the fitted rows and the networks' initial weights", low=0),
        "ridge": Parameter(1.0, "weight of the ridge penalty of the kernel models", low=0, low_open=True),
        "kernel_parameters": Parameter(
            "coefficients_and_points",
            "numbers of a kernel model that count as its parameters",
            choices=get_args(KernelParameters),
        ),
    },
    weights={
        "learning_rate": Parameter(
            0.0,
            "η, learning rate of the models' weights; 0: 1/√T",
            low=0,
            traced=True,
            aliases=("eta",),
            symbol="η",
        ),
        "exploration_rate": Parameter(
            0.0,
            "ξ, exploration rate; 0: 1/√T, or 1/√2 with one round",
            low=0,
            high=1,
            traced=True,
            aliases=("xi",),
            symbol="ξ",
        ),
    },
)

# The budget is not in this set: every run reads the budget to count violations.
FOR_POLICIES = frozenset({"learning_rate", "exploration_rate", "spending"})
"""The parameters that only policies read."""
