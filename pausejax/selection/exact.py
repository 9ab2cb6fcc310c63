"""Computes the exact argmax of (14): bounds the value of every threshold, then evaluates the best.

The proof and the rule for ties are in `docs/selection.md`, and the measurements in `docs/benchmarks.md`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from pausejax.rounding import tree_sum
from pausejax.selection._parallel import are_few, best_by_one_sort, best_by_pairs, by_eviction
from pausejax.selection._rows import take
from pausejax.selection._thresholds import PRODUCT, SUM, Bounds, Worth, by_insertion, by_replacement

Best = Callable[[jax.Array, jax.Array, jax.Array, int], tuple[jax.Array, jax.Array, jax.Array]]
_LARGEST = float(np.finfo(np.float32).max) / 4


class Selection(NamedTuple):
    """Selected set with its value."""

    members: jax.Array
    """int32 [m], distinct clients, ascending."""
    value: jax.Array
    """float32 scalar: min ucb + Σ score over the members; of `best_rate`, min speed · Σ value."""


def best_set(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """Returns the set of m clients with the largest min ucb + Σ score, the argmax of (14), in O(K log K).

    Args:
      ucb: float32 [K]; +inf marks an unexplored client. With μ instead, the result is the oracle's set, (10).
      score: float32 [K], (α g_k + γ p_k) / m. Scores are cut to ±8e37 / m, and finite ucb to ±8e37.
      m: the number of clients to select, 1 <= m <= K.
      available: bool [K], the clients that can be selected; None: all. Terms of other clients are not read.

    Returns:
      The best set. If fewer than m clients are available, all of them in ascending order, followed by pads of
      -1. The value of an empty set is -inf. Sets of only unexplored clients have the value +inf and are
      ordered by Σ score. Ties go to the lexicographically smallest ascending tuple of members. If a term is
      invalid inside jit (NaN, an infinite score, a ucb of -inf), the term counts as the worst value. The
      members are still m distinct clients, and the value of the set is NaN.

    Raises:
      ValueError: the shapes differ, `available` is not bool, or m is not an integer in 1..K. Outside jit
        also: a term is invalid.
    """
    check_inputs(ucb, score, m, available)
    terms = (jnp.asarray(ucb, jnp.float32), jnp.asarray(score, jnp.float32))
    return _best_set(terms if available is None else (*terms, jnp.asarray(available)), m, SUM)


def best_rate(speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """Returns the set of m clients with the largest min speed · Σ value, exactly, in O(K log K).

    With speed 1/τ, this is the largest value per second if a round waits for its slowest member.

    Args:
      speed: float32 [K], positive; +inf marks an unexplored client.
      value: float32 [K], 0 or more.
      m: the number of clients to select, 1 <= m <= K.
      available: bool [K], the clients that can be selected; None: all.

    Returns:
      The best set, with the rules of `best_set` for few available clients, unexplored clients, ties and
      invalid terms. A speed or value out of its range is invalid.

    Raises:
      ValueError: a shape, m or the type of `available` is wrong. Outside jit also: a term is invalid.
    """
    terms = rate_terms(speed, value, m, available)
    return _best_set(terms if available is None else (*terms, jnp.asarray(available)), m, PRODUCT)


@partial(jax.jit, static_argnames=("m", "worth"))
def _best_set(terms: tuple[jax.Array, ...], m: int, worth: Worth) -> Selection:
    """Returns the `best_set` of the terms ucb, score and optionally available, [K] each."""

    @custom_vmap
    def choose(*terms: jax.Array) -> Selection:
        return _best_sets(*terms, m=m, worth=worth)

    @choose.def_vmap
    def choose_for_all(size: int, batched: list[bool], *terms: jax.Array) -> tuple[Selection, Any]:
        """Converts any number of nested vmaps to one batch of runs."""
        together = (
            x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
            for x, is_batched in zip(terms, batched, strict=True)
        )
        flat = choose(*(x.reshape(-1, x.shape[-1]) for x in together))
        members, value = (x.reshape(size, -1, *x.shape[1:]) for x in flat)
        result = Selection(members, value)
        return result, jax.tree.map(lambda _: True, result)

    members, value = choose(*(x[None] for x in terms))
    return Selection(members[0], value[0])


def _best_sets(
    ucb: jax.Array, score: jax.Array, available: jax.Array | None = None, *, m: int, worth: Worth
) -> Selection:
    """Returns the `best_set` of each run of a batch; ucb, score and available are [N, K]."""
    offset, finite_ucb, finite_score = stand_ins(ucb, score, m, available, worth)
    # Scores of unavailable clients are -inf, so the m best scores include all available ones.
    few = None if available is None else jnp.sum(available, axis=1, keepdims=True) < m
    members, value = _best_finite_sets(finite_ucb, finite_score, few, m, worth)
    if available is None or few is None:
        return Selection(members, offset + value)
    alone = everyone(take(ucb, members), take(score, members), take(available, members), members, worth)
    return Selection(
        jnp.where(few, alone.members, members), jnp.where(few[:, 0], alone.value, offset + value)
    )


def _best_finite_sets(
    ucb: jax.Array, score: jax.Array, few: jax.Array | None, m: int, worth: Worth
) -> Selection:
    """Returns the best sets of finite terms, [N, K].

    In rows where `few`, bool [N, 1], is true, it returns the clients with the m best scores. The fastest
    method on this device bounds the thresholds. All methods give the same result. On a CPU the methods
    process one client after another. Insertion takes m operations per client, which is cheap for several runs
    in parallel. Other devices launch a kernel for every step, so they process all clients at once.
    """

    def by(
        bound: Callable[[jax.Array, jax.Array, int, Worth], Bounds],
        best: Best,
        ucb: jax.Array,
        score: jax.Array,
        few: jax.Array | None = None,
    ) -> Selection:
        bounds = bound(ucb, score, m, worth)
        if few is not None:
            bounds = bounds._replace(threshold=jnp.where(few, -jnp.inf, bounds.threshold))
        return _settle(ucb, score, m, bounds, worth, best)

    one_by_one = by_insertion if m <= min(16 + 4 * ucb.shape[0], 256) else by_replacement
    inputs = (ucb, score) if few is None else (ucb, score, few)
    best = best_by_pairs if are_few(ucb.shape[1]) else best_by_one_sort
    return lax.platform_dependent(
        *inputs, cpu=partial(by, one_by_one, _best_by_sorting), default=partial(by, by_eviction, best)
    )


def _best_by_sorting(
    ucb: jax.Array, score: jax.Array, threshold: jax.Array, m: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the m best clients whose ucb reaches `threshold`, [N, 1], their scores and their smallest
    ucb."""
    # Without the barrier XLA compiles top_k and the slices of `tree_sum` to a sort of all K, which is 20
    # times slower. Each output has its own barrier, because XLA can't partition a program whose top_k enters
    # a barrier as a pair.
    pair = lax.top_k(jnp.where(ucb >= threshold, score, -jnp.inf), m)
    scores, clients = map(lax.optimization_barrier, pair)
    members = lax.sort(clients.astype(jnp.int32), dimension=1)
    return members, scores, jnp.min(take(ucb, clients), axis=1)


