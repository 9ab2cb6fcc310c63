"""Sums that no order of additions, no batch and no device can change: 61-bit fixed-point numbers.

A number is a pair of int32: high * 2^30 + low in units of 2^unit, 0 <= low < 2^30. Integers add up exactly,
so the sum of a set depends on the set alone, equal sums are equal, and one client more is one addition.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Fixed(NamedTuple):
    """Numbers in fixed point, int32 [...] each."""

    high: jax.Array
    low: jax.Array

    def at(self, index: jax.Array) -> "Fixed":
        return Fixed(self.high[index], self.low[index])


_LOW_BITS = 30
_LOW_MASK = (1 << _LOW_BITS) - 1
_LEAST_UNIT = -126 - _LOW_BITS
"""Finer than every float32, and 2^30 of it are still a normal one."""


def unit(*terms: tuple[jax.Array, int]) -> jax.Array:
    """The unit, as the exponent of a power of two, for sums of `count` entries of each array; int32 scalar.

    A float32 is held exactly if it is more than 2^-34 of the largest sum; smaller ones are cut to
    multiples of 2^-58 of that sum.

    Args:
      *terms: pairs of an array, float32 [...], and how many of its entries a sum holds at most.
    """
    exponents = [exponent(jnp.max(jnp.abs(x), initial=0.0)) + count.bit_length() for x, count in terms]
    largest = jnp.max(jnp.stack(exponents)) + (len(terms) - 1).bit_length()
    return jnp.maximum(largest + 1 - 2 * _LOW_BITS, _LEAST_UNIT)


def exponent(x: jax.Array) -> jax.Array:
    """The least int32 e with x < 2^e, of float32 x >= 0; -126 for anything smaller than 2^-126."""
    return (lax.bitcast_convert_type(x, jnp.int32) >> 23) - 126


def power_of_two(exponent: jax.Array) -> jax.Array:
    """float32 2^e, exactly, of int32 e; e is clipped to -126 .. 127."""
    bits = (jnp.clip(exponent, -126, 127) + 127).astype(jnp.int32) << 23
    return lax.bitcast_convert_type(bits, jnp.float32)


def encode(x: jax.Array, unit: jax.Array) -> Fixed:
    """float32 [...] in fixed point."""
    scaled = x * power_of_two(-unit - _LOW_BITS)
    high = jnp.trunc(scaled)
    # A power of two scales without rounding, and what a float has behind its point is a float.
    low = (scaled - high) * jnp.float32(1 << _LOW_BITS)
    return _carried(high.astype(jnp.int32), low.astype(jnp.int32))


def decode(number: Fixed, unit: jax.Array) -> jax.Array:
    """The nearest float32 or one beside it, [...]; a small negative number within 2^6 units."""
    low = number.low.astype(jnp.float32) * jnp.float32(2.0**-_LOW_BITS)
    return (number.high.astype(jnp.float32) + low) * power_of_two(unit + _LOW_BITS)


def add(a: Fixed, b: Fixed) -> Fixed:
    return _carried(a.high + b.high, a.low + b.low)


def subtract(a: Fixed, b: Fixed) -> Fixed:
    return _carried(a.high - b.high, a.low - b.low)


def total(x: Fixed) -> Fixed:
    """The sum over the first and only axis, [n] -> scalars."""
    high, low = x.high, x.low
    while high.shape[0] > 1:
        odd = high.shape[0] % 2
        high, low = (jnp.pad(part, (0, odd)) for part in (high, low))
        high, low = _carried(high[0::2] + high[1::2], low[0::2] + low[1::2])
    return Fixed(high[0], low[0])


def at_least(a: Fixed, b: Fixed) -> jax.Array:
    """a >= b, bool [...]."""
    return (a.high > b.high) | ((a.high == b.high) & (a.low >= b.low))


def _carried(high: jax.Array, low: jax.Array) -> Fixed:
    return Fixed(high + (low >> _LOW_BITS), low & _LOW_MASK)
