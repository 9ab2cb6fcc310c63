"""The exact argmax of (14) at any size: bound what every threshold is worth, then settle the best.

`docs/selection.md` has the proof and the tie rule, `docs/benchmarks.md` the measurements.
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
    """A chosen set and what it is worth."""

    members: jax.Array
    """int32 [m], distinct clients, ascending."""
    value: jax.Array
    """float32 scalar: min of ucb over the members + sum of their scores; min of speed · sum of values."""


def best_set(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """The set of m clients with the largest min ucb + Σ score, exactly, in O(K log K): the argmax of (14).

    Args:
      ucb: float32 [K]; +inf marks a client never seen. With μ in its place this is the genie's choice, (10).
      score: float32 [K], (α g_k + γ p_k) / m.
      m: clients to choose, 1 <= m <= K.
      available: bool [K], who may be chosen; None for everyone. Nothing is read of the others.

    Returns:
      The best set. Fewer than m available clients are chosen all, ascending, and pads of -1 follow; nobody is
      worth -inf. Sets of unexplored clients alone are worth +inf and ranked by Σ score. Ties go to the
      lexicographically smallest ascending tuple of members. Where a number is missing (NaN, an infinite
      score, a ucb of -inf) inside jit, it counts as the worst there is: the members are still m distinct
      clients, and the value is NaN.

    Raises:
      ValueError: if the shapes differ, `available` holds no bool or m is no whole number in 1..K; outside jit
        also for such a missing number.
    """
    check_inputs(ucb, score, m, available)
    terms = (jnp.asarray(ucb, jnp.float32), jnp.asarray(score, jnp.float32))
    return _best_set(terms if available is None else (*terms, jnp.asarray(available)), m, SUM)


def best_rate(speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """The set of m clients with the largest min speed · Σ value, exactly, in O(K log K).

    With the speed 1/τ of each client that is the most value per second of a round that lasts as long as its
    slowest member.

    Args:
      speed: float32 [K], positive; +inf marks a client never seen.
      value: float32 [K], 0 or more.
      m: clients to choose, 1 <= m <= K.
      available: as for `best_set`.

    Returns:
      As `best_set` does: the same rules for few available clients, unexplored ones, ties and missing numbers.
      A speed or value out of its range is such a number.

    Raises:
      ValueError: as `best_set` does.
    """
    terms = rate_terms(speed, value, m, available)
    return _best_set(terms if available is None else (*terms, jnp.asarray(available)), m, PRODUCT)


@partial(jax.jit, static_argnames=("m", "worth"))
def _best_set(terms: tuple[jax.Array, ...], m: int, worth: Worth) -> Selection:
    """`best_set` of ucb, score and perhaps available, [K] each."""

    @custom_vmap
    def choose(*terms: jax.Array) -> Selection:
        return _best_sets(*terms, m=m, worth=worth)

    @choose.def_vmap
    def choose_for_all(size: int, batched: list[bool], *terms: jax.Array) -> tuple[Selection, Any]:
        """Any number of nested vmaps becomes one batch of runs."""
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
    """`best_set` of a batch of runs: ucb, score and available are [N, K]."""
    offset, finite_ucb, finite_score = stand_ins(ucb, score, m, available, worth)
    # The others' scores are -inf: the m best scores are then all who are available.
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
    """The best sets of `stand_ins`, [N, K]; where `few`, bool [N, 1], the m best scores.

    The thresholds are bounded in the way that is faster on this device; the result is the same. A CPU takes
    one client after another; insertion costs m operations a client, which a few runs side by side make cheap.
    Everything else launches a kernel for every step, and takes all clients at once.
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
    """`best_by_pairs` for any number of clients."""
    # Without the barrier XLA makes top_k and the slices of `tree_sum` a sort of all K, 20 times slower.
    # One barrier each: XLA can't partition a program whose top_k goes into a barrier as a pair.
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
    """Evaluates the thresholds that may be the best one at a time; mostly there is just one in each run."""
    may_be_best = bounds.upper >= jnp.max(bounds.lower, axis=1, keepdims=True)

    def pending(last: jax.Array) -> jax.Array:
        """Below the last one, [N]. Found anew whenever it is asked for: to keep it would take a kernel."""
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

    # Every run has a threshold that may be the best. Mostly it is all there is, and nobody enters the loop.
    first = evaluate(may_be_best)
    members, value, _ = lax.while_loop(lambda carry: jnp.any(pending(carry[2])), settle_next, first)
    return Selection(members, value)


