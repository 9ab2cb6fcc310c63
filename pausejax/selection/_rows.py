"""Row-wise sorting and gathering for a batch of runs."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.selection._order import inverse_permutation, stable_argsort


def argsort(x: jax.Array) -> jax.Array:
    """Stable ascending order of each row, int32 [N, K]; x is float32 [N, K] without NaN."""
    rows, size = x.shape
    # Up to here counting beats sorting on a CPU; below 32 rows its vectors are not full.
    counts = size <= (384 if rows >= 32 else 32)
    return lax.platform_dependent(
        x,
        cpu=_argsort_by_counting if counts else jax.vmap(stable_argsort),
        default=partial(jnp.argsort, axis=1),
    )


def places(order: jax.Array) -> jax.Array:
    """The inverse of each row's permutation, int32 [N, K]."""
    return jax.vmap(inverse_permutation)(order)


def take(x: jax.Array, index: jax.Array) -> jax.Array:
    """Gathers x [N, K] at index [N, n], row by row."""
    return jnp.take_along_axis(x, index, axis=1, mode="promise_in_bounds")


def _argsort_by_counting(x: jax.Array) -> jax.Array:
    """Counts the entries before each one. The rows lie in the last axis, where the CPU has its vectors."""
    columns = x.T
    index = lax.broadcasted_iota(jnp.int32, (x.shape[1], 1), 0)

    def count(j: jax.Array, place: jax.Array) -> jax.Array:
        other = lax.dynamic_slice_in_dim(columns, j, 1)
        return place + jnp.where(j < index, other <= columns, other < columns).astype(jnp.int32)

    place = lax.fori_loop(0, x.shape[1], count, jnp.zeros(columns.shape, jnp.int32))
    return places(place.T)
