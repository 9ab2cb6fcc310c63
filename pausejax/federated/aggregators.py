"""Aggregators of a cohort's updates: the weighted mean, and aggregators that are robust to wrong updates."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.parts import Parameter, Part
from pausejax.parts.check import expect_array, expect_type

Number = jax.Array | float

_COMPARED = 64
"""Largest number of rows for which ranks are computed by comparing every pair of rows."""


class Aggregator(NamedTuple):
    """Aggregator of updates; its function is pure and jittable."""

    combine: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    """Function from the updates, float32 [n, d], and their weights, float32 [n], to one update, float32 [d].

    Rows of weight 0 are ignored. None means the weighted mean, for which the rows are never in memory
    together.
    """


@parts.aggregator
def mean() -> Aggregator:
    """Averages the updates with the cohort's weights, (2)."""
    return Aggregator()


@parts.aggregator
def median() -> Aggregator:
    """Takes the median of every coordinate, without weights (Yin et al. 2018)."""

    def combine(updates: jax.Array, weights: jax.Array) -> jax.Array:
        count, rank = jnp.maximum(jnp.sum(weights > 0), 1), _ranks(updates, weights)
        low, high = (
            jnp.sum(jnp.where(rank == place, updates, 0.0), axis=0)
            for place in ((count - 1) // 2, count // 2)
        )
        # Both numbers are halved before the sum, because the sum of two large numbers would overflow.
        return jnp.where(low == high, low, low / 2 + high / 2)

    return Aggregator(combine)


@parts.aggregator
def trimmed_mean(
    *,
    trim_share: Annotated[
        Number,
        Parameter(
            help="trimmed_mean: share of the values that is removed at each end, in each coordinate",
            low=0,
            high=0.5,
            high_open=True,
        ),
    ] = 0.2,
) -> Aggregator:
    """Averages every coordinate without its ⌊share · n⌋ smallest and largest values (Yin et al. 2018)."""

    def combine(updates: jax.Array, weights: jax.Array) -> jax.Array:
        count = jnp.maximum(jnp.sum(weights > 0), 1)
        # 0.1 · 10 must give 1 update, but the float32 product may be below 1 by a rounding error.
        cut = jnp.floor(trim_share * count.astype(jnp.float32) * (1 + 2.0**-22)).astype(jnp.int32)
        cut = jnp.minimum(cut, (count - 1) // 2)
        rank = _ranks(updates, weights)
        total = jnp.sum(jnp.where((rank >= cut) & (rank < count - cut), updates, 0.0), axis=0)
        return total / (count - 2 * cut).astype(jnp.float32)

    return Aggregator(combine)


@parts.aggregator
def krum(
    *,
    wrong_clients: Annotated[
        int, Parameter(help="krum: f, assumed number of faulty updates in a cohort", low=0, high=2**20)
    ] = 1,
) -> Aggregator:
    """Selects the update that is closest to its n - f - 2 nearest neighbours (Blanchard et al. 2017).

    Closeness is the sum of the squared distances. With fewer than f + 3 updates, the result is the update
    with the nearest neighbour. Ties go to the first row.
    """

    def combine(updates: jax.Array, weights: jax.Array) -> jax.Array:
        valid = weights > 0
        count, rows = jnp.sum(valid), updates.shape[0]
        neighbours = jnp.maximum(count - wrong_clients - 2, 1)

        def distances(update: jax.Array) -> jax.Array:
            return jnp.sum((updates - update[None]) ** 2, axis=1)

        # One row at a time, because an array [n, n, d] may not fit into memory.
        distance = jax.lax.map(distances, updates)
        # A distance that is not finite, such as that of an update with NaN, counts as infinite.
        far = jnp.isnan(distance) | ~valid[None, :] | jnp.eye(rows, dtype=bool)
        nearest = jnp.sort(jnp.where(far, jnp.inf, distance), axis=1)
        counted = jnp.arange(rows)[None, :] < jnp.minimum(neighbours, count - 1)
        score = jnp.sum(jnp.where(counted, nearest, 0.0), axis=1)
        finite = jnp.all(jnp.isfinite(updates), axis=1)
        # If all scores are infinite, the first valid row is chosen.
        score = jnp.where(finite, jnp.minimum(score, jnp.finfo(jnp.float32).max), jnp.finfo(jnp.float32).max)
        return updates[jnp.argmin(jnp.where(valid, score, jnp.inf))]

    return Aggregator(combine)


def checked_aggregator(aggregator: Any, part: Part) -> Aggregator:
    """Returns the aggregator with a function that checks the shape and type of its result.

    Raises:
      PartError: `aggregator` is not an `Aggregator`. The aggregator's function raises it for a result of
        wrong shape or type.
    """
    expect_type(part, aggregator, Aggregator, "pausejax.federated.aggregators.Aggregator")
    of_rows = aggregator.combine
    if of_rows is None:
        return aggregator

    def combine(updates: jax.Array, weights: jax.Array) -> jax.Array:
        with part.blamed("combine"):
            made = of_rows(updates, weights)
        return expect_array(part, "combine returns", made, jnp.float32, updates.shape[1:])

    return Aggregator(combine)


def _ranks(updates: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns the rank of every coordinate, int32 [n, d]; n for rows to ignore.

    Equal values are ranked by row, and NaN comes last.
    """
    valid, rows = (weights > 0)[:, None], jnp.arange(updates.shape[0])[:, None]
    values = jnp.where(valid & ~jnp.isnan(updates), updates, jnp.inf)
    if updates.shape[0] > _COMPARED:
        order = jnp.argsort(jnp.where(valid, values, jnp.nan), axis=0, stable=True)
        rank = jnp.argsort(order, axis=0, stable=True)
    else:

        def add(row: int, rank: jax.Array) -> jax.Array:
            one = values[row][None]
            before = (one < values) | ((one == values) & (row < rows))
            return rank + (before & valid[row][None]).astype(jnp.int32)

        # Comparisons are vectorized, and XLA's sort on a CPU is not.
        rank = jax.lax.fori_loop(0, updates.shape[0], add, jnp.zeros(updates.shape, jnp.int32))
    return jnp.where(valid, rank, updates.shape[0])
