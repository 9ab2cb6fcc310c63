"""Running sums against exact rationals."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pausejax.ensemble import compensated


def test_a_million_small_terms_are_not_lost():
    terms = np.array([1e-3, 0.3, 7e-7, 1.0], np.float32)
    total = jax.jit(
        lambda start: lax.fori_loop(0, 10**6, lambda _, s: compensated.add(s, jnp.asarray(terms)), start)
    )(compensated.Sum(jnp.float32(np.ones(4)), jnp.zeros(4)))
    for got_high, got_low, term in zip(*map(np.asarray, total), terms, strict=True):
        exact = 1 + 10**6 * Fraction(float(term))
        got = Fraction(float(got_high)) + Fraction(float(got_low))
        assert abs(got / exact - 1) < 1e-10


@pytest.mark.parametrize("seed", range(5))
def test_signed_terms_of_all_sizes(seed):
    rng = np.random.default_rng(seed)
    terms = (rng.standard_normal(300) * 10.0 ** rng.integers(-6, 6, 300)).astype(np.float32)
    total = compensated.zeros((1,))
    for term in terms:
        total = compensated.add(total, jnp.full(1, term))
    exact = sum(Fraction(float(term)) for term in terms)
    got = Fraction(float(total.high[0])) + Fraction(float(total.low[0]))
    assert abs(got - exact) < 1e-12 * sum(abs(float(term)) for term in terms)


def test_excess_resolves_close_large_sums():
    big = compensated.Sum(jnp.full((3, 2), 1e8), jnp.array([[0.25, 0.0], [0.0, 0.5], [0.125, 2.0]]))
    np.testing.assert_allclose(compensated.excess(big), [[0.25, 0], [0, 0.5], [0.125, 2]])


def test_excess_is_as_exact_as_the_small_sums_beside_large_ones():
    """Each column by its own least sum: 10⁹ in one place costs no other a digit."""
    high = jnp.array([[0.5, 1e9], [0.25, 1e9], [1e9, 1e9]])
    low = jnp.array([[0.0, 2.0], [0.0, 3.0], [0.0, 7.0]])
    np.testing.assert_array_equal(compensated.excess(compensated.Sum(high, low))[:2], [[0.25, 0], [0, 1]])
