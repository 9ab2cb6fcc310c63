"""Regret against the largest expected reward: against quadrature, enumeration, and the rewards played."""

import functools
import itertools

import jax
import numpy as np
import pytest
from scipy import integrate, stats

import pausejax
from pausejax import bandit, kinds, network
from pausejax.clients import expected_regret

K, M, FLOOR = 7, 3, 0.05
LAWS = {
    "two_speed": functools.partial(network.two_speed, latency_deviation=0.05),
    "narrow": functools.partial(network.two_speed, latency_deviation=0.002),
    "lognormal": functools.partial(network.lognormal, latency_deviation=0.4),
    "shifted_exponential": network.shifted_exponential,
}


def law_named(name, num_clients=K):
    return network.floored(LAWS[name](num_clients=num_clients, min_latency=FLOOR), FLOOR)


@pytest.mark.parametrize("name", LAWS)
def test_distribution_functions_are_those_of_the_draws(name):
    """Kolmogorov's statistic of 4,000 draws above the floor; a false alarm once in a million."""
    law = law_named(name)
    cdf = jax.jit(law.cdf)
    sample = jax.jit(jax.vmap(law.sample))
    draws = np.asarray(sample(jax.random.split(jax.random.key(0), 4000)), np.float64)
    for client in range(K):
        at = np.sort(draws[:, client])
        below = np.asarray(cdf(at.astype(np.float32)[:, None]), np.float64)[:, client]
        above = at > FLOOR * 1.0001
        empirical = np.arange(1, len(at) + 1) / len(at)
        gap = np.abs(below - empirical)[above].max(initial=0)
        assert stats.kstwobign.sf(gap * np.sqrt(len(at))) > 1e-6 / 28
    assert (np.asarray(cdf(np.full((1, 1), 0.9 * FLOOR, np.float32))) == 0).all()


@pytest.mark.parametrize(("atoms", "times"), [(1, 20), (4, 20), (20, 8), (500, 1)])
def test_expected_speed_of_measured_latencies_is_their_mean(atoms, times):
    """A law that draws one of some measured latencies: its distribution function has a jump at each."""
    random = np.random.default_rng(atoms)
    sets = np.array([*itertools.combinations(range(K), 2)])
    for digits in ((1, 2, 3, 4) * 5)[:times]:
        drawn = FLOOR + random.lognormal(-1, 1, (K, atoms))
        latencies = np.maximum(np.round(drawn, digits), FLOOR).astype(np.float32)

        def cdf(x, latencies=latencies):
            return (latencies[None] <= np.asarray(x, np.float32)[..., None]).mean(axis=2)

        exact = [(FLOOR / np.maximum.outer(latencies[a], latencies[b]).astype(float)).mean() for a, b in sets]
        found = expected_regret.expected_speed(cdf, FLOOR)(sets)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6 if atoms <= 20 else 1e-5)


def test_expected_speed_of_a_law_with_bad_days():
    """A client is slow with probability 0.1. Between the two modes the distribution function is flat."""
    fast = np.linspace(0.1, 0.3, K)
    sets = np.array([[0, 1, 2], [4, 5, 6]])

    def cdf(x):
        return 0.9 * stats.norm.cdf(x, fast, 0.002) + 0.1 * stats.norm.cdf(x, 8 * fast, 0.01)

    edges = np.unique(
        np.concatenate(
            [
                FLOOR / (scale * fast + 20 * step * width)
                for scale, width in ((1, 0.002), (8, 0.01))
                for step in np.linspace(-0.5, 0.5, 21)
            ]
        )
    )
    edges = np.concatenate([[1e-9], edges, [1.0]])
    for members, ours in zip(sets, expected_regret.expected_speed(cdf, FLOOR)(sets), strict=True):
        exact = sum(
            integrate.quad(lambda u: np.prod(cdf(np.array([[FLOOR / u]]))[0, members]), a, b)[0]
            for a, b in itertools.pairwise(edges)
        )
        assert ours == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("num_clients", [1, 2, 27, 50, 100, 300])
