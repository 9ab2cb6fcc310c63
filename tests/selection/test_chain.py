"""The chain of Algorithm 2 on small networks, against independent matrices, searches and simulations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.selection import chain
from pausejax.selection.anneal import anneal_trace

WEIGHTS = {"generalization_weight": 2.0, "privacy_weight": 1.0}


def instance(seed, num_clients, tied=False):
    """ucb, generalization, privacy; with `tied` they take few values, so most lists have ties."""
    rng = np.random.default_rng(seed)
    if tied:
        return [rng.integers(0, 3, num_clients).astype(float) for _ in range(3)]
    return [rng.random(num_clients), rng.uniform(-1, 1, num_clients), rng.random(num_clients)]


def problem(seed, num_clients, m, tied=False, rule="ranked"):
    ucb, g, p = instance(seed, num_clients, tied)
    energy = chain.energies(ucb, g, p, m, **WEIGHTS)
    constant = chain.energy_constant(ucb, g, p, m, temperature_margin=1e-3, **WEIGHTS)
    return chain.neighbours([ucb, p, g], m, rule), energy, constant


SHAPES = [(k, m) for k in range(2, 7) for m in range(1, k)]


@pytest.mark.parametrize(("num_clients", "m"), SHAPES)
@pytest.mark.parametrize("tied", [False, True])
def test_the_ranked_graph_is_what_the_theorem_needs(num_clients, m, tied):
    for seed in range(5):
        adjacency, energy, constant = problem(seed, num_clients, m, tied)
        assert not adjacency.diagonal().any()
        assert chain.is_symmetric(adjacency)
        assert chain.is_irreducible(adjacency)
        assert chain.is_weakly_reversible(adjacency, energy)
        assert np.ptp(energy) < constant
        assert chain.critical_depth(adjacency, energy) < constant


def test_the_four_rules_differ_as_they_should():
    for seed in range(20):
        ucb, g, p = instance(seed, 6)
        graphs = {rule: chain.neighbours([ucb, p, g], 3, rule) for rule in chain.RULES}
        assert (graphs["ranked"] == graphs["raw"]).all(), "without ties the readings agree"
        assert (graphs["ranked"] == graphs["printed"]).all()
        assert (graphs["any"] >= graphs["ranked"]).all()
        assert (graphs["any"].sum(axis=1) == 9).all()


def test_the_printed_rules_are_not_symmetric_where_values_tie():
    broken = 0
    for seed in range(20):
        ucb, g, p = instance(seed, 6, tied=True)
        printed = chain.neighbours([ucb, p, g], 3, "printed")
        broken += not chain.is_symmetric(printed)
        assert chain.is_symmetric(chain.neighbours([ucb, p, g], 3, "raw"))
    assert broken >= 15


def test_as_printed_a_tie_can_make_a_set_unreachable():
    """ucb (1, 1, 2), and the other lists alike: nothing leads back to {0, 1}."""
    lists = [np.array([1.0, 1.0, 2.0])] * 3
    printed = chain.neighbours(lists, 2, "printed")
    assert [tuple(v) for v in chain.vertices(3, 2)] == [(0, 1), (0, 2), (1, 2)]
    np.testing.assert_array_equal(printed, [[False, False, True], [False, False, True], [False, True, False]])
    assert not chain.is_irreducible(printed)
    for rule in ("ranked", "raw"):
        assert chain.is_irreducible(chain.neighbours(lists, 2, rule))


@pytest.mark.parametrize(
    ("edges", "energy", "reversible"),
    [
        ([(0, 1), (1, 2), (2, 0)], [1.0, 1.0, 0.0], False),  # back from 1 to 0 by the valley alone
        ([(0, 1), (1, 0), (0, 2)], [1.0, 1.0, 0.0], False),  # never back from the valley
        ([(0, 1), (1, 0), (0, 2), (2, 0)], [1.0, 1.0, 0.0], True),
        ([(0, 1), (1, 2), (2, 0)], [1.0, 1.0, 1.0], True),
    ],
)
def test_at_every_height_one_comes_back_or_one_does_not(edges, energy, reversible):
    adjacency = np.zeros((3, 3), bool)
    adjacency[tuple(np.transpose(edges))] = True
    assert chain.is_weakly_reversible(adjacency, np.array(energy)) == reversible


def test_two_sets_that_are_each_others_only_neighbour():
    """One way up, always taken, and one way down with the probability of its fall; C = 1, κ = 2."""
    adjacency, energy = np.array([[False, True], [True, False]]), np.array([0.0, 1.0])
    down = np.exp(-1 / 0.7)
    matrix = chain.transition_matrix(adjacency, energy, 0.7)
    np.testing.assert_allclose(matrix, [[0, 1], [down, 1 - down]])
    got = chain.optimum_probability(adjacency, energy, constant=1.0, divisors=[2.0], steps=[0, 1, 2])
    first, second = np.exp(-2 * np.log([2, 3]))
    one = 0.5 + 0.5 * (1 - first)
    np.testing.assert_allclose(got.current[0], [0.5, one, 1 - one + one * (1 - second)])
    np.testing.assert_allclose(got.best[0], [0.5, 1, 1])
    assert got.steps.tolist() == [0, 1, 2]


def test_a_set_without_neighbours_stays():
    lonely = np.zeros((2, 2), bool)
    np.testing.assert_array_equal(chain.transition_matrix(lonely, np.array([0.0, 1.0]), 1.0), np.eye(2))


@pytest.mark.parametrize(("num_clients", "m"), [(5, 1), (5, 2), (7, 5)])
def test_the_constant_is_the_widest_range_of_each_term(num_clients, m):
    """(19) over all sets, one by one; the ucb of a set is its least."""
    ucb, g, p = instance(4, num_clients)
    sets = chain.vertices(num_clients, m)
    slowest, sums = ucb[sets].min(axis=1), [x[sets].sum(axis=1) / m for x in (g, p)]
    expected = np.ptp(slowest) + 2 * np.ptp(sums[0]) + np.ptp(sums[1]) + 0.3
    found = chain.energy_constant(ucb, g, p, m, temperature_margin=0.3, **WEIGHTS)
    assert found == pytest.approx(expected)


def test_unknown_rules_and_large_networks_are_refused():
    with pytest.raises(ValueError, match="rule"):
        chain.neighbours([np.arange(4.0)], 2, "other")
    with pytest.raises(ValueError, match="m: 10 of 30"):
        chain.vertices(30, 10)


@pytest.mark.parametrize(("num_clients", "m"), [(4, 2), (5, 2), (6, 3), (6, 5)])
@pytest.mark.parametrize("tied", [False, True])
def test_detailed_balance_with_the_degree_weighted_law(num_clients, m, tied):
    for seed in range(5):
        adjacency, energy, _ = problem(seed, num_clients, m, tied)
        for temperature in (0.05, 0.5, 5.0):
            matrix = chain.transition_matrix(adjacency, energy, temperature)
            assert (matrix >= 0).all()
            np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
            flow = chain.stationary_law(adjacency, energy, temperature)[:, None] * matrix
            np.testing.assert_allclose(flow, flow.T, atol=1e-15)


def test_without_the_degrees_balance_fails():
    adjacency, energy, _ = problem(0, 6, 3)
    assert len(set(adjacency.sum(axis=1))) > 1
    matrix = chain.transition_matrix(adjacency, energy, 1.0)
    gibbs = np.exp(energy)
    assert np.abs(gibbs @ matrix - gibbs).max() > 0.01


@pytest.mark.parametrize("tied", [False, True])
def test_probabilities_equal_naive_products_on_pairs_of_vertices(tied):
    """The pair (inspected, returned vertex) is a chain of its own; build it state by state."""
    adjacency, energy, constant = problem(9, 5, 2, tied)
    optimal = energy == energy.max()
    assert (len(set(energy)) < len(energy)) == tied, "level steps count as uphill"
    n, divisor, count = len(energy), 4.0, 40
    pair = np.zeros((n, n))
    pair[np.arange(n), np.arange(n)] = 1 / n
    unseen = np.where(optimal, 0.0, 1 / n)
    expected = []
    for j in range(1, count + 1):
        matrix = chain.transition_matrix(adjacency, energy, constant / (divisor * np.log(j + 1)))
        after = np.zeros((n, n))
        for v, returned, u in itertools.product(range(n), repeat=3):
            uphill = u != v and energy[u] >= energy[v]
            after[u, u if uphill else returned] += pair[v, returned] * matrix[v, u]
        pair, unseen = after, np.where(optimal, 0.0, unseen @ matrix)
        expected.append((pair[optimal].sum(), 1 - unseen.sum(), pair[:, optimal].sum()))
    got = chain.optimum_probability(
        adjacency, energy, constant=constant, divisors=[1.0, divisor], steps=range(1, count + 1)
    )
    series = np.stack([got.current[1], got.best[1], got.last_uphill[1]], axis=1)
    np.testing.assert_allclose(series, expected, atol=1e-12)


def test_vanilla_sas_constant_bounds_rewards_and_not_energies():
    """One client played 97 of 100 rounds, m = 1, α = γ = 0: the constant is 1, and E ranges over 2.7."""
    ucb = np.sqrt(2 * np.log(100) / np.array([97, 1, 1, 1]))
    zero = np.zeros(4)
    energy = chain.energies(ucb, zero, zero, 1, generalization_weight=0.0, privacy_weight=0.0)
    assert np.ptp(energy) > 2.7


def test_a_divisor_of_zero_is_the_printed_sign():
    """With the sign as printed every neighbour is accepted: a random walk, whose law is the degrees."""
    adjacency, energy, constant = problem(1, 6, 3)
    got = chain.optimum_probability(adjacency, energy, constant=constant, divisors=[0.0], steps=[2000])
    degree = adjacency.sum(axis=1)
    np.testing.assert_allclose(got.current[0, 0], degree[energy.argmax()] / degree.sum(), rtol=1e-6)


def widest_paths(adjacency, energy):
    """The largest lowest energy on any path between two vertices, by Floyd and Warshall."""
    width = np.where(adjacency, np.minimum(energy[:, None], energy[None, :]), -np.inf)
    np.fill_diagonal(width, energy)
    for k in range(len(energy)):
        width = np.maximum(width, np.minimum(width[:, k, None], width[None, k]))
    return width


@pytest.mark.parametrize("tied", [False, True])
def test_critical_depth_equals_a_search_over_all_paths(tied):
    positive = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        half = rng.random((12, 12)) < 0.25
        adjacency = (half | half.T) & ~np.eye(12, dtype=bool)
        if not chain.is_irreducible(adjacency):
            continue
        energy = rng.integers(0, 4, 12).astype(float) if tied else rng.random(12)
        width = widest_paths(adjacency, energy)
        depth = [
            energy[v] - max(width[v, u] for u in range(12) if energy[u] > energy[v])
            for v in np.flatnonzero(energy < energy.max())
        ]
        assert chain.critical_depth(adjacency, energy) == pytest.approx(max([0, *depth]))
        positive += max([0, *depth]) > 0
    assert positive > 20


def test_hajeks_condition_decides_whether_the_chain_converges():
    """ucb (0, 0, 1, 1): to reach {2, 3} from {0, 1} two swaps are needed, and the first costs 0.35."""
    ucb, g = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.7, 0.7, 0.0, 0.0])
    weights = {"generalization_weight": 1.0, "privacy_weight": 0.0}
    energy = chain.energies(ucb, g, np.zeros(4), 2, **weights)
    adjacency = chain.neighbours([ucb, np.zeros(4), g], 2)
    constant = chain.energy_constant(ucb, g, np.zeros(4), 2, temperature_margin=0.0, **weights)
    largest = constant / chain.critical_depth(adjacency, energy)
    assert largest == pytest.approx(1.7 / 0.35)
    steps = [1_000, 10_000]
    got = chain.optimum_probability(
        adjacency, energy, constant=constant, divisors=[0.6 * largest, 10 * largest], steps=steps
    )
    assert got.current[0, 0] < got.current[0, 1] > 0.95
    assert got.current[1, 1] == pytest.approx(got.current[1, 0], abs=1e-9)
    assert got.current[1, 1] < got.best[1, 1] + 1e-12 < 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("num_clients", "m"), [(4, 2), (5, 2), (6, 3), (7, 4), (8, 3)])
def test_algorithm_3_finds_a_path_in_strictly_ordered_lists(num_clients, m):
    adjacency_of = {}
    members = chain.vertices(num_clients, m)
    number = {frozenset(v): i for i, v in enumerate(members.tolist())}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        ranks = rng.permutation(num_clients)
        start, goal = (rng.choice(num_clients, m, replace=False) for _ in range(2))
        walked = chain.path(ranks, start, goal, rng)
        assert walked[0] == frozenset(start) and walked[-1] == frozenset(goal)
        adjacency = adjacency_of.setdefault(tuple(ranks), chain.neighbours([ranks], m))
        for before, after in itertools.pairwise(walked):
            assert adjacency[number[before], number[after]]


def test_algorithm_3_goes_in_circles_on_ties():
    """The smallest case: of two clients with the same ucb one is always put out to let the other in."""
    rng = np.random.default_rng(0)
    ucb = np.array([1.0, 1.0, 2.0])
    assert chain.path(ucb, start=[0, 2], goal=[0, 1], rng=rng) is None
    assert chain.path(np.array([0, 1, 2]), start=[0, 2], goal=[0, 1], rng=rng) is not None
    for values in itertools.product(range(3), repeat=3):
        for start, goal in itertools.product(range(3), repeat=2):
            assert chain.path(np.array(values), [start], [goal], rng) is not None, "m = 1 never fails"


@pytest.mark.slow
@pytest.mark.parametrize("divisor", [1.0, 20.0])
def test_simulated_chains_have_the_exact_probabilities(divisor):
    """4,000 chains at 5 numbers of steps; a deviation over 5 standard errors is a false alarm in 3e-6."""
    num_clients, m, chains, steps = 6, 3, 4_000, 200
    ucb, g, p = instance(8, num_clients)
    adjacency, energy, constant = problem(8, num_clients, m)
    checkpoints = [0, 1, 5, 30, 200]
    exact = chain.optimum_probability(
        adjacency, energy, constant=constant, divisors=[divisor], steps=checkpoints
    )
    keys = jax.random.split(jax.random.key(0), chains)
    terms = [jnp.asarray(x, jnp.float32) for x in (ucb, g, p)]
    run = jax.vmap(
        lambda key: anneal_trace(
            key, *terms, m=m, steps=steps, temperature_divisor=divisor, temperature_margin=1e-3, **WEIGHTS
        )[1]
    )
    at_optimum = np.asarray(run(keys)) >= np.sort(energy)[-2:].mean()
    seen = np.maximum.accumulate(at_optimum, axis=1)
    for simulated, expected in ((at_optimum, exact.current[0]), (seen, exact.best[0])):
        error = simulated.mean(axis=0)[checkpoints] - expected
        scale = np.sqrt(np.maximum(expected * (1 - expected), 1e-4) / chains)
        assert np.abs(error / scale).max() < 5


def test_as_many_sets_as_there_may_be_are_listed_and_no_more(monkeypatch):
    monkeypatch.setattr(chain, "MAX_VERTICES", 6)
    assert len(chain.vertices(4, 2)) == 6
    with pytest.raises(ValueError, match="m: 2 of 5 clients make more than 6 sets"):
        chain.vertices(5, 2)
