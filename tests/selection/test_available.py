"""Choosing among the available clients equals choosing in the network that has these clients alone."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pausejax import selection
from pausejax.selection import _thresholds, anneal_trace, best_set, brute_force
from pausejax.selection.exact import _settle, everyone, stand_ins

WEIGHTS = {"generalization_weight": 2.0, "privacy_weight": 1.0}


def instances(seed, count, num_clients):
    """ucb, score and available [count, K]: ties, infinities, and everybody, a few or nobody available."""
    rng = np.random.default_rng(seed)
    shape = (count, num_clients)
    tied = rng.random((count, 1)) < 0.5
    ucb = np.where(tied, rng.integers(0, 3, shape), rng.random(shape))
    score = np.where(tied, rng.integers(-2, 3, shape), rng.normal(size=shape))
    ucb = np.where(rng.random(shape) < rng.choice([0, 0.3, 1], (count, 1)), np.inf, ucb)
    available = rng.random(shape) < rng.choice([0, 0.2, 0.6, 1], (count, 1))
    return ucb.astype(np.float32), score.astype(np.float32), available


def alone(ucb, score, available, m):
    """The oracle: brute force over the network of the available clients; its float32 value."""
    clients = np.flatnonzero(available)
    if len(clients) == 0:
        return np.full(m, -1), -np.inf
    chosen = brute_force(ucb[clients], score[clients], min(m, len(clients)))
    members = clients[np.asarray(chosen.members)]
    return np.pad(members, (0, m - len(members)), constant_values=-1), float(chosen.value)


@pytest.mark.slow
@pytest.mark.parametrize(("num_clients", "m"), [(1, 1), (5, 2), (7, 3), (6, 6)])
@pytest.mark.parametrize("choose", [best_set, brute_force])
def test_a_mask_equals_the_network_of_the_available_clients(choose, num_clients, m):
    ucb, score, available = instances([num_clients, m], 24, num_clients)
    # What is not available is not read.
    ucb, score = np.where(available, ucb, np.nan), np.where(available, score, np.inf)
    got = jax.jit(jax.vmap(lambda u, s, a: choose(u, s, m, a)))(ucb, score, available)
    assert got.members.dtype == jnp.int32
    for i in range(24):
        members, value = alone(ucb[i], score[i], available[i], m)
        np.testing.assert_array_equal(got.members[i], members)
        np.testing.assert_allclose(got.value[i], value, rtol=1e-6, atol=1e-6)
        if available[i].sum() >= m:
            assert got.value[i] == np.float32(value)


@pytest.mark.slow
def test_both_sweeps_agree_under_a_mask():
    ucb, score, available = instances(3, 64, 20)

    @partial(jax.jit, static_argnames=("sweep", "m"))
    def chosen(ucb, score, available, sweep, m):
        _, u, s = stand_ins(ucb, score, m, available)
        return _settle(u, s, m, sweep(u, s, m)).members

    for m in (1, 6, 20):
        first, second = (
            np.asarray(chosen(ucb, score, available, sweep, m))
            for sweep in (_thresholds.by_insertion, _thresholds.by_replacement)
        )
        enough = available.sum(axis=1) >= m
        np.testing.assert_array_equal(first[enough], second[enough])


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["any", pytest.param("tailored", marks=pytest.mark.slow)])
def test_an_annealed_walk_is_that_of_the_network_of_the_available_clients(neighbours):
    num_clients, m = 9, 3
    ucb, g, available = instances(5, 24, num_clients)
    p = instances(6, 24, num_clients)[1]

    def run(key, u, g, p, a=None):
        rule = {"neighbours": neighbours, "steps": 60, "available": a}
        return anneal_trace(key, u, g, p, m=m, **rule, **WEIGHTS)

    keys = jax.random.split(jax.random.key(0), 24)
    got, traces = jax.jit(jax.vmap(run))(keys, ucb, g, p, available)
    for i in range(24):
        clients = np.flatnonzero(available[i])
        if len(clients) < m:
            expected = np.pad(clients, (0, m - len(clients)), constant_values=-1)
            np.testing.assert_array_equal(got.members[i], expected)
            continue
        small, trace = run(keys[i], ucb[i, clients], g[i, clients], p[i, clients])
        np.testing.assert_array_equal(got.members[i], clients[np.asarray(small.members)])
        np.testing.assert_allclose(traces[i], trace, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@given(hnp.arrays(bool, 6), st.sampled_from([1, 3, 6]))
@settings(max_examples=20, deadline=None)
def test_nobody_is_chosen_who_is_not_available(available, m):
    ucb, g, p = (np.random.default_rng(0).random(6).astype(np.float32) for _ in range(3))
    chosen = [
        best_set(ucb, g, m, available),
        brute_force(ucb, g, m, available),
        selection.anneal(jax.random.key(0), ucb, g, p, m=m, steps=20, available=available, **WEIGHTS),
        selection.vanilla_anneal(jax.random.key(0), ucb, g, p, m=m, steps=20, available=available, **WEIGHTS),
    ]
    for members, _ in chosen:
        size = min(m, available.sum())
        members = np.asarray(members)
        assert available[members[:size]].all() and (np.diff(members[:size]) > 0).all()
        assert (members[size:] == -1).all()


def test_few_are_worth_what_all_of_them_are():
    """Of some clients, rows of three; what is missing of those who are there is missing of the whole."""
    ucb = np.asarray([[2, 1, 9], [2, 1, 9], [2, np.inf, 9], [np.inf, np.inf, 9], [1, -np.inf, 9],
                       [1, np.nan, 9], [1, 1, 9], [np.nan, 1, 1], [1, 1, 1]], np.float32)  # fmt: skip
    score = np.asarray([[3, -5, 9], [3, -5, 9], [3, 4, 9], [3, 4, 9], [1, 1, 9],
                         [1, 1, 9], [1, np.inf, 9], [np.nan, 1, 1], [1, 1, 1]], np.float32)  # fmt: skip
    there = np.asarray([[1, 1, 0], [0, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0],
                         [1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], bool)  # fmt: skip
    clients = np.tile(np.asarray([[7, 4, 6]], np.int32), (9, 1))
    of_few = jax.jit(everyone, static_argnums=4)
    members, value = of_few(ucb, score, there, clients)
    assert members.tolist() == [[4, 7, -1], [4, -1, -1], *[[4, 7, -1]] * 5, [4, -1, -1], [-1] * 3]
    np.testing.assert_array_equal(value, [-1, -4, 9, np.inf, np.nan, np.nan, np.nan, 2, -np.inf])
    for row in (0, 4, 8):
        single = of_few(ucb[row], score[row], there[row], clients[row])
        np.testing.assert_array_equal(single.value, value[row])
    assert of_few(ucb, score, there, clients, _thresholds.PRODUCT).value[2] == 14


def test_the_same_mask_for_everyone_changes_nothing():
    ucb, score, _ = instances(7, 16, 12)
    free = jax.vmap(lambda u, s: best_set(u, s, 4))(ucb, score)
    shared = jax.vmap(lambda u, s: best_set(u, s, 4, np.ones(12, bool)))(ucb, score)
    np.testing.assert_array_equal(free.members, shared.members)
    np.testing.assert_array_equal(free.value, shared.value)


def test_a_mask_of_another_shape_or_kind_is_refused():
    for mask in (np.ones(3, bool), np.ones(4)):
        for choose in (best_set, brute_force):
            with pytest.raises(ValueError, match=r"^available:"):
                choose(np.zeros(4), np.zeros(4), 2, mask)
        with pytest.raises(ValueError, match=r"^available:"):
            selection.anneal(jax.random.key(0), *np.zeros((3, 4)), m=2, steps=1, available=mask, **WEIGHTS)
