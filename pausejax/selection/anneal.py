"""Simulated annealing for (14): the paper's Algorithm 2 (SA-PAUSE) and its Vanilla-SA."""

from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.bandit import score as client_score
from pausejax.rounding import rounded, tree_sum
from pausejax.selection._neighbours import Lists, make_lists, make_vertex, propose_any, propose_tailored
from pausejax.selection._order import random_subset
from pausejax.selection._walk import make_problem, walk
from pausejax.selection.exact import Selection, check_available, everyone

Neighbours = Literal["tailored", "any"]
NEIGHBOURS: tuple[str, ...] = get_args(Neighbours)


def anneal(
    key: jax.Array,
    ucb: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    *,
    m: int,
    generalization_weight: jax.Array | float,
    privacy_weight: jax.Array | float,
    steps: int,
    temperature_divisor: jax.Array | float = 1.0,
    temperature_margin: jax.Array | float = 1e-3,
    available: jax.Array | None = None,
) -> Selection:
    """Searches for the argmax of (14) by Algorithm 2: annealing on the graph of R1 and R2.

    The walk starts from a uniform set. Step j = 1, 2, ... draws a neighbour U of the set V uniformly (N1,
    N2). It moves to U if E(U) >= E(V), else with probability exp((E(U) - E(V)) / τ_j). The temperature is τ_j
    = C / (κ log(j + 1)), with C by (19). A ucb of +inf, that of an unexplored client, is replaced by a finite
    number (`finite_ucb`).

    Args:
      key: the key of the walk, consumed.
      ucb: float32 [K]; +inf marks an unexplored client.
      generalization: float32 [K], g_k, finite.
      privacy: float32 [K], p_k, finite.
      m: the number of clients to select, 1 <= m <= K.
      generalization_weight: α >= 0.
      privacy_weight: γ >= 0.
      steps: J >= 0, the number of steps.
      temperature_divisor: κ > 0.
      temperature_margin: ω >= 0.
      available: bool [K], the clients that can be selected; None: all. The walk is over sets of these
        clients.

    Returns:
      The best set that was visited, including the first set. If fewer than m clients are available, all of
      them in ascending order, followed by pads of -1. The value of an empty set is -inf. With an invalid term
      inside jit (NaN, infinite g or p, ucb -inf), the members are m distinct clients and the value is NaN.

    Raises:
      ValueError: m, steps or a shape is out of range, or `available` is not bool. Outside jit also: a weight,
        κ, ω or a term is out of range.
    """
    return anneal_trace(
        key,
        ucb,
        generalization,
        privacy,
        m=m,
        generalization_weight=generalization_weight,
        privacy_weight=privacy_weight,
        steps=steps,
        temperature_divisor=temperature_divisor,
        temperature_margin=temperature_margin,
        available=available,
        traced=False,
    )[0]


def vanilla_anneal(
    key: jax.Array,
    ucb: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    *,
    m: int,
    generalization_weight: jax.Array | float,
    privacy_weight: jax.Array | float,
    steps: int,
    temperature_divisor: jax.Array | float = 1.0,
    available: jax.Array | None = None,
) -> Selection:
    """Searches for the argmax of (14) as `anneal`, but by the paper's Vanilla-SA: neighbours are all swaps,
    and C = 2α + γ + 1."""
    return anneal_trace(
        key,
        ucb,
        generalization,
        privacy,
        m=m,
        generalization_weight=generalization_weight,
        privacy_weight=privacy_weight,
        steps=steps,
        temperature_divisor=temperature_divisor,
        neighbours="any",
        available=available,
        traced=False,
    )[0]


