"""The exact argmax of (14) at any size: bound what every threshold is worth, then settle the best.

`docs/selection.md` has the proof, the tie rule and the measurements.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from pausejax.selection._rows import take, tree_sum
from pausejax.selection._thresholds import Bounds, by_insertion, by_replacement

_LARGEST = float(np.finfo(np.float32).max) / 4


class Selection(NamedTuple):
    """A chosen set and what it is worth."""

    members: jax.Array
    """int32 [m], distinct clients, ascending."""
    value: jax.Array
    """float32 scalar: min of ucb over the members + sum of their scores."""


def best_set(ucb: jax.Array, score: jax.Array, m: int) -> Selection:
    """The set of m clients with the largest min ucb + Σ score, exactly, in O(K log K): the argmax of (14).

    Args:
      ucb: float32 [K]; +inf marks a client never seen. With μ in its place this is the genie's choice, (10).
      score: float32 [K], (α g_k + γ p_k) / m.
      m: clients to choose, 1 <= m <= K.

    Returns:
      The best set. Sets of unexplored clients alone are worth +inf and ranked by Σ score. Ties go to the
      lexicographically smallest ascending tuple of members. Where a number is missing (NaN, an infinite
      score, a ucb of -inf) inside jit, it counts as the worst there is: the members are still m distinct
      clients, and the value is NaN.

    Raises:
      ValueError: if the shapes differ or m is no whole number in 1..K; outside jit also for such a missing
        number.
    """
    check_inputs(ucb, score, m)
    return _best_set(jnp.asarray(ucb, jnp.float32), jnp.asarray(score, jnp.float32), m)


@functools.partial(jax.jit, static_argnames="m")
def _best_set(ucb: jax.Array, score: jax.Array, m: int) -> Selection:
    @custom_vmap
    def choose(ucb: jax.Array, score: jax.Array) -> Selection:
        return _best_sets(ucb, score, m)

    @choose.def_vmap
    def choose_for_all(
        size: int, batched: list[bool], ucb: jax.Array, score: jax.Array
    ) -> tuple[Selection, Any]:
        """Any number of nested vmaps becomes one batch of runs."""
        ucb, score = (
            x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
            for x, is_batched in zip((ucb, score), batched, strict=True)
        )
        flat = choose(ucb.reshape(-1, ucb.shape[-1]), score.reshape(-1, score.shape[-1]))
        members, value = (x.reshape(size, -1, *x.shape[1:]) for x in flat)
        result = Selection(members, value)
        return result, jax.tree.map(lambda _: True, result)

    members, value = choose(ucb[None], score[None])
    return Selection(members[0], value[0])


def _best_sets(ucb: jax.Array, score: jax.Array, m: int) -> Selection:
    """`best_set` of a batch of runs: ucb and score are [N, K]."""
    offset, ucb, score = stand_ins(ucb, score, m)
    members, value = _settle(ucb, score, m, _bounds(ucb, score, m))
    return Selection(members, offset + value)


def _bounds(ucb: jax.Array, score: jax.Array, m: int) -> Bounds:
    """Bounds the thresholds in the way that is faster at this size; the result of `best_set` is the same.

    Measured on a CPU. Insertion costs m operations a client, which a few runs side by side make cheap.
    """
    insert = m <= min(16 + 4 * ucb.shape[0], 256)
    return by_insertion(ucb, score, m) if insert else by_replacement(ucb, score, m)


def _settle(ucb: jax.Array, score: jax.Array, m: int, bounds: Bounds) -> Selection:
    """Evaluates the thresholds that may be the best one at a time; mostly there is just one in each run."""

    def evaluate(pending: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        threshold = jnp.max(jnp.where(pending, bounds.threshold, -jnp.inf), axis=1, keepdims=True)
        # Without the barrier XLA makes top_k and the slices of `tree_sum` a sort of all K, 20 times slower.
        # One barrier each: XLA can't partition a program whose top_k goes into a barrier as a pair.
        pair = lax.top_k(jnp.where(ucb >= threshold, score, -jnp.inf), m)
        scores, clients = map(lax.optimization_barrier, pair)
        value = jnp.min(take(ucb, clients), axis=1) + tree_sum(scores.T)
        members = lax.sort(clients.astype(jnp.int32), dimension=1)
        return members, value, pending & (bounds.threshold < threshold)

    def settle_next(carry: tuple) -> tuple:
        members, value, pending = carry
        new_members, new_value, still_open = evaluate(pending)
        differs = jnp.argmax(members != new_members, axis=1, keepdims=True)
        is_smaller = (take(new_members, differs) < take(members, differs))[:, 0]
        wins = jnp.any(pending, axis=1) & ((new_value > value) | ((new_value == value) & is_smaller))
        members = jnp.where(wins[:, None], new_members, members)
        return members, jnp.where(wins, new_value, value), still_open

    may_be_best = bounds.upper >= jnp.max(bounds.lower, axis=1, keepdims=True)
    members, value, _ = lax.while_loop(lambda carry: jnp.any(carry[2]), settle_next, evaluate(may_be_best))
    return Selection(members, value)


def stand_ins(ucb: jax.Array, score: jax.Array, m: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Finite inputs that rank all sets as the given ones do.

    Returns:
      What infinite and missing numbers make of every value, to be added to it: 0, +inf or NaN, [...].
      ucb without +inf and NaN, [..., K]; -inf marks clients outside every best set.
      score with finite entries, [..., K], none of them -0.
    """
    complete = jnp.all(ucb > -jnp.inf, axis=-1) & jnp.all(jnp.isfinite(score), axis=-1)
    unexplored = ucb == jnp.inf
    # A set with an explored member is worth less than one without: m unexplored ones leave it no place.
    only_unexplored = jnp.sum(unexplored, axis=-1) >= m
    bounded = jnp.clip(jnp.where(jnp.isnan(ucb), -jnp.inf, ucb), -_LARGEST, _LARGEST)
    ucb = jnp.where(only_unexplored[..., None], jnp.where(unexplored, 0.0, -jnp.inf), bounded)
    # Clipped so that no sum of m overflows; -0 would rank below 0 in some sorts.
    score = jnp.clip(jnp.where(jnp.isnan(score), -jnp.inf, score), -_LARGEST / m, _LARGEST / m)
    offset = jnp.where(complete, jnp.where(only_unexplored, jnp.inf, 0.0), jnp.nan)
    return offset, ucb, jnp.where(score == 0, 0.0, score)


def check_inputs(ucb: jax.Array, score: jax.Array, m: int) -> None:
    """Raises ValueError for a bad shape or m, and, where the arrays are concrete, for a missing number."""
    shape = jnp.shape(ucb)
    if len(shape) != 1 or shape != jnp.shape(score):
        raise ValueError(f"score: shape {jnp.shape(score)} with ucb of shape {shape}; both must be [K]")
    if not isinstance(m, int | np.integer) or not 1 <= m <= shape[0]:
        raise ValueError(f"m: {m} clients to choose out of {shape[0]}; allowed: a whole number from 1 to K")
    if not isinstance(ucb, jax.core.Tracer) and not np.all(np.asarray(ucb) > -np.inf):
        raise ValueError("ucb: holds NaN or -inf; every entry must be a number or +inf")
    if not isinstance(score, jax.core.Tracer) and not np.all(np.isfinite(score)):
        raise ValueError("score: holds NaN or an infinity; every entry must be a finite number")
