"""What the ensemble policies have in common, and what each is known to do."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.ensemble import policy as policies
from pausejax.ensemble.baselines import exp3, uniform_affordable
from pausejax.ensemble.efl_fg import EflFgState, efl_fg
from pausejax.ensemble.fedboost import fedboost, inclusion_probability
from pausejax.ensemble.policies import ENSEMBLE_POLICIES, Hyper, make_policy
from pausejax.ensemble.policy import Feedback, draw_index
from pausejax.parts import find

from . import oracle

K, R = 12, 8
SIZES = np.array([50, 50, 50, 50, 20, 20, 7, 7, 3, 1, 33, 50], np.int32)


def make(name, seed=0):
    rng = np.random.default_rng(seed)
    hyper = Hyper(
        jnp.asarray(10 ** rng.uniform(-3, 0.5, R), jnp.float32),
        jnp.asarray(rng.uniform(0.01, 0.9, R), jnp.float32),
        jnp.asarray(50 * rng.uniform(1, 6, R), jnp.int32),
        jnp.full(R, 50, jnp.int32),
        jnp.asarray(rng.uniform(0.3, 1, R), jnp.float32),
    )
    stream_loss = jnp.asarray(rng.random(K), jnp.float32)
    part = find("ensemble_policy", name)
    return make_policy(part, parameters=jnp.asarray(SIZES), stream_loss=stream_loss, hyper=hyper), hyper


@functools.cache
def compiled(name, seed):
    policy, hyper = make(name, seed)
    return policy, hyper, jax.jit(policy.select), jax.jit(policy.update)


def play(name, rounds, seed=0, clients=3):
    """Yields each round's choice on losses that are adversarial to whoever was just sent."""
    policy, hyper, select, update = compiled(name, seed)
    rng = np.random.default_rng(seed + 1)
    state = policy.init()
    for t in range(rounds):
        choice = select(jax.random.split(jax.random.fold_in(jax.random.key(seed), t), R), state)
        yield choice, hyper
        loss = rng.choice([0.0, 1.0, 0.3], (K, R)) * clients
        state = update(
            state,
            choice,
            Feedback(
                jnp.where(choice.sent, loss, 0.0),
                jnp.asarray(rng.random(R) * clients, jnp.float32),
                jnp.where(choice.sent, jnp.asarray(rng.standard_normal((K, R)) * clients, jnp.float32), 0.0),
                jnp.full(R, clients, jnp.int32),
            ),
        )


@pytest.mark.parametrize("name", ENSEMBLE_POLICIES)
def test_every_policy_mixes_only_what_it_sends(name):
    for choice, _ in play(name, 25):
        sent, mixing = np.asarray(choice.sent), np.asarray(choice.mixing)
        assert np.isfinite(mixing).all()
        assert (mixing[~sent] == 0).all()
        if name not in ("fedboost", "fedboost_weighted"):
            np.testing.assert_allclose(mixing.sum(axis=0), sent.any(axis=0), rtol=1e-5)


@pytest.mark.parametrize("name", ["efl_fg", "uniform_affordable", "exp3", "best_expert"])
@pytest.mark.parametrize("seed", range(3))
def test_budget_is_never_exceeded(name, seed):
    for choice, hyper in play(name, 60, seed):
        assert (SIZES @ np.asarray(choice.sent) <= np.asarray(hyper.budget)).all()


@pytest.mark.parametrize("seed", range(3))
def test_efl_fg_can_always_reach_every_model(seed):
    for choice, hyper in play("efl_fg", 80, seed):
        plan = jax.tree.map(np.asarray, choice.plan)
        assert plan.graph[np.arange(K), np.arange(K)].all()
        dominated = (plan.graph & plan.dominating[:, None]).any(axis=0)
        assert dominated.all()
        floor = np.asarray(hyper.exploration_rate) / plan.dominating.sum(axis=0)
        assert (plan.sent_probability >= floor * (1 - 1e-5)).all()
        assert (plan.sent_probability <= 1 + 1e-5).all()
        np.testing.assert_allclose(plan.node_probability.sum(axis=0), 1, rtol=1e-5)
        drawn = np.take_along_axis(plan.node_probability, plan.node[None], axis=0)
        assert (drawn > 0).all()


