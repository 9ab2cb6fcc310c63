"""What each threshold on ucb is worth, all thresholds at once: for devices that launch a kernel for every step.

Clients arrive in descending order of ucb. One of them belongs to the m best scores from its arrival until m
clients with better scores have arrived. So the sums of the m best are running sums of "its score at its arrival,
minus its score at its eviction", and the eviction is the m-th smallest arrival among the clients with better
scores: a running order statistic, which a wavelet matrix finds for all clients in log2 K steps.
"""

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.selection import _fixed as fixed
from pausejax.selection._rows import argsort, take
from pausejax.selection._thresholds import HALF_ULP, Bounds


def by_eviction(ucb: jax.Array, score: jax.Array, m: int) -> Bounds:
    """Finds when each client leaves the m best, [N, K]; O(K log K) work in O(log K) parallel steps.

    Scores are added as integers, exactly and in any order; the bounds cover what is rounded off before.
    """
    num_clients = ucb.shape[1]
    by_ucb = argsort(-ucb)
    thresholds, scores = take(ucb, by_ucb), take(score, by_ucb)
    arrival = argsort(-scores)
    eviction = running_order_statistic(arrival, m)
    magnitude = jnp.max(jnp.where(scores > -jnp.inf, jnp.abs(scores), 0.0), axis=1, keepdims=True)
    # The sum of m scores fits an int32; running sums may wrap round, which does not touch it.
    unit = fixed.exponent(magnitude) + m.bit_length() - 30
    whole = jnp.where(scores > -jnp.inf, jnp.round(scores * fixed.power_of_two(-unit)), 0.0).astype(jnp.int32)
    by_score = take(whole, arrival)
    joins = jnp.where(eviction > arrival, by_score, 0)
    row = lax.broadcasted_iota(jnp.int32, eviction.shape, 0)
    change = jnp.zeros_like(by_score).at[row, arrival].add(joins).at[row, eviction].add(-joins, mode="drop")
    total = jnp.cumsum(change, axis=1).astype(jnp.float32) * fixed.power_of_two(unit)

    value = thresholds + total
    # What the canonical sum may round off, what its integers do, and what is too small to hold.
    rounding = HALF_ULP * ((m - 1).bit_length() + 4)
    margin = m * magnitude * rounding + m * fixed.power_of_two(unit) + jnp.abs(value) * (4 * HALF_ULP)
    margin = margin + 4 * m * jnp.finfo(jnp.float32).tiny
    enough = lax.broadcasted_iota(jnp.int32, eviction.shape, 1) >= m - 1
    counts = enough & (thresholds > -jnp.inf)
    return Bounds(
        thresholds,
        jnp.where(counts, value - margin, -jnp.inf),
        jnp.where(counts, value + margin, -jnp.inf),
    )


def running_order_statistic(x: jax.Array, m: int) -> jax.Array:
    """The m-th smallest of the entries before each one, int32 [N, K]; K where there are fewer than m.

    Args:
      x: int32 [N, K], each row a permutation of 0 .. K - 1.
      m: 1 <= m <= K.
    """
    size = x.shape[1]
    index = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    low, high = jnp.zeros_like(x), index
    row = lax.broadcasted_iota(jnp.int32, x.shape, 0)
    smaller, found = jnp.full_like(x, m - 1), jnp.zeros_like(x)
    for bit in reversed(range(max(1, (size - 1).bit_length()))):
        is_zero = (x >> bit) & 1 == 0
        zeros = jnp.pad(jnp.cumsum(is_zero.astype(jnp.int32), axis=1), ((0, 0), (1, 0)))
        all_zeros, before = zeros[:, -1:], zeros[:, :-1]
        to_low, to_high = take(zeros, low), take(zeros, high)
        is_one = smaller >= to_high - to_low
        smaller = smaller - jnp.where(is_one, to_high - to_low, 0)
        found = found + (is_one.astype(jnp.int32) << bit)
        low = jnp.where(is_one, all_zeros + low - to_low, to_low)
        high = jnp.where(is_one, all_zeros + high - to_high, to_high)
        place = jnp.where(is_zero, before, all_zeros + index - before)
        x = jnp.zeros_like(x).at[row, place].set(x, unique_indices=True, mode="promise_in_bounds")
    return jnp.where(index >= m, found, size)
