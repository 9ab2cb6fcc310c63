"""The exact argmax of (14)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Selection(NamedTuple):
    """A chosen set and what it is worth."""

    members: jax.Array
    """int32 [m], distinct clients, ascending."""
    value: jax.Array
    """float32 scalar: min of ucb over the members + sum of their scores."""


def best_set(ucb: jax.Array, score: jax.Array, m: int) -> Selection:
    """The set of m clients with the largest min ucb + Σ score, exactly: the argmax of (14).

    Args:
      ucb: float32 [K]; +inf marks a client never seen. With μ in its place this is the genie's choice, (10).
      score: float32 [K], (α g_k + γ p_k) / m, finite.
      m: clients to choose, 1 <= m <= K.

    Returns:
      The best set; ties go to the lexicographically smallest ascending tuple of members.

    Raises:
      ValueError: outside jit, if the shapes differ, m is not in 1..K, or an input holds NaN.
    """
    check_inputs(ucb, score, m)
    num_clients = ucb.shape[0]
    finite_ucb = rank_infinities(ucb, m)
    order = jnp.argsort(-score, stable=True)

    def accumulate(carry, client):
        count, total = carry
        joins = (finite_ucb[client] >= finite_ucb) & (count < m)
        return (count + joins, total + jnp.where(joins, score[client], 0.0)), None

    start = (jnp.zeros(num_clients, jnp.int32), jnp.zeros(num_clients, jnp.float32))
    (count, total), _ = jax.lax.scan(accumulate, start, order)
    value = jnp.where(count == m, finite_ucb + total, -jnp.inf)
    threshold = finite_ucb[jnp.argmax(value)]
    eligible = finite_ucb[order] >= threshold
    rank = jnp.cumsum(eligible)
    chosen = eligible & (rank <= m)
    members = jnp.sort(jnp.where(chosen, order, num_clients))[:m].astype(jnp.int32)
    return Selection(members, jnp.min(ucb[members]) + jnp.sum(score[members]))


def rank_infinities(ucb: jax.Array, m: int) -> jax.Array:
    """Finite stand-ins that order sets as (14) does: with m or more unexplored clients only they count."""
    unexplored = ucb == jnp.inf
    enough = jnp.sum(unexplored) >= m
    return jnp.where(enough, jnp.where(unexplored, 0.0, -jnp.inf), ucb)


def check_inputs(ucb: jax.Array, score: jax.Array, m: int) -> None:
    """Raises ValueError for a bad shape or m, and, where the arrays are concrete, for NaN."""
    if jnp.ndim(ucb) != 1 or jnp.shape(ucb) != jnp.shape(score):
        raise ValueError(
            f"score: shape {jnp.shape(score)} with ucb {jnp.shape(ucb)}; both must be [K], one entry per client"
        )
    if not 1 <= m <= jnp.shape(ucb)[0]:
        raise ValueError(f"m: {m} clients to choose out of {jnp.shape(ucb)[0]}; allowed: 1 <= m <= K")
    for name, array in (("ucb", ucb), ("score", score)):
        if not isinstance(array, jax.core.Tracer) and np.isnan(array).any():
            raise ValueError(f"{name}: holds NaN; every entry must be a number")
