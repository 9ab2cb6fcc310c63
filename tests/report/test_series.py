"""Curves as numbers: which variable, on which clock, smoothed or not, and what has none."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.report import series
from pausejax.report.asked import chosen
from pausejax.report.levels import Measure
from pausejax.report.statistics import accuracy_at, lines, without_diverged

from ..analysis.made_up import AXES, POLICIES, build

TOTAL = Measure("cost", "cost", scale=2, variable="cost", running="total")
SCORE = Measure("score", "score", scale=100, variable="score")
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
    x, values, seeds = series.samples_of(runs, TOTAL, smoothing=3)
    np.testing.assert_array_equal(x, [11, 12, 13, 14])
    np.testing.assert_array_equal(values, [[2, 6, 12, 20], [10, 22, 36, 52], [0] * 4])
    assert seeds.tolist() == [7, 8, 9]
    assert series.samples_of(runs.drop_vars("seed"), TOTAL).seeds.tolist() == [0, 1, 2]


def test_only_evaluations_are_smoothed(runs):
    x, values, _ = series.samples_of(runs, SCORE)
    np.testing.assert_array_equal(x, [12, 14])
    np.testing.assert_allclose(values, [[10, 30], [20, 60], [30, 50]])
    np.testing.assert_allclose(series.samples_of(runs, SCORE, smoothing=2).values[:, 1], [20, 40, 40])
    found = series.series_of(runs, SCORE, label="a")
    low, high = stats.t.interval(0.95, 2, loc=20, scale=stats.sem([10, 20, 30]))
    assert found.label == "a" and found.mean.tolist() == pytest.approx([20, 140 / 3])
    assert (found.low[0], found.high[0]) == (pytest.approx(low), pytest.approx(high))


def test_what_diverged_models_learned_is_left_out(runs):
    found = series.samples_of(runs, SCORE._replace(learned=True))
    assert found.seeds.tolist() == [7, 9] and found.values.shape == (2, 2)


def test_on_the_clock_a_run_without_a_time_is_left_out(runs):
    x, values, seeds = series.samples_of(runs, SCORE, "latency")
    # The runs are evaluated at 2 and 4 s, and at 4 and 8 s: 4 s is all that they share.
    assert set(x) == {4.0} and seeds.tolist() == [7, 8]
    np.testing.assert_allclose(values[:, 0], [30, 20])
    x, values, _ = series.samples_of(runs, TOTAL, "latency")
    assert (x[0], x[-1]) == (2, 4)
    np.testing.assert_allclose(values[:, [0, -1]], [[6, 20], [10, 22]])
    # Between two rounds there is what the last one left.
    late = np.searchsorted(x, 3.99)
    np.testing.assert_allclose(values[:, late - 1], [12, 10])


def test_a_run_that_ends_early_has_its_rounds_on_the_clock(runs):
    runs["elapsed"][0, 3] = np.nan
    x, values, seeds = series.samples_of(runs, TOTAL, "latency")
    assert seeds.tolist() == [7, 8] and (x[0], x[-1]) == (2, 3)
    np.testing.assert_allclose(values[:, -1], [12, 10])


def test_without_rounds_there_is_no_curve(runs):
    for clock in ("rounds", "latency"):
        found = series.series_of(runs.isel(eval=[]), SCORE, clock, label="a")
        assert found.label == "a" and [part.shape for part in found[1:]] == [(0,)] * 4


@pytest.mark.parametrize(
    ("variable", "running", "curve"),
    [
        ("cost", "last", True),
        ("score", "total", True),
        ("counts", "last", False),
        ("final", "last", False),
        ("cost", "imbalance", False),
        ("gone", "last", False),
    ],
)
def test_a_curve_needs_a_value_for_each_round_or_evaluation(runs, variable, running, curve):
    assert series.has_curve(runs, Measure("m", "m", variable=variable, running=running)) == curve


def test_a_clock_is_there_where_time_is_recorded(runs):
    assert series.clocks_of(runs) == ["rounds", "latency"]
    assert series.clocks_of(runs.drop_vars("elapsed")) == ["rounds"]


def test_curves_in_time_and_tables_have_the_same_figure(runs):
    """What a table has at a time is the last evaluation by then, and so is what a curve has there."""
    (measure,) = chosen(result := build(POLICIES, 3, AXES)[0], ["test_accuracy"])[1]
    line = lines(result)[0].runs
    x, values, _ = series.samples_of(line, measure, "latency")
    whole = without_diverged(line)
    for place in (0, 77, 199):
        expected = 100 * accuracy_at(whole, x[place])
        np.testing.assert_allclose(values[:, place], expected[np.isfinite(expected)], rtol=1e-6)


def test_a_curve_may_be_asked_for_by_the_name_of_its_measure(runs):
    result, _, _ = build(POLICIES, 3, AXES)
    for name, same in (("pseudo_regret", "cumulative_pseudo_regret"), ("max_leakage", "max_leakage")):
        (measure,) = chosen(result, [same])[1]
        found = series.series_of(result, name, label="a")
        for one, other in zip(found, series.series_of(result, measure, label="a"), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="measure: pseudo_regre: unknown here; did you mean 'pseudo_regret'"):
        series.series_of(result, "pseudo_regre")
    with pytest.raises(ValueError, match="measure: rounds_played: is one figure for a run and has no curve"):
        series.samples_of(result, "rounds_played")
