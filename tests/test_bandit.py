"""The bandit's terms against float64 formulas, and what PAUSE does before it knows anything."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import bandit
from pausejax.policies.base import Clients, Feedback, View
from pausejax.policies.pause import pause

K, M = 12, 4


@pytest.fixture
def history():
    """Twenty rounds of random cohorts with pads, and the counts and means that they leave, in float64."""
    rng = np.random.default_rng(0)
    state, rewards = bandit.init(K), [[] for _ in range(K)]
    for _ in range(20):
        # The last client is never seen.
        members = rng.choice(K - 1, M + 1, replace=False).astype(np.int32)
        members[rng.random(M + 1) < 0.3] = -1
        reward = rng.uniform(0.05, 1, M + 1).astype(np.float32)
        state = jax.jit(bandit.update)(state, members, reward)
        for k, x in zip(members, reward, strict=True):
            if k >= 0:
                rewards[k].append(float(x))
    counts = np.array([len(r) for r in rewards])
    mean = np.array([np.mean(r) if r else 0.0 for r in rewards])
    return state, counts, mean


def test_update_is_the_running_mean(history):
    state, counts, mean = history
    assert state.counts.dtype == jnp.int32 and state.mean_reward.dtype == jnp.float32
    np.testing.assert_array_equal(state.counts, counts)
    np.testing.assert_allclose(state.mean_reward, mean, rtol=1e-6)
    assert counts[-1] == 0


@pytest.mark.parametrize("round", [1, 2, 21])
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_ucb(history, round, gain):
    state, counts, mean = history
    with np.errstate(divide="ignore"):
        expected = gain * mean + np.sqrt((M + 1) * np.log(round) / counts) if round > 1 else gain * mean
    expected = np.where(counts == 0, np.inf, expected)
    ours = jax.jit(bandit.ucb, static_argnames="m")(
        state.mean_reward, state.counts, round, m=M, exploitation_gain=gain
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_ucb_at_time_zero_is_infinite_for_all(history):
    ucb = bandit.ucb(jnp.zeros(K), jnp.zeros(K, jnp.int32), 0, M)
    assert (ucb == jnp.inf).all()
    assert bandit.ucb(jnp.ones(2), jnp.array([1, 2]), 0, M).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("round", [0, 1, 20])
def test_generalization(history, round, exponent):
    _, counts, _ = history
    share = np.random.default_rng(1).dirichlet(np.ones(K))
    used = counts / round if round else np.zeros(K)
    lag = M * share - used
    ours = bandit.generalization(jnp.asarray(counts), round, jnp.asarray(share, jnp.float32), M, exponent)
    np.testing.assert_allclose(ours, np.abs(lag) ** exponent * np.sign(lag), rtol=2e-5, atol=1e-6)
    assert (lag < 0).any() or round != 20


def test_privacy_reward_is_what_the_budgets_leave(history):
    _, counts, _ = history
    budget, decay = 7.0, 0.04
    spent = [sum(budget * (np.exp(decay) - 1) * np.exp(-decay * i) for i in range(1, n + 1)) for n in counts]
    ours = bandit.privacy_reward(jnp.asarray(counts), decay)
    np.testing.assert_allclose(ours, 1 - np.array(spent) / budget, rtol=1e-5)
    assert ours[-1] == 1


@pytest.mark.parametrize("size", [1, 3, K])
def test_set_reward_averages_over_the_set_itself(size):
    rng = np.random.default_rng(size)
    speed, g, p = rng.uniform(0, 1, (3, K)).astype(np.float32)
    members = np.full(K, -1, np.int32)
    members[:size] = rng.choice(np.arange(K), size, replace=False)
    chosen = members[:size]
    expected = speed[chosen].min() + 100 * g[chosen].mean() + 5 * p[chosen].mean()
    ours = bandit.set_reward(
        speed, g, p, rng.permutation(members), generalization_weight=100.0, privacy_weight=5.0
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_score_adds_up_to_the_sums_of_14():
    rng = np.random.default_rng(2)
    ucb, g, p = rng.uniform(0, 1, (3, K)).astype(np.float32)
    members = jnp.array([1, 5, 6, 9])
    weights = {"generalization_weight": 100.0, "privacy_weight": 5.0}
    total = jnp.min(ucb[members]) + jnp.sum(bandit.score(g, p, M, **weights)[members])
    np.testing.assert_allclose(total, bandit.set_reward(ucb, g, p, members, **weights), rtol=1e-6)


def test_clocks():
    assert bandit.time_of_terms(7, "paper") == 6
    assert bandit.time_of_terms(7, "reference") == 7
    with pytest.raises(ValueError, match=r"clock: .*paper, reference.*'noon'"):
        bandit.time_of_terms(7, "noon")


def parameters(**changes):
    fields = {field.name for field in dataclasses.fields(bandit.Objective)}
    objective = bandit.Objective(**{name: changes.pop(name) for name in fields & changes.keys()})
    return {"num_clients": K, "clients_per_round": M, "objective": objective} | changes


@pytest.mark.parametrize("clock", ["paper", "reference"])
@pytest.mark.parametrize("selector", ["exact", "brute"])
@pytest.mark.parametrize("share", ["equal", "unequal"])
def test_the_first_rounds_of_pause_visit_everyone_once(clock, selector, share):
    """With m a divisor of K, Algorithm 1 takes every client exactly once in its first K / m rounds."""
    policy = pause(**parameters(clock=clock, selector=selector))
    data_share = np.full(K, 1 / K) if share == "equal" else np.random.default_rng(3).dirichlet(np.ones(K))
    state = policy.init(jax.random.key(0), Clients(jnp.asarray(data_share, jnp.float32), jnp.ones(K)))

    @jax.jit
    def play(state, round):
        view = View(round, jnp.ones(K), lambda clients: jnp.zeros(clients.shape))
        members = policy.select(None, state, view).members
        reward = (members + 1) / K
        feedback = Feedback(members, reward, reward, reward, reward, reward[:, None])
        return policy.update(state, view, feedback), members

    visited = []
    for round in range(1, K // M + 1):
        state, members = play(state, round)
        visited.extend(members.tolist())
    assert sorted(visited) == list(range(K))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients_per_round": K + 1}, r"clients_per_round: must be from 1 to num_clients = 12, not 13"),
        ({"clients_per_round": 0}, r"clients_per_round: must be from 1 to num_clients = 12, not 0"),
        ({"privacy_weight": -1.0}, "privacy_weight: must be >= 0, not -1.0"),
        ({"generalization_exponent": 1.0}, "generalization_exponent: must be > 1, not 1.0"),
        ({"generalization_weight": jnp.float32(jnp.nan)}, r"generalization_weight: must be >= 0, not nan"),
        ({"clock": "noon"}, r"clock: .*'noon'"),
        ({"selector": "guess"}, r"selector: .*exact, brute.*'guess'"),
    ],
)
def test_pause_names_a_bad_parameter(changes, message):
    with pytest.raises(ValueError, match=message):
        pause(**parameters(**changes))
