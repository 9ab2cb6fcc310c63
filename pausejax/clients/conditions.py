"""Under which conditions a round is played: latencies, availability, failures, and whose update arrives."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.clients.program import AVAILABILITY, FAILURE, LATENCY, Files, Hyper, Program
from pausejax.network import Work
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
    """How a round closes: when, whose update is aggregated, and who has released one; a row per run."""

    cohort: Cohort
    """Those whose update arrives, -1 for the others; the weights sum to 1, or to 0 if there are none."""
    arrived: jax.Array | None
    """bool [R, n], whose update arrives; None where everybody's does."""
    released: jax.Array
    """int32 [R, n], the members who have released an update, which spends privacy; -1 for the others."""
    failed: jax.Array | None
    """bool [R, n], who has failed; None where nobody can."""
    duration: jax.Array
    """float32 [R], s."""


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


def close_round(
    program: Program, files: Files, hyper: Hyper, cohort: Cohort, network: NetworkDraw
) -> RoundClose:
    """Ends the round of one run: takes those who fail or are late out of its cohort, and weighs anew, (2).

    A client that fails before its update is released has not taken part: it spends no privacy. One that
    fails afterwards has, though nothing of it reaches the model. Who is late is told to stop before it
    releases anything.

    Args:
      program: static.
      files: as in `World`.
      hyper: of the run, scalars.
      cohort: [n].
      network: in this round.
    """
    members = cohort.members
    there = members >= 0
    latency = network.latency[jnp.maximum(members, 0)]
    fails = jnp.zeros_like(there)
    if network.fails is not None:
        fails = network.fails[jnp.maximum(members, 0)]
    made = program.build_ending(hyper, files).close(Work(members, latency, fails))
    # A round without a cohort lasts as long as the fastest could be.
    duration = jnp.where(jnp.any(there), made.duration, hyper["min_latency"])
    if program.waits_for_all and network.fails is None:
        return RoundClose(cohort, None, members, None, duration)
    weights = jnp.where(made.counts, cohort.weights, 0.0)
    total = jnp.sum(weights)
    rest = Cohort(jnp.where(made.counts, members, -1), weights / jnp.where(total > 0, total, 1.0))
    released = rest.members
    if program.failure_stage == "after_release":
        released = jnp.where(made.counts | (there & fails & (latency <= duration)), members, -1)
    failed = None if network.fails is None else there & fails
    return RoundClose(rest, made.counts, released, failed, duration)
