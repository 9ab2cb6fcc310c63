"""Adds up the losses and costs of a simulation round by round, and computes the reported series."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax.ensemble import compensated
from pausejax.ensemble.compensated import Sum
from pausejax.ensemble.policy import Choice


class Outcome(NamedTuple):
    """Losses of one round, summed over the clients that report in it."""

    loss: jax.Array
    """[R], the loss of the ensemble."""
    expected_loss: jax.Array
    """[R], the expected loss of the ensemble over the policy's draw."""
    model_loss: jax.Array
    """[K, R], the loss of each model alone, sent or not."""
    bound: jax.Array | None
    """[K, R], the round's summand of the regret bound; None for a policy without a bound."""
    num_clients: jax.Array
    """int32 [R], |C_t|."""


class Record(NamedTuple):
    """Running sums over the rounds, one for each of R runs."""

    error: Sum
    """[R], the clients' mean squared error."""
    model_error: Sum
    """[K, R], the clients' mean squared error of each model alone."""
    loss: Sum
    """[R], the loss of the ensemble. This sum and the next three are over rounds and clients."""
    expected_loss: Sum
    """[R], the first sum of EFL-FG (10)."""
    model_loss: Sum
    """[K, R], the second sum of EFL-FG (10), for each model."""
    bound: Sum
    """[K, R], the regret bound EFL-FG (11) against each model."""
    cost: Sum
    """[R], the cost of the sent models, in units of the largest model."""
    violations: jax.Array
    """int32 [R], the number of rounds that cost more than the budget."""
    reports: jax.Array
    """int32 [R], the number of clients that have reported, |C_t|, summed over the rounds."""
    sent_counts: jax.Array
    """int32 [K, R], the number of rounds in which each model was sent."""


def new_record(num_models: int, num_runs: int) -> Record:
    per_run, per_model = compensated.zeros((num_runs,)), compensated.zeros((num_models, num_runs))
    count = jnp.zeros((num_runs,), jnp.int32)
    return Record(
        error=per_run,
        model_error=per_model,
        loss=per_run,
        expected_loss=per_run,
        model_loss=per_model,
        bound=per_model,
        cost=per_run,
        violations=count,
        reports=count,
        sent_counts=jnp.zeros((num_models, num_runs), jnp.int32),
    )


def add_round(
    record: Record, choice: Choice, outcome: Outcome, parameters: jax.Array, budget: jax.Array
) -> Record:
    """Adds one round to the running sums, and returns them.

    `parameters`, int32 [K], and `budget`, int32 [R], are both in model parameters.
    """
    used = jnp.sum(jnp.where(choice.sent, parameters[:, None], 0), axis=0)
    clients = outcome.num_clients.astype(jnp.float32)
    bound = record.bound if outcome.bound is None else compensated.add(record.bound, outcome.bound)
    return Record(
        error=compensated.add(record.error, outcome.loss / clients),
        model_error=compensated.add(record.model_error, outcome.model_loss / clients[None]),
        loss=compensated.add(record.loss, outcome.loss),
        expected_loss=compensated.add(record.expected_loss, outcome.expected_loss),
        model_loss=compensated.add(record.model_loss, outcome.model_loss),
        bound=bound,
        cost=compensated.add(record.cost, used / jnp.max(parameters)),
        violations=record.violations + (used > budget).astype(jnp.int32),
        reports=record.reports + outcome.num_clients,
        sent_counts=record.sent_counts + choice.sent.astype(jnp.int32),
    )


def summary(record: Record, round_number: jax.Array, *, bounded: bool) -> dict[str, jax.Array]:
    """Returns the value of each reported series after `round_number` rounds, [R]; `sent_counts` is [R, K]."""
    rounds = round_number.astype(jnp.float32)
    best = jnp.argmin(compensated.excess(record.model_loss), axis=0)[None]
    of_best = Sum(*(jnp.take_along_axis(part, best, axis=0)[0] for part in record.model_loss))
    series = {
        "mse": compensated.value(record.error) / rounds,
        "best_expert_mse": jnp.min(compensated.value(record.model_error), axis=0) / rounds,
        "regret": compensated.difference(record.expected_loss, of_best),
        "realized_regret": compensated.difference(record.loss, of_best),
        "violations": record.violations.astype(jnp.float32) / rounds,
        "cost": compensated.value(record.cost) / rounds,
        "reports": record.reports,
        "sent_counts": record.sent_counts.T,
    }
    if bounded:
        series["regret_bound"] = jnp.take_along_axis(compensated.value(record.bound), best, axis=0)[0]
    return series
