"""The interface of privacy mechanisms, clipping, and the Laplace mechanism (Theorem 1), on update vectors.

The noise is for simulations only. Its distribution is accurate enough for the study of learning. Do not use
it to release real data: float32 Laplace draws end near 16 scales, and their low bits depend on the input
(Mironov 2012).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pausejax.parts import Part, PartError
from pausejax.parts.check import expect_array, expect_type
from pausejax.privacy.noise import NoiseGenerator, laplace


class Leakage(NamedTuple):
    """Leakage of a client; float32 arrays with the shape of `releases`."""

    release: np.ndarray
    """ε of the client's releases for the unit that `Mechanism.protects` names."""
    update: np.ndarray
    """ε of the client's releases for the whole update vector."""


class Mechanism(NamedTuple):
    """Privacy mechanism, which protects clients' updates. `release` and `server` are pure and jittable."""

    release: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    """Function that protects one upload.

    Its arguments are a key, the upload, float32 [d], and the number of the client's release, int32 >= 1. It
    returns the protected upload, float32 [d].
    """
    leakage: Callable[[np.ndarray, int], Leakage]
    """Function that runs on the host and computes the leakage.

    Its arguments are numbers of releases, int [..., T], and d, the length of an upload. ε must not decrease
    as releases increase. A user's function is called for each run, with releases [T] and hyper-parameters
    that are numbers. The package's functions are called for many runs, with hyper-parameters float32
    [..., 1].
    """
    server: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None
    """Function that protects the mean upload on the server.

    Its arguments are a key, the mean upload, float32 [d], and the aggregation weights, float32 [n], which are
    0 for rows without an update. It returns the mean that the server uses, float32 [d]. If this function is
    given, the server is trusted and only aggregated updates spend privacy.
    """
    protects: str = "per update"
    """Unit whose leakage ε bounds, in words."""


def checked_mechanism(mechanism: Any, part: Part) -> Mechanism:
    """Returns the mechanism with functions that check the shapes and types of their results.

    Raises:
      PartError: `mechanism` is not a `Mechanism`. Its functions raise it for a result of wrong shape or type.
    """
    expect_type(part, mechanism, Mechanism, "pausejax.privacy.Mechanism")
    on_server = mechanism.server

    def like(what: str, made: Any, example: jax.Array) -> jax.Array:
        return expect_array(part, f"{what} returns", made, jnp.float32, example.shape)

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
                    f"{part.where}: leakage must return two arrays of shape {list(releases.shape)} with "
                    "numbers >= 0"
                )
            # Rounding may lower a leakage by up to 0.01 %.
            more = releases[..., 1:] >= releases[..., :-1]
            if (more & (values[..., 1:] < values[..., :-1] * np.float32(0.9999))).any():
                raise PartError(f"{part.where}: leakage must not decrease with the number of releases")
        return made

    return mechanism._replace(release=release, leakage=leakage, server=server if on_server else None)


def clip_l2(update: jax.Array, clip_norm: jax.Array | float) -> jax.Array:
    """Scales an update, float32 [d], down to an L2 norm of at most `clip_norm` > 0."""
    # Entries are first divided by the largest absolute entry, because its square may overflow float32.
    tiny = jnp.finfo(jnp.float32).tiny
    largest = jnp.maximum(jnp.max(jnp.abs(update), initial=0.0), tiny)
    # Huge entries are made smaller before, because XLA multiplies by a reciprocal, and that of 2^127 is 0.
    unit = jnp.where(largest > 2.0**100, 2.0**-100, 1.0)
    largest *= unit
    norm = largest * jnp.sqrt(jnp.sum((update * unit / largest) ** 2))
    return update * jnp.minimum(1.0, clip_norm * unit / jnp.maximum(norm, tiny))


Clip = Literal["coordinate", "vector"]
CLIPS: tuple[str, ...] = get_args(Clip)


def check_clip(clip: str) -> None:
    """Raises ValueError if a kind of clipping is unknown."""
    if clip not in CLIPS:
        raise ValueError(f"clip: must be one of {', '.join(CLIPS)}, not {clip!r}")


def clip_update(update: jax.Array, sensitivity: jax.Array | float, clip: Clip) -> jax.Array:
    """Clips an update so that any two clipped updates differ by at most Δf.

    Args:
      update: float32 [d].
      sensitivity: Δf > 0.
      clip: "coordinate" clips each coordinate to ±Δf/2; "vector" scales the L1 norm to at most Δf/2.

    Returns:
      float32 [d].

    Raises:
      ValueError: `clip` is unknown.
    """
    check_clip(clip)
    bound = jnp.asarray(sensitivity, jnp.float32) / 2
    if clip == "coordinate":
        return jnp.clip(update, -bound, bound)
    norm = jnp.sum(jnp.abs(update))
    return update * jnp.minimum(1.0, bound / jnp.maximum(norm, jnp.finfo(jnp.float32).tiny))


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
      key: the key of the noise, consumed.
      update: float32 [d].
      epsilon: ε > 0 of this release, per coordinate or for the whole vector, as `clip` says.
      sensitivity: Δf > 0.
      clip: "coordinate" clips each coordinate to ±Δf/2; "vector" scales the L1 norm to at most Δf/2.
      noise_generator: the generator of the noise, "threefry" or "hash".

    Returns:
      float32 [d].

    Raises:
      AssertionError: the update is not a vector of floats (when traced).
      ValueError: `clip` or `noise_generator` is unknown.
    """
    chex.assert_rank(update, 1)
    chex.assert_type(update, float)
    noise = laplace(key, update.size, noise_generator)
    return clip_update(update, sensitivity, clip) + noise * (sensitivity / epsilon)
