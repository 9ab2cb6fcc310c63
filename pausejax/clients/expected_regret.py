"""Computes the regret against the cohort with the largest expected reward, after the runs.

E[r(S, t)] is E[min_k τ_min / τ_k] plus terms that need no expectation. This expectation depends only on the
latency law. So one table over all sets of m clients serves every round of every run with that law. The other
terms are one matrix product. All sets are enumerated; their number is at most `MOST_SETS`.
"""

import functools
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import bandit

MOST_SETS = 200_000
"""Largest number of sets. The paper's networks have 142,506 (K = 30, m = 5) and 8e24 (K = 300, m = 15)."""

_LEVELS = (1e-6, 1e-2, 0.5, 1 - 1e-2, 1 - 1e-6)
_BISECTIONS = 40
_ROUNDING = 1e-5
_NODES = 6
_TOLERANCE = 1e-6
_SMALL = 1e-9
_MARGIN = 1e-7
_HALVINGS = 24
_INTERVALS = 16384
_LATENCIES_AT_ONCE = 1024
_PRODUCTS_AT_ONCE = 2**22
_ROUNDS_AT_ONCE = 64

Cdf = Callable[[np.ndarray], np.ndarray]
"""Type of a function from latencies x, [n, 1], seconds, to P(τ_k <= x), [n, K]."""


def count_sets(num_clients: int, m: int) -> int:
    """Returns the number of cohorts of m clients."""
    return math.comb(num_clients, m)


@functools.lru_cache(maxsize=4)
def cohorts(num_clients: int, m: int) -> np.ndarray:
    """Returns all sets of m clients in lexicographic order, int32 [S, m]."""
    flat = itertools.chain.from_iterable(itertools.combinations(range(num_clients), m))
    return np.fromiter(flat, np.int32).reshape(-1, m)


def problem_of(cdf: Cdf, min_latency: float) -> str:
    """Returns what is wrong with a user's distribution functions at 280 latencies from τ_min on, or ""."""
    latencies = min_latency / np.concatenate([np.linspace(1, 1 / 256, 256), np.geomspace(1 / 512, 1e-6, 24)])
    values = np.asarray(cdf(latencies[:, None]), np.float64)
    fine = (values >= -_ROUNDING) & (values <= 1 + _ROUNDING)
    fine[1:] &= np.diff(values, axis=0) >= -_ROUNDING
    if fine.all():
        return ""
    row, client = np.argwhere(~fine)[0]
    found = f"{values[row, client]:.4g} for client {client} at {latencies[row]:.4g} s"
    return f"cdf: {found}; must be from 0 to 1, and must not decrease with the latency"


