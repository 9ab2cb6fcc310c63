"""The three regrets against float64 enumeration, the paper's bounds against formulas and a played game."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import bandit, network, regret
from pausejax.policies.base import Clients, Feedback, View
from pausejax.policies.pause import pause
from pausejax.policies.random import random

K, M = 7, 3
OBJECTIVE = bandit.Objective()
SETS = np.array(list(itertools.combinations(range(K), M)))


def value(speed, counts, share, time, members):
    """(9), (10) or (14) in float64 for sets of any one size, members [..., n]."""
    lag = M * share - (counts / time if time else 0 * counts)
    g = np.abs(lag) ** OBJECTIVE.generalization_exponent * np.sign(lag)
    p = np.exp(-OBJECTIVE.budget_decay * counts)
    return (
        speed[members].min(-1)
        + OBJECTIVE.generalization_weight * g[members].mean(-1)
        + OBJECTIVE.privacy_weight * p[members].mean(-1)
    )


def oracle_set(mu, counts, share, time):
    return SETS[np.argmax(value(mu, counts, share, time, SETS))]


step = jax.jit(functools.partial(regret.step, clients_per_round=M, objective=OBJECTIVE))


@pytest.mark.parametrize("size", [1, M, K])
@pytest.mark.parametrize("time", [0, 1, 40])
def test_the_three_regrets_of_one_round(size, time):
    rng = np.random.default_rng([size, time])
    for _ in range(10):
        mu, speed = rng.uniform(0.05, 1, (2, K))
        share = rng.dirichlet(np.full(K, 2.0))
        counts, oracle_counts = rng.integers(0, time + 1, (2, K))
        chosen = rng.choice(K, size, replace=False)
        members = np.full(K + 2, -1, np.int32)
        members[rng.choice(K + 2, size, replace=False)] = chosen
        new_counts, ours = step(
            jnp.asarray(oracle_counts),
            jnp.asarray(counts),
            members,
            time,
            mean_reward=jnp.asarray(mu, jnp.float32),
            latency_reward=jnp.asarray(speed, jnp.float32),
            data_share=jnp.asarray(share, jnp.float32),
        )
        best, own = oracle_set(mu, counts, share, time), oracle_set(mu, oracle_counts, share, time)
        played = value(speed, counts, share, time, chosen)
        expected = regret.Regrets(
            played,
            value(speed, counts, share, time, best) - played,
            value(mu, counts, share, time, best) - value(mu, counts, share, time, chosen),
            value(speed, oracle_counts, share, time, own) - played,
        )
        np.testing.assert_allclose(ours, expected, atol=1e-4)
        np.testing.assert_array_equal(new_counts, oracle_counts + np.isin(np.arange(K), own))


@pytest.mark.parametrize(("time", "all_complete"), [(1, False), (40, False), (40, True)])
def test_the_oracle_chooses_among_the_available(time, all_complete):
    rng = np.random.default_rng(time)
    for size in (*range(K + 1), 2, 5):
        mask, completes = np.zeros(K, bool), rng.random(K) < 0.6
        mask[rng.choice(K, size, replace=False)] = True
        mu, speed = rng.uniform(0.05, 1, (2, K))
        share = rng.dirichlet(np.full(K, 2.0))
        counts, oracle_counts = rng.integers(0, time + 1, (2, K))
        there = np.flatnonzero(mask)
        chosen = rng.choice(there, min(2, size), replace=False)
        new_counts, ours = step(
            jnp.asarray(oracle_counts),
            jnp.asarray(counts),
            jnp.asarray(np.r_[chosen, [-1] * (3 - len(chosen))], jnp.int32),
            time,
            mean_reward=jnp.asarray(mu, jnp.float32),
            latency_reward=jnp.asarray(speed, jnp.float32),
            data_share=jnp.asarray(share, jnp.float32),
            available=jnp.asarray(mask),
            completes=None if all_complete else jnp.asarray(completes),
        )
        if not size:
            assert all(float(x) == 0 for x in ours)
            np.testing.assert_array_equal(new_counts, oracle_counts)
            continue
        sets = np.array(list(itertools.combinations(there, min(M, size))))
        best, own = (sets[np.argmax(value(mu, c, share, time, sets))] for c in (counts, oracle_counts))
        played = value(speed, counts, share, time, chosen)
        expected = regret.Regrets(
            played,
            value(speed, counts, share, time, best) - played,
            value(mu, counts, share, time, best) - value(mu, counts, share, time, chosen),
            value(speed, oracle_counts, share, time, own) - played,
        )
        np.testing.assert_allclose(ours, expected, atol=1e-4)
        counted = np.isin(np.arange(K), own) & (completes | all_complete)
        np.testing.assert_array_equal(new_counts, oracle_counts + counted)


def play(rule, rounds, seeds):
    """A policy that chooses one of two clients by speed alone, α = γ = 0: regrets, [seeds, rounds], and μ."""
    objective = bandit.Objective(generalization_weight=0.0, privacy_weight=0.0)
    speeds = network.Speeds(fast_latency=0.06, slow_latency=1.1, slow_range=0.1)
    law = network.two_speed(num_clients=2, min_latency=0.05, speeds=speeds, latency_deviation=0.002)
    mu = network.expected_reward(law, 0.05)
    share = jnp.full(2, 0.5)
    policy = rule(num_clients=2, clients_per_round=1, **({"objective": objective} if rule is pause else {}))

    def round_of(carry, round):
        state, history, oracle_counts, key = carry
        now = jax.random.fold_in(key, round)
        latency = law.sample(jax.random.fold_in(now, 0))
        view = View(round, latency, lambda clients: jnp.zeros(clients.shape))
        members = policy.select(jax.random.fold_in(now, 1), state, view).members
        oracle_counts, regrets = regret.step(
            oracle_counts,
            history.counts,
            members,
            bandit.time_of_terms(round),
            mean_reward=mu,
            latency_reward=0.05 / latency,
            data_share=share,
            clients_per_round=1,
            objective=objective,
        )
        reward = (0.05 / latency)[members]
        feedback = Feedback(members, latency[members], reward, reward, reward, reward[:, None])
        history = bandit.update(history, members, reward)
        return (policy.update(state, view, feedback), history, oracle_counts, key), regrets

    def run(seed):
        state = policy.init(jax.random.key(0), Clients(share, jnp.ones(2)))
        start = (state, bandit.init(2), regret.init(2), jax.random.key(seed))
        return jax.lax.scan(round_of, start, jnp.arange(1, rounds + 1))[1]

    return jax.jit(jax.vmap(run))(jnp.arange(seeds)), np.asarray(mu, np.float64)


@pytest.mark.slow
def test_the_bounds_hold_for_pause_and_not_for_who_does_not_learn():
    """So far apart are the two clients that (17) is below half of what choosing at random loses."""
    rounds = 1500
    (ours, mu), (theirs, _) = (play(rule, rounds, 4) for rule in (pause, random))
    gap = mu[0] - mu[1]
    assert gap > 0.7
    bound = regret.regret_bound(np.arange(1, rounds + 1), 2, 1, regret.gap_bound(mu, 0.0, 0.0), gap)
    for regrets in (ours, theirs):
        assert (regrets.pseudo_regret >= -1e-5).all()
        np.testing.assert_allclose(regret.largest_gap(regrets.pseudo_regret), gap, rtol=1e-5)
    learned, lost = (np.cumsum(np.asarray(r.regret, np.float64).mean(axis=0)) for r in (ours, theirs))
    assert (learned <= bound).all() and learned[-1] > gap
    assert lost[-1] > 1.5 * bound[-1]


def test_the_oracle_with_its_own_history_plays_its_own_trajectory():
    rng = np.random.default_rng(1)
    mu, share = rng.uniform(0.05, 1, K), rng.dirichlet(np.full(K, 3.0))
    counts, ours = np.zeros(K, int), regret.init(K)
    for round in range(1, 61):
        speed = rng.uniform(0.05, 1, K).astype(np.float32)
        members = rng.choice(K, M, replace=False).astype(np.int32)
        elsewhere = jnp.asarray(rng.integers(0, round, K))
        known = {"mean_reward": jnp.asarray(mu, jnp.float32), "data_share": jnp.asarray(share, jnp.float32)}
        ours, _ = step(ours, elsewhere, members, round - 1, latency_reward=speed, **known)
        counts[oracle_set(mu, counts, share, round - 1)] += 1
        np.testing.assert_array_equal(ours, counts)


def test_smallest_gap():
    assert regret.smallest_gap(jnp.array([0.5, 0.1, 0.25, 0.9])) == pytest.approx(0.15)
    assert regret.smallest_gap(jnp.array([0.5, 0.1, 0.5])) == 0
    assert regret.smallest_gap(jnp.array([0.5])) == jnp.inf


def test_gap_bound_is_16_with_its_misprint_mended():
    assert regret.gap_bound(jnp.array([0.2, 0.9, 0.5]), 100.0, 5.0) == pytest.approx(205.7)


def test_regret_bound_is_17():
    expected = 30 * (205.5 + 0.1) * (4 * 6 * np.log(300) / 0.01 + 1 + 2 * np.pi**2 / 3)
    assert regret.regret_bound(300, 30, 5, 205.5, 0.1) == pytest.approx(expected, rel=1e-6)
    at_start = regret.regret_bound(jnp.array([1, 2]), 30, 5, 205.5, 0.1)
    assert at_start[0] == pytest.approx(30 * 205.6 * (1 + 2 * np.pi**2 / 3), rel=1e-6)


def test_largest_gap_skips_rounds_not_played():
    seen = regret.largest_gap(jnp.array([[0.1, 0.7, jnp.nan], [-2.0, -1.0, -3.0]]))
    np.testing.assert_allclose(seen, [0.7, -1.0])
