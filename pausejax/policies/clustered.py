"""Clustered sampling (Fraboni, Vidal, Kameni, Lorenzi 2021), both algorithms.

A scheme is a matrix r, [m, K], whose rows sum to 1 and whose columns sum to m·p_k, with p the data shares.
Each row draws one client, on its own, and each draw weighs 1/m in the average: client k counts for p_k in
expectation. A client that several rows draw trains once and is weighted by its draws.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, slots_of_arrived

# Data shares arrive in float32: sums of them that mean the same number differ by about this much.
_ROUNDING = 1e-5


@parts.policy
def clustered_size(*, clients_per_round: int) -> Policy:
    """Clusters by data size, Algorithm 1: the same scheme in every round."""

    def init(key: jax.Array, clients: Clients) -> jax.Array:
        return size_scheme(clients.data_share, clients_per_round)

    def select(key: jax.Array, state: jax.Array, view: View) -> Cohort:
        return draw(key, state, view.available)

    return Policy(init, select, lambda state, view, feedback: state)


class SimilarityState(NamedTuple):
    data_share: jax.Array
    """float32 [K]."""
    directions: jax.Array
    """float32 [K, d], every client's last released update at length 1; 0 before its first."""
    angles: jax.Array
    """float32 [K, K], between the directions, radians; 0 where one of them is 0."""


@parts.policy
def clustered_similarity(*, num_clients: int, clients_per_round: int, num_parameters: int) -> Policy:
    """Clusters by the angles between updates, Algorithm 2: a new scheme in every round.

    The clustering runs on the host. The state holds one update per client and run.

    Args:
      num_clients: K.
      clients_per_round: m.
      num_parameters: d, the length of an update; 0 where nothing is trained.
    """
    shape = jax.ShapeDtypeStruct((clients_per_round, num_clients), jnp.float32)

    def init(key: jax.Array, clients: Clients) -> SimilarityState:
        return SimilarityState(
            clients.data_share,
            jnp.zeros((num_clients, num_parameters), jnp.float32),
            jnp.zeros((num_clients, num_clients), jnp.float32),
        )

    def select(key: jax.Array, state: SimilarityState, view: View) -> Cohort:
        scheme = jax.pure_callback(
            _similarity_schemes, shape, state.angles, state.data_share, vmap_method="expand_dims"
        )
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

    def _similarity_schemes(angles: np.ndarray, data_share: np.ndarray) -> np.ndarray:
        """`similarity_scheme` over leading axes, [..., K, K] and [..., K] -> [..., m, K]."""
        batch = np.broadcast_shapes(np.shape(angles)[:-2], np.shape(data_share)[:-1])
        angles = np.broadcast_to(angles, (*batch, num_clients, num_clients))
        data_share = np.broadcast_to(data_share, (*batch, num_clients))
        schemes = np.empty((*batch, *shape.shape), np.float32)
        for run in np.ndindex(*batch):
            schemes[run] = similarity_scheme(angles[run], data_share[run], clients_per_round)
        return schemes

    return Policy(init, select, update, needs_updates=True, needs_learning=True)


def angles_between(rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Angles between unit vectors, [n, d] and [K, d] -> [n, K], radians; 0 where one is the zero vector."""
    there = jnp.any(rows != 0, axis=1)[:, None] & jnp.any(columns != 0, axis=1)[None, :]
    cosine = jnp.clip(rows @ columns.T, -1.0, 1.0)
    return jnp.where(there & jnp.isfinite(cosine), jnp.arccos(cosine), 0.0)


def draw(key: jax.Array, scheme: jax.Array, available: jax.Array | None = None) -> Cohort:
    """Draws one client per row of a scheme and merges what is drawn twice.

    Args:
      key: consumed.
      scheme: float [m, K].
      available: bool [K], who can be drawn; each row's probabilities are restricted to these, and a row with
        nobody draws nobody. None for everyone.
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
    )


def size_scheme(data_share: jax.Array, clients_per_round: int) -> jax.Array:
    """Pours the clients, largest first, into rows of capacity 1; what does not fit goes on in the next row.

    Args:
      data_share: float32 [K], p.
      clients_per_round: m.

    Returns:
      float32 [m, K].
    """
    largest_first = jnp.argsort(-data_share, stable=True)
    amount = clients_per_round * data_share[largest_first]
    end = jnp.cumsum(amount)[None, :]
    row = jnp.arange(clients_per_round, dtype=jnp.float32)[:, None]
    poured = jnp.maximum(jnp.minimum(end, row + 1) - jnp.maximum(end - amount[None, :], row), 0.0)
    return jnp.zeros_like(poured).at[:, largest_first].set(poured)


def similarity_scheme(angles: np.ndarray, data_share: np.ndarray, clients_per_round: int) -> np.ndarray:
    """Keeps clusters of similar clients together in the rows of a scheme.

    A client with m·p_k >= 1 has ⌊m·p_k⌋ rows for itself; the authors' code is biased there. The rest goes
    into Ward's tree over the angles, cut where a cluster would exceed the capacity of a row. The heaviest
    clusters are the rows that are left; the clients of the others are poured into the space that remains.

    Args:
      angles: [K, K], symmetric, radians.
      data_share: [K], p.
      clients_per_round: m.

    Returns:
      float64 [m, K].
    """
    amount = clients_per_round * np.asarray(data_share, np.float64) / np.sum(data_share, dtype=np.float64)
    own_rows = np.floor(amount + _ROUNDING).astype(int)
    amount = np.maximum(amount - own_rows, 0.0)
    scheme = np.zeros((clients_per_round, len(amount)))
    scheme[np.arange(own_rows.sum()), np.repeat(np.arange(len(amount)), own_rows)] = 1.0

    shared_rows = scheme[own_rows.sum() :]
    if len(shared_rows) == 0:
        return scheme
    clusters = _cut(linkage(squareform(np.asarray(angles, np.float64), checks=False), "ward"), amount)
    clusters.sort(key=lambda cluster: -amount[cluster].sum())
    for row, cluster in zip(shared_rows, clusters, strict=False):
        row[cluster] = amount[cluster]
    room = np.maximum(1 - shared_rows.sum(axis=1), 0.0)
    row = 0
    for client in itertools.chain(*clusters[len(shared_rows) :]):
        while amount[client] > 0 and row < len(room):
            poured = min(amount[client], room[row])
            shared_rows[row, client] = poured
            amount[client] -= poured
            room[row] -= poured
            row += room[row] <= 0
    return scheme


def _cut(tree: np.ndarray, amount: np.ndarray) -> list[list[int]]:
    """The largest subtrees of a linkage whose clients' amounts sum to at most 1."""
    subtrees: list[list[int]] = [[client] for client in range(len(amount))]
    weights = list(amount)
    roots = set(range(len(amount)))
    for left, right in tree[:, :2].astype(int):
        weight = weights[left] + weights[right]
        if weight <= 1 + _ROUNDING:
            roots -= {left, right}
            roots.add(len(subtrees))
            subtrees.append(subtrees[left] + subtrees[right])
        else:
            subtrees.append([])
        weights.append(weight)
    return [subtrees[root] for root in sorted(roots)]