def expected_speed(cdf: Cdf, min_latency: float) -> Callable[[np.ndarray], np.ndarray]:
    """Returns E[min_k τ_min / τ_k] over the members of a set of independent clients, as a function of sets.

    With u = τ_min / x, the expectation is the integral over (0, 1] of P(τ_k <= τ_min / u for all k). This
    probability is the product of the members' distribution functions. Gauss-Legendre quadrature computes the
    integral between quantiles of the clients' latencies. So laws with a small variance are resolved too.
    Intervals are halved where a distribution function has a jump or several modes. The error is below 1e-5,
    compared with adaptive quadrature and with sums over finitely many latencies (`tests/clients`). It may be
    larger if there are many thousands of jumps.

    Args:
      cdf: the distribution functions of latencies that are never below τ_min.
      min_latency: τ_min, seconds.

    Returns:
      A function from sets, int [S, n] where -1 pads, to float64 [S].
    """
    nodes, weights = _quadrature(cdf, min_latency)
    # Between two jumps all nodes have equal probabilities.
    rows, owner = np.unique(_probabilities(cdf, min_latency / nodes), axis=0, return_inverse=True)
    below, weights = rows.T, np.bincount(owner.reshape(-1), weights)
    # A pad does not slow a set: its P(τ <= x) is 1.
    below = np.concatenate([below, np.ones((1, len(weights)))])

    def of_sets(sets: np.ndarray) -> np.ndarray:
        found = np.empty(len(sets))
        at_once = max(_PRODUCTS_AT_ONCE // len(weights), 1)
        for first in range(0, len(sets), at_once):
            part = sets[first : first + at_once]
            product = below[part[:, 0]]
            for column in part.T[1:]:
                product = product * below[column]
            found[first : first + len(part)] = product @ weights
        return found

    return of_sets


def _quadrature(cdf: Cdf, min_latency: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights of the quadrature on (0, 1].

    Intervals end at quantiles of τ_min / τ_k. The quadratures of Gauss and of Lobatto are compared over each
    interval and over its halves. If they differ for a client, the interval is halved. It is also halved if
    they differ for K clients with the law of one client. The product of many smooth distribution functions
    may be as steep as a jump.
    """
    ends = {0.0, 1.0}
    for level in _LEVELS:
        low = np.zeros(np.asarray(cdf(np.array([[min_latency]]))).shape[1])
        high = np.ones(len(low))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            # P(τ_min / τ >= u) decreases with u.
            above = np.diagonal(np.asarray(cdf(min_latency / middle[:, None]))) > level
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        ends |= set(middle.tolist())
    edges = np.array(sorted(ends))
    edges = edges[np.concatenate([[True], np.diff(edges) > 1e-9])]
    gauss, lobatto = np.polynomial.legendre.leggauss(_NODES), _lobatto(_NODES + 1)

    def disagreement(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        one, other = (_integrals(cdf, min_latency, *_places(low, high, *rule)) for rule in (gauss, lobatto))
        return np.abs(one - other).max(axis=1)

    found: list[tuple[np.ndarray, np.ndarray]] = []
    low, high = edges[:-1], edges[1:]
    for halving in range(_HALVINGS + 1):
        middle = (low + high) / 2
        # Two equal jumps at like distances from the middle change both sums equally, but not in the halves.
        differ = np.stack(
            [disagreement(one, other) for one, other in ((low, high), (low, middle), (middle, high))]
        )
        rough = differ.max(axis=0) - _TOLERANCE * (high - low) - _SMALL
        # The number of intervals is bounded. If not all may be halved, the roughest ones are.
        room = max(_INTERVALS - sum(len(part) for part, _ in found) // _NODES - len(low), 0)
        order = np.argsort(-rough, kind="stable")[: room if halving < _HALVINGS else 0]
        done = np.ones(len(low), bool)
        done[order] = rough[order] <= 0
        places, share = _places(low[done], high[done], *gauss)
        found.append((places.ravel(), share.ravel()))
        low, middle, high = low[~done], middle[~done], high[~done]
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        if not low.size:
            break
    nodes, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return nodes, weights


def _lobatto(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights of the quadrature of Lobatto on (-1, 1), which evaluates both ends.

    The nodes are moved a little inwards, because the distribution function may have a jump at an end.
    """
    polynomial = np.polynomial.legendre.Legendre.basis(count - 1)
    nodes = np.concatenate([[-1.0], polynomial.deriv().roots().real, [1.0]])
    return nodes * (1 - _MARGIN), 2 / (count * (count - 1) * polynomial(nodes) ** 2)


def _places(
    low: np.ndarray, high: np.ndarray, nodes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nodes and weights of a quadrature on (-1, 1) for each interval, float64 [intervals, n]."""
    half = (high - low) / 2
    return (low + half)[:, None] + half[:, None] * nodes, half[:, None] * weights


def _integrals(cdf: Cdf, min_latency: float, nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the integrals of P(τ_k <= τ_min / u) and of its K-th power, float64 [intervals, 2 K].

    The power is the probability that K clients with the law of client k all have a latency <= τ_min / u.
    """
    below = _probabilities(cdf, min_latency / nodes.ravel()).reshape(*nodes.shape, -1)
    below = np.concatenate([below, below ** below.shape[2]], axis=2)
    return np.asarray(np.einsum("in,ink->ik", weights, below))


def _probabilities(cdf: Cdf, latencies: np.ndarray) -> np.ndarray:
    """Returns P(τ_k <= x) for latencies x [n], float64 [n, K]. The function is compiled for one shape."""
    found = []
    for first in range(0, len(latencies), _LATENCIES_AT_ONCE):
        part = latencies[first : first + _LATENCIES_AT_ONCE]
        whole = np.pad(part, (0, _LATENCIES_AT_ONCE - len(part)), mode="edge")
        found.append(np.asarray(cdf(whole[:, None]), np.float64)[: len(part)])
    return np.concatenate(found)


def regrets(
    selected: np.ndarray,
    *,
    table: np.ndarray,
    speed_of: Callable[[np.ndarray], np.ndarray],
    data_share: np.ndarray,
    clients_per_round: int,
    objective: bandit.Objective,
) -> np.ndarray:
    """Computes the maximum of E[r(S, t)] over all sets S, minus E[r(S, t)] of the cohort, float64 [rounds].

    The result is not negative for cohorts of m clients, because these are among the sets.

    Args:
      selected: int [rounds, n], the selected clients, who all take part; -1 pads.
      table: float64 [S], `expected_speed` of all `cohorts`.
      speed_of: the function that `expected_speed` returns; it is applied to the selected sets.
      data_share: float32 [K], |D_k| / |D|.
      clients_per_round: m.
      objective: the objective of the reward.
    """
    m, num_clients = clients_per_round, len(data_share)
    sets = cohorts(num_clients, m)
    rounds, members = len(selected), selected >= 0
    taken = np.zeros((rounds, num_clients + 1), np.int32)
    np.put_along_axis(taken, np.where(members, selected, num_clients), 1, axis=1)
    taken = taken[:, :num_clients]
    counts = np.cumsum(taken, axis=0) - taken
    score = np.asarray(_scores(jnp.asarray(counts), jnp.asarray(data_share), objective, m), np.float64)
    size = members.sum(axis=1)
    distinct, owner = np.unique(selected, axis=0, return_inverse=True)
    played = speed_of(distinct)[owner.reshape(-1)] + (taken * score).sum(axis=1) * m / np.maximum(size, 1)
    played = np.where(size > 0, played, 0.0)
    best = np.empty(rounds)
    is_member = _membership(num_clients, m)
    single = table.astype(np.float32)
    for first in range(0, rounds, _ROUNDS_AT_ONCE):
        block = score[first : first + _ROUNDS_AT_ONCE]
        value = block.astype(np.float32) @ is_member
        value += single
        place = np.argmax(value, axis=1)
        found = np.take_along_axis(block, sets[place], axis=1).sum(axis=1)
        best[first : first + len(block)] = table[place] + found
    # Rounding to float32 may select a set that is not the best. Clip at 0, since the true maximum is never
    # below the cohort's value.
    return np.where(size == m, np.maximum(best - played, 0.0), best - played)


@functools.partial(jax.jit, static_argnames="m")
def _scores(counts: jax.Array, data_share: jax.Array, objective: bandit.Objective, m: int) -> jax.Array:
    """Computes each client's summand in the reward of a set of m clients, float32 [rounds, K]."""

    def of_round(round: jax.Array, counts: jax.Array) -> jax.Array:
        time = bandit.time_of_terms(round, objective.clock)
        return bandit.score(*bandit.terms(counts, time, data_share, m, objective), m, **objective.weights)

    return jax.vmap(of_round)(1 + jnp.arange(counts.shape[0]), counts)


@functools.lru_cache(maxsize=4)
def _membership(num_clients: int, m: int) -> np.ndarray:
    """Returns 1 where a client is in a set of m clients, else 0, float32 [K, S], for all S sets."""
    sets = cohorts(num_clients, m)
    found = np.zeros((num_clients, len(sets)), np.float32)
    np.put_along_axis(found, sets.T, 1, axis=0)
    return found
