"""What charts make of values: levels of axes, their averages, scales, and how levels are written."""

import numpy as np
import pytest
from scipy import stats

from pausejax.analysis.quantities import Metric
from pausejax.plotting import levels

from .made import of, runs_of, with_figures


def finals(gamma, seeds=None, **variables):
    """Some runs' figures, at values of one axis."""
    seeds = range(len(gamma)) if seeds is None else seeds
    runs = runs_of([{"seed": seed, "gamma": value} for seed, value in zip(seeds, gamma, strict=True)])
    return with_figures(runs, **variables)


@pytest.mark.parametrize(
    ("values", "cut"),
    [
        (np.arange(1.0, 9), np.arange(1.0, 9)),
        (np.arange(1.0, 17), np.repeat([1.5, 3.5, 5.5, 7.5, 9.5, 12, 14, 16], 2)),
        # A value on the border of two bins is in the upper one; the last bin has both its ends.
        (np.arange(17.0), [*np.repeat([0.5, 2.5, 4.5, 6.5, 8.5, 10, 12], 2), 15, 15, 15]),
        # Two digits would make one level of eight.
        (np.arange(1001.0, 1017), np.repeat(np.arange(1001.5, 1017, 2), 2)),
        # How many runs have a value says nothing of where the bins end.
        ([*[1.0] * 50, *np.arange(2.0, 10)], [*[1.0] * 50, 2, 3, 4, 5, 6, 7, 8.5, 8.5]),
    ],
)
def test_more_than_eight_values_become_the_medians_of_eight_bins(values, cut):
    values = np.asarray(values)
    runs = finals([*values, np.nan])
    found = levels.levels_of(runs)
    assert found.axes == ("gamma",)
    np.testing.assert_array_equal(found.runs["gamma"].values, [*cut, np.nan])
    assert levels.values_of(found, "gamma") == sorted(set(np.asarray(cut, float).tolist()))


@pytest.mark.parametrize(
    ("values", "axes"), [([2.0, 2.0], ()), ([2.0, np.nan], ()), ([2.0, 3.0], ("gamma",))]
)
def test_an_axis_has_two_values_that_apply(values, axes):
    assert levels.levels_of(finals(values)).axes == axes


def test_an_average_is_over_seeds_whose_runs_are_averaged_first():
    loss = np.array([1.0, 3.0, 2.0, 6.0, 10.0, 30.0, 20.0, np.inf])
    runs = finals([1.0, 2.0, 1.0, 2.0] * 2, [0, 0, 1, 1, 0, 0, 1, 1], loss=loss)
    runs = runs.assign_coords(eta=("run", np.repeat([0.1, 0.2], 4))).assign_attrs(axes='["gamma", "eta"]')
    (loss,) = of(runs, "loss", scale=2.0)
    found = levels.averaged(levels.levels_of(runs), loss, ("policy", "gamma"))
    assert found["gamma"].values.tolist() == [1.0, 2.0]
    # γ = 2: an infinite run is no number, and its seed has the other one.
    for place, by_seed in enumerate([[5.5, 11.0], [16.5, 6.0]]):
        low, high = stats.t.interval(0.95, 1, loc=np.mean(by_seed), scale=stats.sem(by_seed))
        drawn = [float(found[name][place]) for name in ("mean", "low", "high")]
        np.testing.assert_allclose(drawn, [2 * np.mean(by_seed), 2 * low, 2 * high])


@pytest.mark.parametrize(
    ("values", "spans"),
    [
        ([1, 10], True),
        ([1, 9.99], False),
        ([0, 10], False),
        ([-10, -1], False),
        ([-1, 100], False),
        ([0.5, np.nan, np.inf, 5], True),
        ([np.nan], False),
        ([], False),
    ],
)
def test_a_decade_of_positive_values_is_logarithmic_unless_it_is_of_shares(values, spans):
    values = np.asarray(values, float)
    assert levels.spans_decades(values) is spans
    metric = Metric("m", "last", None, "1", "m")
    assert (levels.axis_for(metric, values).scale == "log") is spans
    assert levels.axis_for(metric._replace(share=True), values).scale == "linear"
