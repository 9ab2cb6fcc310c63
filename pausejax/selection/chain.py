"""Analyses Algorithm 2 as a Markov chain on all sets of a small network, for Theorem 4.

The code runs on the host in float64. It enumerates the C(K, m) sets ("vertices"). It shares no code with the
annealer, so it can test the annealer.
"""

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

Rule = Literal["ranked", "raw", "printed", "any"]
RULES: tuple[str, ...] = get_args(Rule)

MAX_VERTICES = 5_000
TOLERANCE = 1e-9
"""Largest difference from the maximal energy at which a vertex counts as optimal."""


class OptimumProbability(NamedTuple):
    """Probabilities of an optimum after given numbers of steps, float64 [divisors, numbers], from a uniform
    start."""

    steps: np.ndarray
    """int [numbers], j: the numbers of steps made."""
    current: np.ndarray
    """P(V_{j+1} in the optimal sets), (20)."""
    best: np.ndarray
    """The probability that the best vertex ever visited is optimal."""
    last_uphill: np.ndarray
    """The probability that the last vertex entered by an uphill or level step is optimal.

    Algorithm 2 as printed returns this vertex."""


def vertices(num_clients: int, m: int) -> np.ndarray:
    """Returns all sets of m clients, int [C(K, m), m], each ascending, in lexicographic order.

    Raises:
      ValueError: there are more than `MAX_VERTICES` sets.
    """
    sets = np.array(list(itertools.islice(itertools.combinations(range(num_clients), m), MAX_VERTICES + 1)))
    if len(sets) > MAX_VERTICES:
        raise ValueError(
            f"m: {m} of {num_clients} clients make more than {MAX_VERTICES} sets, which is the limit"
        )
    return sets


def energies(
    ucb: np.ndarray,
    generalization: np.ndarray,
    privacy: np.ndarray,
    m: int,
    *,
    generalization_weight: float,
    privacy_weight: float,
) -> np.ndarray:
    """Returns the energy E(V), (18), of every set of m clients, float64 [C(K, m)]. The three terms are [K]
    each."""
    ucb, generalization, privacy = (np.asarray(t, np.float64) for t in (ucb, generalization, privacy))
    members = vertices(len(ucb), m)
    sums = generalization_weight * generalization[members] + privacy_weight * privacy[members]
    return ucb[members].min(axis=1) + sums.sum(axis=1) / m


def neighbours(lists: Sequence[np.ndarray], m: int, rule: Rule = "ranked") -> np.ndarray:
    """Returns which vertices are neighbours, bool [n, n]: entry (V, U) is true if U may be drawn at V.

    Args:
      lists: the lists of values, [K] each, whose minima R2 uses: ucb, privacy, generalization.
      m: the number of clients in a set.
      rule: the rule for neighbours. "ranked" is R1 and R2, where a stable sort orders every list strictly.
        "raw" is R1 and R2 with all minimizers of the values. "printed" is N1 and N2 word for word on the
        values. N1 then takes the first minimizer, and N2 the users whose value is lower than a's or b's.
        "any" is only R1.

    Raises:
      ValueError: the rule is unknown, or there are more than `MAX_VERTICES` sets.
    """
    if rule not in RULES:
        raise ValueError(f"rule: must be one of {', '.join(RULES)}, not {rule!r}")
    num_clients = len(lists[0])
    members = vertices(num_clients, m)
    number = {tuple(v): i for i, v in enumerate(members)}
    result = np.zeros((len(members), len(members)), bool)
    lists = [np.asarray(values) for values in lists]
    if rule == "ranked":
        lists = [np.argsort(np.argsort(values, kind="stable")) for values in lists]
    for v, clients in enumerate(members):
        for leaving in clients:
            for entering in np.setdiff1d(np.arange(num_clients), clients):
                u = np.sort(np.append(clients[clients != leaving], entering))
                if rule == "any" or _tailored(lists, rule, clients, u, leaving, entering):
                    result[v, number[tuple(u)]] = True
    return result


