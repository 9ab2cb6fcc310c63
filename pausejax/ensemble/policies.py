"""The ensemble policies by name."""

from typing import NamedTuple

import jax

from pausejax.ensemble.baselines import all_experts, best_expert, exp3, uniform_affordable
from pausejax.ensemble.efl_fg import efl_fg
from pausejax.ensemble.fedboost import fedboost
from pausejax.ensemble.policy import EnsemblePolicy

ENSEMBLE_POLICIES: tuple[str, ...] = (
    "efl_fg",
    "fedboost",
    "fedboost_weighted",
    "exp3",
    "all_experts",
    "uniform_affordable",
    "best_expert",
)


class Hyper(NamedTuple):
    """The hyper-parameters of R runs; leaves may be traced."""

    learning_rate: jax.Array
    """float32 [R], η."""
    exploration_rate: jax.Array
    """float32 [R], ξ."""
    budget: jax.Array
    """int32 [R], B in parameters."""
    uplink: jax.Array
    """int32 [R], losses that can be reported in a round."""
    spending: jax.Array
    """float32 [R], FedBoost's expected cost of a round over the budget."""


def make_policy(name: str, *, parameters: jax.Array, stream_loss: jax.Array, hyper: Hyper) -> EnsemblePolicy:
    """Builds a policy for a pool of model sizes int32 [K] with mean losses on the stream, float32 [K]."""
    num_models = len(parameters)
    match name:
        case "efl_fg":
            return efl_fg(
                parameters=parameters,
                budget=hyper.budget,
                learning_rate=hyper.learning_rate,
                exploration_rate=hyper.exploration_rate,
            )
        case "fedboost" | "fedboost_weighted":
            return fedboost(
                parameters=parameters,
                budget=hyper.budget,
                learning_rate=hyper.learning_rate,
                spending=hyper.spending,
                sampling="weighted" if name == "fedboost_weighted" else "uniform",
            )
        case "exp3":
            return exp3(
                num_models=num_models,
                learning_rate=hyper.learning_rate,
                exploration_rate=hyper.exploration_rate,
            )
        case "all_experts":
            return all_experts(num_models=num_models, learning_rate=hyper.learning_rate)
        case "uniform_affordable":
            return uniform_affordable(parameters=parameters, budget=hyper.budget)
        case "best_expert":
            return best_expert(stream_loss=stream_loss, num_runs=len(hyper.budget))
    raise ValueError(f"policy: unknown {name!r}; allowed: {', '.join(ENSEMBLE_POLICIES)}")
