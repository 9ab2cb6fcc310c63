"""Numbers, inks and ticks in pictures of many settings, and the decades of an axis."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import Normalize

from pausejax.report import effects, heatmaps, style
from pausejax.report.levels import Levels
from pausejax.report.series import per_seed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.001, "0.00100"),
        (0.000999, "1.0e-3"),
        (1.0, "1.00"),
        (12.34, "12.3"),
        (99.94, "99.9"),
        (99.95, "100"),
        (-123.4, "-123"),
        (99_999.0, "99999"),
        (100_000.0, "1.0e5"),
        (-2e-10, "-2.0e-10"),
    ],
)
def test_a_cells_number_has_three_digits(value, text):
    assert heatmaps._number(value) == text


def test_a_cell_has_its_number_in_an_ink_that_is_seen():
    panel = style.new_figure(2, 2).add_subplot()
    heatmaps._panel(panel, np.array([[0.0, 10.0, np.nan], [2.0, 4.0, 7.0]]), Normalize(0, 10))
    found = {text.get_position(): (text.get_text(), text.get_color()) for text in panel.texts}
    assert found == {
        (0.5, 0.5): ("0", "white"),
        (1.5, 0.5): ("10.0", "black"),
        (0.5, 1.5): ("2.00", "white"),
        (1.5, 1.5): ("4.00", "white"),
        (2.5, 1.5): ("7.00", "black"),
    }
    (mesh,) = panel.collections
    assert (mesh.norm.vmin, mesh.norm.vmax, mesh.get_cmap().name) == (0, 10, "viridis")
    np.testing.assert_array_equal(mesh.get_array().filled(-1), [[0, 10, -1], [2, 4, 7]])


@pytest.mark.parametrize(
    ("which", "values", "rotation"),
    [("x", [1234567, 2345678], 0), ("x", [1234567, 23456789], 90), ("y", [1234567, 23456789], 0)],
)
def test_values_stand_upright_where_they_are_longer_than_their_cells(which, values, rotation):
    panel = style.new_figure(2, 2).add_subplot()
    levels = Levels(xr.Dataset({}, {"batch_size": ("run", values)}), ("batch_size",))
    heatmaps._ticks(panel, levels, "batch_size", which, True)
    labels = panel.get_xticklabels() if which == "x" else panel.get_yticklabels()
    assert [label.get_text() for label in labels] == list(map(str, values))
    assert {label.get_rotation() for label in labels} == {rotation}


@pytest.mark.parametrize(
    ("ends", "values", "texts"),
    [
        ((1, 50), [2, 3, 5, 20], [r"$2\times10^{0}$", "", r"$5\times10^{0}$", r"$2\times10^{1}$"]),
        ((50, 1), [2], [r"$2\times10^{0}$"]),
        ((1, 51), [2], [""]),
        ((0.01, 0.1), [0.02, 0.05, 0.06], [r"$2\times10^{-2}$", r"$5\times10^{-2}$", ""]),
        ((0, 1), [0.2], [""]),
        ((3, 3), [2], [""]),
    ],
)
def test_twos_and_fives_stand_between_few_powers_of_ten(ends, values, texts):
    axis = style.new_figure(2, 2).add_subplot().xaxis
    axis.set_view_interval(*ends, ignore=True)
    assert [style._within_a_decade(axis, value) for value in values] == texts


@pytest.mark.parametrize(
    ("inches", "kept"),
    [
        ([0.0, 0.2, 0.4], [0, 1, 2]),
        # Within 0.108 inches of the one before, or of the last one.
        ([0.0, 0.1, 0.2, 0.4], [0, 2, 3]),
        ([0.0, 0.11, 0.3, 0.4], [0, 1, 3]),
        ([0.0, 0.2, 0.25, 0.5], [0, 1, 3]),
        ([0.0, 0.108, 0.216], [0, 1, 2]),
        ([0.0, 0.01], [0, 1]),
    ],
)
def test_upright_numbers_that_would_touch_are_left_out(inches, kept):
    assert effects._spaced(np.array(inches)) == kept


@pytest.mark.parametrize(
    ("shares", "inches"), [([0, 0.5, 0.8], 1.12), ([0, 0.1, 0.8], 1.3), ([0, 0.01, 0.8], 2.6)]
)
def test_a_panel_is_as_wide_as_its_closest_numbers_need(shares, inches):
    assert effects._width(np.array(shares)) == pytest.approx(inches)


@pytest.mark.parametrize(
    ("seeds", "means"),
    [
        ([7, 7, 3, 7], [[5, 6], [(1 + 3 + 8) / 3, (2 + 4 + 10) / 3]]),
        ([1, 1, 1, 1], None),
        ([4, 3, 2, 1], None),
    ],
)
def test_runs_of_a_seed_are_averaged_unless_all_seeds_are_one_or_all_are_different(seeds, means):
    values = np.array([[1.0, 2], [3, 4], [5, 6], [8, 10]])
    np.testing.assert_allclose(per_seed(values, np.array(seeds)), values if means is None else means)
    one = values[:, 0]
    np.testing.assert_allclose(
        per_seed(one, np.array(seeds)), one if means is None else np.array(means)[:, 0]
    )