def test_efl_fg_with_self_loops_alone_is_exp3():
    """Equal costs and a budget of one model leave only self-loops: the dominating set is everyone."""
    sizes = jnp.full(K, 5, jnp.int32)
    rate, exploration = jnp.linspace(0.01, 0.5, R), jnp.linspace(0.05, 0.6, R)
    graphs = efl_fg(parameters=sizes, budget=jnp.full(R, 5), learning_rate=rate, exploration_rate=exploration)
    plain = exp3(num_models=K, learning_rate=rate, exploration_rate=exploration)
    rng = np.random.default_rng(0)
    selects = [jax.jit(policy.select) for policy in (graphs, plain)]
    states = [graphs.init(), plain.init()]
    for t in range(60):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), t), R)
        choices = [select(keys, state) for select, state in zip(selects, states, strict=True)]
        np.testing.assert_allclose(
            choices[0].plan.node_probability, choices[1].plan.probability, rtol=1e-4, atol=1e-7
        )
        np.testing.assert_array_equal(choices[0].sent, choices[1].sent)
        loss = jnp.asarray(rng.random((K, R)), jnp.float32)
        feedback = Feedback(
            jnp.where(choices[0].sent, loss, 0.0),
            jnp.sum(jnp.where(choices[0].sent, loss, 0.0), axis=0),
            jnp.zeros((K, R)),
            jnp.ones(R, jnp.int32),
        )
        states = [
            policy.update(state, choice, feedback)
            for policy, state, choice in zip((graphs, plain), states, choices, strict=True)
        ]


@pytest.mark.parametrize("name", ["efl_fg", "exp3"])
def test_importance_sampled_losses_are_unbiased(name):
    """EFL-FG (19a), EFL-FG (29a) exactly: the estimates' mean over the draw, all nodes enumerated."""
    policy, _ = make(name)
    for choice, _ in itertools.islice(play(name, 20), 10, None):
        plan = choice.plan
        loss, ensemble_loss = jax.random.uniform(jax.random.key(1), (2, K, R))
        expected, of_ensembles = np.zeros((2, K, R))
        for node in range(K):
            index = jnp.full(R, node, jnp.int32)
            if name == "efl_fg":
                drawn, probability = plan._replace(node=index), plan.node_probability[node]
                sent = plan.graph[node]
            else:
                drawn, probability = plan._replace(model=index), plan.probability[node]
                sent = jnp.arange(K)[:, None] == index[None]
            feedback = Feedback(
                jnp.where(sent, loss, 0.0), ensemble_loss[node], jnp.zeros((K, R)), jnp.ones(R, jnp.int32)
            )
            after = policy.update(policy.init(), choice._replace(plan=drawn, sent=sent), feedback)
            estimate = after.model_loss.high if isinstance(after, EflFgState) else after.high
            expected += np.asarray(probability)[None] * np.asarray(estimate)
            if name == "efl_fg":
                of_ensembles += np.asarray(probability)[None] * np.asarray(after.ensemble_loss.high)
        np.testing.assert_allclose(expected, loss, rtol=1e-4)
        if name == "efl_fg":
            drawable = np.asarray(plan.node_probability) > 1e-30  # others are beyond float32
            np.testing.assert_allclose(of_ensembles[drawable], ensemble_loss[drawable], rtol=1e-4)


