"""Sorting and sampling on 32-bit keys, fast where the general sort of XLA is slow."""

import jax
import jax.numpy as jnp


def stable_argsort(values: jax.Array) -> jax.Array:
    """The ascending order of float32 [n], int32 [n]; equal values keep their order, NaN goes last.

    Each pass packs as many bits of the key as leave room for the position into one uint32 and sorts that
    alone, least significant bits first. On XLA:CPU sorting one integer operand is about eight times as fast
    as sorting floats, or keys with a payload, so two or three passes still win.
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
    """The place of every element in an order, int32 [n]."""
    place = jnp.arange(order.shape[0], dtype=jnp.int32)
    return jnp.zeros_like(place).at[order].set(place, unique_indices=True, mode="promise_in_bounds")


def random_subset(key: jax.Array, size: int, m: int, first: int | jax.Array | None = None) -> jax.Array:
    """A uniform set of m out of `size` numbers, or of the `first` so many of them, int32 [m], ascending.

    The m largest of random 30-bit keys; ties, of a probability below size² / 2^31, go to the lowest number.
    Where there are fewer than m, all of them come first and larger numbers follow.
    """
    normal_floats = (jax.random.bits(key, (size,)) >> 2) | jnp.uint32(0x20000000)
    keys = jax.lax.bitcast_convert_type(normal_floats, jnp.float32)
    if first is not None:
        keys = jnp.where(jnp.arange(size) < first, keys, 0.0)
    return jnp.sort(jax.lax.top_k(keys, m)[1])


def scaled_bits(bits: jax.Array, count: jax.Array) -> jax.Array:
    """floor(bits * count / 2^32), int32: a number below `count`, 0 <= count < 2^31.

    Every number has the same probability up to a relative count / 2^32.
    """
    count = count.astype(jnp.uint32)
    high, low = bits >> 16, bits & 0xFFFF
    count_high, count_low = count >> 16, count & 0xFFFF
    first = high * count_low + ((low * count_low) >> 16)
    second = low * count_high + (first & 0xFFFF)
    return (high * count_high + (first >> 16) + (second >> 16)).astype(jnp.int32)


def open_unit(bits: jax.Array) -> jax.Array:
    """A float32 in (0, 1] out of 32 random bits; fine-grained near 0, where rare events are decided."""
    return (bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)


def _ordered_bits(values: jax.Array) -> jax.Array:
    """uint32 keys in the order of the floats: -0 equals 0, NaN is above +inf."""
    values = jnp.where(values == 0, 0.0, jnp.where(jnp.isnan(values), jnp.nan, values))
    bits = jax.lax.bitcast_convert_type(values.astype(jnp.float32), jnp.uint32)
    return bits ^ jnp.where(bits >> 31 == 1, jnp.uint32(0xFFFFFFFF), jnp.uint32(0x80000000))
