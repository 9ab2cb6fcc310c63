"""Clipping and the Laplace mechanism (Theorem 1) on flat update vectors.

The noise is simulation-grade: float32 Laplace draws end near 16 scales and their low bits depend on the
input (Mironov 2012). It has the right distribution for studying learning; do not release real data with it.
"""

from typing import Literal, get_args

import chex
import jax
import jax.numpy as jnp

from pausejax.privacy.noise import NoiseGenerator, laplace

Clip = Literal["coordinate", "vector"]
CLIPS: tuple[str, ...] = get_args(Clip)


def clip_update(update: jax.Array, sensitivity: jax.Array | float, clip: Clip) -> jax.Array:
    """Bounds an update so that two of them differ by at most Δf.

    Args:
      update: float32 [d].
      sensitivity: Δf > 0.
      clip: "coordinate": each coordinate to ±Δf/2; "vector": the L1 norm to Δf/2.

    Returns:
      float32 [d].
    """
    bound = jnp.asarray(sensitivity, jnp.float32) / 2
    if clip == "coordinate":
        return jnp.clip(update, -bound, bound)
    if clip == "vector":
        norm = jnp.sum(jnp.abs(update))
        return update * jnp.minimum(1.0, bound / jnp.maximum(norm, jnp.finfo(jnp.float32).tiny))
    raise ValueError(f"clip: unknown kind {clip!r}; allowed: {', '.join(CLIPS)}")


def privatize(
    key: jax.Array,
    update: jax.Array,
    epsilon: jax.Array | float,
    sensitivity: jax.Array | float,
    clip: Clip = "coordinate",
    noise_generator: NoiseGenerator = "threefry",
) -> jax.Array:
    """Clips an update and adds Laplace(Δf / ε) to every coordinate, (5).

    Args:
      key: consumed.
      update: float32 [d].
      epsilon: ε > 0 of this release: per coordinate or for the vector, by `clip`.
      sensitivity: Δf > 0.
      clip: see `clip_update`.
      noise_generator: see `noise.laplace`.

    Returns:
      float32 [d].

    Raises:
      AssertionError: the update is no vector of floats (when traced).
      ValueError: an unknown `clip` or `noise_generator`.
    """
    chex.assert_rank(update, 1)
    chex.assert_type(update, float)
    noise = laplace(key, update.size, noise_generator)
    return clip_update(update, sensitivity, clip) + noise * (sensitivity / epsilon)
