"""The archived runs of the PAUSE authors' code replay: every logged term, and every exact selection."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from pausejax import bandit
from pausejax.policies.base import Clients, Feedback, View
from pausejax.policies.pause import pause
from pausejax.selection import best_set

MIN_LATENCY = 0.05
WEIGHTS = {"generalization_weight": 100.0, "privacy_weight": 5.0}
EXPONENT, DECAY = 2.0, 0.04


class Scenario(NamedTuple):
    num_clients: int
    m: int
    gain: float


SCENARIOS = {"mnist_mlp_k30_m5": Scenario(30, 5, 1.0), "mnist_mlp_k300_m15": Scenario(300, 15, 3.0)}
LOGGED = [
    *(("mnist_mlp_k30_m5", policy) for policy in ("sa_pause", "pause", "fedavg", "random")),
    *(("mnist_mlp_k300_m15", policy) for policy in ("random", "fastest")),
]


class Replay(NamedTuple):
    """[rounds, K]: what decides each round, and what is known after it."""

    ucb: jax.Array
    generalization: jax.Array
    score: jax.Array
    mean_reward: jax.Array
    counts: jax.Array
    privacy_after: jax.Array


def columns(log, *names):
    """The log as arrays [rounds, cohort size]."""
    rounds = log["round"].nunique()
    return [log[name].to_numpy().reshape(rounds, -1) for name in names]


@jax.jit(static_argnames="scenario")
def replay(members, reward, scenario):
    num_clients, m, gain = scenario
    share = jnp.full(num_clients, 1 / num_clients)

    def play(state, played):
        round, members, reward = played
        time = bandit.time_of_terms(round, "reference")
        ucb = bandit.ucb(state.mean_reward, state.counts, time, m, gain)
        generalization = bandit.generalization(state.counts, time, share, m, EXPONENT)
        score = bandit.score(generalization, bandit.privacy_reward(state.counts, DECAY), m, **WEIGHTS)
        state = bandit.update(state, members, reward)
        after = bandit.privacy_reward(state.counts, DECAY)
        return state, Replay(ucb, generalization, score, state.mean_reward, state.counts, after)

    rounds = jnp.arange(1, len(members) + 1)
    return jax.lax.scan(play, bandit.init(num_clients), (rounds, members, reward))[1]


def view_of(round):
    return View(round, jnp.zeros(30), lambda clients: jnp.zeros(clients.shape))


@pytest.fixture(scope="module")
def trace(shared):
    table = pd.read_csv(shared / "reference" / "trace.csv.gz")
    return table.sort_values(["scenario", "policy", "round", "user"]).groupby(["scenario", "policy"])


def replayed(trace, scenario, policy):
    log = trace.get_group((scenario, policy))
    users, latency = columns(log, "user", "latency")
    return log, replay(
        users.astype(np.int32), (MIN_LATENCY / latency).astype(np.float32), SCENARIOS[scenario]
    )


@pytest.mark.parametrize(("scenario", "policy"), LOGGED)
def test_every_logged_term_replays(trace, scenario, policy):
    log, ours = replayed(trace, scenario, policy)
    users, ucb, exploration, generalization = columns(log, "user", "ucb", "exploration", "generalization")

    def of_users(values):
        return np.take_along_axis(np.asarray(values), users, 1)

    np.testing.assert_allclose(of_users(ours.ucb), ucb, atol=1e-5, rtol=0)
    np.testing.assert_allclose(of_users(ours.generalization), generalization, atol=1e-5, rtol=0)
    seen = np.isfinite(ucb)
    gain = SCENARIOS[scenario].gain
    before = np.concatenate([np.zeros_like(ours.mean_reward[:1]), ours.mean_reward[:-1]])
    width = of_users(np.where(np.isfinite(ours.ucb), ours.ucb - gain * before, 0))
    np.testing.assert_allclose(width[seen], exploration[seen], atol=1e-5, rtol=0)

    mean, counts, privacy = columns(log, "mean_reward", "counts_after", "privacy_reward_after")
    np.testing.assert_allclose(of_users(ours.mean_reward), mean, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(of_users(ours.counts), counts)
    np.testing.assert_allclose(of_users(ours.privacy_after), privacy, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_exact_selections_are_the_archived_ones(trace):
    """From round 7 on, where the optimum is unique; the archive draws the first K / m rounds at random."""
    log, ours = replayed(trace, "mnist_mlp_k30_m5", "pause")
    (users,) = columns(log, "user")
    chosen = jax.jit(jax.vmap(lambda u, s: best_set(u, s, 5).members))(ours.ucb, ours.score)
    sets = np.array(list(itertools.combinations(range(30), 5)))
    unique = 0
    for t in range(6, 100):
        ucb, score = np.float64(ours.ucb[t]), np.float64(ours.score[t])
        value = ucb[sets].min(1) + score[sets].sum(1)
        second, best = np.partition(value, -2)[-2:]
        if best - second > 1e-6:
            unique += 1
            np.testing.assert_array_equal(chosen[t], users[t])
        logged = ucb[users[t]].min() + score[users[t]].sum()
        assert abs(logged - best) <= 1e-6
    assert unique == 71


@pytest.mark.parametrize("selector", ["exact", pytest.param("brute", marks=pytest.mark.slow)])
def test_the_policy_plays_the_archived_game(trace, selector):
    log, ours = replayed(trace, "mnist_mlp_k30_m5", "pause")
    users, latency = columns(log, "user", "latency")
    policy = pause(
        num_clients=30,
        clients_per_round=5,
        objective=bandit.Objective(
            generalization_exponent=EXPONENT, budget_decay=DECAY, clock="reference", **WEIGHTS
        ),
        selector=selector,
    )
    data_share = np.arange(1, 31, dtype=np.float32) / 465
    equal = Clients(jnp.full(30, 1 / 30), jnp.ones(30))

    def play(state, played):
        round, members, reward = played
        view = view_of(round)
        cohort = policy.select(None, state, view)
        nothing = jnp.zeros_like(reward)
        feedback = Feedback(members, nothing, reward, nothing, nothing, nothing[:, None])
        return policy.update(state, view, feedback), cohort

    played = (jnp.arange(1, 101), users.astype(np.int32), (MIN_LATENCY / latency).astype(np.float32))
    start = policy.init(jax.random.key(0), equal)
    _, cohorts = jax.jit(lambda xs: jax.lax.scan(play, start, xs))(played)
    expected = jax.jit(jax.vmap(lambda u, s: best_set(u, s, 5).members))(ours.ucb, ours.score)
    np.testing.assert_array_equal(cohorts.members, expected)
    np.testing.assert_allclose(cohorts.weights, 0.2, rtol=1e-6)

    # The weights follow the data, (2).
    @jax.jit
    def first_cohort():
        state = policy.init(jax.random.key(0), Clients(jnp.asarray(data_share), jnp.ones(30)))
        return policy.select(None, state, view_of(jnp.int32(1)))

    cohort = first_cohort()
    share = data_share[np.asarray(cohort.members)]
    np.testing.assert_allclose(cohort.weights, share / share.sum(), rtol=1e-6)
