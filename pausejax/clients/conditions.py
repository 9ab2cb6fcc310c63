"""The network in a round: latencies, availability, failures, and which updates arrive."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.clients.program import AVAILABILITY, FAILURE, LATENCY, RELEASE_LIMIT, Files, Hyper, Program
from pausejax.network import Work
from pausejax.policies.base import Cohort


class NetworkDraw(NamedTuple):
    """The network of one run in one round. It does not depend on the policy, only on the seed, the round and
    the network's parameters, so policies are compared on the same draws. The one exception: clients whose
    privacy budget is spent are not available."""

    latency: jax.Array
    """float32 [K], seconds."""
    available: jax.Array | None
    """bool [K], clients that can be selected; None if all clients always can."""
    fails: jax.Array | None
    """bool [K], clients that fail during the round if selected; None if no client can fail."""
    availability: Any
    """The next state of the availability process."""


class RoundClose(NamedTuple):
    """When a round ends, which updates are aggregated and which were released, one row per run."""

    cohort: Cohort
    """[R, n], clients whose update arrives, -1 for the others. Weights sum to 1, or to 0 if none arrives."""
    arrived: jax.Array | None
    """bool [R, n], members whose update arrives; None if no client can fail or be late."""
    released: jax.Array
    """int32 [R, n], members that released an update, which spends privacy; -1 for the others."""
    failed: jax.Array | None
    """bool [R, n], members that failed; None if no client can fail."""
    duration: jax.Array
    """float32 [R], s."""


def draw_network(
    program: Program,
    files: Files,
    round: jax.Array,
    key: jax.Array,
    hyper: Hyper,
    state: Any,
    releases: jax.Array,
) -> NetworkDraw:
    """Draws latencies, availability and failures of one round of one run.

    Args:
      program: the group's static values.
      files: what the parts read from files, as in `World`.
      round: int32 scalar, t.
      key: the key of this run and round, scalar.
      hyper: hyper-parameters of the run, scalars.
      state: state of the availability process.
      releases: int32 [K], updates that each client has released so far.
    """
    latency = program.build_law(hyper, files).sample(jax.random.fold_in(key, LATENCY))
    availability = program.build_availability(hyper, files)
    available = fails = None
    if not availability.always:
        state, available = availability.step(jax.random.fold_in(key, AVAILABILITY), state, round)
    if program.limits_releases:
        left = releases.astype(jnp.float32) < hyper[RELEASE_LIMIT]
        available = left if available is None else available & left
    if program.failure_stage is not None:
        chance = jax.random.uniform(jax.random.fold_in(key, FAILURE), (program.num_clients,))
        fails = chance < hyper["failure_probability"]
    return NetworkDraw(latency, available, fails, state)


def close_round(
    program: Program, files: Files, hyper: Hyper, cohort: Cohort, network: NetworkDraw
) -> RoundClose:
    """Ends the round of one run: removes failed and late clients, and rescales the weights (2) of the others.

    A client that fails before it releases its update spends no privacy and does not count as a participant.
    A client that fails after the release spends privacy and counts, but its update does not reach the model.
    A late client is told to stop before it releases anything, or it has released its update all the same,
    as `Program.late` says. If the server is trusted, only what is aggregated spends privacy.

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
    released = made.counts
    if not program.trusts_server:
        in_time = latency <= duration
        if program.late == "released":
            in_time = there
            released = released | (there & ~fails)
        if program.failure_stage == "after_release":
            released = released | (there & fails & in_time)
    failed = None if network.fails is None else there & fails
    return RoundClose(rest, made.counts, jnp.where(released, members, -1), failed, duration)
