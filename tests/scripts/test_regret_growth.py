"""`scripts/regret_growth.py`: the law by which a curve grows, the bound above it, and who has which."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import network, parts
from pausejax.plotting.data import Axis, Panel, Series

from ..programs import load

N = np.arange(1, 1001)


@pytest.fixture(scope="module")
def script():
    return load("scripts/regret_growth.py")


@pytest.fixture(scope="module")
def growth(script):
    return script.growth


@pytest.fixture(scope="module")
def regret_bound_of(script):
    return script.regret_bound_of


@pytest.mark.parametrize("rounds", [999, 1000])
def test_fewer_than_a_thousand_rounds_have_no_law(growth, rounds):
    found = growth(N[:rounds], 2 * np.sqrt(N[:rounds]))
    assert (found is not None) == (rounds == 1000)
    # Rounds that no run has recorded do not count.
    ended = growth(N, np.where(np.arange(1000) < rounds, N**0.8, np.nan))
    assert (ended is not None) == (rounds == 1000)
    assert growth(N, np.full(1000, np.nan)) is None


@pytest.mark.parametrize(
    ("curve", "grows"),
    [
        (lambda n: n - 100, False),
        (lambda n: n - 99.5, True),
        (lambda n: n * 0.0 + 3, False),
        (lambda n: 1 / n, False),
        (lambda n: 2 + 0.0 * n + (n == 1000), True),
        (lambda n: 5.0 - (n == 100), True),
        (lambda n: 5e-4 * n, True),
    ],
)
def test_a_law_is_of_a_positive_curve_that_has_grown_over_the_last_decade(growth, curve, grows):
    found = growth(N, curve(N))
    assert (found is not None) == grows
    if found:
        assert found.rounds[0] == 100 and found.rounds[-1] == 1000 and (np.diff(found.rounds) > 0).all()
        # Rounds are evenly spread over log n: as many below the geometric mean of the ends as above.
        assert np.median(found.rounds) == pytest.approx(np.sqrt(100 * 1000), rel=0.02)
        np.testing.assert_allclose(
            found.error, np.sqrt(np.mean((found.fitted / curve(found.rounds) - 1) ** 2))
        )


@pytest.mark.parametrize(
    ("shape", "law"), [(np.log, "a + b log n"), (np.sqrt, "a + b √n"), (lambda n: 0.3 * n**0.71, "∝ n^0.71")]
)
def test_the_fit_is_that_of_least_relative_error(growth, shape, law):
    bent = shape(N) + 20 * (law[0] == "a") + 0.01 * np.sin(N / 90)
    found = growth(N, bent)
    assert found.law == law
    n, value = found.rounds, bent[found.rounds.astype(int) - 1]
    if law[0] == "a":
        # Every value as 1: weighted least squares by the normal equations.
        design = np.stack([np.ones(n.size), shape(n)], 1) / value[:, None]
        fitted = value * (design @ np.linalg.lstsq(design, np.ones(n.size), rcond=None)[0])
    else:
        design = np.stack([np.ones(n.size), np.log(n)], 1)
        fitted = np.exp(design @ np.linalg.lstsq(design, np.log(value), rcond=None)[0])
    np.testing.assert_allclose(found.fitted, fitted, rtol=1e-9)


def test_growth_is_that_of_the_last_decade_of_rounds(growth):
    """Where few rounds are recorded the last but one says nothing of where the decade begins."""
    n = np.array([*range(1, 1000, 10), 3000, 10_000])
    found = growth(n, np.sqrt(n))
    assert found.rounds[0] == 3000 and found.rounds[-1] == 10_000


def result_of(law="two_speed", **more):
    """One run, as a curve shows its setting."""
    values = {
        "policy": "random",
        "seed": 0,
        "num_clients": 5,
        "clients_per_round": 2,
        "min_latency": 0.05,
        "fast_latency": 0.2,
        "slow_latency": 0.7,
        "latency_deviation": 0.05,
        "generalization_weight": 3.0,
        "privacy_weight": 2.0,
        "latency": law,
        **more,
    }
    coords = {name: ("run", [value]) for name, value in values.items()}
    return xr.Dataset(coords={**coords, "round": [1, 2, 50], "client": range(5)})


def test_the_bound_is_that_of_theorem_3_for_the_first_run(regret_bound_of):
    speeds = network.Speeds(fast_latency=0.2, slow_latency=0.7)
    law = network.two_speed(num_clients=5, min_latency=0.05, speeds=speeds, latency_deviation=0.05)
    expected = jax.jit(lambda: network.expected_reward(network.floored(law, 0.05), 0.05))()
    mu = np.sort(np.asarray(expected, np.float64))
    smallest, largest = np.diff(mu).min(), 2 * 3 + 2 + mu[-1] - mu[0]
    per_client = 4 * 3 * np.log([1, 2, 50]) / smallest**2 + 1 + 2 * np.pi**2 / 3
    np.testing.assert_allclose(regret_bound_of(result_of()), 5 * (largest + smallest) * per_client, rtol=1e-3)


@pytest.mark.parametrize("law", ["trace", "a law of somebody else's"])
def test_there_is_no_bound_for_a_law_that_a_result_does_not_hold(regret_bound_of, law):
    found = regret_bound_of(result_of(law))
    assert found.shape == (3,) and np.isnan(found).all()


def test_there_is_no_bound_for_a_law_of_what_a_result_does_not_hold(regret_bound_of, own_parts):
    """Such as the size of a model."""

    @parts.latency
    def uploading(*, num_clients: int, min_latency: float, num_parameters: int):
        return network.Law(lambda key: min_latency + jnp.zeros(num_clients) * num_parameters)

    found = regret_bound_of(result_of("uploading"))
    assert found.shape == (3,) and np.isnan(found).all()


def test_the_law_is_that_of_the_line_that_loses_least_and_equal_bounds_are_one(script):
    """Its regret is the root of the rounds, the others' in proportion."""
    n = np.arange(1.0, 2001)
    totals = {"first": n, "least": 3 + 2 * np.sqrt(n), "most": 2 * n}
    lines = tuple(Series(label, n, total, style=style) for style, (label, total) in enumerate(totals.items()))
    several = xr.concat([result_of(), result_of(privacy_weight=5.0)], "run")
    several = several.assign_attrs(axes=json.dumps(["privacy_weight"]))
    runs = {"first": result_of(), "least": result_of(), "most": several}
    panel = script.explained(Panel(Axis("round"), Axis("regret"), lines, note="before"), runs)
    law, bound = panel.series[3:]
    assert panel.series[:3] == lines and {law.style, bound.style} == {-1}
    assert law.label == "last decade of least: a + b √n" and (law.x[0], law.x[-1]) == (200, 2000)
    np.testing.assert_allclose(law.y, 3 + 2 * np.sqrt(law.x), rtol=1e-3)
    np.testing.assert_array_equal(bound.y, script.regret_bound_of(result_of()))
    assert bound.x.tolist() == [1, 2, 50] and "(17)" in bound.label
    assert panel.note == "before; no bound of Theorem 3, because the bounds of the settings differ: most"


@pytest.mark.slow
def test_a_result_is_drawn_with_its_bound(script, tmp_path, monkeypatch):
    result = pausejax.simulate(["pause", "random"], mode="bandit", rounds=20, seeds=2)
    (panel,) = script.chart_of(result).panels
    assert [one.label for one in panel.series] == ["pause", "random", "Theorem 3's bound (17)"]
    for one in panel.series[:2]:
        totals = result["pseudo_regret"].values[result["policy"].values == one.label].cumsum(axis=1)
        np.testing.assert_allclose(one.y, totals.mean(axis=0), rtol=1e-5, atol=1e-6)
        assert (one.y < panel.series[2].y).all()
    pausejax.save(result, tmp_path / "study")
    picture = tmp_path / "growth.png"
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path / "study"), "--picture", str(picture)])
    script.main()
    assert picture.read_bytes()[1:4] == b"PNG"
    with pytest.raises(ValueError, match="no chart cumulative_pseudo_regret_vs_round"):
        script.chart_of(pausejax.simulate(["efl_fg"], mode="ensemble", rounds=10, seeds=1))
