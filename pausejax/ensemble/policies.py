"""The ensemble policies by name: which of a pool's models a round sends."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from pausejax.ensemble import fedboost as mirror_descent
from pausejax.ensemble.baselines import all_experts, best_expert, exp3, uniform_affordable
from pausejax.ensemble.efl_fg import efl_fg
from pausejax.ensemble.policy import EnsemblePolicy
from pausejax.parts import Part, ensemble_policy


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
    own: dict[str, jax.Array] = {}  # noqa: RUF012, never written to
    """float32 [R], what a policy from outside the package has of its own, by name."""


def fedboost(
    *, parameters: jax.Array, budget: jax.Array, learning_rate: jax.Array, spending: jax.Array
) -> EnsemblePolicy:
    """FedBoost that includes every model with the same probability."""
    return mirror_descent.fedboost(
        parameters=parameters,
        budget=budget,
        learning_rate=learning_rate,
        spending=spending,
        sampling="uniform",
    )


def fedboost_weighted(
    *, parameters: jax.Array, budget: jax.Array, learning_rate: jax.Array, spending: jax.Array
) -> EnsemblePolicy:
    """FedBoost that includes models with probabilities in proportion to their weights."""
    return mirror_descent.fedboost(
        parameters=parameters,
        budget=budget,
        learning_rate=learning_rate,
        spending=spending,
        sampling="weighted",
    )


def fedboost_normalized(
    *, parameters: jax.Array, budget: jax.Array, learning_rate: jax.Array, spending: jax.Array
) -> EnsemblePolicy:
    """FedBoost that includes every model with probability B / K and predicts with weights that sum to 1."""
    return mirror_descent.fedboost(
        parameters=parameters,
        budget=budget,
        learning_rate=learning_rate,
        spending=spending,
        sampling="count",
        normalized=True,
    )


ENSEMBLE_POLICIES: tuple[str, ...] = tuple(
    ensemble_policy(function).__name__
    for function in (
        efl_fg,
        fedboost,
        fedboost_weighted,
        fedboost_normalized,
        exp3,
        all_experts,
        uniform_affordable,
        best_expert,
    )
)
"""Those of the package; more can be registered."""


def make_policy(
    part: Part,
    *,
    parameters: jax.Array,
    stream_loss: jax.Array,
    hyper: Hyper,
    statics: Mapping[str, Any] = MappingProxyType({}),
) -> EnsemblePolicy:
    """Builds a policy for a pool of model sizes int32 [K] with mean losses on the stream, float32 [K].

    `statics` are the values of what shapes it.
    """
    traced = hyper._asdict()
    own = traced.pop("own")
    return part.build(
        parameters=parameters,
        stream_loss=stream_loss,
        num_models=len(parameters),
        num_runs=len(hyper.budget),
        **traced,
        **own,
        **statics,
    )