def test_efl_fg_expected_loss_is_the_sum_over_all_nodes():
    policy, _ = make("efl_fg")
    rng = np.random.default_rng(3)
    predictions, targets = (rng.random(shape).astype(np.float32) for shape in ((K, 5, R), (5, R)))
    expected_loss = jax.jit(policy.expected_loss)
    for choice, _ in itertools.islice(play("efl_fg", 30), 25, None):
        plan = jax.tree.map(np.asarray, choice.plan)
        total = sum(
            plan.node_probability[k]
            * (np.einsum("jr,jnr->nr", plan.ensembles[k], predictions) - targets) ** 2
            for k in range(K)
        )
        np.testing.assert_allclose(expected_loss(choice, predictions, targets), total, rtol=1e-4)
        np.testing.assert_allclose(
            np.take_along_axis(plan.ensembles, plan.node[None, None], axis=0)[0], choice.mixing, rtol=1e-6
        )


@pytest.mark.parametrize("sampling", ["uniform", "weighted"])
def test_fedboost_is_unbiased_and_its_expected_loss_exact(sampling):
    """All 2^K inclusions of five models enumerated."""
    sizes, budgets = np.array([5, 4, 3, 2, 1], np.int32), jnp.array([6, 9, 15, 30])
    spending = jnp.array([1.0, 0.8, 0.5, 1.0])
    policy = fedboost(
        parameters=jnp.asarray(sizes),
        budget=budgets,
        learning_rate=jnp.full(4, 0.7),
        spending=spending,
        sampling=sampling,
    )
    rng = np.random.default_rng(0)
    state = policy.init()._replace(high=jnp.asarray(rng.standard_normal((5, 4)), jnp.float32))
    choice = jax.jit(policy.select)(jax.random.split(jax.random.key(0), 4), state)
    mixture, gamma = map(np.asarray, choice.plan)
    predictions, targets = rng.random((5, 3, 4)), rng.random((3, 4))
    mean, cost, loss = np.zeros((5, 4)), np.zeros(4), np.zeros((3, 4))
    for bits in itertools.product([0, 1], repeat=5):
        sent = np.array(bits)[:, None]
        probability = np.prod(np.where(sent == 1, gamma, 1 - gamma), axis=0)
        mixing = sent * mixture / gamma
        mean += probability * mixing
        cost += probability * (sizes @ np.broadcast_to(sent, (5, 4)))
        loss += probability * (np.einsum("kr,knr->nr", mixing, predictions) - targets) ** 2
    np.testing.assert_allclose(mean, mixture, rtol=1e-4)
    np.testing.assert_allclose(cost, np.minimum(np.asarray(spending) * np.asarray(budgets), 15), rtol=1e-4)
    found = jax.jit(policy.expected_loss)(choice, *map(np.float32, (predictions, targets)))
    np.testing.assert_allclose(found, loss, rtol=1e-4)


included = jax.jit(inclusion_probability)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.1, 2.0, 20.0]))
def test_inclusion_probabilities_spend_the_budget(seed, spread):
    rng = np.random.default_rng(seed)
    cost = rng.uniform(0.01, 1, K).astype(np.float32)
    budget = rng.uniform(1, 1.2 * K, R).astype(np.float32)
    share = np.exp(spread * rng.standard_normal((K, R))).astype(np.float32)
    gamma = np.asarray(included(cost, budget, share))
    assert ((gamma >= 1e-6) & (gamma <= 1)).all()
    np.testing.assert_allclose(cost @ gamma, np.minimum(budget, cost.sum()), rtol=1e-3)
    for r in range(R):
        expected = oracle.inclusion_probability(cost.astype(float), budget[r], share[:, r].astype(float))
        np.testing.assert_allclose(gamma[:, r], expected, rtol=5e-3, atol=2e-6)


def test_uniform_affordable_takes_the_cheapest():
    policy = uniform_affordable(parameters=jnp.asarray(SIZES), budget=jnp.array([50, 58, 10_000]))
    sent = np.asarray(jax.jit(policy.select)(jax.random.split(jax.random.key(0), 3), policy.init()).sent)
    np.testing.assert_array_equal(np.flatnonzero(sent[:, 0]), [4, 6, 7, 8, 9])
    np.testing.assert_array_equal(np.flatnonzero(sent[:, 1]), [4, 5, 6, 7, 8, 9])
    assert sent[:, 2].all()


