"""The argmax of (14) by enumeration: what the paper does, and the oracle of the exact selector."""

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
"""`brute_force` refuses to try more sets than this."""
_BLOCK = 4096


def brute_force(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """The set of m clients with the largest min ucb + Σ score, by trying all C(K, m) of them.

    Arguments, result, ties, infinities and errors are those of `best_set`, and so is every bit of the answer.
    The sets are made and tried in blocks; no more than one block of them is ever in memory.

    Raises:
      ValueError: also if there are more than `MAX_SETS` sets.
    """
    check_inputs(ucb, score, m, available)
    terms = jnp.asarray(ucb, jnp.float32), jnp.asarray(score, jnp.float32)
    return _tried(*terms, m, available, SUM)


def brute_force_rate(
    speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None
) -> Selection:
    """The set of m clients with the largest min speed · Σ value by trying all: to `best_rate` what
    `brute_force` is to `best_set`."""
    return _tried(*rate_terms(speed, value, m, available), m, available, PRODUCT)


def _tried(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None, worth: Worth) -> Selection:
    num_clients = ucb.shape[0]
    num_sets = math.comb(num_clients, m)
    if num_sets > MAX_SETS:
        raise ValueError(
            f"m: {m} out of {num_clients} clients makes {num_sets} sets; brute_force tries at most {MAX_SETS}"
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
        # The last block repeats its last set: a repetition never wins.
        members = _sets(jnp.minimum(first + jnp.arange(block, dtype=jnp.int32), num_sets - 1), binomials)
        ranks = jnp.sort(rank[members], axis=1)
        scores = ranked_score[ranks]
        slowest = jnp.min(ucb[members], axis=1)
        value = worth.of(slowest, tree_sum(scores.T))
        # If an outsider is no slower than the slowest and scores more than the worst, swapping it in makes a
        # truly better set, even where rounding hides it.
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
    """C(n, i) for i = m, ..., 1 and n = 0, ..., K - 1, int32 [m, K], cut where an int32 ends."""
    largest = np.iinfo(np.int32).max
    table = [[min(math.comb(n, i), largest) for n in range(num_clients)] for i in range(m, 0, -1)]
    return jnp.asarray(table, jnp.int32)


def _sets(numbers: jax.Array, binomials: jax.Array) -> jax.Array:
    """The sets of these numbers in lexicographic order, int32 [B, m], each ascending.

    Counted from the end, a set's number is Σ C(K - 1 - member_i, m - i): the combinatorial number system.
    """
    m, num_clients = binomials.shape
    num_sets = math.comb(num_clients, m)

    def next_member(left: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        digit = jnp.searchsorted(row, left, side="right", method="compare_all").astype(jnp.int32) - 1
        return left - row[digit], num_clients - 1 - digit

    return lax.scan(next_member, num_sets - 1 - numbers, binomials)[1].T
