"""Annealing against literal enumerations: neighbours, one transition, whole walks, infinities, bad input."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from pausejax import bandit
from pausejax.selection import (
    _neighbours,
    _order,
    _walk,
    anneal,
    anneal_trace,
    brute_force,
    chain,
    vanilla_anneal,
)
from pausejax.selection.anneal import finite_ucb, temperature_constant

WEIGHTS = {"generalization_weight": 2.0, "privacy_weight": 1.0}
FALSE_ALARM = 1e-7
"""Of every single chi-square test here; there are fewer than 300 of them, with fixed seeds."""


def instance(seed, num_clients, tied=False):
    rng = np.random.default_rng(seed)
    if tied:
        return [rng.integers(0, 3, num_clients).astype(np.float32) for _ in range(3)]
    terms = (rng.random(num_clients), rng.uniform(-1, 1, num_clients), rng.random(num_clients))
    return [term.astype(np.float32) for term in terms]


def random_bits(seed, count, words):
    return np.random.default_rng(seed).integers(0, 2**32, (count, words), dtype=np.uint32)


# Sorting and sampling


@jax.jit
def argsorted(values):
    order = _order.stable_argsort(values)
    return order, _order.inverse_permutation(order)


@pytest.mark.parametrize("size", [1, 2, 3, 30, 300, 70_000])
def test_stable_argsort_equals_numpys(size):
    rng = np.random.default_rng(size)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e30], np.float32)
    for values in (rng.normal(size=size), rng.integers(-2, 3, size), rng.choice(special, size)):
        values = values.astype(np.float32)
        order, place = argsorted(values)
        np.testing.assert_array_equal(order, np.argsort(values, kind="stable"))
        np.testing.assert_array_equal(place, np.argsort(order))


def test_scaled_bits_equal_exact_integers():
    bits = random_bits(0, 2_000, 1)[:, 0]
    bits[:2] = 0, 2**32 - 1
    for count in (0, 1, 2, 3, 15, 65_535, 65_536, 1_000_003, 2**31 - 1):
        expected = [int(b) * count >> 32 for b in bits]
        np.testing.assert_array_equal(jax.jit(_order.scaled_bits)(bits, np.int32(count)), expected)


def test_the_first_set_is_uniform():
    draw = jax.jit(jax.vmap(lambda key: _order.random_subset(key, 6, 3)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), 20_000)))
    number = {v: i for i, v in enumerate(itertools.combinations(range(6), 3))}
    counts = np.bincount([number[tuple(v)] for v in drawn], minlength=20)
    assert chisquare(counts).pvalue > FALSE_ALARM


# Neighbours


def swaps_by_definition(ucb, g, p, clients, rule):
    """Every (leaving, entering) that R1 and R2 allow at a set, on strictly ordered lists, by enumeration."""
    ranks = [np.argsort(np.argsort(x, kind="stable")) for x in (ucb, p, g)]
    swaps = set()
    for leaving in clients:
        for entering in set(range(len(ucb))) - set(clients):
            other = [c for c in clients if c != leaving] + [entering]
            active = any(r[leaving] == min(r[clients]) for r in ranks)
            passive = any(r[entering] == min(r[other]) for r in ranks)
            if rule == "any" or active or passive:
                swaps.add((leaving, entering))
    return swaps


@partial(jax.jit, static_argnames=("rule",))
def propose_many(ucb, g, p, clients, bits, rule):
    lists = _neighbours.make_lists(ucb, p, g) if rule == "tailored" else _neighbours.make_lists(ucb)
    propose = _neighbours.propose_tailored if rule == "tailored" else _neighbours.propose_any
    labels = jnp.sort(_order.inverse_permutation(lists.client)[clients])
    vertex = _neighbours.make_vertex(lists, labels)
    drawn = jax.vmap(lambda b: propose(lists, vertex, b))(bits)
    return lists.client[drawn.leaving], lists.client[drawn.entering], drawn.valid


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("num_clients", "m"), [(2, 1), (5, 1), (6, 3), (6, 5), (12, 6)])
def test_neighbours_are_drawn_uniformly_from_the_enumerated_set(num_clients, m, tied):
    for seed in range(4):
        ucb, g, p = instance(seed, num_clients, tied)
        rng = np.random.default_rng(seed)
        # The sets that the walk ends in have many passive neighbours: also look at one of high ucb.
        high = np.argsort(ucb, kind="stable")[-m:]
        for clients in (rng.choice(num_clients, m, replace=False), high):
            bits = random_bits(seed, 30_000, _neighbours.PROPOSAL_WORDS)
            for rule in ("tailored", "any"):
                swaps = sorted(swaps_by_definition(ucb, g, p, clients, rule))
                leaving, entering, valid = map(np.asarray, propose_many(ucb, g, p, clients, bits, rule))
                assert valid.mean() > 0.32, "a third is the worst case"
                assert valid.all() or rule == "tailored"
                codes = (leaving * num_clients + entering)[valid]
                expected = [a * num_clients + b for a, b in swaps]
                assert set(codes) == set(expected)
                counts = np.bincount(codes, minlength=num_clients**2)[expected]
                assert len(counts) == 1 or chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize("tied", [False, True])
def test_the_number_of_neighbours(tied):
    """|A| (K - m) + (m - |A|) |U|, for every set of small networks."""
    for seed, (num_clients, m) in itertools.product(range(3), [(5, 1), (5, 3), (6, 2), (7, 4), (7, 6)]):
        ucb, g, p = instance(seed, num_clients, tied)
        ranks = [np.argsort(np.argsort(x, kind="stable")) for x in (ucb, p, g)]
        for clients in chain.vertices(num_clients, m):
            first = {int(clients[np.argmin(r[clients])]) for r in ranks}
            below = {k for r in ranks for k in range(num_clients) if r[k] < r[clients].min()}
            expected = len(first) * (num_clients - m) + (m - len(first)) * len(below)
            assert len(swaps_by_definition(ucb, g, p, clients, "tailored")) == expected


def test_a_swap_keeps_every_list_sorted():
    ucb, g, p = instance(0, 12, tied=True)
    lists = jax.jit(_neighbours.make_lists)(ucb, p, g)

    @jax.jit
    def swap(labels, leaving, entering):
        return _neighbours.swap(lists, _neighbours.make_vertex(lists, labels), leaving, entering)

    rng = np.random.default_rng(0)
    for _ in range(30):
        labels = np.sort(rng.choice(12, 5, replace=False)).astype(np.int32)
        leaving, entering = rng.choice(labels), rng.choice(np.setdiff1d(np.arange(12), labels))
        swapped = swap(labels, leaving, np.int32(entering))
        expected = np.sort(np.append(labels[labels != leaving], entering))
        np.testing.assert_array_equal(swapped.labels, expected)
        np.testing.assert_array_equal(swapped.places, np.sort(np.asarray(lists.place)[:, expected], axis=1))


# One step of the chain


@pytest.mark.parametrize("rule", ["tailored", "any"])
@pytest.mark.parametrize("step", [1, 7])
def test_one_step_has_the_transition_probabilities_of_algorithm_2(rule, step):
    """Row by row against the matrix: neighbours, acceptance, its sign, and τ_j = C / (κ log(j + 1))."""
    num_clients, m, divisor, draws = 6, 3, 3.0, 20_000
    ucb, g, p = instance(5, num_clients)
    energy = chain.energies(ucb, g, p, m, **WEIGHTS)
    adjacency = chain.neighbours([ucb, p, g], m, "ranked" if rule == "tailored" else "any")
    constant = 2.5
    matrix = chain.transition_matrix(adjacency, energy, constant / (divisor * np.log(step + 1)))
    propose = _neighbours.propose_tailored if rule == "tailored" else _neighbours.propose_any

    @jax.jit
    def make(ucb, g, p):
        lists = _neighbours.make_lists(ucb, p, g) if rule == "tailored" else _neighbours.make_lists(ucb)
        score = bandit.score(g, p, m, **WEIGHTS)
        return lists, _walk.make_problem(lists, ucb, score, m, divisor / constant)

    lists, walk_problem = make(ucb, g, p)
    members = chain.vertices(num_clients, m)
    number = {tuple(v): i for i, v in enumerate(members)}
    label = np.asarray(_order.inverse_permutation(lists.client))

    @jax.jit
    def advance(labels, bits):
        vertex = _neighbours.make_vertex(lists, labels)
        start = _walk.start_at(walk_problem, vertex, step)
        after = jax.vmap(lambda b: _walk.transition(walk_problem, start, b, propose, 10))(bits)
        return after, jax.vmap(partial(_walk.energy_of, walk_problem))(after)

    for v, clients in enumerate(members):
        bits = random_bits(v, draws, _neighbours.PROPOSAL_WORDS + 1)
        after, reached_energy = advance(np.sort(label[clients]), bits)
        made = np.asarray(after.step) == step + 1
        sets = np.sort(np.asarray(lists.client)[np.asarray(after.vertex.labels)], axis=1)
        reached = np.array([number[tuple(u)] for u in sets])
        np.testing.assert_allclose(reached_energy, energy[reached], atol=1e-6)
        counts = np.bincount(reached[made], minlength=len(members))
        possible = matrix[v] > 1e-12
        assert (counts[~possible] == 0).all()
        assert chisquare(counts[possible], matrix[v][possible] * made.sum()).pvalue > FALSE_ALARM


# Whole walks


def stack(instances):
    return [np.stack(terms) for terms in zip(*instances, strict=True)]


@pytest.mark.parametrize(
    ("function", "num_clients", "m"),
    [(anneal, 1, 1), (anneal, 4, 4), (anneal, 5, 1), (anneal, 8, 5), (anneal, 7, 6), (vanilla_anneal, 8, 5)],
)
def test_many_steps_reach_the_optimum_of_every_instance(function, num_clients, m):
    instances = [instance(seed, num_clients, tied=seed % 2 == 1) for seed in range(60)]
    ucb, g, p = stack(instances)
    run = partial(function, m=m, steps=4_000, **WEIGHTS)
    got = jax.vmap(run)(jax.random.split(jax.random.key(0), len(instances)), ucb, g, p)
    scores = np.asarray(bandit.score(g, p, m, **WEIGHTS))
    for i, (members, value) in enumerate(zip(*map(np.asarray, got), strict=True)):
        best = chain.energies(ucb[i], g[i], p[i], m, **WEIGHTS).max()
        assert value == pytest.approx(best, abs=1e-5)
        assert (np.diff(members) > 0).all()
        worth = ucb[i, members].min() + scores[i, members].sum()
        assert value == pytest.approx(float(worth), abs=1e-5)


def test_the_optimum_equals_brute_force_with_infinities():
    ucb, g, p = instance(3, 8)
    for unexplored in range(9):
        terms = np.where(np.arange(8) < unexplored, np.inf, ucb).astype(np.float32), g, p
        score = jnp.asarray(bandit.score(g, p, 3, **WEIGHTS))
        expected = brute_force(jnp.asarray(terms[0]), score, 3)
        got = anneal(jax.random.key(unexplored), *terms, m=3, steps=4_000, **WEIGHTS)
        np.testing.assert_array_equal(got.members, expected.members)
        np.testing.assert_allclose(got.value, expected.value, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["tailored", "any"])
def test_the_best_set_ever_visited_is_returned(neighbours):
    """High temperatures, so that the walk leaves its best set again; energies are those of real sets."""
    num_clients, m = 10, 4
    ucb, g, p = instance(1, num_clients)
    every = chain.energies(ucb, g, p, m, **WEIGHTS)
    kept = 0
    for seed in range(8):
        run = partial(
            anneal_trace,
            jax.random.key(seed),
            ucb,
            g,
            p,
            m=m,
            steps=2_000,
            temperature_divisor=0.5,
            neighbours=neighbours,
            **WEIGHTS,
        )
        got, trace = run()
        assert trace.shape == (2_001,)
        assert got.value == pytest.approx(float(trace.max()), abs=1e-5)
        drift = np.abs(every[None, :] - np.asarray(trace)[:, None]).min(axis=1)
        assert drift.max() < 3e-6
        kept += bool(trace[-1] < trace.max() - 1e-3)
        untraced, none = run(traced=False)
        assert none is None
        np.testing.assert_array_equal(untraced.members, got.members)
    assert kept > 5


def test_without_steps_the_first_set_is_returned():
    ucb, g, p = instance(1, 10)
    got, trace = anneal_trace(jax.random.key(0), ucb, g, p, m=4, steps=0, **WEIGHTS)
    assert got.value == pytest.approx(float(trace[0]), abs=1e-6) and trace.shape == (1,)


@pytest.mark.slow
def test_a_colder_walk_climbs_and_a_hot_one_does_not():
    ucb, g, p = instance(2, 30)
    keys = jax.random.split(jax.random.key(0), 64)

    def mean_energy(divisor):
        run = partial(anneal_trace, m=5, steps=300, temperature_divisor=divisor, **WEIGHTS)
        return float(jax.vmap(lambda key: run(key, ucb, g, p)[1])(keys)[:, 200:].mean())

    assert mean_energy(0.01) + 0.5 < mean_energy(10.0) < mean_energy(1e6) + 0.1


@pytest.mark.slow
def test_runs_of_a_batch_equal_lone_runs_bit_for_bit():
    instances = [instance(seed, 20, tied=seed % 2 == 1) for seed in range(7)]
    ucb, g, p = stack(instances)
    keys = jax.random.split(jax.random.key(4), 7)
    rng = np.random.default_rng(0)
    alpha, gamma, kappa, omega = (jnp.asarray(rng.uniform(0.1, 5, 7), jnp.float32) for _ in range(4))

    def run(key, ucb, g, p, alpha, gamma, kappa, omega):
        return anneal_trace(
            key,
            ucb,
            g,
            p,
            m=6,
            generalization_weight=alpha,
            privacy_weight=gamma,
            steps=150,
            temperature_divisor=kappa,
            temperature_margin=omega,
        )

    inputs = (keys, *map(np.asarray, (ucb, g, p, alpha, gamma, kappa, omega)))
    got, trace = jax.jit(jax.vmap(run))(*inputs)
    for i in range(7):
        alone, alone_trace = run(*(x[i] for x in inputs))
        np.testing.assert_array_equal(alone.members, got.members[i])
        np.testing.assert_array_equal(alone_trace, trace[i])


@pytest.mark.slow
@given(
    ucb=st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf]), min_size=6, max_size=6),
    g=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 1e-30, 1e30]), min_size=6, max_size=6),
    p=st.lists(st.sampled_from([0.0, 1.0]), min_size=6, max_size=6),
    key=st.integers(0, 10),
)
@settings(max_examples=60, deadline=None)
def test_members_are_always_distinct(ucb, g, p, key):
    terms = [np.array(x, np.float32) for x in (ucb, g, p)]
    for function in (anneal, vanilla_anneal):
        members = np.asarray(function(jax.random.key(key), *terms, m=3, steps=40, **WEIGHTS).members)
        assert members.dtype == np.int32
        assert (np.diff(members) > 0).all() and members[0] >= 0 and members[-1] < 6


# Stand-ins and the temperature


stand_in = jax.jit(finite_ucb, static_argnums=2)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_stand_ins_for_infinity_keep_the_order_of_all_sets(scale):
    for seed, m in itertools.product(range(6), [1, 2, 3, 5]):
        ucb, g, p = instance(seed, 6)
        for unexplored in range(7):
            values = np.where(np.arange(6) < unexplored, np.inf, ucb).astype(np.float32)
            score = (np.asarray(bandit.score(g, p, m, **WEIGHTS)) * scale).astype(np.float32)
            finite = np.asarray(stand_in(values, score, m), np.float64)
            assert np.isfinite(finite).all()
            sets = chain.vertices(6, m)
            sums = score[sets].sum(axis=1, dtype=np.float64)
            stood_in = finite[sets].min(axis=1) + sums
            only_unexplored = np.isinf(values[sets]).all(axis=1)
            literal = np.where(only_unexplored, 0.0, values[sets].min(axis=1)) + sums
            for group in (only_unexplored, ~only_unexplored):
                # Within a group the energies differ by a constant at most, so the order is the same.
                if group.any():
                    shift = stood_in[group] - literal[group]
                    np.testing.assert_allclose(shift, shift[0], atol=1e-5 * max(1, scale))
            if only_unexplored.any() and not only_unexplored.all():
                assert stood_in[only_unexplored].min() > stood_in[~only_unexplored].max()


def test_the_temperature_constant_is_19():
    @partial(jax.jit, static_argnames="m")
    def constant(ucb, g, p, m):
        lists = _neighbours.make_lists(ucb, p, g)
        return temperature_constant(lists, ucb, g, p, m=m, temperature_margin=0.25, **WEIGHTS)

    for seed, m in itertools.product(range(10), [1, 2, 4, 6]):
        ucb, g, p = instance(seed, 7, tied=seed % 2 == 1)
        got = constant(ucb, g, p, m)
        expected = chain.energy_constant(ucb, g, p, m, temperature_margin=0.25, **WEIGHTS)
        assert float(got) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("rule", "margin"), [("tailored", 1e-3), ("tailored", 1.0), ("any", 1e-3)])
def test_whole_walks_have_the_temperatures_of_their_constants(rule, margin):
    """After three steps the sets lie as by τ_j = C / (κ log(j + 1)) with C by (19) or 2α + γ + 1."""
    m, steps, chains, divisor = 3, 3, 40_000, 8.0
    scale = {"generalization_weight": 0.3, "privacy_weight": 0.2}
    ucb, g, p = instance(5, 6)
    energy = chain.energies(ucb, g, p, m, **scale)
    adjacency = chain.neighbours([ucb, p, g], m, "ranked" if rule == "tailored" else "any")
    constant = 2 * 0.3 + 0.2 + 1
    if rule == "tailored":
        spread = [np.sort(x)[-m:].sum() - np.sort(x)[:m].sum() for x in (g, p)]
        constant = np.sort(ucb)[-m] - ucb.min() + (0.3 * spread[0] + 0.2 * spread[1]) / m + margin
    expected = np.full(len(energy), chains / len(energy))
    for step in range(1, steps + 1):
        temperature = constant / (divisor * np.log(step + 1))
        expected = expected @ chain.transition_matrix(adjacency, energy, temperature)
    run = partial(
        anneal_trace, m=m, steps=steps, temperature_divisor=divisor, temperature_margin=margin,
        neighbours=rule, **scale,
    )  # fmt: skip
    terms = [jnp.asarray(term) for term in (ucb, g, p)]
    keys = jax.random.split(jax.random.key(3), chains)
    reached = np.asarray(jax.jit(jax.vmap(lambda key: run(key, *terms)[1][-1]))(keys))
    assert np.diff(np.sort(energy)).min() > 1e-5
    nearest = np.abs(reached[:, None] - energy[None]).argmin(axis=1)
    counts = np.bincount(nearest, minlength=len(energy))
    assert chisquare(counts, expected).pvalue > FALSE_ALARM


def test_the_stand_in_is_above_the_explored_by_all_that_scores_can_make_up():
    score = np.array([3.0, -1.0, 0.5, 0.0], np.float32)
    for ucb, top in (([np.inf, 2.0, 1.0, np.inf], 2.0), ([np.inf] * 4, 0.0)):
        finite = np.asarray(stand_in(np.array(ucb, np.float32), score, 2))
        # The largest Σ of two scores is 3.5, the least -1, and ω is 10⁻³ unless said otherwise.
        expected = np.where(np.isinf(ucb), top + 4.5 + 1e-3, ucb)
        np.testing.assert_allclose(finite, expected, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("function", [anneal, vanilla_anneal, anneal_trace])
def test_unless_said_otherwise_the_temperature_is_that_of_the_paper(function):
    """κ = 1 and ω = 10⁻³, which matters where nothing else does: α = γ = 0 and ucb within 10⁻³."""
    ucb = np.linspace(0, 1e-3, 6, dtype=np.float32)
    keys = jax.random.split(jax.random.key(1), 400)

    def walks(**options):
        weights = {"generalization_weight": 0.0, "privacy_weight": 0.0}
        run = partial(function, m=2, steps=3, **weights, **options)
        return jax.tree.leaves(jax.vmap(lambda key: run(key, ucb, 0 * ucb, 0 * ucb))(keys))

    margin = {} if function is vanilla_anneal else {"temperature_margin": 1e-3}
    said, unsaid = walks(temperature_divisor=1.0, **margin), walks()
    assert len(said) == (3 if function is anneal_trace else 2)
    for one, other in zip(said, unsaid, strict=True):
        np.testing.assert_array_equal(one, other)


# Bad input


@pytest.mark.slow
@pytest.mark.parametrize("function", [anneal, vanilla_anneal])
def test_nan_inside_jit_gives_a_valid_set_and_a_value_of_nan(function):
    run = jax.jit(partial(function, m=3, steps=50, **WEIGHTS))
    bad = [("ucb", np.nan), ("generalization", np.nan), ("privacy", np.nan)]
    bad += [("ucb", -np.inf), ("generalization", np.inf)]
    for (name, number), position in itertools.product(bad, (0, 3)):
        terms = dict(zip(("ucb", "generalization", "privacy"), instance(0, 6), strict=True))
        terms[name][position] = number
        got = run(jax.random.key(0), **terms)
        assert (np.diff(got.members) > 0).all() and got.members[0] >= 0 and got.members[-1] < 6
        assert np.isnan(got.value)


@pytest.mark.parametrize("neighbours", ["tailored", "any"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": 7}, "m: must be an integer from 1 to 6, .*, not 7"),
        ({"m": 0}, "m: must be an integer from 1 to 6, .*, not 0"),
        ({"m": 1.5}, "m: must be an integer from 1 to 6, .*, not 1.5"),
        ({"steps": 2.5}, "steps: must be an integer >= 0, not 2.5"),
        ({"steps": -1}, "steps: must be an integer >= 0, not -1"),
        ({"generalization_weight": -1.0}, "generalization_weight: must be >= 0, not -1"),
        ({"privacy_weight": np.nan}, "privacy_weight: must be >= 0, not nan"),
        ({"temperature_divisor": 0.0}, "temperature_divisor: must be > 0, not 0"),
        ({"temperature_margin": -1e-3}, "temperature_margin: must be >= 0, not -0.001"),
        ({"ucb": np.full(6, np.nan)}, "ucb: must hold finite numbers or .inf, not nan"),
        ({"ucb": np.full(6, -np.inf)}, "ucb: must hold finite numbers or .inf, not -inf"),
        ({"generalization": np.full(6, np.inf)}, "generalization: must hold finite numbers, not inf"),
        ({"privacy": np.full(6, np.nan)}, "privacy: must hold finite numbers, not nan"),
        ({"privacy": np.array([0, 1, np.nan, 0, 1, 0])}, "privacy: must hold finite numbers, not nan"),
        ({"privacy": np.zeros(5)}, r"privacy: must have the shape .*, not \(5,\)"),
        ({"ucb": np.float32(1)}, r"ucb: must have the shape .* \(\)"),
        ({"ucb": np.zeros((2, 3))}, "ucb: must have the shape .*"),
        ({"neighbours": "none"}, "neighbours: must be one of tailored, any, not 'none'"),
    ],
)
def test_bad_input_is_refused_by_name(neighbours, change, message):
    ucb, g, p = instance(0, 6)
    good = {"ucb": ucb, "generalization": g, "privacy": p, "m": 3, "steps": 5, "neighbours": neighbours}
    with pytest.raises(ValueError, match=message):
        anneal_trace(jax.random.key(0), **{**good, **WEIGHTS, **change})
