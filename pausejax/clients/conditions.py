"""The network in a round: latencies, availability, failures, and which updates arrive."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.clients.program import AVAILABILITY, FAILURE, LATENCY, FailureStage, Files, Hyper, Program
from pausejax.policies.base import Cohort


class NetworkDraw(NamedTuple):
    """The network of one run in one round. It does not depend on the policy, only on the seed, the round and
    the network's parameters, so policies are compared on the same draws."""

    latency: jax.Array
    """float32 [K], seconds."""
    available: jax.Array | None
    """bool [K], clients that can be selected; None if all clients always can."""
    fails: jax.Array | None
    """bool [K], clients that fail during the round if selected; None if no client can fail."""
    availability: Any
    """The next state of the availability process."""


class RoundClose(NamedTuple):
    """Which clients' updates are aggregated and which were released, one row per run."""

    cohort: Cohort
    """[R, n], clients whose update arrives, -1 for the others. Weights sum to 1, or to 0 if none arrives."""
    arrived: jax.Array | None
    """bool [R, n], members whose update arrives; None if no client can fail."""
    released: jax.Array
    """int32 [R, n], members that released an update, which spends privacy; -1 for the others."""


def draw_network(
    program: Program, files: Files, round: jax.Array, key: jax.Array, hyper: Hyper, state: Any
) -> NetworkDraw:
    """Draws latencies, availability and failures of one round of one run.

    Args:
      program: the group's static values.
      files: what the parts read from files, as in `World`.
      round: int32 scalar, t.
      key: the key of this run and round, scalar.
      hyper: hyper-parameters of the run, scalars.
      state: state of the availability process.
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
    """Removes failed clients from the cohorts, and rescales the weights (2) of the others.

    A client that fails before it releases its update spends no privacy and does not count as a participant.
    A client that fails after the release spends privacy and counts, but its update does not reach the model.

    Args:
      stage: when clients fail, before or after the release; None if no client can fail.
      cohort: the selected clients, [R, n].
      fails: bool [R, K], clients that fail if selected; None if no client can fail.
    """
    if fails is None:
        return RoundClose(cohort, None, cohort.members)
    members = cohort.members
    arrived = (members >= 0) & ~jnp.take_along_axis(fails, jnp.maximum(members, 0), axis=1)
    weights = jnp.where(arrived, cohort.weights, 0.0)
    total = jnp.sum(weights, axis=1, keepdims=True)
    rest = Cohort(jnp.where(arrived, members, -1), weights / jnp.where(total > 0, total, 1.0))
    return RoundClose(rest, arrived, members if stage == "after_release" else rest.members)
