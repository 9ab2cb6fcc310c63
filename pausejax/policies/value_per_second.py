"""Value per second: the cohort with the largest value per second of its round (docs/beyond-pause.md)."""

import math
from typing import Annotated, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from pausejax import bandit, parts, selection
from pausejax.bandit import Number
from pausejax.parts import Parameter
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, mask_of
from pausejax.rounding import rounded

SpeedIndex = Literal["variance", "range", "thompson"]
INDICES: tuple[str, ...] = get_args(SpeedIndex)


_LEAST_LOG = -40.0
_LEAST_VALUE = math.exp(_LEAST_LOG)


class ValueState(NamedTuple):
    data_share: jax.Array
    """float32 [K], |D_k| / |D|."""
    bandit: bandit.BanditState
    mean_latency: jax.Array
    """float32 [K], mean latency, seconds; 0 before the first participation."""
    squares: jax.Array
    """float32 [K], Σ (τ - mean)² over a client's participations, seconds²."""


@parts.policy
def value_per_second(
    *,
    num_clients: int,
    clients_per_round: int,
    budget_decay: Number,
    min_latency: Number,
    price: Annotated[Number, Parameter(help="value per second: c, price of a participation", low=0)] = 50.0,
    share_exponent: Annotated[
        Number, Parameter(help="value per second: exponent of a client's data share in its value", low=0)
    ] = 1.0,
    optimism: Annotated[
        Number, Parameter(help="value per second: factor of the latencies' uncertainty", low=0)
    ] = 1.0,
    speed_index: Annotated[
        SpeedIndex, Parameter(help="value per second: how the optimistic latencies are computed")
    ] = "variance",
) -> Policy:
    """Selects the cohort with the largest Σ value / (optimistic duration of the round), exactly.

    A client's value is (K |D_k| / |D|)^s e^(-c η T_k): it grows with the client's data and falls with its
    participations. The optimistic latency is never below τ_min. Clients that have not taken part come first.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m, at most K.
      budget_decay: η.
      min_latency: τ_min, seconds.
      price: c; 0 ignores spent budgets, large prices even out participations.
      share_exponent: s; 0 gives all clients the same data value.
      optimism: the factor of the uncertainty of latencies; 0 ignores the uncertainty.
      speed_index: how optimistic latencies are computed. "variance": the mean latency minus sqrt(2 log(t) /
        T_k) standard deviations. The pooled variance of all clients enters each client's variance as one
        observation. "range": τ_min divided by the upper confidence bound (13) on τ_min / τ, which assumes
        only that τ_min / τ is in (0, 1]. "thompson": a normal draw around the mean latency.

    Raises:
      ValueError: clients_per_round is not in [1, num_clients], or the index is unknown.
    """
    m = clients_per_round
    if not 1 <= m <= num_clients:
        raise ValueError(f"clients_per_round: must be from 1 to num_clients = {num_clients}, not {m}")
    if speed_index not in INDICES:
        raise ValueError(f"speed_index: must be one of {', '.join(INDICES)}, not {speed_index!r}")

    def init(key: jax.Array, clients: Clients) -> ValueState:
        zeros = jnp.zeros(num_clients, jnp.float32)
        return ValueState(clients.data_share, bandit.init(num_clients), zeros, zeros)

    def least_latency(key: jax.Array, state: ValueState, time: jax.Array) -> jax.Array:
        """Returns the clients' optimistic latencies, float32 [K], seconds.

        The values of clients that have not taken part have no meaning.
        """
        counts, mean_reward = state.bandit
        if speed_index == "range":
            width = bandit.ucb(jnp.zeros(num_clients), counts, time, m)
            return min_latency / (mean_reward + rounded(optimism * width))
        seen = jnp.maximum(counts, 1).astype(jnp.float32)
        # The pooled variance includes τ_min² as one observation. It is τ_min² until a client has taken part
        # twice.
        repeats = jnp.sum(jnp.maximum(counts - 1, 0)).astype(jnp.float32)
        pooled = (jnp.sum(state.squares) + min_latency**2) / (repeats + 1)
        error = optimism * jnp.sqrt((state.squares + pooled) / seen / seen)
        if speed_index == "thompson":
            return state.mean_latency + rounded(error * jax.random.normal(key, (num_clients,)))
        log_time = jnp.log(jnp.maximum(time, 1).astype(jnp.float32))
        return state.mean_latency - rounded(error * jnp.sqrt(2 * log_time))

    def select(key: jax.Array, state: ValueState, view: View) -> Cohort:
        counts = state.bandit.counts
        least = jnp.maximum(least_latency(key, state, bandit.time_of_terms(view.round)), min_latency)
        speed = jnp.where(counts > 0, 1 / least, jnp.inf)
        worth = (num_clients * state.data_share) ** share_exponent
        # All values are divided by e^(-c η T_k) of one client, which changes no selection. It is the client
        # with the fewest participations among those that can add to a cohort's value.
        counted = worth > 0 if view.available is None else (worth > 0) & view.available
        fewest = jnp.min(counts, where=counted, initial=jnp.iinfo(counts.dtype).max)
        spent = jnp.maximum(counts - fewest, 0).astype(jnp.float32)
        paid = price * budget_decay * spent
        log_value = jnp.log(worth) - paid
        # Values below e^-40 change no sum, but their order selects the other members of a cohort. So they get
        # numbers in the same order that do not underflow.
        small = _LEAST_VALUE * _LEAST_LOG / jnp.minimum(log_value, _LEAST_LOG)
        value = jnp.where(log_value > _LEAST_LOG, worth * jnp.exp(-paid), small)
        members = selection.best_rate(speed, value, m, **mask_of(view)).members
        return cohort(members, state.data_share)

    def update(state: ValueState, view: View, feedback: Feedback) -> ValueState:
        members = feedback.members
        slot = jnp.where(members >= 0, members, num_clients)
        after = bandit.update(state.bandit, members, feedback.reward)
        old = state.mean_latency[members]
        seen = jnp.maximum(after.counts[members], 1).astype(jnp.float32)
        new = old + (feedback.latency - old) / seen
        change = rounded((feedback.latency - old) * (feedback.latency - new))
        return ValueState(
            state.data_share,
            after,
            state.mean_latency.at[slot].set(new, mode="drop"),
            state.squares.at[slot].add(change, mode="drop"),
        )

    return Policy(init, select, update)
