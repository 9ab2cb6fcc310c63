"""`scripts/curves_at.py`: accuracies at a time, means as text, and a line with its points."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.plotting.data import Series

from ..programs import load


@pytest.fixture(scope="module")
def script():
    return load("scripts/curves_at.py")


def test_an_accuracy_is_known_from_the_time_of_its_evaluation_on(script):
    runs = xr.Dataset(
        {
            "elapsed": (("run", "round"), np.outer([1.0, 2.0, 3.0], [1, 2, 3, 4])),
            "test_accuracy": (("run", "eval"), np.array([[0.1, 0.2], [0.3, 0.4], [0.5, np.nan]])),
        },
        {"eval_round": ("eval", [2, 4])},
    )
    for time, known in ((1.9, [np.nan] * 3), (2, [0.1, np.nan, np.nan]), (4, [0.2, 0.3, np.nan])):
        np.testing.assert_array_equal(script.accuracy_at(runs, time), known)
    np.testing.assert_array_equal(script.accuracy_at(runs, 12), [0.2, 0.4, np.nan])


def test_a_mean_has_its_half_width_beside_it(script):
    half = stats.t.ppf(0.975, 1) * stats.sem([1.0, 4.0])
    assert script.plus_minus(np.array([1.0, 4.0]), "+.2f", ".3f") == f"+2.50 ± {half:.3f}"
    assert script.plus_minus(np.array([1.0], np.float32)) == "1.0"


def test_points_have_the_intervals_and_the_line_the_name(script):
    x = np.arange(3.0)
    line, points = script.marked(Series("a", x, x, x - 1, x + 1, style=2))
    assert (line.label, line.mark, line.style, line.low, line.high) == ("a", "line", 2, None, None)
    assert (points.label, points.mark, points.style) == ("", "point", 2)
    np.testing.assert_array_equal(points.low, x - 1)
