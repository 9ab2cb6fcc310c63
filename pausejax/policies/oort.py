"""Oort: guided participant selection (Lai, Zhu, Madhyastha, Chowdhury 2021)."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.bandit import Number
from pausejax.parts import Parameter
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, first_of, slots_of_arrived

_CUT_OFF = 0.95
"""Cut-off utility, as a share of the smallest utility among the best clients.

Clients above the cut-off are exploited at random.
"""
_UNCERTAINTY = 0.1


class OortState(NamedTuple):
    data_share: jax.Array
    """float32 [K], |D_k| / |D|."""
    utility: jax.Array
    """float32 [K], statistical utility at the last participation."""
    latency: jax.Array
    """float32 [K], latency at the last participation, seconds."""
    last_round: jax.Array
    """int32 [K], round of the last participation; 0 for clients that have not taken part."""
    preferred_latency: jax.Array
    """float32 scalar, T, seconds; clients slower than T are penalized."""
    window: jax.Array
    """float32 [2], utility gained in the last complete window of rounds and in the current window."""


@parts.policy
def oort(
    *,
    num_clients: int,
    clients_per_round: int,
    exploration: Annotated[
        Number, Parameter(help="Oort: ε, share of unexplored clients in the first cohort", low=0, high=1)
    ] = 0.9,
    exploration_decay: Annotated[
        Number, Parameter(help="Oort: factor by which ε is multiplied after each round", low=0, high=1)
    ] = 0.98,
    min_exploration: Annotated[Number, Parameter(help="Oort: lower bound of ε", low=0, high=1)] = 0.2,
    straggler_penalty: Annotated[
        Number,
        Parameter(
            help="Oort: exponent of T / τ, the factor in the utility of a client that is slower than T", low=0
        ),
    ] = 2.0,
    pacer_step: Annotated[
        Number,
        Parameter(
            help="Oort: Δ, first value and step of the preferred latency T, seconds",
            low=0,
            low_open=True,
            units="s",
        ),
    ] = 0.25,
    pacer_window: Annotated[int, Parameter(help="Oort: number of rounds after which T may grow", low=1)] = 20,
) -> Policy:
    """Exploits clients by utility and speed, and explores new ones at random: Lai et al.'s Algorithm 1.

    A client's statistical utility is |D_k| times the root of its mean squared loss, with |D_k| relative to
    the mean. The speed of clients that have not taken part is unknown, so they are explored uniformly. The
    paper's safeguards against outliers (clipped utilities, clients retired after many rounds) are left out.
    The losses reach the server without noise, and the privacy ledger does not count them.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m.
      exploration: ε, the share of explored clients in the first cohort.
      exploration_decay: the factor of ε after each round.
      min_exploration: the smallest ε.
      straggler_penalty: α; the utility of a client slower than T is multiplied by (T/τ_k)^α.
      pacer_step: Δ, seconds: the first value of T, and the increase of T if a window gains less utility than
        the window before.
      pacer_window: W, the number of rounds in a window.

    Raises:
      ValueError: the window has no rounds.
    """
    if pacer_window < 1:
        raise ValueError(f"pacer_window: must be at least 1, not {pacer_window}")
    m = clients_per_round

    def init(key: jax.Array, clients: Clients) -> OortState:
        zeros = jnp.zeros(num_clients, jnp.float32)
        step = jnp.asarray(pacer_step, jnp.float32)
        return OortState(
            clients.data_share,
            zeros,
            zeros,
            jnp.zeros(num_clients, jnp.int32),
            step,
            jnp.zeros(2, jnp.float32),
        )

    def select(key: jax.Array, state: OortState, view: View) -> Cohort:
        seen: jax.Array = state.last_round > 0
        allowed: jax.Array | int = num_clients
        size: jax.Array | int = m
        if view.available is not None:
            seen &= view.available
            allowed = jnp.sum(view.available)
            size = jnp.minimum(m, allowed)
        num_seen = jnp.sum(seen)
        played = (view.round - 1).astype(jnp.float32)
        part = jnp.maximum(exploration * exploration_decay**played, min_exploration)
        wanted = jnp.round((1 - part) * m).astype(jnp.int32)
        # If there are too few explored or too few exploited clients, clients of the other kind fill the
        # cohort.
        num_exploited = jnp.clip(wanted, size - (allowed - num_seen), num_seen)

        utility = jnp.where(seen, total_utility(state, view.round, straggler_penalty), -jnp.inf)
        just_enough = -jnp.sort(-utility)[jnp.maximum(num_exploited - 1, 0)]
        admitted = seen & (utility >= _CUT_OFF * just_enough)
        exploit_key, explore_key = jax.random.split(key)
        # Sorting logarithms plus Gumbel noise draws without replacement. Exploited clients are drawn by
        # utility, explored clients uniformly.
        tiny = jnp.finfo(jnp.float32).tiny
        race = jnp.log(jnp.maximum(utility, tiny)) + jax.random.gumbel(exploit_key, (num_clients,))
        exploited = jnp.argsort(-jnp.where(admitted, race, -jnp.inf), stable=True)[:m]
        chance = jax.random.uniform(explore_key, (num_clients,))
        known = seen if view.available is None else seen | ~view.available
        explored = jnp.argsort(jnp.where(known, 2.0, chance), stable=True)[:m]
        slot = jnp.arange(m)
        members = jnp.where(slot < num_exploited, exploited, explored[slot - num_exploited])
        if view.available is not None:
            members = jnp.where(slot < size, members, -1)
        return cohort(first_of(members, m, view.available), state.data_share)

    def update(state: OortState, view: View, feedback: Feedback) -> OortState:
        slot = slots_of_arrived(feedback, num_clients)
        share = state.data_share.at[slot].get(mode="fill", fill_value=0.0)
        gained = num_clients * share * jnp.where(jnp.isfinite(feedback.loss_rms), feedback.loss_rms, 0.0)
        window = state.window.at[1].add(jnp.sum(gained))
        over = view.round % pacer_window == 0
        slower = over & (
            window[0] > window[1]
        )  # never in the first window, because the utility before it is 0
        return OortState(
            state.data_share,
            state.utility.at[slot].set(gained, mode="drop"),
            state.latency.at[slot].set(feedback.latency, mode="drop"),
            state.last_round.at[slot].set(view.round, mode="drop"),
            state.preferred_latency + jnp.where(slower, pacer_step, 0.0),
            jnp.where(over, jnp.stack([window[1], jnp.zeros(())]), window),
        )

    return Policy(init, select, update, needs_learning=True)


def total_utility(state: OortState, round: jax.Array, straggler_penalty: Number) -> jax.Array:
    """Computes (U_k + sqrt(0.1 log(t) / last round)) · min(1, T/τ_k)^α, float32 [K]. U_k is the statistical
    utility, T the preferred latency, and α the penalty.

    The values of clients that have not taken part have no meaning.
    """
    age = jnp.log(round.astype(jnp.float32)) / jnp.maximum(state.last_round, 1).astype(jnp.float32)
    ratio = state.preferred_latency / jnp.where(state.latency > 0, state.latency, 1.0)
    return (state.utility + jnp.sqrt(_UNCERTAINTY * age)) * jnp.minimum(ratio, 1.0) ** straggler_penalty
