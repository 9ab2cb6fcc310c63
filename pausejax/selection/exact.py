"""Computes the exact argmax of (14): bounds the value of every threshold on ucb, then evaluates the best.

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
    """Chosen set of clients, and its value."""

    members: jax.Array
    """int32 [m], distinct clients, ascending."""
    value: jax.Array
    """float32 scalar: min of ucb over the members + sum of their scores, or min of speed · sum of values."""


def best_set(ucb: jax.Array, score: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """Returns the set of m clients with the largest min ucb + Σ score, exactly: the argmax of (14).

    The time is O(K log K).

    Args:
      ucb: float32 [K]; +inf marks an unexplored client. With μ as `ucb` the set is the genie's choice, (10).
      score: float32 [K], (α g_k + γ p_k) / m.
      m: the number of clients to choose, 1 <= m <= K.
      available: bool [K], the clients that may be chosen; None: all clients. The numbers of the other clients
        are ignored.

    Returns:
      The best set. Ties go to the lexicographically smallest ascending tuple of members. A set of unexplored
      clients only has the value +inf; such sets are ranked by Σ score. If fewer than m clients are available,
      all of them are chosen, ascending, followed by pads of -1; the empty set has the value -inf. A missing
      number (NaN, an infinite score, a ucb of -inf) inside jit counts as the worst number; the members are
      still m distinct clients, and the value is NaN.

    Raises:
      ValueError: the shapes differ, `available` is not of type bool, or m is not a whole number from 1 to K.
        Outside jit a missing number raises it too.
    """
    check_inputs(ucb, score, m, available)
    terms = (jnp.asarray(ucb, jnp.float32), jnp.asarray(score, jnp.float32))
    return _best_set(terms if available is None else (*terms, jnp.asarray(available)), m, SUM)


def best_rate(speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None) -> Selection:
    """Returns the set of m clients with the largest min speed · Σ value, exactly, in O(K log K).

    A round lasts as long as its slowest member. With the speed 1/τ of each client, the set therefore has the
    most value per second of a round.

    Args:
      speed: float32 [K], positive; +inf marks an unexplored client.
      value: float32 [K], 0 or more.
      m: the number of clients to choose, 1 <= m <= K.
      available: bool [K], the clients that may be chosen, as for `best_set`.

    Returns:
      The best set, with the rules of `best_set` for few available clients, unexplored clients, ties and
      missing numbers. A speed or value outside its range counts as a missing number.

    Raises:
      ValueError: in the cases of `best_set`.
    """
    terms = rate_terms(speed, value, m, available)
    return _best_set(terms if available is None else (*terms, jnp.asarray(available)), m, PRODUCT)


@partial(jax.jit, static_argnames=("m", "worth"))
def _best_set(terms: tuple[jax.Array, ...], m: int, worth: Worth) -> Selection:
    """Computes `best_set` or `best_rate` from (ucb, score) or (ucb, score, available), [K] each."""

    @custom_vmap
    def choose(*terms: jax.Array) -> Selection:
        return _best_sets(*terms, m=m, worth=worth)

    @choose.def_vmap
    def choose_for_all(size: int, batched: list[bool], *terms: jax.Array) -> tuple[Selection, Any]:
        """Combines any number of nested vmaps into one batch of runs."""
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
    """Computes the best set of each run of a batch: ucb, score and available are [N, K]."""
    offset, finite_ucb, finite_score = stand_ins(ucb, score, m, available, worth)
    # The scores of unavailable clients are -inf, so few available clients are all among the m best scores.
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
    """Computes the best sets for finite inputs from `stand_ins`.

    The method that bounds the thresholds depends on the device, but the result does not. A CPU processes one
    client after another; insertion costs m operations per client, which is cheap for several runs side by
    side. Other devices launch a kernel for every step, so they process all clients at once.

    Args:
      ucb: float32 [N, K].
      score: float32 [N, K].
      few: bool [N, 1], whether fewer than m clients are available; the result is then the m best scores.
      m: the number of clients to choose.
      worth: the value of a set.
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
    """Selects the same clients as `best_by_pairs`, by sorting; for any number of clients."""
    # Without a barrier XLA replaces top_k and the slices of `tree_sum` by a sort of all K, 20 times slower.
    # Each array needs its own barrier: XLA can't partition a program with the pair of top_k in one barrier.
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
    """Evaluates the thresholds that may be the best, one after another, and returns the best set.

    Mostly each run has only one such threshold.
    """
    may_be_best = bounds.upper >= jnp.max(bounds.lower, axis=1, keepdims=True)

    def pending(last: jax.Array) -> jax.Array:
        """Returns which thresholds may be the best and are below `last` [N]: bool [N, E].

        The mask is computed again at each call, since storing it would take a kernel.
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

    # Every run has a threshold that may be the best. Mostly it is the only one, and the loop has no turns.
    first = evaluate(may_be_best)
    members, value, _ = lax.while_loop(lambda carry: jnp.any(pending(carry[2])), settle_next, first)
    return Selection(members, value)


def everyone(
    ucb: jax.Array, score: jax.Array, available: jax.Array, clients: jax.Array, worth: Worth = SUM
) -> Selection:
    """Returns the set of all available clients among the given clients, and its value.

    Args:
      ucb: float32 [..., m], the ucb of the clients.
      score: float32 [..., m], their scores.
      available: bool [..., m], whether they are available.
      clients: int32 [..., m], the clients.
      worth: the value of a set.
    """
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
    """Returns finite inputs that rank all sets in the same order as the given inputs.

    Returns:
      An offset to be added to the value of the best set, [...]: +inf if the best set has only unexplored
        clients, NaN if a number is missing, else 0.
      ucb without +inf and NaN, [..., K]; -inf marks clients that are in no best set.
      score with finite entries, [..., K], none of them -0; -inf marks clients that are not available.
    """
    if available is not None:
        ucb, score = jnp.where(available, ucb, 0.0), jnp.where(available, score, 0.0)
    complete = jnp.all(ucb > -jnp.inf, axis=-1) & jnp.all(jnp.isfinite(score), axis=-1)
    unexplored = ucb == jnp.inf
    # A set with an explored member has a lower value than one without: m unexplored clients exclude it.
    only_unexplored = jnp.sum(unexplored, axis=-1) >= m
    bounded = jnp.clip(jnp.where(jnp.isnan(ucb), -jnp.inf, ucb), -_LARGEST, _LARGEST)
    ucb = jnp.where(only_unexplored[..., None], jnp.where(unexplored, worth.neutral, -jnp.inf), bounded)
    # Scores are clipped so that no sum of m overflows. -0 becomes 0, since some sorts rank -0 below 0.
    score = jnp.clip(jnp.where(jnp.isnan(score), -jnp.inf, score), -_LARGEST / m, _LARGEST / m)
    offset = jnp.where(complete, jnp.where(only_unexplored, jnp.inf, 0.0), jnp.nan)
    score = jnp.where(score == 0, 0.0, score)
    if available is None:
        return offset, ucb, score
    return offset, jnp.where(available, ucb, -jnp.inf), jnp.where(available, score, -jnp.inf)


def rate_terms(
    speed: jax.Array, value: jax.Array, m: int, available: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns speed and value, float32 [K], with numbers outside their range marked as missing.

    Raises:
      ValueError: in the cases of `best_rate`.
    """
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
    """Checks shapes and m and, if the arrays are concrete, that no number is missing.

    Entries of `ucb` must be above `least`, and may be +inf. Entries of `score` must be finite and at least
    `least`.

    Raises:
      ValueError: a check fails.
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
    """Checks that `available` is None or an array of type bool and the given shape.

    Raises:
      ValueError: it is neither.
    """
    if available is None:
        return
    kind = jnp.result_type(available)
    if jnp.shape(available) != shape or kind != jnp.bool_:
        raise ValueError(f"available: {kind} of shape {jnp.shape(available)}; allowed: bool {list(shape)}")
