"""Value per second against a plain version that enumerates all cohorts in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pausejax.bandit import BanditState
from pausejax.policies.base import Clients, View
from pausejax.policies.value_per_second import value_per_second

K, M, ETA, FLOOR = 7, 3, 0.04, 0.05
SETS = np.array(list(itertools.combinations(range(K), M)))


def build(**changes):
    given = {"num_clients": K, "clients_per_round": M, "budget_decay": ETA, "min_latency": FLOOR}
    return value_per_second(**given | changes)


def latencies(rounds, seed=0):
    rng = np.random.default_rng(seed)
    mean = rng.uniform(0.1, 0.9, K)
    return np.maximum(FLOOR, mean + rng.uniform(0.01, 0.2, K) * rng.normal(size=(rounds, K)))


def plain(latency, share, *, price, share_exponent, optimism, speed_index, played):
    """For each round the rates of all sets, float64, given what was played before."""
    seen = [[] for _ in range(K)]
    for row, now in enumerate(latency):
        counts = np.array([len(own) for own in seen])
        log_time = math.log(max(row, 1))
        pooled = (sum(np.var(own) * len(own) for own in seen if own) + FLOOR**2) / (
            sum(len(own) - 1 for own in seen if own) + 1
        )
        speed = np.full(K, np.inf)
        for k in np.flatnonzero(counts):
            own = np.array(seen[k])
            if speed_index == "range":
                bound = np.mean(FLOOR / own) + optimism * math.sqrt((M + 1) * log_time / counts[k])
                speed[k] = min(bound, 1.0) / FLOOR
                continue
            deviation = math.sqrt((np.var(own) * len(own) + pooled) / counts[k] / counts[k])
            least = own.mean() - optimism * deviation * math.sqrt(2 * log_time)
            speed[k] = 1 / max(least, FLOOR)
        value = (K * share) ** share_exponent * np.exp(-price * ETA * (counts - counts.min()))
        slowest, total = speed[SETS].min(1), value[SETS].sum(1)
        new = np.isinf(slowest)
        yield np.where(new, total, np.where(new.any(), -np.inf, np.where(new, 0.0, slowest) * total))
        for k in played[row]:
            seen[k].append(now[k])


@pytest.mark.parametrize(
    ("speed_index", "price", "share_exponent", "optimism"),
    [
        ("variance", 50.0, 1.0, 1.0),
        ("variance", 5.0, 0.0, 0.3),
        ("range", 2.0, 1.0, 1.0),
        ("range", 0.0, 0.5, 0.0),
        ("thompson", 10.0, 1.0, 0.0),
    ],
)
def test_every_cohort_is_the_best_of_all(play, speed_index, price, share_exponent, optimism):
    latency = latencies(60)
    share = np.array([0.3, 0.1, 0.2, 0.05, 0.15, 0.15, 0.05])
    rule = {
        "speed_index": speed_index,
        "price": price,
        "share_exponent": share_exponent,
        "optimism": optimism,
    }
    members, weights, _ = play(build(**rule), latency, data_share=share)
    rates = plain(latency.astype(np.float32).astype(np.float64), share, played=members, **rule)
    for row, rate in zip(members, rates, strict=True):
        chosen = rate[np.flatnonzero((row == SETS).all(1))[0]]
        assert chosen >= rate.max() * (1 - 1e-5)
    np.testing.assert_allclose(weights, share[members] / share[members].sum(1, keepdims=True), rtol=1e-5)


def test_draws_are_around_the_mean_as_wide_as_they_say():
    """With two clients, one place and like values the draws decide alone, by the normal law."""
    given = {"num_clients": 2, "clients_per_round": 1, "budget_decay": 1.0, "min_latency": FLOOR}
    policy = value_per_second(**given, price=0.0, speed_index="thompson")
    start = policy.init(jax.random.key(0), Clients(jnp.full(2, 0.5), jnp.zeros(2)))
    # Both were seen once: each draw has the deviation τ_min, so their difference has √2 of it.
    seen = BanditState(jnp.ones(2, jnp.int32), jnp.full(2, 0.1))
    state = start._replace(bandit=seen, mean_latency=jnp.array([0.5, 0.55]))
    view = View(jnp.int32(3), jnp.zeros(2), lambda clients: jnp.zeros(clients.shape))
    keys = jax.random.split(jax.random.key(1), 4000)
    members = jax.jit(jax.vmap(lambda key: policy.select(key, state, view).members))(keys)
    expected = stats.norm.cdf(0.05 / (FLOOR * math.sqrt(2)))
    assert abs(np.mean(np.asarray(members) == 0) - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_a_high_price_evens_out_participations_and_none_seeks_speed(play):
    latency = latencies(210, seed=1)
    even = np.bincount(play(build(price=500.0), latency)[0].ravel(), minlength=K)
    assert even.max() - even.min() <= 1
    fast = np.bincount(play(build(price=0.0), latency)[0].ravel(), minlength=K)
    assert set(np.argsort(-fast)[:M]) == set(np.argsort(latency.mean(0))[:M])
    assert fast.min() < 30


def test_late_values_do_not_vanish():
    """After 5,000 participations e^(-cηT) is no float32 any more, and 60 more apart no ratio is one; the
    choice is still by value."""
    policy = build(price=50.0)
    start = policy.init(jax.random.key(0), Clients(jnp.full(K, 1 / K), jnp.zeros(K)))
    counts = jnp.array([5000, 5001, 5000, 5001, 5001, 5000, 5060], jnp.int32)
    state = start._replace(bandit=BanditState(counts, jnp.full(K, 0.1)), mean_latency=jnp.full(K, 0.5))
    view = View(jnp.int32(9000), jnp.zeros(K), lambda clients: jnp.zeros(clients.shape))
    members = jax.jit(lambda: policy.select(jax.random.key(0), state, view).members)()
    assert members.tolist() == [0, 2, 5]


@pytest.mark.parametrize(("available", "share"), [([True] * 6 + [False], 1 / K), ([True] * 7, 0.0)])
def test_clients_that_add_no_value_do_not_hide_the_others_values(available, share):
    """Client 6 has 60 participations less than the others. It is not available, or it has no data."""
    shares = jnp.full(K, (1 - share) / (K - 1)).at[6].set(share)
    policy = build(price=50.0)
    start = policy.init(jax.random.key(0), Clients(shares, jnp.zeros(K)))
    counts = jnp.array([61, 60, 61, 60, 61, 60, 1], jnp.int32)
    state = start._replace(bandit=BanditState(counts, jnp.full(K, 0.1)), mean_latency=jnp.full(K, 0.5))
    view = View(jnp.int32(200), jnp.zeros(K), lambda c: jnp.zeros(c.shape), jnp.array(available))
    members = jax.jit(lambda: policy.select(jax.random.key(0), state, view).members)()
    assert members.tolist() == [1, 3, 5]


def test_a_client_that_joins_late_leaves_the_order_of_the_others():
    """Its value is 1, and theirs are e^-88 to e^-124, which float32 rounds to 0."""
    policy = build(price=50.0)
    shares = jnp.array([0.1, 0.1, 0.1, 0.3, 0.1, 0.2, 0.1])
    start = policy.init(jax.random.key(0), Clients(shares, jnp.zeros(K)))
    latency = jnp.full(K, 0.5).at[6].set(0.9)
    view = View(jnp.int32(400), jnp.zeros(K), lambda clients: jnp.zeros(clients.shape))
    for counts, expected in (
        ([63, 47, 45, 50, 47, 60, 1], [1, 2, 6]),
        ([63, 47, 47, 47, 46, 47, 1], [3, 4, 6]),  # three times the data outweigh half a participation
        ([47, 47, 47, 47, 47, 47, 1], [3, 5, 6]),
    ):
        seen = BanditState(jnp.array(counts, jnp.int32), jnp.full(K, 0.1))
        state = start._replace(bandit=seen, mean_latency=latency)
        members = jax.jit(lambda state=state: policy.select(jax.random.key(0), state, view).members)()
        assert members.tolist() == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clients_per_round": 8}, "clients_per_round: must be from 1 to num_clients = ., not 8"),
        ({"speed_index": "ucb"}, "speed_index"),
    ],
)
def test_bad_input_is_named(change, said):
    with pytest.raises(ValueError, match=said):
        build(**change)
