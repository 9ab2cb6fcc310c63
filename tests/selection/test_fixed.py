"""Fixed-point numbers against Python's own integers and fractions."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.selection import _fixed as fixed


def whole(number):
    """As Python's integers, a list."""
    low = np.asarray(number.low, np.int64)
    assert (low >= 0).all() and (low < 2**30).all(), "in its one form"
    return [int(h) * 2**30 + int(x) for h, x in zip(np.asarray(number.high), low, strict=True)]


def numbers(seed, count):
    """float32 of either sign and any size up to 2²⁰, some of them equal, none and whole."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count) * 2.0 ** rng.integers(-40, 18, count)
    return np.concatenate([x, x[:3], [0.0, 1.0, -1.0, 2.0**19, -(2.0**-30)]]).astype(np.float32)


UNIT = np.int32(-38)
encode = jax.jit(fixed.encode)


def test_numbers_are_cut_to_whole_units_and_read_back():
    x = numbers(0, 200)
    encoded = encode(x, UNIT)
    assert whole(encoded) == [math.trunc(Fraction(float(v)) * 2**38) for v in x]
    decode = jax.jit(fixed.decode)
    decoded = np.asarray(decode(encoded, UNIT), np.float64)
    np.testing.assert_allclose(decoded, x, rtol=1.2e-7, atol=2.0**-32)
    small = x[x > 0]
    of_positive = decode(encode(small, UNIT), UNIT)
    np.testing.assert_allclose(of_positive, small, rtol=1.2e-7, atol=2.0**-38)
    some = encoded.at(jnp.asarray([5, 1]))
    assert whole(some) == [whole(encoded)[5], whole(encoded)[1]]


def test_sums_differences_and_comparisons_are_those_of_integers():
    a, b = (encode(numbers(seed, 100), UNIT) for seed in (1, 2))
    left, right = whole(a), whole(b)
    assert whole(fixed.add(a, b)) == [x + y for x, y in zip(left, right, strict=True)]
    assert whole(fixed.subtract(a, b)) == [x - y for x, y in zip(left, right, strict=True)]
    for one, other in ((a, b), (b, a), (a, a), (fixed.add(a, fixed.Fixed(0 * a.high, 0 * a.low + 1)), a)):
        wanted = [x >= y for x, y in zip(whole(one), whole(other), strict=True)]
        assert fixed.at_least(one, other).tolist() == wanted


@pytest.mark.parametrize("count", [1, 2, 3, 6, 13])
def test_a_total_is_that_of_integers(count):
    x = encode(numbers(count, 20)[:count], UNIT)
    found = jax.jit(fixed.total)(x)
    assert int(found.high) * 2**30 + int(found.low) == sum(whole(x))


@pytest.mark.parametrize("size", [2.0**-140, 2.0**-60, 1.0, 2.0**90])
def test_a_unit_holds_the_largest_sum_and_what_is_2_34th_of_it(size):
    rng = np.random.default_rng(3)
    for _ in range(20):
        many, one = (np.float32(size) * rng.uniform(0.5, 1, n).astype(np.float32) for n in (9, 4))
        unit = int(fixed.unit((jnp.asarray(many), 7), (jnp.asarray(-one), 1)))
        largest = Fraction(float(np.sort(many)[-7:].sum(dtype=np.float64))) + Fraction(float(one.max()))
        assert largest < Fraction(2) ** (unit + 60), "no sum runs over"
        assert unit >= -156
        small = np.float32(float(largest) * 2.0**-33.9)
        if small >= np.finfo(np.float32).tiny:
            (units,) = whole(fixed.encode(jnp.asarray([small]), jnp.int32(unit)))
            assert units * Fraction(2) ** unit == Fraction(float(small))
    assert fixed.unit((jnp.zeros(0), 3)) == -156


def test_exponents_and_powers_of_two_are_exact():
    powers = 2.0 ** np.arange(-126, 128)
    np.testing.assert_array_equal(fixed.power_of_two(jnp.arange(-126, 128)), powers.astype(np.float32))
    np.testing.assert_array_equal(fixed.power_of_two(jnp.asarray([-400, 400])), powers[[0, -1]])
    x = np.array([0.0, 2.0**-140, 2.0**-126, 0.75, 1.0, 1.5, 2.0, 3e38], np.float32)
    assert fixed.exponent(jnp.asarray(x)).tolist() == [-126, -126, -125, 0, 1, 1, 2, 128]