def anneal_trace(
    key: jax.Array,
    ucb: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    *,
    m: int,
    generalization_weight: jax.Array | float,
    privacy_weight: jax.Array | float,
    steps: int,
    temperature_divisor: jax.Array | float = 1.0,
    temperature_margin: jax.Array | float = 1e-3,
    neighbours: Neighbours = "tailored",
    available: jax.Array | None = None,
    traced: bool = True,
) -> tuple[Selection, jax.Array | None]:
    """Runs `anneal` (neighbours "tailored") or `vanilla_anneal` ("any"), and also returns the walk's
    energies.

    Returns:
      The selection, and the energies E(V_1), ..., E(V_{J+1}), float32 [steps + 1]; None without `traced`. In
      the energies, finite numbers replace infinities. The same key gives the same selection as the function
      without a trace.
    """
    values = (generalization_weight, privacy_weight, temperature_divisor, temperature_margin)
    _check(ucb, generalization, privacy, available, m, steps, neighbours, *values)
    terms = (jnp.asarray(term, jnp.float32) for term in (ucb, generalization, privacy))
    return _anneal(
        key,
        *terms,
        *(jnp.asarray(v, jnp.float32) for v in values),
        None if available is None else jnp.asarray(available),
        m=m,
        steps=steps,
        neighbours=neighbours,
        traced=traced,
    )


def finite_ucb(
    ucb: jax.Array,
    score: jax.Array,
    m: int,
    margin: jax.Array | float = 1e-3,
    available: jax.Array | None = None,
) -> jax.Array:
    """Replaces every +inf of `ucb` by one finite number that preserves the order of the sets by (14).

    The number is a sum of three terms. They are the largest finite ucb (0 if there is none), the largest
    difference between the summed scores of two sets, and the margin. So a set of only unexplored clients
    beats every other set, and such sets are ordered by their scores. In a mixed set the minimum is over the
    explored members.

    Args:
      ucb: float32 [K].
      score: float32 [K], (α g_k + γ p_k) / m.
      m: size of the sets.
      margin: ω.
      available: bool [K], the clients that a set may contain; None: all.
    """
    unexplored = ucb == jnp.inf
    explored = ~unexplored if available is None else ~unexplored & available
    top = jnp.max(jnp.where(explored, ucb, -jnp.inf))
    top = jnp.where(jnp.any(explored), top, 0.0)
    highest, lowest = score, -score
    if available is not None:
        highest, lowest = (jnp.where(available, x, -jnp.inf) for x in (highest, lowest))
    spread = tree_sum(jax.lax.top_k(highest, m)[0]) + tree_sum(jax.lax.top_k(lowest, m)[0])
    return jnp.where(unexplored, top + spread + margin, ucb)


def temperature_constant(
    lists: Lists,
    ucb: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    *,
    m: int,
    generalization_weight: jax.Array | float,
    privacy_weight: jax.Array | float,
    temperature_margin: jax.Array | float,
) -> jax.Array:
    """Computes C by (19), float32 scalar; it exceeds the difference between the energies of any two sets.

    Arguments are as for `anneal`, but `ucb` must be finite. `lists` has the clients sorted by ucb, privacy
    and generalization.
    """
    by_ucb, first_of_top = lists.client, lists.size - m
    by_privacy, by_generalization = by_ucb[lists.order[0]], by_ucb[lists.order[1]]

    def sum_of_top_less_bottom(term: jax.Array, ascending: jax.Array) -> jax.Array:
        top = jax.lax.dynamic_slice_in_dim(ascending, first_of_top, m)
        return tree_sum(term[top]) - tree_sum(term[ascending[:m]])

    ucb_range = ucb[by_ucb[first_of_top]] - ucb[by_ucb[0]]
    g_range = sum_of_top_less_bottom(generalization, by_generalization)
    p_range = sum_of_top_less_bottom(privacy, by_privacy)
    summed = rounded(generalization_weight * g_range) + rounded(privacy_weight * p_range)
    return ucb_range + rounded(summed / m) + temperature_margin


