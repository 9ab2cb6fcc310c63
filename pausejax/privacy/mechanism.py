"""What a privacy mechanism is; clipping, and the Laplace mechanism (Theorem 1), on flat update vectors.

The noise is simulation-grade: float32 Laplace draws end near 16 scales and their low bits depend on the
input (Mironov 2012). It has the right distribution for studying learning; do not release real data with it.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pausejax.parts import Part, PartError
from pausejax.privacy.noise import NoiseGenerator, laplace


class Leakage(NamedTuple):
    """What a client has leaked; float32 of the shape of `releases`."""

    release: np.ndarray
    """ε of what the mechanism protects, as `Mechanism.protects` says."""
    update: np.ndarray
    """ε of the whole update vector."""


class Mechanism(NamedTuple):
    """What protects a client's updates. The functions on arrays are pure and jittable."""

    release: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    """Maps a key, an upload, float32 [d], and which release of the client it is, int32 >= 1, to the upload
    as it leaves the client, float32 [d]."""
    leakage: Callable[[np.ndarray, int], Leakage]
    """On the host: maps numbers of releases, int [..., T], and d to what they have leaked. The mechanism's
    hyper-parameters are float32 [..., 1] there. ε must not fall as releases grow."""
    server: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None
    """Maps a key, the mean upload, float32 [d], and the aggregation weights, float32 [n], 0 where nothing
    arrived, to the mean as the server uses it. With it the server is trusted, and only what is aggregated
    spends privacy."""
    protects: str = "per update"
    """What ε bounds the leakage of, in words."""


def checked_mechanism(mechanism: Any, part: Part) -> Mechanism:
    """Returns the mechanism, which raises an error in its part's name if a result has a wrong shape or type.

    Raises:
      PartError: it is no mechanism; so do its functions.
    """
    if not isinstance(mechanism, Mechanism):
        kind = type(mechanism).__name__
        raise PartError(f"{part.where}: must return a pausejax.privacy.Mechanism, not {kind}")
    on_server = mechanism.server

    def like(what: str, made: Any, example: jax.Array) -> jax.Array:
        array = jnp.asarray(made)
        if array.shape != example.shape or array.dtype != jnp.float32:
            kind = f"{array.dtype.name} {list(array.shape)}"
            raise PartError(f"{part.where}: {what} returns {kind}; must be float32 {list(example.shape)}")
        return array

    def release(key: jax.Array, upload: jax.Array, number: jax.Array) -> jax.Array:
        with part.blamed("release"):
            return like("release", mechanism.release(key, upload, number), upload)

    def server(key: jax.Array, mean: jax.Array, weight: jax.Array) -> jax.Array:
        assert on_server is not None
        with part.blamed("server"):
            return like("server", on_server(key, mean, weight), mean)

    def leakage(releases: np.ndarray, num_parameters: int) -> Leakage:
        with part.blamed("leakage"):
            made = Leakage(*(np.asarray(x, np.float32) for x in mechanism.leakage(releases, num_parameters)))
        for values in made:
            if values.shape != releases.shape or not (values >= 0).all():
                raise PartError(
                    f"{part.where}: leakage must return two arrays {list(releases.shape)} of numbers >= 0"
                )
        return made

    return mechanism._replace(release=release, leakage=leakage, server=server if on_server else None)


def clip_l2(update: jax.Array, clip_norm: jax.Array | float) -> jax.Array:
    """Scales an update, float32 [d], down to an L2 norm of at most `clip_norm` > 0."""
    # The largest entry is divided out first: its square may exceed float32.
    largest = jnp.maximum(jnp.max(jnp.abs(update), initial=0.0), jnp.finfo(jnp.float32).tiny)
    norm = largest * jnp.sqrt(jnp.sum((update / largest) ** 2))
    return update * jnp.minimum(1.0, clip_norm / norm)


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
