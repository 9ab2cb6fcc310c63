"""Clustered sampling: the published schemes, unbiased weights, and clusters that stay together."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage, to_tree
from scipy.spatial.distance import squareform

from pausejax.policies import clustered
from pausejax.policies.base import Clients, Feedback, View

# A few numbers of clients, and of those to choose: each pair is a program.
SHARES = (
    st.sampled_from([1, 2, 5, 14])
    .flatmap(lambda k: st.lists(st.floats(1e-3, 1e3), min_size=k, max_size=k))
    .map(lambda w: np.array(w) / np.sum(w))
)

size_scheme = jax.jit(clustered.size_scheme, static_argnums=1)
traced_similarity_scheme = jax.jit(clustered.similarity_scheme, static_argnums=2)


def similarity_scheme(angles, share, m):
    arrays = (jnp.asarray(np.asarray(x), jnp.float32) for x in (angles, share))
    return np.asarray(traced_similarity_scheme(*arrays, m), np.float64)


@pytest.fixture(scope="module")
def published(shared):
    return json.loads((shared / "reference" / "clustered_sampling.json").read_text())


def random_angles(num_clients, seed, dimension=3):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(num_clients, dimension))
    vectors[rng.random(num_clients) < 0.3] = 0
    return angles_of(vectors)


def angles_of(vectors):
    """The matrix of angles in float64, one pair at a time."""
    count = len(vectors)
    angles = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            norms = np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j])
            if i != j and norms > 0:
                angles[i, j] = np.arccos(np.clip(vectors[i] @ vectors[j] / norms, -1, 1))
    return angles


def check_scheme(scheme, share):
    m = scheme.shape[0]
    assert (scheme >= 0).all()
    np.testing.assert_allclose(scheme.sum(1), 1, atol=3e-5)
    np.testing.assert_allclose(scheme.sum(0), m * share, atol=3e-5)


def test_size_scheme_is_the_published_one(published):
    """Up to the order of clients of one size, which the authors' code leaves to the sort."""

    def columns(scheme, counts):
        return sorted(
            (count, *np.round(column, 4)) for count, column in zip(counts, np.transpose(scheme), strict=True)
        )

    for case in published:
        share = np.array(case["counts"]) / np.sum(case["counts"])
        scheme = np.asarray(size_scheme(jnp.asarray(share, jnp.float32), case["m"]))
        ours, theirs = (columns(s, case["counts"]) for s in (scheme, case["size_matrix"]))
        np.testing.assert_allclose(ours, theirs, atol=2e-4)
        if len(set(case["counts"])) == len(share):
            np.testing.assert_allclose(scheme, case["size_matrix"], atol=2e-6)


angles_between = jax.jit(clustered.angles_between)


