"""Computes the argmax of (14) by enumeration, as the paper does. The exact selector is tested against it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pausejax.rounding import tree_sum
from pausejax.selection._thresholds import PRODUCT, SUM, Worth
from pausejax.selection.exact import Selection, check_inputs, everyone, rate_terms, stand_ins

MAX_SETS = 100_000_000
"""The largest number of sets that `brute_force` tries."""
_BLOCK = 4096


def brute_force(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """Returns the set of m clients with the largest min ucb + Σ score, by trying all C(K, m) sets.

    Arguments, ties, infinities and errors are those of `best_set`, and the result is equal bit for bit. Only
    one block of sets is in memory at a time.

    Raises:
      ValueError: there are more than `MAX_SETS` sets, or `best_set` would raise a ValueError.
    """
    check_inputs(ucb, score, m, available)
    terms = jnp.asarray(ucb, jnp.float32), jnp.asarray(score, jnp.float32)
    return _tried(*terms, m, available, SUM)


def brute_force_rate(
    speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None
) -> Selection:
    """Returns the set of m clients with the largest min speed · Σ value, by trying all C(K, m) sets.

    Arguments, ties, infinities and errors are those of `best_rate`, and the result is equal bit for bit.

    Raises:
      ValueError: there are more than `MAX_SETS` sets, or `best_rate` would raise a ValueError.
    """
    return _tried(*rate_terms(speed, value, m, available), m, available, PRODUCT)


def _tried(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None, worth: Worth) -> Selection:
    num_clients = ucb.shape[0]
    num_sets = math.comb(num_clients, m)
    if num_sets > MAX_SETS:
        raise ValueError(
            f"m: {m} of {num_clients} clients make {num_sets} sets; brute_force tries at most {MAX_SETS}"
        )
    return _brute_force(ucb, score, None if available is None else jnp.asarray(available), m, worth)


@functools.partial(jax.jit, static_argnames=("m", "worth"))
def _brute_force(
    ucb: jax.Array, score: jax.Array, available: jax.Array | None, m: int, worth: Worth
) -> Selection:
    num_clients, num_sets = ucb.shape[0], math.comb(ucb.shape[0], m)
    if available is not None:
        clients = jnp.nonzero(available, size=m, fill_value=0)[0].astype(jnp.int32)
        few = jnp.sum(available) < m
        there = jnp.arange(m) < jnp.sum(available)
        alone = everyone(ucb[clients], score[clients], there, clients, worth)
    offset, ucb, score = stand_ins(ucb, score, m, available, worth)
    by_score = jnp.argsort(-score, stable=True)
    rank = jnp.argsort(by_score, stable=True).astype(jnp.int32)
    ranked_score = score[by_score]
    binomials = _binomials(num_clients, m)
    block = min(_BLOCK, num_sets)

    def try_block(carry: tuple, first: jax.Array) -> tuple[tuple, None]:
        best_value, best_members = carry
        # The last block is filled with copies of the last set, which never change the maximum.
        members = _sets(jnp.minimum(first + jnp.arange(block, dtype=jnp.int32), num_sets - 1), binomials)
        ranks = jnp.sort(rank[members], axis=1)
        scores = ranked_score[ranks]
        slowest = jnp.min(ucb[members], axis=1)
        value = worth.of(slowest, tree_sum(scores.T))
        # A set can be improved if an outsider is no slower than the slowest member and has a larger score
        # than the worst member. Rounding may hide the improvement, so such a set is excluded here.
        above_worst = jnp.sum((ucb[None] >= slowest[:, None]) & (score[None] > scores[:, -1:]), axis=1)
        improvable = above_worst > jnp.sum(scores > scores[:, -1:], axis=1)
        value = jnp.where(improvable, -jnp.inf, value)
        at = jnp.argmax(value)
        wins = value[at] > best_value
        return (jnp.maximum(value[at], best_value), jnp.where(wins, members[at], best_members)), None

    start = (jnp.float32(-jnp.inf), jnp.arange(m, dtype=jnp.int32))
    (value, members), _ = lax.scan(try_block, start, jnp.arange(0, num_sets, block, dtype=jnp.int32))
    if available is None:
        return Selection(members, offset + value)
    return Selection(jnp.where(few, alone.members, members), jnp.where(few, alone.value, offset + value))


def _binomials(num_clients: int, m: int) -> jax.Array:
    """Returns C(n, i) for i = m, ..., 1 and n = 0, ..., K - 1, int32 [m, K], limited to the largest int32."""
    largest = np.iinfo(np.int32).max
    table = [[min(math.comb(n, i), largest) for n in range(num_clients)] for i in range(m, 0, -1)]
    return jnp.asarray(table, jnp.int32)


def _sets(numbers: jax.Array, binomials: jax.Array) -> jax.Array:
    """Returns the sets with the given lexicographic numbers, int32 [B, m], each ascending.

    The numbers are those of the combinatorial number system. Counted from the last set, a set's number is Σ
    C(K - 1 - member_i, m - i), i = 0, ..., m - 1.
    """
    m, num_clients = binomials.shape
    num_sets = math.comb(num_clients, m)

    def next_member(left: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        digit = jnp.searchsorted(row, left, side="right", method="compare_all").astype(jnp.int32) - 1
        return left - row[digit], num_clients - 1 - digit

    return lax.scan(next_member, num_sets - 1 - numbers, binomials)[1].T
