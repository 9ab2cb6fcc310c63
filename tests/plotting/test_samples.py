"""Curves as numbers: which variable, against what, smoothed or not, per seed, and what has none."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.analysis.mean_curves import resample, samples, smooth, without_diverged
from pausejax.analysis.quantities import Metric
from pausejax.plotting import curves
from pausejax.plotting.grid import Cell, Grid, Line, lines

from ..analysis.made_up import AXES, POLICIES, build
from .made import of

TOTAL = Metric("cost", "total", False, "1", "cost", scale=2)
SCORE = Metric("score", "last", True, "1", "score", scale=100)
TIMES = np.array([[1.0, 2, 3, 4], [2.0, 4, 6, 8], [np.nan] * 4])


@pytest.fixture
def runs():
    """Three runs of four rounds, recorded from round 11 on, evaluated after the second and the fourth."""
    return xr.Dataset(
        {
            "cost": (("run", "round"), [[1.0, 2, 3, 4], [5.0, 6, 7, 8], [0.0] * 4]),
            "elapsed": (("run", "round"), TIMES.copy()),  # a test changes it
            "score": (("run", "eval"), [[0.1, 0.3], [0.2, 0.6], [0.3, 0.5]]),
            "counts": (("run", "client"), np.ones((3, 2))),
            "final": ("run", [1.0, 2.0, 3.0]),
            "diverged_round": ("run", [0, 5, 0]),
        },
        {"seed": ("run", [7, 8, 9]), "round": [11, 12, 13, 14], "eval_round": ("eval", [12, 14])},
    )


def test_a_curve_is_scaled_and_summed_up_over_the_rounds(runs):
    x, values, seeds = samples(runs, TOTAL, smoothing=3)
    np.testing.assert_array_equal(x, [11, 12, 13, 14])
    np.testing.assert_array_equal(values, [[2, 6, 12, 20], [10, 22, 36, 52], [0] * 4])
    assert seeds.tolist() == [7, 8, 9]
    assert samples(runs.drop_vars("seed"), TOTAL).seeds.tolist() == [0, 1, 2]


def test_only_evaluations_are_smoothed(runs):
    x, values, _ = samples(runs, SCORE)
    np.testing.assert_array_equal(x, [12, 14])
    np.testing.assert_allclose(values, [[10, 30], [20, 60], [30, 50]])
    np.testing.assert_allclose(samples(runs, SCORE, smoothing=2).values[:, 1], [20, 40, 40])
    found = curves.mean_series("a", samples(runs, SCORE), 4)
    low, high = stats.t.interval(0.95, 2, loc=20, scale=stats.sem([10, 20, 30]))
    assert (found.label, found.style) == ("a", 4) and found.y.tolist() == pytest.approx([20, 140 / 3])
    assert (found.low[0], found.high[0]) == (pytest.approx(low), pytest.approx(high))


def test_what_diverged_models_learned_is_left_out(runs):
    found = samples(runs, SCORE._replace(learned=True))
    assert found.seeds.tolist() == [7, 9] and found.values.shape == (2, 2)


def test_runs_that_all_diverged_leave_no_line_and_are_named(runs):
    """As in tables and in `analysis.curves`."""
    lost = runs.assign(diverged_round=("run", [1, 3, 2]))
    metric = SCORE._replace(learned=True, name="score")
    assert samples(lost, metric).values.shape == (0, 2)
    grid = Grid((Cell("", (Line("a", "a", runs), Line("b", "b", lost, 1))),), 1)
    (panel,) = curves.curves(grid, metric).panels
    assert [bool(one.y.size) for one in panel.series] == [True, False]
    assert panel.note == "no line, because its runs diverged: b"
    assert without_diverged(runs.drop_vars("diverged_round")).sizes["run"] == 3


def test_runs_that_were_never_evaluated_are_named(runs):
    grid = Grid((Cell("", (Line("a", "a", runs.assign(score=runs["score"] * np.nan)),)),), 1)
    (panel,) = curves.curves(grid, SCORE._replace(learned=True, name="score")).panels
    assert panel.note == "no line, because its runs have no value: a"


def test_against_time_a_run_without_a_time_is_left_out(runs):
    x, values, seeds = samples(runs, SCORE, "time")
    # The runs are evaluated at 2 and 4 s, and at 4 and 8 s: 4 s is all that they share.
    assert set(x) == {4.0} and seeds.tolist() == [7, 8]
    np.testing.assert_allclose(values[:, 0], [30, 20])
    x, values, _ = samples(runs, TOTAL, "time")
    assert (x[0], x[-1]) == (2, 4)
    np.testing.assert_allclose(values[:, [0, -1]], [[6, 20], [10, 22]])
    # Between two rounds there is what the last one left.
    late = np.searchsorted(x, 3.99)
    np.testing.assert_allclose(values[:, late - 1], [12, 10])
    assert [curves.clocks_of(found) for found in (runs, runs.drop_vars("elapsed"))] == [
        ("round", "time"),
        ("round",),
    ]


def test_a_run_that_ends_early_has_its_rounds_in_time(runs):
    runs["elapsed"][0, 3] = np.nan
    x, values, seeds = samples(runs, TOTAL, "time")
    assert seeds.tolist() == [7, 8] and (x[0], x[-1]) == (2, 3)
    np.testing.assert_allclose(values[:, -1], [12, 10])


def test_common_times_end_with_the_first_run_that_stops():
    times = np.array([[1.0, 2.0, 4.0, np.nan], [2.0, 3.0, 5.0, 9.0], [np.nan] * 4])
    values = 10 * times
    values[1, 3] = np.nan
    at, found = resample(times, values, points=5)
    assert at.tolist() == [2.0, 2.5, 3.0, 3.5, 4.0]
    np.testing.assert_array_equal(found, [[20, 20, 20, 20, 40], [20, 20, 30, 30, 30]])
    assert [part.size for part in resample(times[2:], values[2:])] == [0, 0]
    # A run of one value is read off at its time, and an infinite value ends no curve.
    at, found = resample(np.array([[3.0, np.nan], [2.0, 5.0]]), np.array([[7.0, 0], [2, 5]]))
    assert at.tolist() == [3.0] and found.tolist() == [[7.0], [2.0]]
    at, found = resample(np.array([[1.0, 2.0, 3.0]]), np.array([[np.inf, 4.0, 4.0]]), points=3)
    assert at.tolist() == [1, 2, 3] and found[0, 1:].tolist() == [4, 4]
    # A missing value between two others is a gap, also in time.
    at, found = resample(np.array([[1.0, 2, 3, 4]]), np.array([[5.0, np.nan, 6, np.nan]]), points=5)
    assert at.tolist() == [1, 1.5, 2, 2.5, 3]
    np.testing.assert_array_equal(found, [[5, 5, np.nan, np.nan, 6]])


def test_without_rounds_there_is_no_curve(runs):
    for clock in ("round", "time"):
        found = curves.mean_series("a", samples(runs.isel(eval=[]), SCORE, clock), 0)
        assert found.x.shape == found.y.shape == (0,) and found.low is None and found.high is None


def test_curves_in_time_have_the_last_evaluation_by_then():
    result = build(POLICIES, 3, AXES)[0]
    line = without_diverged(lines(result)[0].runs)
    x, values, _ = samples(line, *of(result, "test_accuracy"), "time")
    clock = line["elapsed"].values[:, line["eval_round"].values - 1]
    accuracy = line["test_accuracy"].values
    for place in (0, 77, 199):
        expected = [
            100 * own[np.flatnonzero(times <= x[place])[-1]]
            for own, times in zip(accuracy, clock, strict=True)
            if np.isfinite(times).any()
        ]
        np.testing.assert_allclose(values[:, place], expected, rtol=1e-6)


def test_smoothing_averages_the_last_points_that_there_are():
    values = np.array([[1.0, 3.0, 5.0, 7.0]])
    np.testing.assert_allclose(smooth(values, 2), [[1, 2, 4, 6]])
    np.testing.assert_allclose(smooth(values, 10), [[1, 2, 3, 4]])
    np.testing.assert_array_equal(smooth(values, 1), values)
    endless = np.array([[1.0, np.inf, 3.0, 4.0, 6.0], [1.0, 3.0, 4.0, np.nan, np.nan]])
    np.testing.assert_allclose(smooth(endless, 2), [[1, np.inf, np.inf, 3.5, 5], [1, 2, 3.5, np.nan, np.nan]])
    # float32 is summed in float64.
    np.testing.assert_array_equal(
        smooth(np.array([[2.0**24, 1, 1]], np.float32), 2), [[2.0**24, (2**24 + 1) / 2, 1]]
    )
