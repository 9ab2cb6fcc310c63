"""Standard Laplace noise from a key, by one of two generators.

"threefry" is JAX's own generator, a cipher in counter mode. "hash" combines each counter with two words of
the key in two rounds of a 32-bit mixing function. The function is shift, multiply, shift, multiply, shift,
with the multipliers 0x21f0aaad and 0x735a2d97 of C. Wellons's hash-prospector. On a CPU, a number from "hash"
takes a third of the time of "threefry". "hash" is not cryptographically secure: the 2^32 words of one key are
all different.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax

NoiseGenerator = Literal["threefry", "hash"]
NOISE_GENERATORS: tuple[str, ...] = get_args(NoiseGenerator)


def laplace(key: jax.Array, count: int, generator: NoiseGenerator = "threefry") -> jax.Array:
    """Draws from the Laplace law of mean 0 and scale 1.

    Args:
      key: the key of the draws, consumed.
      count: the number of draws; at most 2^32 with "hash".
      generator: the generator, as the module describes. The two generators give different draws.

    Returns:
      float32 [count]. Absolute values are at most 15.9 with "threefry" and 22.2 with "hash".

    Raises:
      ValueError: the generator is unknown.
    """
    if generator == "threefry":
        return jax.random.laplace(key, (count,), jnp.float32)
    if generator == "hash":
        return _from_bits(hashed_bits(key, count))
    raise ValueError(f"noise_generator: must be one of {', '.join(NOISE_GENERATORS)}, not {generator!r}")


def hashed_bits(key: jax.Array, count: int) -> jax.Array:
    """Returns the counters 0, 1, 2 … hashed with a key, uint32 [count]."""
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    return _mixed(_mixed(lax.iota(jnp.uint32, count) ^ first) + second)


def _mixed(x: jax.Array) -> jax.Array:
    """Permutes the 32-bit words; a change of one input bit changes about half of the output bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD)
    x = (x ^ (x >> 15)) * jnp.uint32(0x735A2D97)
    return x ^ (x >> 15)


def _from_bits(bits: jax.Array) -> jax.Array:
    """Converts bits to Laplace draws.

    The lowest bit is the sign. The other bits give the tail probability.
    """
    tail = ((bits >> 1).astype(jnp.int32).astype(jnp.float32) + 0.5) * jnp.float32(2**-31)
    size = -jnp.log(tail)
    return jnp.where(bits & 1, size, -size)