def _tailored(
    lists: Sequence[np.ndarray], rule: Rule, v: np.ndarray, u: np.ndarray, leaving: int, entering: int
) -> bool:
    """Returns whether the set u is a neighbour of the set v. u has `entering` in place of `leaving`.

    The rule is R2, or N1 or N2 as printed in the paper.
    """
    if rule != "printed":
        return any(x[leaving] <= x[v].min() or x[entering] <= x[u].min() for x in lists)
    for values in lists:
        ascending = v[np.argsort(values[v], kind="stable")]
        first = ascending[0]
        passive = values[entering] < values[first] and leaving != first
        if leaving == first or passive:
            return True
    return False


def is_symmetric(adjacency: np.ndarray) -> bool:
    """Returns whether U is a neighbour of V if and only if V is a neighbour of U."""
    return bool((adjacency == adjacency.T).all())


def is_irreducible(adjacency: np.ndarray) -> bool:
    """Returns whether every vertex can be reached from every other vertex (R3 of the proof)."""
    return _components(adjacency, "strong") == 1


def is_weakly_reversible(adjacency: np.ndarray, energy: np.ndarray) -> bool:
    """Returns whether the graph is weakly reversible (R1 of the proof).

    For every height, only the vertices whose energy is at least this height are kept. Among them, U must be
    reachable from V if and only if V is reachable from U.
    """
    for height in np.unique(energy):
        level = energy >= height
        inside = adjacency[np.ix_(level, level)]
        if _components(inside, "strong") != _components(inside, "weak"):
            return False
    return True


def _components(adjacency: np.ndarray, connection: Literal["strong", "weak"]) -> int:
    from scipy.sparse.csgraph import connected_components  # it loads slowly, and no study needs it

    return int(connected_components(adjacency, connection=connection)[0])


def critical_depth(adjacency: np.ndarray, energy: np.ndarray, tolerance: float = TOLERANCE) -> float:
    """Returns Hajek's d*: the largest depth of a local maximum that is not global, in a symmetric graph.

    The depth is the energy that a path must give up to reach a higher vertex. With temperatures
    c / log(j + 1), P(V_j optimal) -> 1 if and only if c >= d* (Hajek 1988, Theorem 1). Here c = C / κ, so
    C / d* is the largest κ that Theorem 4 allows.
    """
    parent = np.arange(len(energy))
    peak = energy.copy()
    done = np.zeros(len(energy), bool)
    deepest = 0.0

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for v in np.argsort(-energy, kind="stable"):
        done[v] = True
        for u in np.flatnonzero(adjacency[v] & done):
            low, high = sorted((root(int(v)), root(int(u))), key=lambda r: peak[r])
            if low != high:
                if peak[low] < peak[high] - tolerance:
                    deepest = max(deepest, peak[low] - energy[v])
                parent[low] = high
    return float(deepest)


def energy_constant(
    ucb: np.ndarray,
    generalization: np.ndarray,
    privacy: np.ndarray,
    m: int,
    *,
    generalization_weight: float,
    privacy_weight: float,
    temperature_margin: float,
) -> float:
    """Returns the numerator C of the temperature, by (19). The three terms are [K] each."""
    ucb, g, p = (np.sort(np.asarray(values, np.float64)) for values in (ucb, generalization, privacy))
    g_range = generalization_weight / m * (g[-m:].sum() - g[:m].sum())
    p_range = privacy_weight / m * (p[-m:].sum() - p[:m].sum())
    return float(ucb[-m] - ucb[0] + g_range + p_range + temperature_margin)


