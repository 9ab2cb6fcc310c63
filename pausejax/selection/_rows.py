"""Sorts and gathers row by row, for a batch of runs."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.selection._order import inverse_permutation, stable_argsort


def argsort(x: jax.Array) -> jax.Array:
    """Returns the stable ascending order of each row, int32 [N, K]; x is float32 [N, K] without NaN."""
    rows, size = x.shape
    # Up to these sizes counting is faster than sorting on a CPU. With fewer than 32 rows, counting does not
    # fill the CPU's vectors.
    counts = size <= (384 if rows >= 32 else 32)
    return lax.platform_dependent(
        x,
        cpu=_argsort_by_counting if counts else jax.vmap(stable_argsort),
        default=partial(jnp.argsort, axis=1),
    )


def places(order: jax.Array) -> jax.Array:
    """Returns the inverse of each row's permutation, int32 [N, K]."""
    return jax.vmap(inverse_permutation)(order)


def take(x: jax.Array, index: jax.Array) -> jax.Array:
    """Gathers x [N, K] at index [N, n], row by row."""
    return jnp.take_along_axis(x, index, axis=1, mode="promise_in_bounds")


def _argsort_by_counting(x: jax.Array) -> jax.Array:
    """Returns the order of each row of x [N, K] by counting the entries before each entry.

    Internally the last axis is that of the rows, so that one CPU vector instruction processes several rows.
    """
    columns = x.T
    index = lax.broadcasted_iota(jnp.int32, (x.shape[1], 1), 0)

    def count(j: jax.Array, place: jax.Array) -> jax.Array:
        other = lax.dynamic_slice_in_dim(columns, j, 1)
        return place + jnp.where(j < index, other <= columns, other < columns).astype(jnp.int32)

    place = lax.fori_loop(0, x.shape[1], count, jnp.zeros(columns.shape, jnp.int32))
    return places(place.T)
