"""Selections do not depend on how runs are batched: the arithmetic, one annealing, and whole studies."""

from fractions import Fraction
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pausejax
from pausejax.rounding import rounded
from pausejax.selection import _fixed, anneal_trace

# How the others are compiled, no product would be contracted.
pytestmark = pytest.mark.optimized

# --- Products before sums


@pytest.mark.parametrize("shape", [(1,), (7,), (64,), (33, 30)])
def test_a_rounded_product_is_never_contracted_into_a_sum(shape):
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    got = jax.jit(lambda x, y, z: rounded(x * y) + z)(x, y, z)
    np.testing.assert_array_equal(got, x * y + z)


def test_another_product_is():
    """Or the test above would say nothing."""
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=(33, 30)).astype(np.float32) for _ in range(3))
    assert (jax.jit(lambda x, y, z: x * y + z)(x, y, z) != x * y + z).any()


# --- Fixed point


def exact(number, unit):
    high, low = (int(part) for part in number)
    return (high * 2**30 + low) * Fraction(2) ** int(unit)


unit_of = jax.jit(lambda values: _fixed.unit((values, len(values))))
encode, decode, total_of, subtract, at_least = map(
    jax.jit, (_fixed.encode, _fixed.decode, _fixed.total, _fixed.subtract, _fixed.at_least)
)
MAGNITUDES = st.floats(-(2.0**20), 2.0**20, width=32, allow_subnormal=False)


@given(hnp.arrays(np.float32, 9, elements=MAGNITUDES), st.integers(-90, 90))
@example(np.full(9, 7.3340957e-37, np.float32), 0)
@example(np.arange(9, dtype=np.float32), -126)
@settings(max_examples=100, deadline=None)
def test_fixed_point_sums_are_exact(values, scale):
    """Where no number is far below the largest sum; the others lose less than one unit each."""
    values = np.ldexp(values, scale).astype(np.float32)
    unit = unit_of(values)
    numbers = encode(values, unit)
    each = [_fixed.Fixed(*parts) for parts in zip(*map(np.asarray, numbers), strict=True)]
    one = Fraction(2) ** int(unit)
    for number, value in zip(each, values, strict=True):
        loss = Fraction(float(value)) - exact(number, unit)
        assert abs(loss) < one
        if abs(value) >= np.abs(values).max() * 2.0**-30:
            assert loss == 0
    total = exact(total_of(numbers), unit)
    assert total == sum(exact(number, unit) for number in each)
    assert exact(total_of(_fixed.Fixed(*(np.asarray(part)[::-1] for part in numbers))), unit) == total
    back = decode(total_of(numbers), unit)
    assert abs(Fraction(float(back)) - total) <= abs(total) * Fraction(2) ** -22
    first, second = each[:2]
    assert exact(subtract(first, second), unit) == exact(first, unit) - exact(second, unit)
    assert bool(at_least(first, second)) == (exact(first, unit) >= exact(second, unit))


def test_equal_sums_tie_whatever_their_members():
    values = jnp.asarray([0.1, 0.7, 0.3, 0.3, 0.7, 0.1], jnp.float32)
    numbers = _fixed.encode(values, _fixed.unit((values, 3)))
    totals = [_fixed.total(numbers.at(jnp.asarray(o))) for o in ([0, 1, 2], [5, 3, 4], [4, 0, 3])]
    assert all(total == totals[0] for total in totals)


# --- One annealing


@pytest.mark.parametrize(
    ("num_clients", "m", "sizes"),
    [
        (30, 5, (1, 7)),
        (20, 16, (3,)),
        (50, 33, (1,)),
    ],
)
@pytest.mark.slow
def test_an_annealing_is_the_same_alone_and_in_any_batch(num_clients, m, sizes):
    rng = np.random.default_rng(1)
    ucb, g, p = (rng.normal(size=(24, num_clients)).astype(np.float32) for _ in range(3))
    weights = rng.uniform(0.5, 40, (2, 24)).astype(np.float32)
    keys = jax.random.split(jax.random.key(2), 24)

    def run(key, ucb, g, p, alpha, gamma):
        weights = {"generalization_weight": alpha, "privacy_weight": gamma}
        return anneal_trace(key, ucb, g, p, m=m, steps=60, **weights)

    together = jax.jit(jax.vmap(run))
    inputs = (keys, ucb, g, p, *weights)
    best, trace = together(*inputs)
    for size in sizes:
        few, few_trace = together(*(x[:size] for x in inputs))
        np.testing.assert_array_equal(few.members, best.members[:size])
        np.testing.assert_array_equal(few.value, best.value[:size])
        np.testing.assert_array_equal(few_trace, trace[:size])


# --- Whole studies


@cache
def selections(policy, seeds, rounds):
    """int [runs, rounds, m]; one seed plays on one device, several on both."""
    table = {"name": policy} if policy == "pause" else {"name": policy, "annealing_steps": 60}
    study = {"alpha": 37.3, "beta": 2.3, "gamma": 2.7, "eta": 0.013, "zeta": 1.7}
    result = pausejax.simulate([table], seeds=list(seeds), rounds=rounds, mode="bandit", **study)
    return result.selected.values


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sa_pause", "pause"])
def test_a_study_selects_the_same_alone_and_in_a_batch(policy):
    together = selections(policy, tuple(range(8)), 200)
    np.testing.assert_array_equal(selections(policy, (6,), 200)[0], together[6])
    if policy == "sa_pause":
        np.testing.assert_array_equal(selections(policy, (2, 7, 4), 200), together[[2, 7, 4]])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sa_pause", "pause", "vanilla_sa"])
def test_600_rounds_select_the_same_in_batches_of_1_3_24_and_256(policy):
    everyone = selections(policy, tuple(range(256)), 600)
    np.testing.assert_array_equal(selections(policy, tuple(range(24)), 600), everyone[:24])
    for first in range(0, 24, 3):
        trio = tuple(range(first, first + 3))
        np.testing.assert_array_equal(selections(policy, trio, 600), everyone[list(trio)])
    for seed in range(12):
        np.testing.assert_array_equal(selections(policy, (seed,), 600)[0], everyone[seed])
