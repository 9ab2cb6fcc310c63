"""Bounds the value of all thresholds on ucb at once.

This is for devices such as GPUs, where each step is a kernel.

Clients arrive in descending order of ucb. A client is among the m best scores from its arrival until its
eviction, when m clients with better scores have arrived. The eviction is the m-th smallest arrival among the
clients with better scores. The evictions of all clients are found at once, digit by digit. At any time, the
sum of the m best scores is over the clients that have arrived and have not been evicted.
"""

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.rounding import rounded
from pausejax.selection import _fixed as fixed
from pausejax.selection._blocks import sums_of_the_best
from pausejax.selection._rows import take
from pausejax.selection._thresholds import HALF_ULP, SUM, Bounds, Worth

_LARGEST_SQUARE = 512
"""The largest K for which all pairs are compared: this takes fewer kernels, but its work grows as K²."""
_PAIR_BITS = 3


def by_eviction(ucb: jax.Array, score: jax.Array, m: int, worth: Worth = SUM) -> Bounds:
    """Bounds the value of each threshold, in O(log K) kernels for any m.

    If `are_few(K)`, the bounds are in the order of clients, else in descending order of ucb. Scores are
    rounded to integers, whose sums are exact in any order. The bounds cover this rounding.
    """
    return (by_pairs if are_few(ucb.shape[1]) else by_blocks)(ucb, score, m, worth)


def are_few(num_clients: int) -> bool:
    """Returns whether comparing all pairs of `num_clients` clients is faster than sorting them."""
    return num_clients <= _LARGEST_SQUARE


def by_pairs(ucb: jax.Array, score: jax.Array, m: int, worth: Worth = SUM) -> Bounds:
    """Bounds the value of each threshold as in the module's description, without a sort, in O(K²)
    comparisons.

    The bounds are in the order of clients.
    """
    num_clients = ucb.shape[1]
    index = jnp.arange(num_clients, dtype=jnp.int32)
    arrival, rank = (jnp.sum(_before(x), axis=2, dtype=jnp.int32) for x in (ucb, score))
    # From here on clients are in the descending order of their scores, so better clients come first.
    has_rank = rank[:, None] == index[None, :, None]
    ranked = jnp.sum(jnp.where(has_rank, arrival[:, None], 0), axis=2)
    scores = jnp.max(jnp.where(has_rank, score[:, None], -jnp.inf), axis=2)
    better = (index[None] < index[:, None])[None, :, None]
    found = jnp.zeros_like(arrival)
    for shift in _shifts(num_clients, _PAIR_BITS):
        digits = jnp.arange(1, 1 << _PAIR_BITS, dtype=jnp.int32) << shift
        limit = found[:, :, None] + digits[None, None]
        below = better & (ranked[:, None, None] < limit[..., None])
        # A digit is too small if fewer than m clients have an arrival below that of the next digit.
        too_small = jnp.sum(below, axis=3, dtype=jnp.int32) < m
        found = found + (jnp.sum(too_small, axis=2, dtype=jnp.int32) << shift)
    eviction = jnp.where((index >= m)[None], found, num_clients)
    unit, magnitude = _unit_of(scores, m)
    whole = _in_integers(scores, unit)
    among_the_best = (ranked[:, None] <= arrival[..., None]) & (arrival[..., None] < eviction[:, None])
    total = jnp.sum(jnp.where(among_the_best, whole[:, None], 0), axis=2)
    return _bounds(ucb, total, unit, magnitude, arrival >= m - 1, m, worth)


