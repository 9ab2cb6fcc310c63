"""EFL-FG Algorithm 1 and the greedy set cover: the properties that the paper claims, and exact oracles."""

from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.ensemble.graph import dominating_set, feedback_graph

from . import oracle

RUNS = 6
build = jax.jit(feedback_graph)
dominate = jax.jit(dominating_set)


def draw_case(seed, num_models, spread, ties):
    """Random log-weights [K, R], a previous graph, sizes and affordable budgets."""
    rng = np.random.default_rng(seed)
    log_weight = (spread * rng.standard_normal((num_models, RUNS))).astype(np.float32)
    sizes = rng.integers(1, 50, num_models).astype(np.int32)
    if ties:
        log_weight = np.round(log_weight / spread) * np.float32(spread)
        sizes[:] = rng.choice([10, 20], num_models)
    previous = rng.random((num_models, num_models, RUNS)) < rng.choice([0.1, 0.4, 1.0])
    previous |= np.eye(num_models, dtype=bool)[:, :, None]
    budget = (sizes.max() * rng.uniform(1, 5, RUNS)).astype(np.int32)
    return log_weight, previous, sizes, budget


cases = given(
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([0.1, 3.0, 100.0, 1e4]),
    ties=st.booleans(),
)


@pytest.mark.parametrize("num_models", [1, 2, 11])
@settings(max_examples=40, deadline=None)
@cases
def test_graph_keeps_its_promises(num_models, seed, spread, ties):
    log_weight, previous, sizes, budget = draw_case(seed, num_models, spread, ties)
    graph = np.asarray(build(log_weight, previous, sizes, budget))
    assert graph[np.arange(num_models), np.arange(num_models)].all(), "every vertex has a self-loop"
    cost = np.einsum("kjr,j->kr", graph, sizes)
    assert (cost <= budget).all(), "no neighbourhood costs more than the budget"
    for r in range(RUNS):
        weight = [Decimal(float(x)).exp() for x in log_weight[:, r]]
        for k in range(num_models):
            members, before = set(np.flatnonzero(graph[k, :, r])), set(np.flatnonzero(previous[k, :, r]))

            def lighter(grown, before=before, weight=weight):
                slack = 1 + Decimal("1e-5")
                return sum(weight[j] for j in grown - before) <= slack * sum(
                    weight[j] for j in before - grown
                )

            assert members == {k} or lighter(members), "no neighbourhood is heavier than the previous one"
            for i in set(range(num_models)) - members:
                fits = sizes[list(members | {i})].sum() <= budget[r]
                # The weights are float32: at equality up to rounding either answer will do.
                assert not (fits and members | {i} <= before), "whoever could return has returned"


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), spread=st.sampled_from([0.1, 3.0, 100.0]))
def test_graph_equals_the_oracle(seed, spread):
    log_weight, previous, sizes, budget = draw_case(seed, 11, spread, False)
    graph = np.asarray(build(log_weight, previous, sizes, budget))
    for r in range(RUNS):
        expected = oracle.feedback_graph(log_weight[:, r].astype(float), previous[:, :, r], sizes, budget[r])
        np.testing.assert_array_equal(graph[:, :, r], expected)


def test_weight_condition_does_not_bind_in_the_first_round():
    sizes = np.array([4, 3, 2, 1], np.int32)
    first = np.ones((4, 4, 1), bool)
    graph = np.asarray(build(np.zeros((4, 1), np.float32), first, sizes, np.array([7], np.int32)))[:, :, 0]
    # Equal weights: the cheapest first, as long as the budget lasts.
    expected = [[1, 0, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]
    np.testing.assert_array_equal(graph, np.array(expected, bool))


def test_ties_go_to_the_lowest_index():
    sizes = np.full(5, 10, np.int32)
    first = np.ones((5, 5, 1), bool)
    graph = np.asarray(build(np.zeros((5, 1), np.float32), first, sizes, np.array([20], np.int32)))[:, :, 0]
    expected = np.eye(5, dtype=bool)
    expected[1:, 0] = expected[0, 1] = True
    np.testing.assert_array_equal(graph, expected)


def test_unchanged_weights_rebuild_the_same_graph():
    rng = np.random.default_rng(0)
    log_weight = rng.normal(0, 5, (22, RUNS)).astype(np.float32)
    sizes = rng.integers(1, 100, 22).astype(np.int32)
    budget = np.full(RUNS, 300, np.int32)
    graph = build(log_weight, np.ones((22, 22, RUNS), bool), sizes, budget)
    for _ in range(5):
        again = build(log_weight, graph, sizes, budget)
        np.testing.assert_array_equal(graph, again)
        graph = again


def test_equally_heavy_model_may_take_a_place():
    """Model 2 weighs as much as model 1, which it replaces, and is cheaper: EFL-FG (2) is tight."""
    sizes = np.array([5, 5, 4], np.int32)
    previous = np.eye(3, dtype=bool)[:, :, None]
    previous[0, 1] = True
    log_weight = np.array([[0.0], [-3.0], [-3.0]], np.float32)
    graph = np.asarray(build(log_weight, previous, sizes, np.array([10], np.int32)))[:, :, 0]
    np.testing.assert_array_equal(graph[0], [True, False, True])


def test_neighbourhood_weight_bounds_the_next():
    """A model that has become heavier than a whole neighbourhood may not join it."""
    sizes = np.full(3, 1, np.int32)
    previous = np.eye(3, dtype=bool)[:, :, None]
    previous[0, 1] = True
    log_weight = np.array([[-1.0], [-2.0], [0.0]], np.float32)
    graph = np.asarray(build(log_weight, previous, sizes, np.array([3], np.int32)))[:, :, 0]
    np.testing.assert_array_equal(graph, [[1, 1, 0], [0, 1, 0], [0, 0, 1]])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), density=st.sampled_from([0.0, 0.05, 0.2, 0.6, 1.0]))
@pytest.mark.parametrize("num_models", [1, 11, 32, 33, 70])
def test_dominating_set(num_models, seed, density):
    rng = np.random.default_rng(seed)
    graph = rng.random((num_models, num_models, RUNS)) < density
    graph |= np.eye(num_models, dtype=bool)[:, :, None]
    members = np.asarray(dominate(graph))
    for r in range(RUNS):
        assert graph[members[:, r], :, r].any(axis=0).all(), "every vertex is dominated"
        np.testing.assert_array_equal(members[:, r], oracle.dominating_set(graph[:, :, r]))


def test_graph_works_inside_vmap_and_scan():
    log_weight, previous, sizes, budget = (jnp.asarray(a) for a in draw_case(3, 11, 1.0, False))
    together = feedback_graph(log_weight, previous, sizes, budget)
    alone = jax.vmap(
        lambda w, p, b: feedback_graph(w[:, None], p[:, :, None], sizes, b[None])[:, :, 0],
        in_axes=-1,
        out_axes=-1,
    )(log_weight, previous, budget)
    np.testing.assert_array_equal(together, alone)
