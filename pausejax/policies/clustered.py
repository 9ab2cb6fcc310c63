"""Clustered sampling (Fraboni, Vidal, Kameni, Lorenzi 2021), both algorithms.

A scheme is a matrix r, [m, K]. Its rows sum to 1, and its columns sum to m·p_k, with data shares p. Each row
draws one client independently, and each draw has weight 1/m in the average. So client k has weight p_k in
expectation. A client that several rows draw trains once, with a weight proportional to its draws.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, slots_of_arrived
from pausejax.selection.linkage import similarity_scheme, without_rounding


@parts.policy
def clustered_size(*, clients_per_round: int) -> Policy:
    """Samples from clusters by data size, Fraboni et al.'s Algorithm 1: the same scheme in every round."""

    def init(key: jax.Array, clients: Clients) -> jax.Array:
        return size_scheme(clients.data_share, clients_per_round)

    def select(key: jax.Array, state: jax.Array, view: View) -> Cohort:
        return draw(key, state, view.available)

    return Policy(init, select, lambda state, view, feedback: state)


class SimilarityState(NamedTuple):
    data_share: jax.Array
    """float32 [K], |D_k| / |D|."""
    directions: jax.Array
    """float32 [K, d], each client's last known update, scaled to length 1; 0 before the first update."""
    angles: jax.Array
    """float32 [K, K], angles between the directions, radians; 0 if one of the two directions is 0."""


@parts.policy
def clustered_similarity(*, num_clients: int, clients_per_round: int, num_parameters: int) -> Policy:
    """Samples from clusters of similar updates, Fraboni et al.'s Algorithm 2: a new scheme in every round.

    The state holds one update for each client of each run.

    Args:
      num_clients: K, the number of clients.
      clients_per_round: m.
      num_parameters: d, the length of an update; 0 if no model is trained.
    """

    def init(key: jax.Array, clients: Clients) -> SimilarityState:
        return SimilarityState(
            clients.data_share,
            jnp.zeros((num_clients, num_parameters), jnp.float32),
            jnp.zeros((num_clients, num_clients), jnp.float32),
        )

    def select(key: jax.Array, state: SimilarityState, view: View) -> Cohort:
        scheme = similarity_scheme(state.angles, state.data_share, clients_per_round)
        return draw(key, scheme, view.available)

    def update(state: SimilarityState, view: View, feedback: Feedback) -> SimilarityState:
        slot = slots_of_arrived(feedback, num_clients)
        norm = jnp.sqrt(jnp.sum(jnp.square(feedback.update), axis=1, keepdims=True))
        released = feedback.update / jnp.where(norm > 0, norm, 1.0)
        directions = state.directions.at[slot].set(released, mode="drop")
        angle = angles_between(released, directions)
        angle = jnp.where(slot[:, None] == jnp.arange(num_clients)[None, :], 0.0, angle)
        angles = state.angles.at[slot].set(angle, mode="drop").at[:, slot].set(angle.T, mode="drop")
        return SimilarityState(state.data_share, directions, angles)

    return Policy(init, select, update, needs_updates=True, needs_learning=True)


def angles_between(rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Computes the angles between unit vectors, [n, d] and [K, d] -> [n, K], radians; 0 for zero vectors."""
    there = jnp.any(rows != 0, axis=1)[:, None] & jnp.any(columns != 0, axis=1)[None, :]
    cosine = jnp.clip(jnp.matmul(rows, columns.T, precision="highest"), -1.0, 1.0)
    return jnp.where(there & jnp.isfinite(cosine), jnp.arccos(cosine), 0.0)


def draw(key: jax.Array, scheme: jax.Array, available: jax.Array | None = None) -> Cohort:
    """Draws one client from each row of a scheme and merges repeated draws of a client.

    Args:
      key: the key of the draws, consumed.
      scheme: float [m, K].
      available: bool [K], available clients; each row draws from these clients only, and a row without
        available clients draws none. None if all clients are available.
    """
    m, num_clients = scheme.shape
    if available is not None:
        scheme = jnp.where(available[None, :], scheme, 0.0)
    drawn = jax.random.categorical(key, jnp.log(scheme), axis=1).astype(jnp.int32)
    draws: jax.Array | int = m
    if available is not None:
        somebody = jnp.any(scheme > 0, axis=1)
        drawn = jnp.where(somebody, drawn, num_clients)
        draws = jnp.maximum(jnp.sum(somebody), 1)
    drawn = jnp.sort(drawn)
    first = jnp.concatenate([jnp.ones(1, bool), drawn[1:] != drawn[:-1]])
    if available is not None:
        first &= drawn < num_clients
    weight = jnp.sum(drawn[:, None] == drawn[None, :], axis=1) / draws
    firsts_first = jnp.argsort(~first, stable=True)
    return Cohort(
        jnp.where(first, drawn, -1)[firsts_first],
        jnp.where(first, weight, 0.0)[firsts_first].astype(jnp.float32),
        jnp.asarray(draws, jnp.float32),
    )


def size_scheme(data_share: jax.Array, clients_per_round: int) -> jax.Array:
    """Returns the scheme that fills rows of sum 1 with clients, largest first.

    The part of a client that does not fit into a row goes into the next row.

    Args:
      data_share: float32 [K], p_k, each client's share of all data.
      clients_per_round: m.

    Returns:
      float32 [m, K].
    """
    largest_first = jnp.argsort(-data_share, stable=True)
    amount = clients_per_round * data_share[largest_first]
    end = jnp.cumsum(amount)[None, :]
    row = jnp.arange(clients_per_round, dtype=jnp.float32)[:, None]
    poured = jnp.maximum(jnp.minimum(end, row + 1) - jnp.maximum(end - amount[None, :], row), 0.0)
    return without_rounding(jnp.zeros_like(poured).at[:, largest_first].set(poured))