def transition_matrix(adjacency: np.ndarray, energy: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the transition matrix of a step at a fixed temperature, float64 [n, n]; its rows sum to 1."""
    degree = adjacency.sum(axis=1, keepdims=True)
    fall = np.maximum(energy[:, None] - energy[None, :], 0.0)
    matrix = np.where(adjacency, np.exp(-fall / temperature) / np.maximum(degree, 1), 0.0)
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    return matrix


def stationary_law(adjacency: np.ndarray, energy: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the stationary law of `transition_matrix` on a symmetric graph, float64 [n].

    The law is degree * exp(E / τ), normalized. A vertex draws from its own neighbours, so the degrees do not
    cancel. Detailed balance therefore holds with the degree-weighted law, and not with exp(E / τ) alone.
    """
    weight = adjacency.sum(axis=1) * np.exp((energy - energy.max()) / temperature)
    return weight / weight.sum()


def optimum_probability(
    adjacency: np.ndarray,
    energy: np.ndarray,
    *,
    constant: float,
    divisors: Sequence[float],
    steps: Sequence[int],
    tolerance: float = TOLERANCE,
) -> OptimumProbability:
    """Computes the probabilities that the annealed chain is at, has visited, or returns an optimal vertex.

    Every step is one vector-matrix product with its own temperature, so the only error is that of rounding.

    Args:
      adjacency: bool [n, n], the neighbours of each vertex.
      energy: float64 [n], E(V) of each vertex.
      constant: C.
      divisors: values of κ. κ = 0 accepts every neighbour, as Algorithm 2 does with the sign as printed.
      steps: the numbers of steps for which the probabilities are returned, ascending.
      tolerance: the largest difference from the maximal energy at which a vertex is optimal.
    """
    optimal = energy >= energy.max() - tolerance
    degree = np.maximum(adjacency.sum(axis=1), 1)[:, None]
    worse = energy[None, :] < energy[:, None]
    up = np.where(adjacency & ~worse, 1 / degree, 0.0)
    edges = np.flatnonzero(adjacency & worse)
    fall = (energy[:, None] - energy[None, :]).ravel()[edges]
    drawn = np.broadcast_to(1 / degree, adjacency.shape).ravel()[edges]
    rate = np.asarray(divisors, np.float64)[:, None] * fall / constant
    n = len(energy)
    down = np.zeros((len(divisors), n * n))
    # Three distributions for each divisor. Index 0: chains whose last uphill vertex is not optimal. Index 1:
    # chains whose last uphill vertex is optimal. Index 2: chains that have never been at an optimum.
    law = np.zeros((len(divisors), 3, n))
    law[:, 0] = law[:, 2] = ~optimal / n
    law[:, 1] = optimal / n
    reported = []
    wanted = {int(number) for number in steps}
    for j in range(max(wanted) + 1):
        if j > 0:
            down[:, edges] = drawn * np.exp(-rate * np.log(j + 1))
            matrix = down.reshape(-1, n, n)
            rising = law @ up
            law = law @ matrix + law * (1.0 - up.sum(axis=1) - matrix.sum(axis=2))[:, None]
            climbed = rising[:, 0] + rising[:, 1]
            law[:, 0] += climbed * ~optimal
            law[:, 1] += climbed * optimal
            law[:, 2] = (law[:, 2] + rising[:, 2]) * ~optimal
        if j in wanted:
            current = (law[:, :2].sum(axis=1) * optimal).sum(axis=1)
            reported.append((current, 1.0 - law[:, 2].sum(axis=1), law[:, 1].sum(axis=1)))
    current, best, last_uphill = (np.stack(series, axis=1) for series in zip(*reported, strict=True))
    return OptimumProbability(np.array(sorted(wanted)), current, best, last_uphill)


def path(
    ucb: np.ndarray, start: Sequence[int], goal: Sequence[int], rng: np.random.Generator
) -> list[frozenset[int]] | None:
    """Returns the path between two vertices by the paper's Algorithm 3, or None if the path enters a cycle.

    Among equal values the lowest client is taken. With ranks as `ucb`, the list is strictly ordered.
    """
    vertex, target = frozenset(start), frozenset(goal)
    walked = [vertex]
    while vertex != target:
        missing = sorted(target - vertex)
        entering = max(missing, key=lambda k: ucb[k])
        lowest = min(sorted(vertex), key=lambda k: ucb[k])
        first_phase = ucb[lowest] <= ucb[entering]
        leaving = lowest if first_phase else int(rng.choice(sorted(vertex - target)))
        vertex = vertex - {leaving} | {entering}
        # No step adds a missing client, and a step of the second phase removes one. So only steps of the
        # first phase can return to a vertex. These steps are deterministic, so the path would then cycle
        # forever.
        if vertex in walked:
            return None
        walked.append(vertex)
    return walked
