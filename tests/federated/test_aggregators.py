"""Aggregators against NumPy, SciPy and Krum's definition, on ties, infinities and absent rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pausejax import parts
from pausejax.federated import aggregators
from pausejax.federated.aggregators import Aggregator, checked_aggregator

ROWS, SIZE = 7, 3
SEEDS = st.integers(0, 10**6)


def combined(name, updates, weights, **values):
    combine = parts.find("aggregator", name).build(**values).combine
    return np.asarray(jax.jit(combine)(jnp.asarray(updates), jnp.asarray(weights)))


def cohort(seed, *, ties=True):
    """Updates of some clients among absent rows that hold anything, and weights."""
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    if ties:
        updates = np.round(updates)
    there = rng.random(ROWS) < 0.7
    there[rng.integers(ROWS)] = True
    updates[~there] = rng.choice([np.nan, np.inf, 0.0, 1e30], size=(int((~there).sum()), 1))
    return updates, np.where(there, rng.uniform(0.1, 1, ROWS), 0).astype(np.float32), there


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_median_is_numpys(seed):
    updates, weights, there = cohort(seed)
    expected = np.median(updates[there].astype(np.float64), axis=0)
    np.testing.assert_allclose(combined("median", updates, weights), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.49]))
def test_the_trimmed_mean_is_scipys(seed, share):
    updates, weights, there = cohort(seed)
    expected = stats.trim_mean(updates[there].astype(np.float64), share, axis=0)
    found = combined("trimmed_mean", updates, weights, trim_share=jnp.float32(share))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def krum_by_definition(updates, wrong):
    """Blanchard et al. 2017, Section 4: the row of the smallest sum over its n - f - 2 nearest others."""
    count = len(updates)
    distance = ((updates[:, None] - updates[None]) ** 2).sum(axis=2)
    near = min(max(count - wrong - 2, 1), count - 1)
    scores = [np.sort(np.delete(distance[row], row))[:near].sum() for row in range(count)]
    return updates[int(np.argmin(scores))]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(0, 3))
def test_krum_is_its_definition(seed, wrong):
    updates, weights, there = cohort(seed, ties=seed % 2 == 0)
    expected = krum_by_definition(updates[there].astype(np.float64), wrong)
    np.testing.assert_array_equal(combined("krum", updates, weights, wrong_clients=wrong), expected)


@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan, 1e30])
def test_one_broken_update_moves_no_robust_aggregate_far(broken):
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    updates[2] = broken
    weights = np.full(ROWS, 1 / ROWS, np.float32)
    for name, values in (("median", {}), ("trimmed_mean", {"trim_share": 0.2}), ("krum", {})):
        found = combined(name, updates, weights, **values)
        assert np.isfinite(found).all() and np.abs(found).max() < 3, name


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "krum"])
def test_one_client_is_the_cohort_and_none_breaks_nothing(name):
    updates = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(combined(name, updates, np.float32([0, 1])), updates[1])
    assert combined(name, updates, np.float32([0, 0])).shape == (3,)


@pytest.mark.parametrize("rows", [64, 65, 200])
def test_large_cohorts_are_sorted_to_the_same_ranks(rows):
    rng = np.random.default_rng(rows)
    updates = np.round(rng.normal(size=(rows, 4)), 1).astype(np.float32)
    updates[rng.random((rows, 4)) < 0.1] = np.inf
    there = rng.random(rows) < 0.8
    updates[~there] = np.nan
    weights = there.astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = np.median(updates[there].astype(np.float64), axis=0)
    np.testing.assert_allclose(combined("median", updates, weights), expected, rtol=1e-6)
    trimmed = stats.trim_mean(updates[there].astype(np.float64), 0.3, axis=0)
    found = combined("trimmed_mean", updates, weights, trim_share=jnp.float32(0.3))
    np.testing.assert_allclose(found, trimmed, rtol=1e-5)


def test_absent_rows_are_no_infinite_ones():
    updates = np.array([[np.nan], [np.inf], [np.inf], [1.0]], np.float32)
    weights = np.float32([0, 1, 1, 1])
    assert combined("median", updates, weights) == np.inf
    assert combined("trimmed_mean", updates, weights, trim_share=jnp.float32(0.4)) == np.inf


def test_large_numbers_have_a_median():
    updates = np.array([[3e38], [3.2e38]], np.float32)
    np.testing.assert_allclose(combined("median", updates, np.float32([0.5, 0.5])), [3.1e38], rtol=1e-6)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (3, "must return a pausejax.federated.aggregators.Aggregator, not int"),
        (Aggregator(lambda u, w: u), r"combine returns float32 \[2, 3\]; must be float32 \[3\]"),
        (Aggregator(lambda u, w: u[0].astype(jnp.int32)), "combine returns int32"),
        (Aggregator(lambda u, w: u / w), "combine: "),
    ],
)
def test_wrong_aggregators_are_named(made, message, own_parts):
    @parts.aggregator
    def wrong():
        return made

    part = parts.find("aggregator", "wrong")
    with pytest.raises(parts.PartError, match=f"aggregator wrong: .*{message}"):
        checked_aggregator(made, part).combine(jnp.ones((2, 3)), jnp.ones(2))


def test_the_mean_keeps_no_rows():
    assert aggregators.mean().combine is None