def _settle(
    ucb: jax.Array,
    score: jax.Array,
    m: int,
    bounds: Bounds,
    worth: Worth = SUM,
    best: Best = _best_by_sorting,
) -> Selection:
    """Evaluates the thresholds that may be the best, one after another, and returns each run's best set."""
    may_be_best = bounds.upper >= jnp.max(bounds.lower, axis=1, keepdims=True)

    def pending(last: jax.Array) -> jax.Array:
        """Returns which thresholds below each run's last evaluated threshold may be the best, bool [N, K].

        The loop's condition and body call this function. Carrying its result would cost one more kernel.
        """
        return may_be_best & (bounds.threshold < last[:, None])

    def evaluate(chosen: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        threshold = jnp.max(jnp.where(chosen, bounds.threshold, -jnp.inf), axis=1)
        members, scores, slowest = best(ucb, score, threshold[:, None], m)
        return members, worth.of(slowest, tree_sum(scores.T)), threshold

    def settle_next(carry: tuple) -> tuple:
        members, value, last = carry
        chosen = pending(last)
        new_members, new_value, threshold = evaluate(chosen)
        differs = jnp.argmax(members != new_members, axis=1, keepdims=True)
        is_smaller = (take(new_members, differs) < take(members, differs))[:, 0]
        wins = jnp.any(chosen, axis=1) & ((new_value > value) | ((new_value == value) & is_smaller))
        members = jnp.where(wins[:, None], new_members, members)
        return members, jnp.where(wins, new_value, value), threshold

    # Every run has a threshold that may be the best. Usually a run has only one such threshold.
    first = evaluate(may_be_best)
    members, value, _ = lax.while_loop(lambda carry: jnp.any(pending(carry[2])), settle_next, first)
    return Selection(members, value)


def everyone(
    ucb: jax.Array, score: jax.Array, available: jax.Array, clients: jax.Array, worth: Worth = SUM
) -> Selection:
    """Returns the set of all given clients that are available, with its value; arguments are [..., m]."""
    end = jnp.iinfo(jnp.int32).max
    members = jnp.sort(jnp.where(available, clients, end), axis=-1)
    descending = -jnp.sort(jnp.where(available, -score, jnp.inf), axis=-1)
    scores = jnp.where(descending > -jnp.inf, descending, 0.0)
    complete = jnp.all(~available | ((ucb > -jnp.inf) & jnp.isfinite(score)), axis=-1)
    slowest = jnp.min(jnp.where(available, ucb, jnp.inf), axis=-1)
    value = worth.of(slowest, tree_sum(jnp.moveaxis(scores, -1, 0)))
    value = jnp.where(complete, jnp.where(slowest < jnp.inf, value, jnp.inf), jnp.nan)  # not +inf times 0
    return Selection(jnp.where(members == end, -1, members), jnp.where(available.any(-1), value, -jnp.inf))


def stand_ins(
    ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None, worth: Worth = SUM
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Replaces infinite and invalid terms without changing the order of the sets by value.

    Returns:
      The number to add to every value, because of infinite or invalid terms: 0, +inf or NaN, [...].
      ucb without +inf and NaN, [..., K]; -inf marks clients outside every best set.
      score with finite entries, [..., K], none of them -0; -inf marks clients that are not available.
    """
    if available is not None:
        ucb, score = jnp.where(available, ucb, 0.0), jnp.where(available, score, 0.0)
    complete = jnp.all(ucb > -jnp.inf, axis=-1) & jnp.all(jnp.isfinite(score), axis=-1)
    unexplored = ucb == jnp.inf
    # A set with an explored member has a smaller value than a set without one. So with m unexplored clients,
    # only these count.
    only_unexplored = jnp.sum(unexplored, axis=-1) >= m
    bounded = jnp.clip(jnp.where(jnp.isnan(ucb), -jnp.inf, ucb), -_LARGEST, _LARGEST)
    ucb = jnp.where(only_unexplored[..., None], jnp.where(unexplored, worth.neutral, -jnp.inf), bounded)
    # Scores are clipped so that no sum of m scores overflows. -0 is replaced, because some sorts order it
    # below 0.
    score = jnp.clip(jnp.where(jnp.isnan(score), -jnp.inf, score), -_LARGEST / m, _LARGEST / m)
    offset = jnp.where(complete, jnp.where(only_unexplored, jnp.inf, 0.0), jnp.nan)
    score = jnp.where(score == 0, 0.0, score)
    if available is None:
        return offset, ucb, score
    return offset, jnp.where(available, ucb, -jnp.inf), jnp.where(available, score, -jnp.inf)


def rate_terms(
    speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns speed and value, float32 [K], in which -inf replaces invalid speeds, and NaN invalid values."""
    check_inputs(speed, value, m, available, names=("speed", "value"), least=0.0)
    speed, value = jnp.asarray(speed, jnp.float32), jnp.asarray(value, jnp.float32)
    return jnp.where(speed > 0, speed, -jnp.inf), jnp.where(value >= 0, value, jnp.nan)


def check_inputs(
    ucb: jax.Array,
    score: jax.Array,
    m: int,
    available: jax.Array | None = None,
    *,
    names: tuple[str, str] = ("ucb", "score"),
    least: float = -np.inf,
) -> None:
    """Checks the shapes and m, and the terms if they are concrete; raises ValueError.

    The first term must be above `least` and may be +inf. The second term must be finite and at least `least`.
    """
    one, other = names
    shape = jnp.shape(ucb)
    if len(shape) != 1 or shape != jnp.shape(score):
        raise ValueError(f"{other}: shape {jnp.shape(score)}, {one}: shape {shape}; both must be [K]")
    if not isinstance(m, int | np.integer) or not 1 <= m <= shape[0]:
        raise ValueError(f"m: must be an integer from 1 to {shape[0]}, the number of clients, not {m}")
    check_available(available, shape)
    if isinstance(available, jax.core.Tracer):
        return
    read = np.ones(shape, bool) if available is None else np.asarray(available)
    bounded = least == 0
    if not isinstance(ucb, jax.core.Tracer) and not np.all(np.asarray(ucb)[read] > least):
        found, wanted = ("NaN or <= 0", "> 0") if bounded else ("NaN or -inf", "a number")
        raise ValueError(f"{one}: every entry must be {wanted} or +inf, but one is {found}")
    if not isinstance(score, jax.core.Tracer):
        numbers = np.asarray(score)[read]
        if not np.all(np.isfinite(numbers) & (numbers >= least)):
            more, least_said = (", infinite or < 0", " >= 0") if bounded else (" or infinite", "")
            raise ValueError(
                f"{other}: every entry must be a finite number{least_said}, but one is NaN{more}"
            )


def check_available(available: jax.Array | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless `available` is None or a bool array of the given shape."""
    if available is None:
        return
    kind = jnp.result_type(available)
    if jnp.shape(available) != shape or kind != jnp.bool_:
        raise ValueError(f"available: must be bool {list(shape)}, not {kind} {list(jnp.shape(available))}")