def test_expected_speed_of_many_clients_of_one_law(num_clients):
    """The largest of n uniform latencies has the distribution function F^n, which is steep at its end."""
    slow = 10.0 * FLOOR

    def cdf(x):
        return np.clip((x - FLOOR) / (slow - FLOOR), 0, 1) * np.ones(num_clients)

    speed_of = expected_regret.expected_speed(cdf, FLOOR)
    for size in {1, num_clients // 2, num_clients} - {0}:
        tail = np.geomspace(1e-8, 1, 400)[::-1] * (slow - FLOOR)
        points, weights = np.polynomial.legendre.leggauss(20)
        low, high = (
            np.concatenate([[FLOOR], slow - tail[1:]])[:, None],
            (slow - np.append(tail[1:], 0))[:, None],
        )
        x = (low + high) / 2 + (high - low) / 2 * points
        chance = ((x - FLOOR) / (slow - FLOOR)) ** size
        # By parts, E[τ_min / max τ] is the integral of τ_min F(x)^n / x², plus τ_min / slow.
        exact = FLOOR / slow + (FLOOR * chance / x**2 * weights * (high - low) / 2).sum()
        assert speed_of(np.arange(size)[None])[0] == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("name", LAWS)
def test_expected_speed_is_that_of_adaptive_quadrature(name):
    law = law_named(name)
    sets = np.array([[0, 1, 2], [0, 3, 6], [4, 5, 6], [2, -1, -1]])
    cdf = jax.jit(law.cdf)
    found = expected_regret.expected_speed(cdf, FLOOR)(sets)
    for members, ours in zip(sets, found, strict=True):
        kept = members[members >= 0]

        def below(u, kept=kept):
            return float(
                np.prod(np.asarray(cdf(np.full((1, 1), FLOOR / u, np.float32)))[0, kept], dtype=np.float64)
            )

        ends = np.linspace(1e-4, 1, 60)
        pieces = [integrate.quad(below, a, b, limit=80)[0] for a, b in itertools.pairwise(ends)]
        assert ours == pytest.approx(sum(pieces) + below(1e-4) * 1e-4, abs=1e-5)
    mu = np.asarray(jax.jit(lambda: network.expected_reward(law, FLOOR))())
    alone = expected_regret.expected_speed(cdf, FLOOR)(np.arange(K)[:, None])
    np.testing.assert_allclose(alone, mu, atol=2e-5)
    # The smallest of the rewards is less than the smallest of their expectations: (10) is an upper bound.
    assert (found[:3] <= mu[sets[:3]].min(axis=1) + 1e-5).all()


@pytest.mark.parametrize("time", ["paper", "reference"])
def test_regret_is_what_enumeration_finds(time, monkeypatch):
    """Also where sets and rounds come in several blocks, the last of them shorter."""
    monkeypatch.setattr(expected_regret, "_PRODUCTS_AT_ONCE", 2048)
    monkeypatch.setattr(expected_regret, "_ROUNDS_AT_ONCE", 7)
    rng = np.random.default_rng(0)
    law, share = law_named("two_speed"), rng.dirichlet(np.full(K, 4.0)).astype(np.float32)
    objective = bandit.Objective(generalization_weight=20.0, privacy_weight=3.0, clock=time)
    selected = np.sort(rng.permuted(np.tile(np.arange(K), (40, 1)), axis=1)[:, :M], axis=1)
    selected[7, 1:], selected[9] = -1, -1
    speed_of = expected_regret.expected_speed(jax.jit(law.cdf), FLOOR)
    sets = expected_regret.cohorts(K, M)
    table = speed_of(sets)
    found = expected_regret.regrets(
        selected, table=table, speed_of=speed_of, data_share=share, clients_per_round=M, objective=objective
    )
    counts = np.zeros(K)
    for t, members in enumerate(selected, 1):
        now = t - 1 if time == "paper" else t
        lag = M * share.astype(np.float64) - (counts / now if now else 0)
        term = 20 * np.abs(lag) ** 2 * np.sign(lag) + 3 * np.exp(-0.04 * counts)
        kept = members[members >= 0]
        best = max(speed + term[list(s)].mean() for s, speed in zip(sets, table, strict=True))
        played = speed_of(kept[None])[0] + term[kept].mean() if kept.size else 0.0
        assert found[t - 1] == pytest.approx(best - played, abs=2e-5)
        counts[kept] += 1
    assert (np.delete(found, [7, 9]) >= 0).all()


def test_cohorts_are_all_sets_in_order():
    found = expected_regret.cohorts(5, 3)
    assert found.tolist() == [list(members) for members in itertools.combinations(range(5), 3)]
    assert found.dtype == np.int32 and expected_regret.count_sets(5, 3) == 10
    assert expected_regret.count_sets(300, 15) == pytest.approx(7.7e24, rel=0.01)
    assert expected_regret.cohorts(4, 1).tolist() == [[0], [1], [2], [3]]


@pytest.mark.slow
def test_a_study_records_it_and_the_rewards_played_agree():
    """Over rounds and seeds, realized reward less its expectation adds up martingale differences.

    Their sum over the root of the sum of their squares is standard normal in the limit; beyond 5.5 it is once
    in 26 million for each policy.
    """
    result = pausejax.simulate(
        ["pause", "random"],
        mode="bandit",
        rounds=300,
        seeds=16,
        num_clients=K,
        clients_per_round=M,
        expected_regret=True,
    )
    regret = result["expected_regret"].values
    assert regret.dtype == np.float32 and (regret >= 0).all()
    law = law_named("two_speed")
    speed_of = expected_regret.expected_speed(jax.jit(law.cdf), FLOOR)
    share = np.full(K, 1 / K)
    for policy in ("pause", "random"):
        surprise = []
        own = result.isel(run=np.flatnonzero((result["policy"] == policy).values))
        for run in range(own.sizes["run"]):
            members = own["selected"].values[run]
            distinct, place = np.unique(members, axis=0, return_inverse=True)
            speed, counts = speed_of(distinct)[place.reshape(-1)], np.zeros(K)
            for t, cohort in enumerate(members, 1):
                lag = M * share - (counts / (t - 1) if t > 1 else 0)
                term = 100 * np.abs(lag) ** 2 * np.sign(lag) + 5 * np.exp(-0.04 * counts)
                surprise.append(own["reward"].values[run, t - 1] - speed[t - 1] - term[cohort].mean())
                counts[cohort] += 1
        assert len(surprise) == 4800
        assert abs(np.sum(surprise)) < 5.5 * np.sqrt(np.sum(np.square(surprise)))
    total = pausejax.analysis.finals(result, ["cumulative_expected_regret", "cumulative_pseudo_regret"])
    by_policy = total.groupby("policy").mean()
    learned, blind = (
        float(by_policy["cumulative_expected_regret"].sel(policy=p)) for p in ("pause", "random")
    )
    assert 0 < learned < blind
    assert "cumulative_expected_regret_vs_round" in kinds.charts(result)
