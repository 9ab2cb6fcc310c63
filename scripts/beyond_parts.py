"""Defines the variants of value per second in docs/beyond-pause.md, which `beyond_pause.py tried` plays."""

from typing import Annotated

import jax
import jax.numpy as jnp

from pausejax import parts, selection
from pausejax.bandit import Number
from pausejax.network.law import expected_latency
from pausejax.network.laws import two_speed
from pausejax.parts import Parameter
from pausejax.policies.base import Cohort, Policy, View, cohort, mask_of
from pausejax.policies.value_per_second import ValueState, value_per_second

Price = Annotated[Number, Parameter(help="value per second: c, price of a participation", low=0)]


def _ahead(state: ValueState) -> jax.Array:
    """Returns each client's number of participations minus the smallest number of any client, float32 [K].

    Only differences matter.
    """
    counts = state.bandit.counts
    return (counts - jnp.min(counts)).astype(jnp.float32)


@parts.policy
def told_speeds(
    *,
    num_clients: int,
    clients_per_round: int,
    budget_decay: Number,
    min_latency: Number,
    price: Price = 50.0,
) -> Policy:
    """Selects by value per second, and knows every client's expected latency under the two-speed law."""
    learned = value_per_second(
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        budget_decay=budget_decay,
        min_latency=min_latency,
        price=price,
    )
    speed = 1 / expected_latency(two_speed(num_clients=num_clients, min_latency=min_latency))

    def select(key: jax.Array, state: ValueState, view: View) -> Cohort:
        value = num_clients * state.data_share * jnp.exp(-price * budget_decay * _ahead(state))
        members = selection.best_rate(speed, value, clients_per_round, **mask_of(view)).members
        return cohort(members, state.data_share)

    return learned._replace(select=select)


@parts.policy
def weighted_by_precision(
    *,
    num_clients: int,
    clients_per_round: int,
    budget_decay: Number,
    min_latency: Number,
    price: Price = 50.0,
) -> Policy:
    """Selects by value per second, and weights updates by e^(-2 η T_k) |D_k|, proportional to their
    precision."""
    plain = value_per_second(
        num_clients=num_clients,
        clients_per_round=clients_per_round,
        budget_decay=budget_decay,
        min_latency=min_latency,
        price=price,
    )

    def select(key: jax.Array, state: ValueState, view: View) -> Cohort:
        members = plain.select(key, state, view).members
        return cohort(members, state.data_share * jnp.exp(-2 * budget_decay * _ahead(state)))

    return plain._replace(select=select)
