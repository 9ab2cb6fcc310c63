"""Every parameter of a study with `mode = "ensemble"`."""

from typing import get_args

from pausejax.clients.parameters import Parameter
from pausejax.ensemble import ENSEMBLE_POLICIES, REGRESSION_DATASETS
from pausejax.ensemble.experts import FeatureScaling, KernelParameters

STUDY = {
    "rounds": Parameter("rounds", "", 0, "rounds per run; 0: until the stream is used up", low=0),
    "eval_every": Parameter("eval_every", "", 1, "rounds between recorded ones", low=1),
}

PARAMETERS: dict[str, Parameter] = {
    p.name: p
    for p in (
        Parameter("num_clients", "network", 100, "N, clients in the network", low=1, aliases=("N",)),
        Parameter(
            "uplink",
            "network",
            50,
            "b_t / b_ℓ, losses that the clients can report in a round, all together",
            low=1,
            traced=True,
        ),
        Parameter(
            "budget",
            "network",
            3.0,
            "B, cost that a round may send to the clients; the largest model's is 1",
            low=0,
            low_open=True,
            traced=True,
            aliases=("B",),
        ),
        Parameter(
            "spending",
            "network",
            1.0,
            "FedBoost: expected cost of a round over B",
            low=0,
            low_open=True,
            high=1,
            traced=True,
        ),
        Parameter("dataset", "data", "diabetes", "regression data set", choices=REGRESSION_DATASETS),
        Parameter(
            "feature_scaling", "data", "min_max", "scaling of features", choices=get_args(FeatureScaling)
        ),
        Parameter("fit_fraction", "pool", 0.1, "share of the rows that models are fitted on", low=0, high=1),
        Parameter("pool_seed", "pool", 0, "chooses those rows and the networks' first weights", low=0),
        Parameter("ridge", "pool", 1.0, "regularization of the kernel models", low=0, low_open=True),
        Parameter(
            "kernel_parameters",
            "pool",
            "coefficients_and_points",
            "what counts as a kernel model's parameters",
            choices=get_args(KernelParameters),
        ),
        Parameter("learning_rate", "weights", 0.0, "η; 0: 1/√T", low=0, traced=True, aliases=("eta",)),
        Parameter(
            "exploration_rate", "weights", 0.0, "ξ; 0: 1/√T", low=0, high=1, traced=True, aliases=("xi",)
        ),
    )
}

ALIASES: dict[str, str] = {
    **{alias: p.name for p in PARAMETERS.values() for alias in p.aliases},
    "η": "learning_rate",
    "ξ": "exploration_rate",
}
"""Symbol -> name."""

# The budget is not among them: it is read by all, since violations are counted.
POLICY_PARAMETERS = frozenset({"learning_rate", "exploration_rate", "spending"})
POLICIES: dict[str, frozenset[str]] = dict.fromkeys(ENSEMBLE_POLICIES, frozenset()) | {
    "efl_fg": frozenset({"learning_rate", "exploration_rate"}),
    "exp3": frozenset({"learning_rate", "exploration_rate"}),
    "fedboost": frozenset({"learning_rate", "spending"}),
    "fedboost_weighted": frozenset({"learning_rate", "spending"}),
    "all_experts": frozenset({"learning_rate"}),
}
"""Which of `POLICY_PARAMETERS` each policy reads."""
