"""Under which conditions a round is played: latencies, availability, failures, and whose update arrives."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.clients.program import AVAILABILITY, FAILURE, LATENCY, FailureStage, Files, Hyper, Program
from pausejax.policies.base import Cohort


class NetworkDraw(NamedTuple):
    """One round's draw of the network. It depends on seed and round only, so every policy meets the same."""

    latency: jax.Array
    """float32 [K], seconds."""
    available: jax.Array | None
    """bool [K], who can be selected; None where it is always everyone."""
    fails: jax.Array | None
    """bool [K], who fails in mid-round if selected; None where nobody can."""
    availability: Any
    """The next state of the availability process."""


class RoundClose(NamedTuple):
    """How a round closes, one row per run: whose update is aggregated, and who has released one."""

    cohort: Cohort
    """Those whose update arrives, -1 for the others; the weights sum to 1, or to 0 if there are none."""
    arrived: jax.Array | None
    """bool [R, n], whose update arrives; None where nobody can fail."""
    released: jax.Array
    """int32 [R, n], the members who have released an update, which spends privacy; -1 for the others."""


def draw_network(
    program: Program, files: Files, round: jax.Array, key: jax.Array, hyper: Hyper, state: Any
) -> NetworkDraw:
    """Draws latencies, availability and failures of one round of one run.

    Args:
      program: static.
      files: as in `World`.
      round: int32 scalar, t.
      key: of run and round.
      hyper: of the run, scalars.
      state: of the availability process.
    """
    latency = program.build_law(hyper, files).sample(jax.random.fold_in(key, LATENCY))
    availability = program.build_availability(hyper, files)
    available = fails = None
    if not availability.always:
        state, available = availability.step(jax.random.fold_in(key, AVAILABILITY), state, round)
    if program.failure_stage is not None:
        chance = jax.random.uniform(jax.random.fold_in(key, FAILURE), (program.num_clients,))
        fails = chance < hyper["failure_probability"]
    return NetworkDraw(latency, available, fails, state)


def close_round(stage: FailureStage | None, cohort: Cohort, fails: jax.Array | None) -> RoundClose:
    """Takes those who fail out of the cohorts, [R, n], and weighs the others anew, (2).

    A client that fails before its update is released has not taken part: it spends no privacy. One that
    fails afterwards has, though nothing of it reaches the model.
    """
    if fails is None:
        return RoundClose(cohort, None, cohort.members)
    members = cohort.members
    arrived = (members >= 0) & ~jnp.take_along_axis(fails, jnp.maximum(members, 0), axis=1)
    weights = jnp.where(arrived, cohort.weights, 0.0)
    total = jnp.sum(weights, axis=1, keepdims=True)
    rest = Cohort(jnp.where(arrived, members, -1), weights / jnp.where(total > 0, total, 1.0))
    return RoundClose(rest, arrived, members if stage == "after_release" else rest.members)
