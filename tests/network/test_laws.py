"""Latency laws against float64 quadrature, closed forms and their own draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from pausejax import network, parts
from pausejax.network import laws

LAWS = ("two_speed", "lognormal", "shifted_exponential")
FLOOR, DEVIATION = 0.05, 0.05


def law_of(name, num_clients, **values):
    return (
        parts.registered_parts()
        .get("latency", name)
        .build(**{"num_clients": num_clients, "min_latency": FLOOR, **values})
    )


@functools.partial(jax.jit, static_argnames=("name", "num_clients"))
def expectations(name, num_clients, min_latency=FLOOR, **values):
    """E[τ_k] and E[τ_min / τ_k]."""
    law = law_of(name, num_clients, min_latency=min_latency, **values)
    return network.expected_latency(law), network.expected_reward(law, min_latency)


def paper_means(num_clients, floor):
    """The means of the paper's code, client numbers from 0, in float64."""
    k, half = np.arange(num_clients), num_clients // 2
    fast = floor + (0.2 - floor) * (k + 1) / max(half, 1)
    slow = 0.7 + 0.2 * (k + 1 - half) / (num_clients - half)
    return np.where(k < half, fast, slow)


def _float64_expectations(name, num_clients, min_latency=FLOOR, latency_deviation=DEVIATION):
    floor, deviation = min_latency, latency_deviation
    for mean in paper_means(num_clients, floor):
        if name == "two_speed":

            def latency(z, mean=mean):
                return max(floor, mean + deviation * z)

            density, low, high = stats.norm.pdf, -12.0, 12.0
            bend = [np.clip((floor - mean) / deviation, -12, 12)]
        elif name == "lognormal":

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


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("options", [{}, {"latency_deviation": 0.5}, {"min_latency": 0.15}])
def test_expectations_match_float64_quadrature(name, options):
    latency, reward = expectations(name, 7, **options)
    expected = np.array(list(_float64_expectations(name, 7, **options)))
    np.testing.assert_allclose(latency, expected[:, 0], rtol=2e-6)
    np.testing.assert_allclose(reward, expected[:, 1], atol=1e-6)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_that_brings_no_expectation_is_averaged_over_a_fixed_sample(name):
    def without():
        return network.expected_reward(law_of(name, 5)._replace(expectation=None), FLOOR)

    averaged = jax.jit(without)()
    exact = np.array(list(_float64_expectations(name, 5)))[:, 1]
    # five standard errors of 16,384 draws of a number within [0, 1], whose deviation is at most 1/2
    np.testing.assert_allclose(averaged, exact, atol=5 * 0.5 / np.sqrt(2**14))


@pytest.mark.parametrize("name", [*LAWS, "trace"])
def test_draws_match_their_expectation_and_floor(name):
    measured = np.abs(np.random.default_rng(0).normal(0.3, 0.2, (50, 6)).astype(np.float32))

    @jax.jit
    def drawn(key):
        law = law_of(name, 6, trace_file=jnp.asarray(measured))
        draws = jax.vmap(law.sample)(jax.random.split(key, 40_000))
        return draws, network.expected_reward(law, FLOOR)

    draws, expected = map(np.asarray, drawn(jax.random.key(0)))
    assert draws.dtype == np.float32 and draws.min() >= np.float32(FLOOR)
    for k in range(6):
        reward = (FLOOR / draws[:, k]).astype(np.float64)
        # two-sided z test at 5 sigma: false alarm rate 6e-7 per client
        error = abs(reward.mean() - expected[k])
        assert error < 5 * reward.std() / np.sqrt(reward.size) + 1e-6


def test_zero_deviation_is_deterministic():
    law = law_of("two_speed", 4, latency_deviation=0.0)
    np.testing.assert_allclose(jax.jit(law.sample)(jax.random.key(3)), paper_means(4, FLOOR), rtol=1e-6)
    latency, _ = expectations("two_speed", 4, latency_deviation=0.0)
    np.testing.assert_allclose(latency, paper_means(4, FLOOR), rtol=1e-5)


@pytest.mark.parametrize("name", LAWS)
def test_one_client(name):
    assert np.isfinite(expectations(name, 1)).all()


@pytest.mark.parametrize("name", LAWS)
def test_traced_parameters_are_an_axis_and_draws_depend_on_the_key_alone(name):
    def draw(slow, floor):
        law = law_of(name, 6, min_latency=floor, slow_latency=slow)
        return law.sample(jax.random.key(1)), network.expected_reward(law, floor)

    slow, floor = jnp.array([0.5, 0.9]), jnp.array([0.05, 0.1])
    together = jax.jit(jax.vmap(draw))(slow, floor)
    for row in range(2):
        alone = jax.jit(draw, static_argnums=(0, 1))(float(slow[row]), float(floor[row]))
        for ours, theirs in zip(together, alone, strict=True):
            np.testing.assert_allclose(ours[row], theirs, rtol=1e-5)


