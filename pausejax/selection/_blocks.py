"""Computes the sum of the m best scores at all times, in few kernels for thousands of clients.

A client's arrival is its place in descending order of ucb. Its rank is its place in descending order of
score. At any time, the m best clients are the first m by rank among the clients that have arrived. Arrivals
and ranks are cut into blocks of about √K. A small table holds the count and the sum of the clients in each
pair of blocks. The table shows for every time which block of ranks contains the m-th best client. Within this
block, one bit per client says whether the client has arrived. The work is O(K √K) in a dozen kernels for any
m.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pausejax.selection._rows import take

_WORD = 32


def sums_of_the_best(
    rank: jax.Array, arrival: jax.Array, by_arrival: jax.Array, by_rank: jax.Array, m: int
) -> jax.Array:
    """Returns Σ score of the m best arrived clients at every time, int32 [N, K].

    While fewer than m clients have arrived, the sum is over all of them.

    Args:
      rank: int32 [N, K], the rank of the client that arrives at each time: a permutation of 0 .. K - 1 per
        row.
      arrival: int32 [N, K], the arrival of the client of each rank: the inverse permutation.
      by_arrival: int32 [N, K], the scores by arrival; sums may wrap around.
      by_rank: int32 [N, K], the same scores by rank.
      m: the number of best clients, 1 <= m <= K.
    """
    runs, size = rank.shape
    words = 2 ** max(round(math.log2(math.sqrt(size) / _WORD)), 0)
    width = words * _WORD
    blocks = -(-size // width)
    beyond = blocks * width

    def in_blocks(x: jax.Array, filling: int) -> jax.Array:
        padded = jnp.pad(x, ((0, 0), (0, beyond - size)), constant_values=filling)
        return padded.reshape(runs, blocks, width)

    rank, arrival = in_blocks(rank, beyond), in_blocks(arrival, beyond)
    score, by_rank = in_blocks(by_arrival, 0), in_blocks(by_rank, 0)
    # These arrays are constants of the program, so they need no kernel.
    number, place = np.arange(blocks, dtype=np.int32), np.arange(width, dtype=np.int32)
    now, until = np.arange(beyond, dtype=np.int32).reshape(blocks, width), place[None] <= place[:, None]
    until, is_first = until[None, None], place == 0
    counted = np.arange(2).reshape(1, 2, 1, 1) == 0

    # For each block of ranks and block of times: count and Σ score of the clients with a lower rank and an
    # earlier arrival, [N, 2, rank, time]. One kernel computes count and sum, since they are one array.
    block = rank >> (width.bit_length() - 1)
    values = jnp.where(counted, 1, score[:, None])
    inside = jnp.where(block[:, None, None] < number[None, None, :, None, None], values[:, :, None], 0)
    inside = jnp.sum(inside, axis=4)
    earlier = (number[None] < number[:, None])[None, None, None]
    table = jnp.sum(jnp.where(earlier, inside[..., None, :], 0), axis=4)

    # The time at which m clients with a rank before each block of ranks have arrived, [N, rank].
    counts = table[:, 0]
    is_short = counts < m
    then = jnp.sum(is_short, axis=2, dtype=jnp.int32) - 1
    missing = m - jnp.max(jnp.where(is_short, counts, 0), axis=2)
    joins = _masks(_blocks_of(block, then) < number[None, :, None], words)
    # A term that is added to a sum is put at index 0 of the summed axis, so the addition needs no kernel.
    waits = (_counts(joins) < missing[..., None]).astype(jnp.int32)
    waits = waits + jnp.where(is_first[None, None], (then * width)[..., None], 0)
    time = jnp.sum(waits, axis=2, dtype=jnp.int32)

    # The block of ranks that contains the m-th best client at each time, and the count and sum of the clients
    # in the blocks before this block.
    found = jnp.sum(time[:, None, None] > now[None, ..., None], axis=3, dtype=jnp.int32) - 1
    cell = (found * blocks + number[None, :, None]).reshape(runs, beyond)
    counts, sums = (take(table[:, part].reshape(runs, -1), cell).reshape(rank.shape) for part in (0, 1))
    is_before = block[:, :, None] < found[..., None]
    # The two masks are written differently, because XLA would store one common array, [N, K, √K].
    one = (is_before & until).astype(jnp.int32)
    one = one + jnp.where(is_first[None, None, None], counts[..., None], 0)
    count = jnp.sum(one, axis=3, dtype=jnp.int32)
    one = jnp.where(is_before, jnp.where(until, score[:, :, None], 0), 0)
    total = jnp.sum(one + jnp.where(is_first[None, None, None], sums[..., None], 0), axis=3)

    # The remaining clients are the first ones in that block that have arrived.
    here = _masks(_blocks_of(arrival, found) <= now[None, ..., None], words)
    chosen = _is_set(here) & (_counts(here) <= (m - count)[..., None])
    total = total + jnp.sum(jnp.where(chosen, _blocks_of(by_rank, found), 0), axis=3)
    return total.reshape(runs, beyond)[:, :size]


def _blocks_of(x: jax.Array, index: jax.Array) -> jax.Array:
    """Returns the blocks of `x`, [N, blocks, width], at the indices `index`, [N, ...], row by row: [N, ...,
    width]."""
    row = np.arange(x.shape[0], dtype=np.int32).reshape(-1, *(1,) * (index.ndim - 1))
    return x.at[row, index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _bits(rank: int) -> np.ndarray:
    """Returns 1, 2, 4, ... along the last of `rank` axes, uint32 [1, ..., 32]."""
    return (np.uint32(1) << np.arange(_WORD, dtype=np.uint32)).reshape((1,) * (rank - 1) + (_WORD,))


def _masks(flags: jax.Array, words: int) -> jax.Array:
    """Packs flags, bool [..., width], into bits, uint32 [..., words]."""
    flags = flags.reshape(*flags.shape[:-1], words, _WORD)
    return jnp.sum(jnp.where(flags, _bits(flags.ndim), 0), axis=-1, dtype=jnp.uint32)


def _is_set(masks: jax.Array) -> jax.Array:
    """Returns the flags that `_masks` packed, bool [..., width]."""
    return (masks[..., None] & _bits(masks.ndim + 1) != 0).reshape(*masks.shape[:-1], -1)


def _counts(masks: jax.Array) -> jax.Array:
    """Returns for each flag that `_masks` packed how many flags up to it are set, int32 [..., width]."""
    bits = _bits(masks.ndim)
    counts, before = [], jnp.zeros_like(masks[..., 0], jnp.int32)
    for word in range(masks.shape[-1]):
        mask = masks[..., word]
        seen = lax.population_count(mask[..., None] & (bits | (bits - 1))).astype(jnp.int32)
        counts.append(seen + before[..., None])
        before = before + lax.population_count(mask).astype(jnp.int32)
    return jnp.concatenate(counts, axis=-1)
