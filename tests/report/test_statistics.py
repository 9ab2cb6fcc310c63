"""Seed statistics against scipy and closed forms."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.analysis import mean_curves as curves
from pausejax.report import statistics
from pausejax.report.series import per_seed


def test_band_is_the_t_interval():
    samples = np.random.default_rng(0).normal(3, 2, (7, 4))
    mean, half_width = statistics.band(samples)
    low, high = stats.t.interval(0.95, 6, loc=samples.mean(axis=0), scale=stats.sem(samples, axis=0))
    np.testing.assert_allclose(mean - half_width, low)
    np.testing.assert_allclose(mean + half_width, high)


def test_smoothing_averages_the_last_points_that_there_are():
    values = np.array([[1.0, 3.0, 5.0, 7.0]])
    np.testing.assert_allclose(curves.smooth(values, 2), [[1, 2, 4, 6]])
    np.testing.assert_allclose(curves.smooth(values, 10), [[1, 2, 3, 4]])
    np.testing.assert_array_equal(curves.smooth(values, 1), values)
    endless = np.array([[1.0, np.inf, 3.0, 4.0, 6.0], [1.0, np.nan, 3.0, 4.0, 6.0]])
    expected = [[1, np.inf, np.inf, 3.5, 5], [1, np.nan, np.nan, 3.5, 5]]
    np.testing.assert_allclose(curves.smooth(endless, 2), expected)
    gap = np.array([[0.1, np.nan, 0.3]])
    np.testing.assert_array_equal(curves.smooth(gap, 1), gap)


@pytest.fixture
def result():
    return xr.Dataset(
        {
            "test_accuracy": (("run", "eval"), np.array([[0.1, 0.2], [0.3, 0.4], [0.5, np.nan], [0.7, 0.8]])),
            "elapsed": (("run", "round"), np.arange(16.0).reshape(4, 4) % 4 + 1),
            "diverged_round": ("run", np.array([0, 0, 3, 0])),
        },
        {
            "policy": ("run", ["a", "a", "b", "b"]),
            "seed": ("run", [0, 1, 0, 0]),
            "kappa": ("run", [np.nan, np.nan, 1.0, 2.0]),
            "eval_round": ("eval", [2, 4]),
        },
        {"axes": '["kappa"]'},
    )


def test_lines_split_by_policy_and_by_the_axes_that_apply(result):
    found = statistics.lines(result)
    assert [line.label for line in found] == ["a", "b, kappa = 1", "b, kappa = 2"]
    assert [line.runs.sizes["run"] for line in found] == [2, 1, 1]


def test_healthy_leaves_diverged_runs_out(result):
    assert statistics.finite_runs(result).sizes["run"] == 3


def test_accuracy_at_a_time_is_the_latest_evaluation(result):
    np.testing.assert_array_equal(statistics.evaluation_times(result), np.tile([2.0, 4.0], (4, 1)))
    np.testing.assert_array_equal(statistics.accuracy_at(result, 3.9), [0.1, 0.3, 0.5, 0.7])
    assert np.isnan(statistics.accuracy_at(result, 1.9)).all()


def test_common_clock_ends_with_the_first_run_that_stops():
    times = np.array([[1.0, 2.0, 4.0, np.nan], [2.0, 3.0, 5.0, 9.0], [np.nan] * 4])
    values = 10 * times
    values[1, 3] = np.nan
    grid, found = curves.resample(times, values, points=5)
    assert grid.tolist() == [2.0, 2.5, 3.0, 3.5, 4.0]
    np.testing.assert_array_equal(found, [[20, 20, 20, 20, 40], [20, 20, 30, 30, 30]])
    grid, found = curves.resample(times[2:], values[2:])
    assert grid.size == 0 and found.size == 0


def test_smoothing_keeps_what_lies_before_the_end():
    values = np.array([[1.0, 3.0, 5.0, np.nan, np.nan]])
    np.testing.assert_allclose(curves.smooth(values, 2), [[1, 2, 4, np.nan, np.nan]])


@pytest.mark.parametrize(
    ("losses", "evaluations"),
    [
        # All diverged: what they had learned up to the first evaluation that is no number.
        ([[1.0, 2.0, np.nan], [1.0, 2.0, 3.0]], 2),
        ([[1.0, 2.0, 4.0], [1.0, np.inf, 3.0]], 1),
        ([[np.nan, 2.0, 4.0], [1.0, 1.0, 3.0]], 0),
        ([[1.0, 2.0, 4.0], [1.0, 1.0, 3.0]], 3),
    ],
)
def test_runs_that_all_diverged_count_up_to_the_first_divergence(losses, evaluations):
    runs = xr.Dataset({"test_loss": (("run", "eval"), losses), "diverged_round": ("run", [1, 3])})
    found = statistics.without_diverged(runs)
    assert found["test_loss"].shape == (2, evaluations)
    np.testing.assert_array_equal(found["test_loss"].values, np.array(losses)[:, :evaluations])
    one = statistics.without_diverged(runs.assign(diverged_round=("run", [1, 0])))
    np.testing.assert_array_equal(one["test_loss"].values, losses[1:])
    assert statistics.finite_runs(runs.drop_vars("diverged_round")).sizes["run"] == 2


def test_a_run_of_one_value_is_read_off_at_its_time():
    grid, values = curves.resample(np.array([[3.0, np.nan], [2.0, 5.0]]), np.array([[7.0, 0], [2, 5]]))
    assert grid.shape == (200,) and set(grid) == {3.0}
    np.testing.assert_allclose(values, np.broadcast_to([[7.0], [2.0]], (2, 200)))


def test_an_infinite_value_ends_no_curve():
    grid, values = curves.resample(np.array([[1.0, 2.0, 3.0]]), np.array([[np.inf, 4.0, 4.0]]), points=3)
    assert grid.tolist() == [1, 2, 3] and values[0, 1:].tolist() == [4, 4]


def test_lines_keep_the_order_of_their_runs():
    """More runs than a sort by insertion takes, so that only a stable one keeps their order."""
    policies = np.array(list("abc") * 20)
    runs = xr.Dataset({"place": ("run", np.arange(60))}, {"policy": ("run", policies)}, {"axes": "[]"})
    found = statistics.lines(runs.assign_coords(seed=("run", np.arange(60))))
    assert [(line.label, line.policy) for line in found] == [("a", "a"), ("b", "b"), ("c", "c")]
    for first, line in enumerate(found):
        assert line.runs["place"].values.tolist() == list(range(first, 60, 3))


def test_an_accuracy_is_known_at_the_time_of_its_evaluation(result):
    np.testing.assert_array_equal(statistics.accuracy_at(result, 2.0), [0.1, 0.3, 0.5, 0.7])
    np.testing.assert_array_equal(statistics.accuracy_at(result, 4.0), [0.2, 0.4, np.nan, 0.8])
    slow = result.assign(elapsed=result["elapsed"] * np.array([[1.0], [2], [3], [1]]))
    np.testing.assert_array_equal(statistics.accuracy_at(slow, 4.0), [0.2, 0.3, np.nan, 0.8])


def test_two_runs_have_an_interval():
    half = stats.t.ppf(0.975, 1) * stats.sem([1.0, 4.0])
    np.testing.assert_allclose(statistics.band([1.0, 4.0]), (2.5, half))
    # float32 is summed in float64.
    np.testing.assert_array_equal(
        curves.smooth(np.array([[2.0**24, 1, 1]], np.float32), 2), [[2.0**24, (2**24 + 1) / 2, 1]]
    )


@pytest.mark.parametrize(
    ("seeds", "means"),
    [
        ([7, 7, 3, 7], [[5, 6], [(1 + 3 + 8) / 3, (2 + 4 + 10) / 3]]),
        ([1, 1, 1, 1], [[17 / 4, 22 / 4]]),
        ([4, 3, 2, 1], None),
    ],
)
def test_runs_of_a_seed_are_averaged_unless_all_seeds_are_different(seeds, means):
    values = np.array([[1.0, 2], [3, 4], [5, 6], [8, 10]])
    np.testing.assert_allclose(per_seed(values, np.array(seeds)), values if means is None else means)
    one = values[:, 0]
    np.testing.assert_allclose(
        per_seed(one, np.array(seeds)), one if means is None else np.array(means)[:, 0]
    )
