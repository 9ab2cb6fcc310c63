"""Sorts and samples with 32-bit keys, which is faster than XLA's general sort on a CPU."""

import jax
import jax.numpy as jnp


def stable_argsort(values: jax.Array) -> jax.Array:
    """Returns the ascending order of float32 [n], int32 [n]; equal values keep their order, NaN is last.

    Each pass packs some bits of the key and the position into one uint32 and sorts these numbers. The passes
    start with the least significant bits. On XLA:CPU, sorting one integer array is about eight times as fast
    as sorting floats, or keys with a payload. So two or three passes are faster than one general sort.
    """
    size = values.shape[0]
    position_bits = max(1, (size - 1).bit_length())
    key_bits = 32 - position_bits
    remaining = _ordered_bits(values)
    position = jnp.arange(size, dtype=jnp.uint32)

    def ascending(keys: jax.Array) -> jax.Array:
        packed = jnp.sort((keys << position_bits) | position)
        return (packed & ((1 << position_bits) - 1)).astype(jnp.int32)

    order = ascending(remaining)
    for _ in range(key_bits, 32, key_bits):
        remaining = remaining >> key_bits
        order = order[ascending(remaining[order])]
    return order


def inverse_permutation(order: jax.Array) -> jax.Array:
    """Returns the place of every element in an order, int32 [n]."""
    place = jnp.arange(order.shape[0], dtype=jnp.int32)
    return jnp.zeros_like(place).at[order].set(place, unique_indices=True, mode="promise_in_bounds")


def random_subset(key: jax.Array, size: int, m: int, first: int | jax.Array | None = None) -> jax.Array:
    """Draws a uniform set of m numbers below `size`, or below `first` if given, int32 [m], ascending.

    The set has the m largest random 30-bit keys. Ties have a probability below size² / 2^31 and go to the
    lowest number. If `first` is below m, the set has all numbers below `first` and the next larger numbers.
    """
    normal_floats = (jax.random.bits(key, (size,)) >> 2) | jnp.uint32(0x20000000)
    keys = jax.lax.bitcast_convert_type(normal_floats, jnp.float32)
    if first is not None:
        keys = jnp.where(jnp.arange(size) < first, keys, 0.0)
    return jnp.sort(jax.lax.top_k(keys, m)[1])


def scaled_bits(bits: jax.Array, count: jax.Array) -> jax.Array:
    """Returns floor(bits * count / 2^32), int32: a random number below `count`, 0 <= count < 2^31.

    All numbers have the same probability up to a relative error of count / 2^32.
    """
    count = count.astype(jnp.uint32)
    high, low = bits >> 16, bits & 0xFFFF
    count_high, count_low = count >> 16, count & 0xFFFF
    first = high * count_low + ((low * count_low) >> 16)
    second = low * count_high + (first & 0xFFFF)
    return (high * count_high + (first >> 16) + (second >> 16)).astype(jnp.int32)


def open_unit(bits: jax.Array) -> jax.Array:
    """Returns a float32 in (0, 1] from 32 random bits.

    Its resolution is finest near 0, so that rare events have the right probability.
    """
    return (bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)


def _ordered_bits(values: jax.Array) -> jax.Array:
    """Returns uint32 keys in the order of the floats: -0 equals 0, and NaN is above +inf."""
    values = jnp.where(values == 0, 0.0, jnp.where(jnp.isnan(values), jnp.nan, values))
    bits = jax.lax.bitcast_convert_type(values.astype(jnp.float32), jnp.uint32)
    return bits ^ jnp.where(bits >> 31 == 1, jnp.uint32(0xFFFFFFFF), jnp.uint32(0x80000000))
