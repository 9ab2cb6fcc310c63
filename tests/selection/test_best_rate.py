"""`best_rate` and its brute force against float64 enumeration and each other, bit for bit."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pausejax.selection import best_rate, brute_force_rate
from pausejax.selection._parallel import by_eviction
from pausejax.selection._thresholds import PRODUCT, by_insertion, by_replacement
from pausejax.selection.exact import _settle, rate_terms, stand_ins

BOTH = [best_rate, brute_force_rate]


def instances(rng, count, num_clients):
    """speed and value [count, K] of small integers: products of sums are exact; some are unexplored."""
    shape = (count, num_clients)
    speed = rng.integers(1, 2 ** rng.integers(1, 5, (count, 1)), shape).astype(np.float64)
    value = rng.integers(0, 2 ** rng.integers(0, 5, (count, 1)), shape).astype(np.float64)
    # Every threshold is worth about the same: as much value as time.
    value = np.where(rng.random((count, 1)) < 0.3, np.round(60 / speed), value)
    unexplored = rng.random(shape) < rng.choice([0.0, 0.2, 0.6, 1.0], (count, 1))
    return np.where(unexplored, np.inf, speed).astype(np.float32), value.astype(np.float32)


def rounded_instances(rng, count, num_clients):
    shape = (count, num_clients)
    wide = rng.random((count, 1)) < 0.3
    speed = np.where(wide, 10.0 ** rng.integers(-12, 12, shape), rng.random(shape) + 1e-3)
    value = np.where(wide, 10.0 ** rng.integers(-12, 12, shape), rng.random(shape))
    return speed.astype(np.float32), value.astype(np.float32)


def enumerated(speed, value, m):
    """All sets in lexicographic order, and in float64 the min of speed and Σ value of each, [N, C]."""
    sets = np.array(list(itertools.combinations(range(speed.shape[1]), m)))
    return sets, speed.astype(np.float64)[:, sets].min(-1), value.astype(np.float64)[:, sets].sum(-1)


@pytest.mark.parametrize(("num_clients", "m"), [(1, 1), (3, 2), (5, 1), (6, 6), (8, 3), (9, 5)])
def test_both_equal_float64_enumeration(num_clients, m):
    rng = np.random.default_rng([num_clients, m])
    speed, value = instances(rng, 300, num_clients)
    best, brute = (jax.jit(jax.vmap(lambda s, v, f=f: f(s, v, m)))(speed, value) for f in BOTH)
    sets, slowest, total = enumerated(speed, value, m)
    infinite = np.isinf(slowest)
    product = np.where(infinite, 1.0, slowest) * total
    worth = np.where(infinite | ~infinite.any(1, keepdims=True), product, -1.0)
    expected = worth.argmax(1)
    np.testing.assert_array_equal(best.members, sets[expected])
    np.testing.assert_array_equal(brute.members, sets[expected])
    rows = np.arange(300)
    # Unexplored clients alone are worth +inf, whatever their values.
    wanted = np.where(infinite[rows, expected], np.inf, worth[rows, expected])
    np.testing.assert_array_equal(best.value, wanted)
    np.testing.assert_array_equal(brute.value, wanted)


@pytest.mark.parametrize(("num_clients", "m"), [(6, 2), (9, 4)])
def test_rounded_products_agree_and_lose_nothing(num_clients, m):
    speed, value = rounded_instances(np.random.default_rng(m), 300, num_clients)
    best, brute = (jax.jit(jax.vmap(lambda s, v, f=f: f(s, v, m)))(speed, value) for f in BOTH)
    np.testing.assert_array_equal(best.members, brute.members)
    np.testing.assert_array_equal(best.value, brute.value)
    _, slowest, total = enumerated(speed, value, m)
    np.testing.assert_allclose(best.value, (slowest * total).max(1), rtol=1e-6)


positive = st.floats(2.0**-60, 2.0**60, width=32)
tied = st.sampled_from([1.0, 1.0 + 2.0**-23, 2.0, 2.0**24])
speeds = hnp.arrays(np.float32, 6, elements=st.one_of(tied, positive, st.just(np.inf)))
values = hnp.arrays(np.float32, 6, elements=st.one_of(tied, positive, st.just(0.0)))


@pytest.mark.slow
@settings(max_examples=100)
@given(speeds, values, st.sampled_from([1, 2, 3, 6]), st.none() | hnp.arrays(bool, 6))
def test_both_agree_on_arbitrary_floats_and_masks(speed, value, m, available):
    best, brute = (choose(speed, value, m, available) for choose in BOTH)
    np.testing.assert_array_equal(best.members, brute.members)
    np.testing.assert_array_equal(best.value, brute.value)


@pytest.mark.parametrize("choose", BOTH)
def test_few_unexplored_clients_of_no_value_are_worth_infinity(choose):
    speed, value = np.array([[np.inf, 0.5], [0, 1]], np.float32)
    found = choose(speed, value, 2, np.array([True, False]))
    assert found.members.tolist() == [0, -1] and found.value == np.inf


@pytest.mark.slow
def test_a_mask_equals_the_network_of_the_available_clients():
    rng = np.random.default_rng(3)
    speed, value = instances(rng, 60, 7)
    available = rng.random((60, 7)) < rng.choice([0, 0.3, 0.7], (60, 1))
    read = np.where(available, speed, -1.0).astype(np.float32), np.where(available, value, np.nan)
    got = jax.jit(jax.vmap(lambda s, v, a: best_rate(s, v, 3, a)))(*read, available)
    for row in range(60):
        clients = np.flatnonzero(available[row])
        if not len(clients):
            assert got.members[row].tolist() == [-1] * 3 and got.value[row] == -np.inf
            continue
        alone = brute_force_rate(speed[row, clients], value[row, clients], min(3, len(clients)))
        assert got.members[row].tolist() == [*clients[alone.members], *[-1] * (3 - len(alone.members))]
        assert got.value[row] == alone.value


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 5, 12])
def test_every_sweep_settles_on_the_same_set(m):
    rng = np.random.default_rng(m)
    parts = [instances(rng, 64, 12), rounded_instances(rng, 64, 12)]
    speed, value = (jnp.asarray(np.concatenate(both)) for both in zip(*parts, strict=True))
    _, speed, value = stand_ins(speed, value, m, None, PRODUCT)

    @jax.jit
    def run(speed, value):
        sweeps = (by_insertion, by_replacement, by_eviction)
        bounds = [sweep(speed, value, m, PRODUCT) for sweep in sweeps]
        return bounds, [_settle(speed, value, m, bound, PRODUCT) for bound in bounds]

    (exactly, *others), (expected, *found) = run(speed, value)
    for bounds, got in zip(others, found, strict=True):
        np.testing.assert_array_equal(got.members, expected.members)
        np.testing.assert_array_equal(got.value, expected.value)
        best = exactly.lower.max(axis=1)
        assert (bounds.lower.max(axis=1) <= best).all() and (bounds.upper.max(axis=1) >= best).all()


def test_a_large_network_equals_a_float64_sweep():
    num_clients, m = 20_000, 200
    rng = np.random.default_rng(1)
    speed = rng.random(num_clients).astype(np.float32) + np.float32(0.01)
    value = rng.random(num_clients).astype(np.float32)
    members, worth = best_rate(speed, value, m)
    order = np.argsort(-speed, kind="stable")
    best, kept = 0.0, np.empty(0)
    for client in order:
        kept = np.sort(np.append(kept, np.float64(value[client])))[-m:]
        if len(kept) == m:
            best = max(best, np.float64(speed[client]) * kept.sum())
    assert float(worth) == pytest.approx(best, rel=1e-6)
    found = speed[members].astype(np.float64).min() * math.fsum(value[members])
    assert found == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("choose", BOTH)
def test_missing_numbers_inside_jit_still_give_a_valid_set(choose):
    rng = np.random.default_rng(7)
    speed, value = (rng.random((200, 7)).astype(np.float32) for _ in range(2))
    for array, junk in ((speed, [np.nan, 0.0, -1.0, -np.inf]), (value, [np.nan, -1.0, np.inf, -np.inf])):
        bad = rng.random(array.shape) < rng.choice([0.0, 0.2, 1.0], (200, 1))
        array[bad] = rng.choice(junk, bad.sum())
    members, worth = jax.jit(jax.vmap(lambda s, v: choose(s, v, 3)))(speed, value)
    assert ((members >= 0) & (members < 7)).all() and (np.diff(members, axis=1) > 0).all()
    complete = (speed > 0).all(1) & (np.isfinite(value) & (value >= 0)).all(1)
    np.testing.assert_array_equal(np.isnan(worth), ~complete)


@pytest.mark.parametrize("choose", BOTH)
@pytest.mark.parametrize(
    ("speed", "value", "said"),
    [
        ([1, 0], [1, 1], "speed: every entry must be > 0"),
        ([1, np.nan], [1, 1], "speed: every entry must be > 0"),
        ([1, 1], [1, -1], "value: every entry must be a finite number >= 0"),
        ([1, 1], [1, np.inf], "value: every entry must be"),
        ([1, 1], [1, 1, 1], "value: shape"),
    ],
)
def test_bad_input_is_named(choose, speed, value, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        choose(np.array(speed, np.float32), np.array(value, np.float32), 1)


def test_rate_terms_keep_what_is_in_range():
    speed, value = rate_terms(np.array([2.0, np.inf]), np.array([0.0, 3.0]), 1)
    assert speed.tolist() == [2.0, np.inf] and value.tolist() == [0.0, 3.0]
