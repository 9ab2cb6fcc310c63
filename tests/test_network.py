"""Latency laws against float64 quadrature, closed forms and their own draws."""

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from pausejax import network


def _float64_expectations(law, net):
    floor, deviation = float(net.min_latency), float(net.deviation)
    for mean in np.asarray(net.mean, np.float64):
        if law == "two_speed":

            def latency(z, mean=mean):
                return max(floor, mean + deviation * z)

            density, low, high = stats.norm.pdf, -12.0, 12.0
            bend = [np.clip((floor - mean) / deviation, -12, 12)]
        elif law == "lognormal":

            def latency(z, mean=mean):
                return floor + (mean - floor) * np.exp(deviation * z - deviation**2 / 2)

            density, low, high, bend = stats.norm.pdf, -12.0, 12.0, [0.0]
        else:

            def latency(z, mean=mean):
                return floor + (mean - floor) * z

            density, low, high, bend = stats.expon.pdf, 0.0, 60.0, [0.1, 1.0]
        yield tuple(
            integrate.quad(
                lambda z: f(latency(z)) * density(z), low, high, points=bend, limit=500, epsabs=1e-11
            )[0]
            for f in (lambda x: x, lambda x: floor / x)
        )


@pytest.mark.parametrize("law", ["two_speed", "lognormal", "shifted_exponential"])
@pytest.mark.parametrize("options", [{}, {"latency_deviation": 0.5}, {"min_latency": 0.15}])
def test_expectations_match_float64_quadrature(law, options):
    net = network.make_network(7, **options)
    expected = np.array(list(_float64_expectations(law, net)))
    np.testing.assert_allclose(network.expected_latency(law, net), expected[:, 0], rtol=2e-6)
    np.testing.assert_allclose(network.expected_reward(law, net), expected[:, 1], atol=1e-6)


@pytest.mark.parametrize("law", network.LAWS)
def test_draws_match_their_expectation_and_floor(law):
    trace = np.abs(np.random.default_rng(0).normal(0.3, 0.2, (50, 6)).astype(np.float32))
    net = network.make_network(6, trace=trace if law == "trace" else None)
    draws = jax.vmap(lambda key: network.sample(law, key, net))(jax.random.split(jax.random.key(0), 40_000))
    assert float(draws.min()) >= float(net.min_latency)
    for k in range(6):
        reward = np.asarray(net.min_latency / draws[:, k], np.float64)
        # two-sided z test at 5 sigma: false alarm rate 6e-7 per client
        error = abs(reward.mean() - float(network.expected_reward(law, net)[k]))
        assert error < 5 * reward.std() / np.sqrt(reward.size) + 1e-6


def test_two_speed_means_are_those_of_the_papers_code():
    means = np.asarray(network.make_network(30).mean)
    k = np.arange(30)
    fast = 0.05 + (0.2 - 0.05) * (k + 1) / 15
    slow = 0.7 + 0.2 * (k + 1 - 15) / 15
    np.testing.assert_allclose(means, np.where(k < 15, fast, slow), rtol=1e-6)


def test_zero_deviation_is_deterministic():
    net = network.make_network(4, latency_deviation=0.0)
    draw = network.sample("two_speed", jax.random.key(3), net)
    np.testing.assert_allclose(draw, net.mean, rtol=1e-6)
    np.testing.assert_allclose(network.expected_latency("two_speed", net), net.mean, rtol=1e-5)


def test_one_client():
    net = network.make_network(1)
    assert np.isfinite(network.expected_reward("two_speed", net)).all()


def test_unknown_law_is_named():
    with pytest.raises(ValueError, match="law: unknown latency law 'gamma'"):
        network.sample("gamma", jax.random.key(0), network.make_network(3))
