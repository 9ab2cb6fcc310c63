"""Registers the ensemble policies by name. A policy selects the models of a pool that a round sends."""

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
    """Hyper-parameters of R runs; the arrays may be traced."""

    learning_rate: jax.Array
    """float32 [R], η."""
    exploration_rate: jax.Array
    """float32 [R], ξ."""
    budget: jax.Array
    """int32 [R], the budget B in parameters."""
    uplink: jax.Array
    """int32 [R], the number of losses that all clients together can report in a round."""
    spending: jax.Array
    """float32 [R], FedBoost's expected cost of a round over the budget."""
    own: dict[str, jax.Array] = {}  # noqa: RUF012, never written to
    """Traced parameters of a policy that are not fields of this class, float32 [R] each, by name."""


def fedboost(
    *, parameters: jax.Array, budget: jax.Array, learning_rate: jax.Array, spending: jax.Array
) -> EnsemblePolicy:
    """Includes every model with the same probability: FedBoost."""
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
    """Includes models with probabilities in proportion to their weights: FedBoost."""
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
    """Includes every model with probability B / K; the weights of a prediction sum to 1: FedBoost."""
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
"""The names of the package's policies. Other policies can be registered."""


def make_policy(
    part: Part,
    *,
    parameters: jax.Array,
    stream_loss: jax.Array,
    hyper: Hyper,
    statics: Mapping[str, Any] = MappingProxyType({}),
) -> EnsemblePolicy:
    """Builds a policy for a pool of K models.

    Args:
      part: the registered policy.
      parameters: int32 [K], model sizes.
      stream_loss: float32 [K], the mean loss of each model on the stream.
      hyper: the hyper-parameters of the runs.
      statics: the values of the policy's parameters that are not traced, by name.
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
