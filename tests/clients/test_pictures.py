"""What the pictures of client selection show, and which way is better, against loops over made-up runs."""

import numpy as np
import pytest
from scipy import integrate, stats

from pausejax import analysis, kinds
from pausejax.clients.variables import METRICS

from ..analysis.made_up import CLIENTS, EVALUATED, ROUNDS, build
from ..legible import assert_legible

ALPHA, GAMMA, FLOOR, DEVIATION = 7.0, 0.5, 0.05, 0.05


@pytest.fixture(scope="module")
def result():
    """Eight runs of one policy on five clients, some of them short, some diverged."""
    found, _, last = build({"pause": {}}, 8, {})
    assert len(set(last)) > 1
    said = {
        "num_clients": CLIENTS,
        "clients_per_round": 2,
        "latency": "two_speed",
        "generalization_weight": ALPHA,
        "privacy_weight": GAMMA,
        "min_latency": FLOOR,
        "fast_latency": 0.2,
        "slow_latency": 0.7,
        "slow_range": 0.2,
        "latency_deviation": DEVIATION,
    }
    found = found.assign(max_leakage_update=100 + 3 * found["max_leakage"] ** 2)
    return found.assign_coords({name: ("run", [value] * found.sizes["run"]) for name, value in said.items()})


@pytest.fixture(scope="module")
def drawn(result):
    return {name: figure.axes[0] for name, figure in kinds.draw(result).items()}


def test_everything_written_lies_in_the_picture(result):
    found = result.assign(expected_regret=np.abs(result["regret"]))
    figures = kinds.draw(found)
    assert {"selection_gap", "expected_regret_vs_rounds"} <= figures.keys()
    for figure in figures.values():
        assert_legible(figure)


def line(axes):
    """The first line's points."""
    return axes.get_lines()[0].get_data()


@pytest.mark.parametrize(("picture", "variable"), [("regret", "regret"), ("pseudo_regret", "pseudo_regret")])
def test_regrets_are_added_up_over_the_rounds(result, drawn, picture, variable):
    rounds, shown = line(drawn[f"{picture}_vs_rounds"])
    expected = [sum(result[variable].values[:, :t].astype(float).T).mean() for t in range(1, ROUNDS + 1)]
    np.testing.assert_array_equal(rounds, np.arange(1, ROUNDS + 1))
    np.testing.assert_allclose(shown, expected, rtol=1e-6)


def test_leakage_is_the_largest_clients(result, drawn):
    leaked = result["max_leakage"].values.astype(float)
    _, shown = line(drawn["leakage_vs_rounds"])
    np.testing.assert_allclose(shown, leaked.mean(axis=0), rtol=1e-6)
    times, shown = line(drawn["leakage_vs_latency"])
    clock = result["elapsed"].values.astype(float)
    for time, value in zip(times[::40], shown[::40], strict=True):
        played = [~np.isnan(own) for own in clock]
        runs = zip(clock, leaked, played, strict=True)
        expected = [values[there][own[there] <= time][-1] for own, values, there in runs]
        assert value == pytest.approx(np.mean(expected), rel=1e-6)


def test_accuracy_is_in_per_cent(result, drawn):
    kept = result["diverged_round"].values == 0
    assert 2 <= kept.sum() < 8
    accuracy = result["test_accuracy"].values[kept].astype(float)
    rounds, shown = line(drawn["accuracy_vs_rounds"])
    np.testing.assert_array_equal(rounds, EVALUATED)
    np.testing.assert_allclose(shown, 100 * accuracy.mean(axis=0), rtol=1e-6)
    times, shown = line(drawn["accuracy_vs_latency"])
    clock = result["elapsed"].values[kept][:, EVALUATED - 1].astype(float)
    runs = [
        (own[there], row[there])
        for own, row in zip(clock, accuracy, strict=True)
        if (there := ~np.isnan(own)).any()
    ]
    assert times[0] == pytest.approx(max(own[0] for own, _ in runs))
    for time, value in zip(times[::40], shown[::40], strict=True):
        assert value == pytest.approx(100 * np.mean([row[own <= time][-1] for own, row in runs]), rel=1e-6)
    assert all("(%)" in drawn[f"accuracy_vs_{clock}"].get_ylabel() for clock in ("rounds", "latency"))


def test_the_bound_is_17_with_the_runs_own_weights(result, drawn):
    (strip,) = drawn["pseudo_regret_vs_rounds"].child_axes
    _, shown = line(strip)
    means = [0.125, 0.2, *(0.7 + 0.2 * np.arange(1, 4) / 3)]

    def speed(latency, mean):
        return FLOOR / latency * stats.norm.pdf(latency, mean, DEVIATION)

    mu = [
        stats.norm.cdf(FLOOR, mean, DEVIATION)
        + integrate.quad(speed, FLOOR, 2, args=(mean,), points=[mean])[0]
        for mean in means
    ]
    gap, most = np.diff(np.sort(mu)).min(), 2 * ALPHA + GAMMA + max(mu) - min(mu)
    log = np.log(np.arange(1, ROUNDS + 1))
    expected = CLIENTS * (most + gap) * (4 * 3 * log / gap**2 + 1 + 2 * np.pi**2 / 3)
    # μ is in float32, and the bound divides by the square of a difference of 0.005.
    np.testing.assert_allclose(shown, expected, rtol=1e-3)


def test_participation_goes_from_the_fastest_client_to_the_slowest(result, drawn):
    (points,) = drawn["selection_counts"].containers
    clients, shown = points[0].get_data()
    np.testing.assert_array_equal(clients, np.arange(CLIENTS))
    expected = result["counts"].values.mean(axis=0)
    assert len(set(expected)) > 3
    np.testing.assert_allclose(shown, expected)


MORE = ("test_accuracy", "cumulative_reward", "exact_share")
NEITHER = ("rounds_played", "diverged_round")


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_best_setting_is_that_of_the_most_accuracy_and_reward_and_of_the_least_else(metric):
    result, rows, _ = build({"a": {"exploitation_gain": [1.0, 2.0, 3.0, 4.0]}}, 3, ("exploitation_gain",))
    rng, shape = np.random.default_rng(1), result["elapsed"].shape
    others = ("reward", "expected_regret", "regret_own_history", "max_leakage_update", "train_loss")
    result = result.assign({name: (("run", "round"), rng.random(shape)) for name in others})
    result["test_loss"] = (("run", "eval"), rng.random(result["test_accuracy"].shape))
    result["diverged_round"] = ("run", np.zeros(shape[0], int))
    if metric in NEITHER:
        with pytest.raises(ValueError, match="neither way is better"):
            analysis.best(result, metric)
        return
    final = analysis.finals(result)[metric].values
    weight = np.array([row["exploitation_gain"] for row in rows])
    means = [np.nanmean(final[weight == value]) for value in (1.0, 2.0, 3.0, 4.0)]
    assert len(set(means)) == 4
    place = np.argmax(means) if metric in MORE else np.argmin(means)
    assert float(analysis.best(result, metric)["exploitation_gain"]) == place + 1
