"""Registers the ensemble policies by name. A policy selects the models of a pool that a round sends."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.ensemble import fedboost as mirror_descent
from pausejax.ensemble.baselines import all_experts, best_expert, exp3, uniform_affordable
from pausejax.ensemble.efl_fg import efl_fg
from pausejax.ensemble.policy import Choice, EnsemblePolicy, Feedback, PolicyState
from pausejax.parts import Part, PartError, ensemble_policy
from pausejax.parts.check import expect_array, expect_type, expect_types, type_of


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

    Raises:
      PartError: the part returns no `EnsemblePolicy`. The policy's functions raise it, when they are traced,
        for a result of wrong shape or type.
    """
    traced = hyper._asdict()
    own = traced.pop("own")
    made = part.build(
        parameters=parameters,
        stream_loss=stream_loss,
        num_models=len(parameters),
        num_runs=len(hyper.budget),
        **traced,
        **own,
        **statics,
    )
    return _checked(made, part, len(parameters), len(hyper.budget))


def _checked(policy: Any, part: Part, num_models: int, num_runs: int) -> EnsemblePolicy:
    """Returns the policy with functions that check the shapes and types of their results when traced."""
    expect_type(part, policy, EnsemblePolicy, "pausejax.ensemble.EnsemblePolicy")
    shape = (num_models, num_runs)
    bound = policy.regret_bound
    if not isinstance(policy.min_sent, int) or policy.min_sent < 0:
        raise PartError(f"{part.where}: min_sent must be an integer >= 0, not {policy.min_sent!r}")

    def init() -> PolicyState:
        with part.blamed("init"):
            state = jax.tree.map(jnp.asarray, policy.init())
        for path, leaf in jax.tree.leaves_with_path(state):
            if leaf.shape[-1:] != (num_runs,):
                place = f"state{jax.tree_util.keystr(path)}"
                allowed = f"the last axis must be that of the runs, of length {num_runs}"
                raise PartError(f"{part.where}: init: {place} is {type_of(leaf)}; {allowed}")
        return state

    def select(key: jax.Array, state: PolicyState) -> Choice:
        with part.blamed("select"):
            choice = policy.select(key, state)
            if not isinstance(choice, Choice):
                raise PartError(f"{part.where}: select must return a Choice, not {type(choice).__name__}")
            sent = expect_array(part, "select: sent is", choice.sent, jnp.bool, shape)
            mixing = expect_array(part, "select: mixing is", choice.mixing, jnp.float32, shape)
        return choice._replace(sent=sent, mixing=mixing)

    def update(state: PolicyState, choice: Choice, feedback: Feedback) -> PolicyState:
        with part.blamed("update"):
            after = policy.update(state, choice, feedback)
            expect_types(part, "update", state, after)
        return after

    def expected_loss(choice: Choice, predictions: jax.Array, targets: jax.Array) -> jax.Array:
        with part.blamed("expected_loss"):
            loss = policy.expected_loss(choice, predictions, targets)
            return expect_array(part, "expected_loss returns", loss, jnp.float32, targets.shape)

    def regret_bound(choice: Choice, round: jax.Array, num_clients: jax.Array) -> jax.Array:
        assert bound is not None
        with part.blamed("regret_bound"):
            summand = bound(choice, round, num_clients)
            return expect_array(part, "regret_bound returns", summand, jnp.float32, shape)

    return EnsemblePolicy(
        init, select, update, expected_loss, None if bound is None else regret_bound, policy.min_sent
    )
