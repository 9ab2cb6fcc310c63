"""Adds with compensation: a sum is a pair of float32 with about 48 bits (Knuth's two-sum).

A million rounds add losses of order 1 to sums of order 10^6. At that size a single float32 resolves only
0.06, but the policies' weights depend on differences of such sums.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Sum(NamedTuple):
    high: jax.Array
    low: jax.Array


def zeros(shape: tuple[int, ...]) -> Sum:
    return Sum(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))


def add(total: Sum, term: jax.Array) -> Sum:
    """Returns `total + term`, elementwise; the shapes must agree."""
    high = total.high + term
    rounded = high - total.high
    error = (total.high - (high - rounded)) + (term - rounded)
    # A second two-sum keeps |low| below half a unit in the last place of high.
    low = total.low + error
    renormalized = high + low
    return Sum(renormalized, low - (renormalized - high))


def value(total: Sum) -> jax.Array:
    """Returns the sum as one float32 number."""
    return total.high + total.low


def difference(left: Sum, right: Sum) -> jax.Array:
    """Returns `left - right`; its rounding error is relative to the difference, not to the sums."""
    return (left.high - right.high) + (left.low - right.low)


def excess(total: Sum, axis: int = 0) -> jax.Array:
    """Returns `total - min(total)` along an axis. Its rounding error is relative to the result."""
    least = jnp.argmin(total.high, axis=axis, keepdims=True)
    above = difference(total, Sum(*(jnp.take_along_axis(part, least, axis=axis) for part in total)))
    return above - jnp.min(above, axis=axis, keepdims=True)
