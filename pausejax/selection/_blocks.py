"""The sums of the m best of thousands of clients at all times, where every step is a kernel to be launched.

A client has an arrival, its place in descending order of ucb, and a rank, its place in descending order of
score. At any time the m best are the first m by rank of those who have arrived. Arrivals and ranks are cut
into blocks of about √K: a small table counts, and sums, who is in each pair of blocks, and tells for every
time in which block of ranks the m-th best lies. Of that block a bit each says who has arrived. O(K √K) work
in a dozen kernels whatever m.
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
    """Σ score of the m best at every time, int32 [N, K]; of all who have arrived while they are fewer.

    Args:
      rank: int32 [N, K], a permutation of 0 .. K - 1 in each row: the rank of whoever arrives at each time.
      arrival: int32 [N, K], its inverse: when the client of each rank arrives.
      by_arrival: int32 [N, K], scores by time; sums may wrap round.
      by_rank: int32 [N, K], the same scores by rank.
      m: 1 <= m <= K.
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
    # Constants, so that no kernel makes them.
    number, place = np.arange(blocks, dtype=np.int32), np.arange(width, dtype=np.int32)
    now, until = np.arange(beyond, dtype=np.int32).reshape(blocks, width), place[None] <= place[:, None]
    until, is_first = until[None, None], place == 0
    counted = np.arange(2).reshape(1, 2, 1, 1) == 0

    # How many with a rank before each block of ranks arrive before each block of time, and Σ score of them,
    # [N, 2, rank, time]. One array, so that one kernel makes both.
    block = rank >> (width.bit_length() - 1)
    values = jnp.where(counted, 1, score[:, None])
    inside = jnp.where(block[:, None, None] < number[None, None, :, None, None], values[:, :, None], 0)
    inside = jnp.sum(inside, axis=4)
    earlier = (number[None] < number[:, None])[None, None, None]
    table = jnp.sum(jnp.where(earlier, inside[..., None, :], 0), axis=4)

    # When the m-th of those with a rank before each block arrives, [N, rank].
    counts = table[:, 0]
    is_short = counts < m
    then = jnp.sum(is_short, axis=2, dtype=jnp.int32) - 1
    missing = m - jnp.max(jnp.where(is_short, counts, 0), axis=2)
    joins = _masks(_blocks_of(block, then) < number[None, :, None], words)
    # What is added to a sum goes in at the first place, and takes no kernel.
    waits = (_counts(joins) < missing[..., None]).astype(jnp.int32)
    waits = waits + jnp.where(is_first[None, None], (then * width)[..., None], 0)
    time = jnp.sum(waits, axis=2, dtype=jnp.int32)

    # The block of ranks in which the m-th best lies at each time; count and sum of those of better blocks.
    found = jnp.sum(time[:, None, None] > now[None, ..., None], axis=3, dtype=jnp.int32) - 1
    cell = (found * blocks + number[None, :, None]).reshape(runs, beyond)
    counts, sums = (take(table[:, part].reshape(runs, -1), cell).reshape(rank.shape) for part in (0, 1))
    is_before = block[:, :, None] < found[..., None]
    # Masked in two ways: one array of both, [N, K, √K], would be stored.
    one = (is_before & until).astype(jnp.int32)
    one = one + jnp.where(is_first[None, None, None], counts[..., None], 0)
    count = jnp.sum(one, axis=3, dtype=jnp.int32)
    one = jnp.where(is_before, jnp.where(until, score[:, :, None], 0), 0)
    total = jnp.sum(one + jnp.where(is_first[None, None, None], sums[..., None], 0), axis=3)

    # Of that block the first who have arrived, as many as are missing.
    here = _masks(_blocks_of(arrival, found) <= now[None, ..., None], words)
    chosen = _is_set(here) & (_counts(here) <= (m - count)[..., None])
    total = total + jnp.sum(jnp.where(chosen, _blocks_of(by_rank, found), 0), axis=3)
    return total.reshape(runs, beyond)[:, :size]


def _blocks_of(x: jax.Array, index: jax.Array) -> jax.Array:
    """Each row's blocks at some indices, [N, blocks, width] and [N, ...] -> [N, ..., width]."""
    row = np.arange(x.shape[0], dtype=np.int32).reshape(-1, *(1,) * (index.ndim - 1))
    return x.at[row, index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _bits(rank: int) -> np.ndarray:
    """1, 2, 4, ... along the last of so many axes, uint32 [1, ..., 32]."""
    return (np.uint32(1) << np.arange(_WORD, dtype=np.uint32)).reshape((1,) * (rank - 1) + (_WORD,))


def _masks(flags: jax.Array, words: int) -> jax.Array:
    """bool [..., width] as bits, uint32 [..., words]."""
    flags = flags.reshape(*flags.shape[:-1], words, _WORD)
    return jnp.sum(jnp.where(flags, _bits(flags.ndim), 0), axis=-1, dtype=jnp.uint32)


def _is_set(masks: jax.Array) -> jax.Array:
    """`_masks` undone."""
    return (masks[..., None] & _bits(masks.ndim + 1) != 0).reshape(*masks.shape[:-1], -1)


def _counts(masks: jax.Array) -> jax.Array:
    """How many flags are set up to each one and with it, int32 [..., width]."""
    bits = _bits(masks.ndim)
    counts, before = [], jnp.zeros_like(masks[..., 0], jnp.int32)
    for word in range(masks.shape[-1]):
        mask = masks[..., word]
        seen = lax.population_count(mask[..., None] & (bits | (bits - 1))).astype(jnp.int32)
        counts.append(seen + before[..., None])
        before = before + lax.population_count(mask).astype(jnp.int32)
    return jnp.concatenate(counts, axis=-1)