@pytest.mark.slow
def test_similarity_scheme_weighs_as_published(published):
    cases = [case for case in published if "updates" in case]
    assert len(cases) == 4
    for case in cases:
        share = np.array(case["counts"]) / np.sum(case["counts"])
        updates = np.array(case["updates"], np.float32)
        norm = np.linalg.norm(updates, axis=1, keepdims=True)
        unit = updates / np.where(norm > 0, norm, 1)
        angles = np.array(angles_between(unit, unit))
        np.testing.assert_allclose(angles[0][1:], case["angle_matrix_row0"][1:], atol=2e-4)
        np.fill_diagonal(angles, 0)
        scheme = similarity_scheme(angles, share, case["m"])
        np.testing.assert_allclose(scheme.mean(0), share, atol=1e-6)
        np.testing.assert_allclose(scheme.mean(0), case["expected_weight"], atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(SHARES, st.data())
@pytest.mark.slow
def test_schemes_are_unbiased(share, data):
    m = data.draw(st.sampled_from(sorted({1, min(2, len(share)), (len(share) + 1) // 2, len(share)})), "m")
    # clients without data change nothing, and one shape compiles once
    padded = np.pad(share, (0, 14 - len(share)))
    check_scheme(np.asarray(size_scheme(padded.astype(np.float32), m)), padded)
    angles = random_angles(len(share), data.draw(st.integers(0, 99), "seed"))
    check_scheme(similarity_scheme(angles, share.astype(np.float32), m), share)


@pytest.mark.parametrize("m", [1, 3, 4])
@pytest.mark.parametrize(
    "share",
    [[0.25] * 4, [0.97, 0.01, 0.01, 0.01], [0.5, 0.5, 0, 0], [0.4, 0.35, 0.25, 0], [1 / 3, 1 / 3, 1 / 3, 0]],
)
def test_schemes_of_dominant_and_equal_clients(share, m):
    share = np.array(share)
    check_scheme(np.asarray(size_scheme(jnp.asarray(share, jnp.float32), m)), share)
    for seed in range(5):
        check_scheme(similarity_scheme(random_angles(4, seed), share, m), share)


def exact_size_scheme(sizes, m):
    """The scheme in integers: the numerators of its entries over the sum of the sizes, [m, K]."""
    total, end, scheme = int(sizes.sum()), 0, np.zeros((m, len(sizes)), int)
    for client in np.argsort(-sizes, kind="stable"):
        start, end = end, end + m * int(sizes[client])
        for row in range(start // total, min(-(-end // total), m)):
            scheme[row, client] = min(end, (row + 1) * total) - max(start, row * total)
    return scheme


@pytest.mark.parametrize(("num_clients", "m"), [(6, 2), (30, 5), (30, 10), (100, 33)])
@pytest.mark.parametrize("spread", [0, 9, 400])
def test_a_scheme_has_no_entries_by_rounding(num_clients, m, spread):
    """Such an entry would be drawn with certainty where the other clients of its row are unavailable."""
    sizes = 60 + np.random.default_rng(m).integers(0, spread + 1, num_clients)
    share = (sizes / sizes.sum()).astype(np.float32)
    scheme = np.asarray(size_scheme(jnp.asarray(share), m))
    np.testing.assert_array_equal(scheme > 0, exact_size_scheme(sizes, m) > 0)
    if num_clients <= 30:
        found = similarity_scheme(random_angles(num_clients, 0), share, m)
        assert found[found > 0].min() > 0.9 / sizes.sum()


def plain_clusters(angles, amount):
    """The maximal subtrees within the capacity, by recursion from the root."""

    def leaves(node):
        return [node.id] if node.is_leaf() else leaves(node.left) + leaves(node.right)

    def descend(node):
        if node.is_leaf() or amount[leaves(node)].sum() <= 1 + 1e-9:
            return [sorted(leaves(node))]
        return descend(node.left) + descend(node.right)

    return descend(to_tree(linkage(squareform(angles, checks=False), "ward")))


@pytest.mark.parametrize("seed", range(8))
def test_heaviest_clusters_are_the_rows(seed):
    rng = np.random.default_rng(seed)
    num_clients, m = 24, 5
    share = rng.dirichlet(np.full(num_clients, 5.0))
    angles = random_angles(num_clients, seed, dimension=2)
    assert share.max() < 1 / m
    scheme = similarity_scheme(angles, share, m)
    heaviest = sorted(plain_clusters(angles, m * share), key=lambda c: -share[c].sum())[:m]
    for row, cluster in zip(scheme, heaviest, strict=True):
        np.testing.assert_allclose(row[cluster], m * share[cluster], rtol=1e-5)
        assert all(scheme[:, client].sum() == pytest.approx(row[client]) for client in cluster)


def test_clear_groups_share_a_row():
    """Equal clients whose updates point in m clear directions: one row per direction."""
    groups = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    rng = np.random.default_rng(0)
    vectors = np.eye(3)[groups] + 0.01 * rng.normal(size=(12, 3))
    scheme = similarity_scheme(angles_of(vectors), np.full(12, 1 / 12), 3)
    for row in scheme:
        assert len(set(groups[row > 0])) == 1 and (row > 0).sum() == 4


@pytest.mark.parametrize("share", [[0.1, 0.2, 0.3, 0.4], [0.02, 0.03, 0.05, 0.9]])
def test_drawn_weights_are_unbiased_and_members_distinct(share):
    share = np.array(share)
    draws = 20_000
    for scheme in (
        size_scheme(jnp.asarray(share, jnp.float32), 3),
        jnp.asarray(similarity_scheme(random_angles(4, 1), share, 3), jnp.float32),
    ):
        keys = jax.random.split(jax.random.key(7), draws)
        members, weights, number = map(np.asarray, jax.jit(jax.vmap(clustered.draw, (0, None)))(keys, scheme))
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
        assert (number == 3).all()
        total = np.zeros((draws, 4))
        for slot in range(3):
            there = members[:, slot] >= 0
            assert not weights[~there, slot].any()
            assert not total[there, members[there, slot]].any()
            total[there, members[there, slot]] = weights[there, slot]
            # pads come last
            assert slot == 0 or not (there & (members[:, slot - 1] < 0)).any()
        # two-sided z test at 5 sigma, 8 of them: false alarm rate 5e-6
        error = np.abs(total.mean(0) - share)
        assert (error < 5 * total.std(0) / np.sqrt(draws) + 1e-7).all()
        assert len(np.unique(np.sort(members, axis=1), axis=0)) > 1


def test_each_draw_counts_the_same_in_all_cohorts():
    """If a row has no available client, fewer are drawn: then a draw is a larger share of its cohort."""
    scheme = jnp.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    keys = jax.random.split(jax.random.key(1), 50)
    for available, draws in (([1, 1, 1, 1], 3), ([1, 1, 0, 1], 2), ([0, 0, 0, 1], 1)):
        drawn = jax.vmap(clustered.draw, (0, None, None))(keys, scheme, jnp.array(available, bool))
        assert (drawn.total == draws).all()
        np.testing.assert_allclose(drawn.weights * draws, np.asarray(drawn.members) >= 0, rtol=1e-6)


def test_size_policy_plays(play):
    share = np.array([0.5, 0.2, 0.2, 0.1])
    policy = clustered.clustered_size(clients_per_round=3)
    members, weights, _ = play(policy, np.ones((200, 4)), data_share=share)
    assert (np.sum((members == 0) * weights, axis=1) >= 1 / 3 - 1e-6).all()
    assert np.unique(members[:, 0]).tolist() == [0]


@pytest.mark.slow
def test_similarity_policy_keeps_last_updates_and_plays_under_vmap(play):
    rng = np.random.default_rng(3)
    num_clients, dimension, m, rounds = 7, 5, 3, 12
    share = rng.dirichlet(np.ones(num_clients))
    update = rng.normal(size=(rounds, num_clients, dimension))
    update[4] = 0
    policy = clustered.clustered_similarity(
        num_clients=num_clients, clients_per_round=m, num_parameters=dimension
    )
    assert policy.needs_updates
    members, _, states = play(policy, np.ones((rounds, num_clients)), data_share=share, update=update)
    last = np.zeros((num_clients, dimension))
    for row in range(rounds):
        np.testing.assert_allclose(states[row].angles, angles_of(last), atol=1e-3)
        for client in members[row][members[row] >= 0]:
            last[client] = update[row, client]
    assert np.ptp(np.asarray(states[-1].angles)) > 1

    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states[:4])
    keys = jax.random.split(jax.random.key(0), 4)
    view = View(jnp.int32(5), jnp.ones(num_clients), lambda clients: jnp.zeros(clients.shape))
    cohorts = jax.jit(jax.vmap(lambda key, state: policy.select(key, state, view)))(keys, together)
    for row in range(4):
        alone = jax.jit(lambda key, state: policy.select(key, state, view))(keys[row], states[row])
        np.testing.assert_array_equal(cohorts.members[row], alone.members)
        np.testing.assert_allclose(cohorts.weights[row], alone.weights)


def test_directions_and_angles_are_of_the_last_updates_that_arrived():
    """Pads, lost and vanished updates; parallel ones, whose cosine may round to more than 1."""
    rng = np.random.default_rng(4)
    policy = clustered.clustered_similarity(num_clients=6, clients_per_round=4, num_parameters=7)
    share = jnp.full(6, 1 / 6)
    state, last = policy.init(jax.random.key(0), Clients(share, jnp.ones(6))), np.zeros((6, 7))
    view = View(jnp.int32(1), jnp.ones(6), lambda clients: jnp.zeros(clients.shape))
    update = jax.jit(lambda state, feedback: policy.update(state, view, feedback))
    for row in range(6):
        members = np.sort(rng.permutation(6)[:4])
        members[3:] = -1
        sent = rng.normal(size=(4, 7)) * 10.0 ** rng.integers(-3, 4, (4, 1))
        sent[1] = -3 * sent[0]
        sent[2] = 0 if row == 4 else sent[2]
        arrived = np.array([True, True, row != 2, True])
        feedback = Feedback(jnp.asarray(members), *[jnp.ones(4)] * 4, jnp.asarray(sent, jnp.float32))
        state = update(state, feedback._replace(arrived=jnp.asarray(arrived)))
        there = (members >= 0) & arrived
        last[members[there]] = sent[there]
        norm = np.linalg.norm(last, axis=1, keepdims=True)
        np.testing.assert_allclose(state.directions, last / np.where(norm > 0, norm, 1), atol=1e-6)
        np.testing.assert_allclose(state.angles, angles_of(last), atol=2e-3)
        assert not np.diagonal(state.angles).any() and state.data_share.tolist() == share.tolist()
    assert (norm == 0).any() and np.asarray(state.angles).max() > 3


def test_angles_are_exact_and_those_of_broken_updates_nought():
    ones = np.full((2, 3), 3**-0.5, np.float32) * np.array([[1], [-1]], np.float32)
    rows = np.concatenate([np.nextafter(ones, 2 * ones), np.full((1, 3), np.nan), np.zeros((1, 3))])
    rows = rows.astype(np.float32)
    angles = np.asarray(angles_between(rows, rows))
    np.testing.assert_array_equal(angles[:2, :2], np.float32(np.pi) * (1 - np.eye(2, dtype=np.float32)))
    assert not angles[2:].any() and not angles[:, 2:].any()
    # a GPU would multiply TF32 numbers where it is not asked for float32
    assert "HIGHEST" in str(jax.make_jaxpr(clustered.angles_between)(rows, rows))


@pytest.mark.slow
def test_similarity_policy_without_training_or_with_broken_updates(play):
    policy = clustered.clustered_similarity(num_clients=5, clients_per_round=2, num_parameters=0)
    members, weights, _ = play(policy, np.ones((5, 5)))
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    policy = clustered.clustered_similarity(num_clients=5, clients_per_round=2, num_parameters=3)
    members, weights, _ = play(policy, np.ones((5, 5)), update=np.full((5, 5, 3), np.nan))
    assert ((members >= -1) & (members < 5)).all()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)


def test_one_client_and_all_clients(play):
    one = clustered.clustered_similarity(num_clients=1, clients_per_round=1, num_parameters=2)
    members, weights, _ = play(one, np.ones((3, 1)), update=np.ones((3, 1, 2)))
    assert members.tolist() == [[0]] * 3 and weights.tolist() == [[1.0]] * 3
    everyone = clustered.clustered_size(clients_per_round=4)
    members, weights, _ = play(everyone, np.ones((3, 4)))
    assert members.tolist() == [[0, 1, 2, 3]] * 3
    state = jax.jit(everyone.init)(jax.random.key(0), Clients(jnp.full(4, 0.25), jnp.ones(4)))
    np.testing.assert_allclose(state, np.eye(4), atol=1e-6)
