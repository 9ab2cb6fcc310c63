"""Bounds the value of each threshold on ucb in two ways; `best_set` evaluates the best thresholds.

For a threshold u, the best set among the clients with ucb >= u has the m best scores. The value of this set
is at least u + Σ score. Lowering u only adds clients, so one sweep over the sorted thresholds is enough. The
same holds for u · Σ score, if all numbers are positive.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.rounding import tree_sum
from pausejax.selection._rows import argsort, places, take

HALF_ULP = 2.0**-24


class Worth(NamedTuple):
    """Value of a set as a function of its smallest ucb and its Σ score.

    The function is monotone in each argument, also after rounding.
    """

    of: Callable[[jax.Array, jax.Array], jax.Array]
    """The function (smallest ucb, Σ score) to the value."""
    neutral: float
    """The ucb for which the value equals Σ score."""


def _product(slowest: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.where((slowest > 0) & (total >= 0), slowest * total, -jnp.inf)


SUM = Worth(jnp.add, 0.0)
PRODUCT = Worth(_product, 1.0)


class Bounds(NamedTuple):
    """Bounds on the value of each threshold with `tree_sum` of the m best scores that reach the threshold.

    If fewer than m clients reach a threshold, its bounds are -inf. A threshold that several clients share has
    several entries. The largest of their bounds is valid. The other entries leave out some of these clients.
    """

    threshold: jax.Array
    """float32 [N, E], the thresholds."""
    lower: jax.Array
    """float32 [N, E], the lower bounds."""
    upper: jax.Array
    """float32 [N, E], the upper bounds."""


def by_insertion(ucb: jax.Array, score: jax.Array, m: int, worth: Worth = SUM) -> Bounds:
    """Computes the value of each threshold exactly, by adding clients to a sorted list of the m best scores.

    The loop takes O(m) steps per client. The last axis is that of the runs, so that one vector instruction
    processes eight runs.
    """
    order = argsort(-ucb)
    thresholds, scores = take(ucb, order).T, take(score, order).T
    runs = ucb.shape[0]

    def insert(best: jax.Array, candidate: jax.Array) -> tuple[jax.Array, jax.Array]:
        above = jnp.concatenate([jnp.full((1, runs), jnp.inf), best[:-1]])
        best = jnp.maximum(best, jnp.minimum(above, candidate[None]))
        return best, tree_sum(best)

    _, total = lax.scan(insert, jnp.full((m, runs), -jnp.inf), scores)
    value = worth.of(thresholds, total).T
    return Bounds(thresholds.T, value, value)


def by_replacement(ucb: jax.Array, score: jax.Array, m: int, worth: Worth = SUM) -> Bounds:
    """Bounds the value of each threshold by removing clients in ascending order of ucb.

    If one of the m best scores is removed, the next best score replaces it. The loop takes O(1) steps per
    client. A candidate that has already been removed is skipped and never needed again. So a pointer into the
    clients sorted by score only moves forward. The running sum consists of two floats, and the bounds cover
    its rounding errors.
    """
    leaving, ranking = argsort(ucb), argsort(-score)
    thresholds = take(ucb, leaving)
    # The clients by removal and the clients by score are concatenated, so that one look-up serves both
    # orders.
    place = jnp.concatenate([take(places(ranking), leaving), take(places(leaving), ranking)], axis=1)
    scores = jnp.concatenate([take(score, leaving), take(score, ranking)], axis=1)
    # Every step of the loop is scalar, so a loop over runs is faster than all runs in parallel.
    return Bounds(
        *lax.map(lambda run: _replace(run[0], run[1], run[2], m, worth), (thresholds, place, scores))
    )


def _replace(
    thresholds: jax.Array, place: jax.Array, scores: jax.Array, m: int, worth: Worth
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes the bounds of `by_replacement` for one run.

    Args:
      thresholds: [K], ascending.
      place: [2K]. First, for the clients in ascending order of ucb, their ranks by score. Then, for the
        clients in descending order of score, their ranks by ucb.
      scores: [2K], the scores of the clients in these two orders.
      m: the number of clients to select.
      worth: the value of a set.
    """
    num_clients = thresholds.shape[0]
    last = num_clients - 1
    best_score = jnp.abs(scores[num_clients])
    # The margin covers the rounding of `tree_sum`, that of 2K updates of the running sum, and underflow.
    rounding = HALF_ULP * ((m - 1).bit_length() + 4) + HALF_ULP**2 * 8 * num_clients
    underflow = 4 * num_clients * float(jnp.finfo(jnp.float32).tiny)

    def step(carry: tuple, _: None) -> tuple[tuple, tuple]:
        gone, pointer, missing, worst, total, rest = carry
        fill = missing > 0
        pointer = pointer + fill.astype(jnp.int32)
        at = jnp.where(fill, num_clients + jnp.minimum(pointer, last), jnp.minimum(gone, last))
        joins = fill & (place[at] >= gone)
        drops = ~fill & (place[at] <= pointer)
        change = jnp.where(joins, scores[at], jnp.where(drops, -scores[at], 0.0))
        worst = jnp.where(joins, jnp.abs(scores[at]), worst)
        gone = gone + (~fill).astype(jnp.int32)
        missing = missing - joins.astype(jnp.int32) + drops.astype(jnp.int32)
        total, error = _two_sum(total, change)
        total, rest = _two_sum(total, rest + error)
        threshold = thresholds[jnp.minimum(gone, last)]
        counts = (missing == 0) & (gone <= num_clients - m) & (threshold > -jnp.inf)
        margin = m * jnp.maximum(best_score, worst) * rounding + jnp.abs(total) * (4 * HALF_ULP) + underflow
        bounds = (worth.of(threshold, total + side) for side in (-margin, margin))
        lower, upper = (jnp.where(counts, bound, -jnp.inf) for bound in bounds)
        return (gone, pointer, missing, worst, total, rest), (threshold, lower, upper)

    start = (jnp.int32(0), jnp.int32(-1), jnp.int32(m), *jnp.zeros(3))
    return lax.scan(step, start, None, length=2 * num_clients - m)[1]


def _two_sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns fl(a + b) and its exact rounding error (Knuth)."""
    total = a + b
    shared = total - a
    return total, (a - (total - shared)) + (b - shared)