def test_a_draw_beyond_the_sum_is_the_last_that_can_be_drawn_in_its_own_run(monkeypatch):
    """Rounding may put the sum of all at the point, or below it."""
    monkeypatch.setattr(policies, "uniform", lambda key: jnp.ones(len(key)))
    probability = jnp.asarray([[0.5, 0.2, 1.0], [0.5, 0.3, 0.0], [0.0, 0.5, 0.0]])
    assert jax.jit(draw_index)(jax.random.split(jax.random.key(0), 3), probability).tolist() == [1, 2, 0]


def test_a_draw_of_nought_is_the_first_that_can_be_drawn(monkeypatch):
    monkeypatch.setattr(policies, "uniform", lambda key: jnp.zeros(len(key)))
    probability = jnp.asarray([[0.0, 0.2], [0.0, 0.3], [1.0, 0.5]])
    assert jax.jit(draw_index)(jax.random.split(jax.random.key(0), 2), probability).tolist() == [2, 0]


def test_models_that_nobody_wants_leave_their_share_unspent():
    gamma = np.asarray(included(*map(np.float32, (np.ones(3), [2.0], [[1.0], [0.0], [0.0]]))))
    np.testing.assert_allclose(gamma[:, 0], [1, 1e-6, 1e-6])


def test_fedboost_by_count_sends_so_many_models_in_expectation():
    """B / K whatever they cost, in units of the largest; who sends nothing predicts 0."""
    budgets = jnp.array([6, 20, 1000, 1])
    policy = fedboost(
        parameters=jnp.asarray(SIZES),
        budget=budgets,
        learning_rate=jnp.ones(4),
        spending=jnp.array([1.0, 0.5, 1.0, 1e-3]),
        sampling="count",
        normalized=True,
    )
    choice = jax.jit(policy.select)(jax.random.split(jax.random.key(0), 4), policy.init())
    expected = np.minimum(np.array([6, 10, 1000, 1e-3]) / 50 / K, 1)
    np.testing.assert_allclose(choice.plan[1], np.broadcast_to(np.maximum(expected, 1e-6), (K, 4)), rtol=1e-6)
    sent, mixing = np.asarray(choice.sent), np.asarray(choice.mixing)
    assert not sent[:, 3].any() and not mixing[:, 3].any() and sent[:, 2].all()
    assert policy.min_sent == 0 and make("exp3")[0].min_sent == 1


def test_exp3_expects_the_mean_of_the_models_losses():
    policy, _ = make("exp3")
    rng = np.random.default_rng(4)
    predictions, targets = rng.random((K, 5, R)), rng.random((5, R))
    ((choice, _),) = itertools.islice(play("exp3", 9), 8, None)
    arrays = (jnp.asarray(x, jnp.float32) for x in (predictions, targets))
    found = jax.jit(policy.expected_loss)(choice, *arrays)
    probability = np.asarray(choice.plan.probability, np.float64)
    expected = (probability[:, None] * (predictions - targets) ** 2).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_draw_index_follows_the_probabilities():
    """Chi-square of 40,000 draws over 5 cells at a false-alarm rate of 1e-4; a zero is never drawn."""
    probability = np.array([0.1, 0.0, 0.5, 0.4, 0.0])
    keys = jax.random.split(jax.random.key(5), 40_000)
    drawn = jax.jit(draw_index)(keys, np.tile(np.float32(probability)[:, None], 40_000))
    counts = np.bincount(drawn, minlength=5)
    assert counts[1] == counts[4] == 0
    kept = probability > 0
    statistic = ((counts - 40_000 * probability)[kept] ** 2 / (40_000 * probability[kept])).sum()
    assert statistic < 18.4