def best_by_pairs(
    ucb: jax.Array, score: jax.Array, threshold: jax.Array, m: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Selects the m clients with the best scores among the clients whose ucb reaches `threshold`, [N, 1].

    At least m clients must reach the threshold. The function compares all pairs and does not sort.

    Returns:
      The clients, int32 [N, m], ascending; their scores, [N, m], descending; their smallest ucb, [N].
    """
    reaches = ucb >= threshold
    # Without the barrier XLA would store the comparisons of `by_pairs`, [N, K, K], and read them here.
    score = lax.optimization_barrier(score)
    rank = jnp.sum(_before(score) & reaches[:, None], axis=2, dtype=jnp.int32)
    chosen = reaches & (rank < m)
    index = jnp.arange(ucb.shape[1], dtype=jnp.int32)
    place = jnp.sum(chosen[:, None] & (index[None] < index[:, None])[None], axis=2, dtype=jnp.int32)
    slot = jnp.arange(m, dtype=jnp.int32)[None, :, None]
    is_there = chosen[:, None] & (place[:, None] == slot)
    members = jnp.sum(jnp.where(is_there, index[None, None], 0), axis=2)
    is_next = chosen[:, None] & (rank[:, None] == slot)
    descending = jnp.max(jnp.where(is_next, score[:, None], -jnp.inf), axis=2)
    return members, descending, jnp.min(jnp.where(chosen, ucb, jnp.inf), axis=1)


def best_by_one_sort(
    ucb: jax.Array, score: jax.Array, threshold: jax.Array, m: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Selects the same clients as `best_by_pairs` by sorting all clients.

    This is faster for thousands of clients.
    """
    reaches, index = ucb >= threshold, lax.broadcasted_iota(jnp.int32, ucb.shape, 1)
    ascending = (jnp.where(reaches, -score, jnp.inf), index)
    scores, clients = (x[:, :m] for x in lax.sort(ascending, dimension=1, is_stable=False, num_keys=2))
    return lax.sort(clients, dimension=1), -scores, jnp.min(take(ucb, clients), axis=1)


def _before(x: jax.Array) -> jax.Array:
    """Returns whether entry j is before entry i in a stable descending order, bool [N, i, j]."""
    index = jnp.arange(x.shape[1], dtype=jnp.int32)
    lower = (index[None] < index[:, None])[None]
    return (x[:, None] > x[..., None]) | ((x[:, None] == x[..., None]) & lower)


def by_blocks(ucb: jax.Array, score: jax.Array, m: int, worth: Worth = SUM) -> Bounds:
    """Bounds the value of each threshold as in the module's description, with sorts and tables of blocks.

    The bounds are in descending order of ucb.
    """
    num_clients = ucb.shape[1]
    number = lax.broadcasted_iota(jnp.int32, ucb.shape, 1)
    thresholds, scores = lax.sort((-ucb, -score), dimension=1, num_keys=1)
    ranked, arrival = lax.sort((scores, number), dimension=1, num_keys=1)
    _, rank = lax.sort((arrival, number), dimension=1, num_keys=1, is_stable=False)
    unit, magnitude = _unit_of(score, m)
    by_arrival, by_rank = (_in_integers(-x, unit) for x in (scores, ranked))
    total = sums_of_the_best(rank, arrival, by_arrival, by_rank, m)
    enough = (jnp.arange(num_clients) >= m - 1)[None]
    return _bounds(-thresholds, total, unit, magnitude, enough, m, worth)


def _unit_of(scores: jax.Array, m: int) -> tuple[jax.Array, jax.Array]:
    """Returns the exponent of the unit of integer scores, int32 [N, 1], and the largest |score|, [N, 1]."""
    finite = scores > -jnp.inf
    magnitude = jnp.max(jnp.where(finite, jnp.abs(scores), 0.0), axis=1, keepdims=True)
    # The sum of m scores fits an int32. Running sums may wrap around, which does not change this sum.
    return fixed.exponent(magnitude) + m.bit_length() - 30, magnitude


def _in_integers(scores: jax.Array, unit: jax.Array) -> jax.Array:
    """Returns scores as int32 [N, K] in units of 2^unit; 0 for -inf."""
    scaled = jnp.round(scores * fixed.power_of_two(-unit))
    return jnp.where(scores > -jnp.inf, scaled, 0.0).astype(jnp.int32)


def _bounds(
    thresholds: jax.Array,
    total: jax.Array,
    unit: jax.Array,
    magnitude: jax.Array,
    enough: jax.Array,
    m: int,
    worth: Worth,
) -> Bounds:
    sums = rounded(total.astype(jnp.float32) * fixed.power_of_two(unit))
    # The margin covers the rounding of the canonical sum, the rounding to integers, and underflow.
    rounding = HALF_ULP * ((m - 1).bit_length() + 4)
    margin = m * (magnitude * rounding + fixed.power_of_two(unit)) + jnp.abs(sums) * (4 * HALF_ULP)
    margin = margin + 4 * m * float(jnp.finfo(jnp.float32).tiny)
    counts = enough & (thresholds > -jnp.inf)
    bounds = (worth.of(thresholds, sums + side) for side in (-margin, margin))
    lower, upper = (jnp.where(counts, bound, -jnp.inf) for bound in bounds)
    return Bounds(thresholds, lower, upper)


def _shifts(size: int, digit_bits: int) -> range:
    """Returns the bit shifts of the digits of numbers below `size`, the highest digit first."""
    return range(digit_bits * ((max(size - 1, 1).bit_length() - 1) // digit_bits), -1, -digit_bits)