@partial(jax.jit, static_argnames=("m", "steps", "neighbours", "traced"))
def _anneal(
    key: jax.Array,
    ucb: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    generalization_weight: jax.Array,
    privacy_weight: jax.Array,
    temperature_divisor: jax.Array,
    temperature_margin: jax.Array,
    available: jax.Array | None,
    *,
    m: int,
    steps: int,
    neighbours: Neighbours,
    traced: bool,
) -> tuple[Selection, jax.Array | None]:
    if available is not None:
        ucb, generalization, privacy = (jnp.where(available, x, 0.0) for x in (ucb, generalization, privacy))
    weights = {"generalization_weight": generalization_weight, "privacy_weight": privacy_weight}
    score = client_score(generalization, privacy, m, **weights)
    finite = finite_ucb(ucb, score, m, temperature_margin, available)
    if neighbours == "tailored":
        lists, propose = make_lists(ucb, privacy, generalization, available=available), propose_tailored
        constant = temperature_constant(
            lists, finite, generalization, privacy, m=m, temperature_margin=temperature_margin, **weights
        )
    else:
        lists, propose = make_lists(ucb, available=available), propose_any
        constant = rounded(2 * generalization_weight) + privacy_weight + 1
    problem = make_problem(lists, finite, score, m, temperature_divisor / constant)
    start_key, walk_key = jax.random.split(key)
    start = random_subset(start_key, ucb.shape[0], m, None if available is None else lists.size)
    labels, trace = walk(walk_key, problem, make_vertex(lists, start), propose, steps, traced)
    members = jnp.sort(lists.client[labels])
    value = jnp.min(ucb[members]) + tree_sum(-jnp.sort(-score[members]))
    complete = jnp.all(ucb > -jnp.inf) & jnp.all(jnp.isfinite(score))
    best = Selection(members, jnp.where(complete, value, jnp.nan))
    if available is None:
        return best, trace
    # If fewer than m clients are available, the first set contains all of them.
    few = lists.size < m
    alone = everyone(ucb[members], score[members], available[members], members)
    return jax.tree.map(partial(jnp.where, few), alone, best), trace


def _check(
    ucb: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    available: jax.Array | None,
    m: int,
    steps: int,
    neighbours: str,
    generalization_weight: jax.Array | float,
    privacy_weight: jax.Array | float,
    temperature_divisor: jax.Array | float,
    temperature_margin: jax.Array | float,
) -> None:
    num_clients = jnp.shape(ucb)[0] if jnp.ndim(ucb) else 0
    check_available(available, jnp.shape(ucb))
    read = np.ones(jnp.shape(ucb), bool) if available is None else available
    for name, term in {"ucb": ucb, "generalization": generalization, "privacy": privacy}.items():
        if jnp.ndim(term) != 1 or jnp.shape(term) != jnp.shape(ucb):
            raise ValueError(f"{name}: must have the shape [K], with the K of ucb, not {jnp.shape(term)}")
        if not isinstance(term, jax.core.Tracer) and not isinstance(read, jax.core.Tracer):
            known = ~np.asarray(read) | np.isfinite(term) | ((name == "ucb") & np.isposinf(term))
            if not np.all(known):
                wrong = np.asarray(term)[~known][0]
                raise ValueError(
                    f"{name}: must hold finite numbers{' or +inf' if name == 'ucb' else ''}, not {wrong}"
                )
    if not isinstance(m, int | np.integer) or not 1 <= m <= num_clients:
        raise ValueError(f"m: must be an integer from 1 to {num_clients}, the number of clients, not {m}")
    if not isinstance(steps, int | np.integer) or steps < 0:
        raise ValueError(f"steps: must be an integer >= 0, not {steps}")
    if neighbours not in NEIGHBOURS:
        raise ValueError(f"neighbours: must be one of {', '.join(NEIGHBOURS)}, not {neighbours!r}")
    names = ("generalization_weight", "privacy_weight", "temperature_margin")
    numbers = (generalization_weight, privacy_weight, temperature_margin)
    for name, number in zip(names, numbers, strict=True):
        if not isinstance(number, jax.core.Tracer) and not number >= 0:
            raise ValueError(f"{name}: must be >= 0, not {number}")
    if not isinstance(temperature_divisor, jax.core.Tracer) and not temperature_divisor > 0:
        raise ValueError(f"temperature_divisor: must be > 0, not {temperature_divisor}")