def test_a_law_of_ones_own_needs_nothing_but_draws():
    own = network.Law(lambda key: jax.random.uniform(key, (3,)))
    law = network.floored(own, 0.25)
    draws = jax.vmap(law.sample)(jax.random.split(jax.random.key(0), 1000))
    assert float(draws.min()) == 0.25
    # E[max(1/4, U)] and E[1/4 / max(1/4, U)] in closed form; the errors are of 16,384 draws, at 5 sigma
    np.testing.assert_allclose(network.expected_latency(law), 1 / 16 + (1 - 1 / 16) / 2, atol=0.012)
    np.testing.assert_allclose(network.expected_reward(law, 0.25), 1 / 4 + np.log(4) / 4, atol=0.012)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (None, "trace_file: must have num_clients = 3 columns, but has no numbers"),
        (np.ones((4, 2)), r"trace_file: must have num_clients = 3 columns, but has shape \(4, 2\)"),
        (np.ones((0, 3)), "trace_file: must have one row or more"),
        (np.array([[0.1, 0.0, -0.2]]), "trace_file: must hold latencies >= 0, but holds -0.2"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(file, message):
    values = {} if file is None else {"trace_file": jnp.asarray(file, jnp.float32)}
    with pytest.raises(ValueError, match=message):
        law_of("trace", 3, **values)


def test_the_quadrature_is_that_of_gauss_and_legendre():
    nodes, weights = laws._legendre_on_host()
    expected = np.polynomial.legendre.leggauss(256)
    np.testing.assert_allclose(nodes, expected[0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(weights, expected[1], rtol=1e-9)


@pytest.mark.parametrize("name", LAWS)
def test_distribution_functions_are_the_closed_forms(name):
    """At latencies above τ_min, in float64; expected regret is made of them."""
    mean = paper_means(6, FLOOR)
    latency = np.linspace(FLOOR + 0.005, 1.4, 200)[:, None]
    expected = {
        "two_speed": stats.norm(mean, DEVIATION).cdf(latency),
        "lognormal": stats.lognorm(
            DEVIATION, loc=FLOOR, scale=(mean - FLOOR) * np.exp(-(DEVIATION**2) / 2)
        ).cdf(latency),
        "shifted_exponential": stats.expon(FLOOR, mean - FLOOR).cdf(latency),
    }[name]
    found = jax.jit(lambda latency: law_of(name, 6).cdf(latency))(latency.astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("name", LAWS)
def test_draws_are_the_laws_own_transform_of_standard_ones(name):
    """Runs that differ in a parameter alone meet the same network; float64, wide enough for every term."""
    key, deviation, mean = jax.random.key(5), 0.8, paper_means(9, FLOOR)
    normal, exponential = (
        np.asarray(draw(key, (9,)), np.float64) for draw in (jax.random.normal, jax.random.exponential)
    )
    expected = {
        "two_speed": np.maximum(FLOOR, mean + deviation * normal),
        "lognormal": FLOOR + (mean - FLOOR) * np.exp(deviation * normal - deviation**2 / 2),
        "shifted_exponential": FLOOR + (mean - FLOOR) * exponential,
    }[name]
    assert normal.min() < 0 < normal.max()
    draw = jax.jit(lambda key: law_of(name, 9, latency_deviation=deviation).sample(key))
    np.testing.assert_allclose(draw(key), expected, rtol=1e-5)


@pytest.mark.parametrize("num_clients", [1, 2, 3, 5, 30])
def test_means_of_few_clients(num_clients):
    np.testing.assert_allclose(
        network.Speeds().means(num_clients, FLOOR), paper_means(num_clients, FLOOR), rtol=1e-6
    )


def test_speeds_may_touch_and_not_cross():
    assert network.Speeds(0.3, 0.3).problem(0.3) is None
    assert network.Speeds(0.3, 0.4).problem(0.31)[:2] == ("min_latency", 0.31)
    assert network.Speeds(0.3, 0.29).problem(0.3)[:2] == ("slow_latency", 0.29)


def test_every_row_of_a_trace_is_drawn_and_no_other():
    rows = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32)
    law = law_of("trace", 2, trace_file=jnp.asarray(rows))
    draws = jax.vmap(law.sample)(jax.random.split(jax.random.key(0), 60))
    np.testing.assert_array_equal(np.unique(draws, axis=0), rows)


def test_a_floor_moves_what_lies_below_it_onto_it():
    own = network.Law(lambda key: jnp.zeros(2), cdf=lambda x: jnp.broadcast_to(x, (x.shape[0], 2)))
    law = network.floored(own, 0.25)
    found = law.cdf(jnp.asarray([[0.0], [0.24], [0.25], [0.5]]))
    np.testing.assert_array_equal(found[:, 0], np.float32([0, 0, 0.25, 0.5]))
    assert network.floored(network.Law(own.sample), 0.25).cdf is None


def test_what_a_law_knows_outlives_its_check():
    part = parts.find("latency", "two_speed")
    law = network.Law(
        lambda key: jnp.ones(3),
        lambda function: function(jnp.full(3, 2.0)),
        lambda x: jnp.broadcast_to(x, (len(x), 3)),
    )
    checked = network.checked_law(law, part, 3)
    assert network.expected_latency(checked).tolist() == [2.0] * 3
    assert checked.cdf(jnp.ones((2, 1))).tolist() == [[1.0] * 3] * 2
    assert network.checked_law(network.Law(law.sample), part, 3)[1:] == (None, None)
    with pytest.raises(parts.PartError, match=r"cdf returns float32 \[2, 3\]; must be float32 \[2, 4\]"):
        network.checked_law(law, part, 4).cdf(jnp.ones((2, 1)))
    with pytest.raises(parts.PartError, match=r"expectation returns float32 \[3\]; must be float32 \[4\]"):
        network.expected_latency(network.checked_law(law, part, 4))


def test_the_expectation_of_ones_own_law_is_of_raised_latencies():
    """Draws and `cdf` are raised to the least latency, so the expectation must be too."""
    times = jnp.asarray([[0.1, 0.2], [0.3, 0.8]])
    own = network.Law(lambda key: times[0], lambda function: jnp.mean(function(times), axis=0))
    law = network.floored(own, 0.25)
    np.testing.assert_allclose(network.expected_latency(law), [0.275, 0.525], rtol=1e-6)
    np.testing.assert_allclose(network.expected_reward(law, 0.25), [(1 + 0.25 / 0.3) / 2, 0.65625], rtol=1e-6)
