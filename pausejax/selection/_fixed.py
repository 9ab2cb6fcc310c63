"""Adds 61-bit fixed-point numbers. The sums do not depend on the order of additions, the batch or the device.

A number is a pair of int32: high * 2^30 + low in units of 2^unit, 0 <= low < 2^30. Sums of integers are
exact, so the sum of a set depends only on the set. One addition updates the sum for one more client.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Fixed(NamedTuple):
    """Fixed-point numbers, as two arrays int32 [...]."""

    high: jax.Array
    low: jax.Array

    def at(self, index: jax.Array) -> "Fixed":
        return Fixed(self.high[index], self.low[index])


_LOW_BITS = 30
_LOW_MASK = (1 << _LOW_BITS) - 1
_LEAST_UNIT = -126 - _LOW_BITS
"""The least exponent of a unit.

With this unit, 2^30 units are a normal float32, and every float32 is a multiple of the unit.
"""


def unit(*terms: tuple[jax.Array, int]) -> jax.Array:
    """Returns the unit of sums of entries of some arrays, as the exponent of a power of two, int32 scalar.

    A float32 above 2^-34 times the largest sum is represented exactly. Smaller numbers are truncated to
    multiples of 2^-58 times that sum.

    Args:
      *terms: pairs of an array, float32 [...], and the largest number of its entries in a sum.
    """
    exponents = [exponent(jnp.max(jnp.abs(x), initial=0.0)) + count.bit_length() for x, count in terms]
    largest = jnp.max(jnp.stack(exponents)) + (len(terms) - 1).bit_length()
    return jnp.maximum(largest + 1 - 2 * _LOW_BITS, _LEAST_UNIT)


def exponent(x: jax.Array) -> jax.Array:
    """Returns the least int32 e with x < 2^e for float32 x >= 0; -126 for x below 2^-126."""
    return (lax.bitcast_convert_type(x, jnp.int32) >> 23) - 126


def power_of_two(exponent: jax.Array) -> jax.Array:
    """Returns 2^e exactly as float32, for int32 e; e is clipped to -126 .. 127."""
    bits = (jnp.clip(exponent, -126, 127) + 127).astype(jnp.int32) << 23
    return lax.bitcast_convert_type(bits, jnp.float32)


def encode(x: jax.Array, unit: jax.Array) -> Fixed:
    """Returns x, float32 [...], as fixed-point numbers in units of 2^unit, truncated."""
    scaled = x * power_of_two(-unit - _LOW_BITS)
    high = jnp.trunc(scaled)
    # Scaling by a power of two does not round, and the fraction of a float is exactly a float.
    low = (scaled - high) * jnp.float32(1 << _LOW_BITS)
    return _carried(high.astype(jnp.int32), low.astype(jnp.int32))


def decode(number: Fixed, unit: jax.Array) -> jax.Array:
    """Returns fixed-point numbers, in units of 2^unit, as the nearest float32 or the one next to it, [...].

    The error of small negative numbers is up to 2^6 units.
    """
    low = number.low.astype(jnp.float32) * jnp.float32(2.0**-_LOW_BITS)
    return (number.high.astype(jnp.float32) + low) * power_of_two(unit + _LOW_BITS)


def add(a: Fixed, b: Fixed) -> Fixed:
    return _carried(a.high + b.high, a.low + b.low)


def subtract(a: Fixed, b: Fixed) -> Fixed:
    return _carried(a.high - b.high, a.low - b.low)


def total(x: Fixed) -> Fixed:
    """Returns the sum of n numbers, [n], as a scalar."""
    high, low = x.high, x.low
    while high.shape[0] > 1:
        odd = high.shape[0] % 2
        high, low = (jnp.pad(part, (0, odd)) for part in (high, low))
        high, low = _carried(high[0::2] + high[1::2], low[0::2] + low[1::2])
    return Fixed(high[0], low[0])


def at_least(a: Fixed, b: Fixed) -> jax.Array:
    """Returns whether a >= b, bool [...]."""
    return (a.high > b.high) | ((a.high == b.high) & (a.low >= b.low))


def _carried(high: jax.Array, low: jax.Array) -> Fixed:
    return Fixed(high + (low >> _LOW_BITS), low & _LOW_MASK)