def everyone(
    ucb: jax.Array, score: jax.Array, available: jax.Array, clients: jax.Array, worth: Worth = SUM
) -> Selection:
    """Those of the given clients that are available, and what they are worth together; [..., m] each."""
    end = jnp.iinfo(jnp.int32).max
    members = jnp.sort(jnp.where(available, clients, end), axis=-1)
    descending = -jnp.sort(jnp.where(available, -score, jnp.inf), axis=-1)
    scores = jnp.where(descending > -jnp.inf, descending, 0.0)
    complete = jnp.all(~available | ((ucb > -jnp.inf) & jnp.isfinite(score)), axis=-1)
    slowest = jnp.min(jnp.where(available, ucb, jnp.inf), axis=-1)
    value = jnp.where(complete, worth.of(slowest, tree_sum(jnp.moveaxis(scores, -1, 0))), jnp.nan)
    value = jnp.where(jnp.any(available, axis=-1), value, -jnp.inf)
    return Selection(jnp.where(members == end, -1, members), value)


def stand_ins(
    ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None, worth: Worth = SUM
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Finite inputs that rank all sets as the given ones do.

    Returns:
      What infinite and missing numbers make of every value, to be added to it: 0, +inf or NaN, [...].
      ucb without +inf and NaN, [..., K]; -inf marks clients outside every best set.
      score with finite entries, [..., K], none of them -0; -inf marks clients who are not available.
    """
    if available is not None:
        ucb, score = jnp.where(available, ucb, 0.0), jnp.where(available, score, 0.0)
    complete = jnp.all(ucb > -jnp.inf, axis=-1) & jnp.all(jnp.isfinite(score), axis=-1)
    unexplored = ucb == jnp.inf
    # A set with an explored member is worth less than one without: m unexplored ones leave it no place.
    only_unexplored = jnp.sum(unexplored, axis=-1) >= m
    bounded = jnp.clip(jnp.where(jnp.isnan(ucb), -jnp.inf, ucb), -_LARGEST, _LARGEST)
    ucb = jnp.where(only_unexplored[..., None], jnp.where(unexplored, worth.neutral, -jnp.inf), bounded)
    # Clipped so that no sum of m overflows; -0 would rank below 0 in some sorts.
    score = jnp.clip(jnp.where(jnp.isnan(score), -jnp.inf, score), -_LARGEST / m, _LARGEST / m)
    offset = jnp.where(complete, jnp.where(only_unexplored, jnp.inf, 0.0), jnp.nan)
    score = jnp.where(score == 0, 0.0, score)
    if available is None:
        return offset, ucb, score
    return offset, jnp.where(available, ucb, -jnp.inf), jnp.where(available, score, -jnp.inf)


def rate_terms(
    speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Speed and value, float32 [K]; what is out of range is missing. Raises ValueError as `best_rate`."""
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
    """Raises ValueError for a bad shape or m, and, where the arrays are concrete, for a missing number.

    The one may be more than `least` or +inf, the other `least` and more.
    """
    one, other = names
    shape = jnp.shape(ucb)
    if len(shape) != 1 or shape != jnp.shape(score):
        raise ValueError(f"{other}: shape {jnp.shape(score)} with {one} of shape {shape}; both must be [K]")
    if not isinstance(m, int | np.integer) or not 1 <= m <= shape[0]:
        raise ValueError(f"m: {m} clients to choose out of {shape[0]}; allowed: a whole number from 1 to K")
    check_available(available, shape)
    if isinstance(available, jax.core.Tracer):
        return
    read = np.ones(shape, bool) if available is None else np.asarray(available)
    bounded = least == 0
    if not isinstance(ucb, jax.core.Tracer) and not np.all(np.asarray(ucb)[read] > least):
        found, wanted = ("NaN, 0 or less", "above 0") if bounded else ("NaN or -inf", "a number")
        raise ValueError(f"{one}: holds {found}; every entry must be {wanted} or +inf")
    if not isinstance(score, jax.core.Tracer):
        numbers = np.asarray(score)[read]
        if not np.all(np.isfinite(numbers) & (numbers >= least)):
            more, least_said = (
                (", an infinity or less than 0", " from 0") if bounded else (" or an infinity", "")
            )
            raise ValueError(f"{other}: holds NaN{more}; every entry must be a finite number{least_said}")


def check_available(available: jax.Array | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless `available` is None or bool of that shape."""
    if available is None:
        return
    kind = jnp.result_type(available)
    if jnp.shape(available) != shape or kind != jnp.bool_:
        raise ValueError(f"available: {kind} of shape {jnp.shape(available)}; allowed: bool {list(shape)}")
