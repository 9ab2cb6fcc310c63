"""Ward's tree against SciPy's: random, tied and adversarial matrices."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from pausejax.selection.linkage import similarity_scheme, ward

traced = jax.jit(ward)
_ROUNDING = 1e-5


def numpy_scheme(angles: np.ndarray, data_share: np.ndarray, clients_per_round: int) -> np.ndarray:
    """The oracle, in float64 over SciPy's linkage.

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


def symmetric(upper):
    upper = np.triu(np.asarray(upper, np.float32).astype(np.float64), 1)
    return upper + upper.T


def assert_is_scipys(distance, **tolerance):
    expected = linkage(squareform(distance), "ward")
    tree = traced(jnp.asarray(distance, jnp.float32))
    np.testing.assert_array_equal(np.stack([tree.left, tree.right], axis=1), expected[:, :2])
    np.testing.assert_allclose(tree.height, expected[:, 2], **tolerance)


@pytest.mark.parametrize("num_leaves", [2, 3, 10, 30, 60])
def test_random_matrices(num_leaves):
    rng = np.random.default_rng(num_leaves)
    for _ in range(20):
        points = rng.normal(size=(num_leaves, 3))
        distance = np.linalg.norm(points[:, None] - points[None], axis=2)
        assert_is_scipys(distance.astype(np.float32).astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 1.0, np.pi / 2])
def test_all_equal(value):
    for num_leaves in (2, 5, 8):
        distance = symmetric(np.full((num_leaves, num_leaves), np.float32(value)))
        expected = linkage(squareform(distance), "ward")
        tree = traced(jnp.asarray(distance, jnp.float32))
        np.testing.assert_allclose(tree.height, expected[:, 2], atol=1e-6)


@pytest.mark.slow
@given(hnp.arrays(np.int8, (7, 7), elements=st.sampled_from([0, 1])))
@settings(max_examples=200, deadline=None)
def test_ties_between_groups(same):
    """Clients of the same direction at 0, all others at a right angle: every first merge ties."""
    group = same[0] * 2 + same[1]
    distance = (group[:, None] != group[None]).astype(np.float64)
    assert_is_scipys(distance, atol=1e-6)


def test_many_at_once_are_each_alone():
    rng = np.random.default_rng(0)
    distance = np.stack([symmetric(rng.random((12, 12))) for _ in range(9)]).astype(np.float32)
    together = jax.jit(jax.vmap(ward))(distance)
    for i in range(9):
        alone = traced(distance[i])
        np.testing.assert_array_equal(together.left[i], alone.left)
        np.testing.assert_array_equal(together.height[i], alone.height)


@pytest.mark.parametrize("levels", [1, 2, 4])
@pytest.mark.parametrize("num_leaves", [9, 12])
def test_heavily_tied_matrices(num_leaves, levels):
    """Not even distances: almost every choice is a tie, and SciPy's float64 rounding breaks some."""
    rng = np.random.default_rng(levels)
    for _ in range(60):
        distance = symmetric(rng.integers(0, levels + 1, (num_leaves, num_leaves)) * np.float32(np.pi / 2))
        assert_is_scipys(distance, rtol=1e-5)


@pytest.mark.parametrize("shares", ["equal", "dirichlet", "dominant"])
@pytest.mark.parametrize("m", [1, 3, 5])
def test_the_scheme_is_the_oracles(shares, m):
    rng = np.random.default_rng(m)
    traced_scheme = jax.jit(similarity_scheme, static_argnums=2)
    for number in range(30):
        share = {"equal": np.full(12, 1 / 12), "dirichlet": rng.dirichlet(np.full(12, 2.0))}.get(shares)
        if share is None:
            share = rng.dirichlet(np.full(12, 0.1) + 1e-3)
        points = rng.normal(size=(12, 3))
        points[rng.random(12) < 0.4 * (number % 3)] = 0
        distance = np.linalg.norm(points[:, None] - points[None], axis=2).astype(np.float32)
        share = share.astype(np.float32)
        got = traced_scheme(distance, share, m)
        expected = numpy_scheme(distance, share, m)
        np.testing.assert_allclose(got, expected, atol=2e-5)
