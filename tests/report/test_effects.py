"""Main effects: panels, their axes and numbers, and who has a line where."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pausejax.report import effects
from pausejax.report.effects import main_effects
from pausejax.report.levels import Levels, Measure
from pausejax.report.style import PALETTE, new_figure

from .made import crossed, runs_of, with_figures

LOSS, TIME = Measure("loss", "loss of a test on everything", scale=2), Measure("time", "time")


def finals(rows):
    """Figures that say of which run they are."""
    number = np.arange(1.0, len(rows) + 1)
    return with_figures(runs_of(rows), loss=number, time=10 * number)


ROWS = [
    *crossed(policy=["b", "a"], gamma=[3.0, 1.0, 2.0], model=["small", "big"]),
    *crossed(policy=["c"], model=["big"]),
]
"""Runs 1 to 6 of b, 7 to 12 of a, and 13 of c, which lacks γ."""


@pytest.fixture(scope="module")
def drawn():
    figure = main_effects(finals(ROWS), [LOSS, TIME])
    return figure, np.array(figure.axes).reshape(2, 2)


def test_a_measure_is_a_row_and_an_axis_a_column(drawn):
    figure, panels = drawn
    assert [panel.get_xlabel() for panel in panels.flat] == ["", "", "γ", "model"]
    assert [panel.get_ylabel() for panel in panels.flat] == [
        "loss of a test\non everything",
        "",
        "time",
        "",
    ]
    for upper, lower in panels.T:
        assert upper.get_xlim() == lower.get_xlim() and not any(t.get_text() for t in upper.get_xticklabels())
    for left, right in panels:
        assert left.get_ylim() == right.get_ylim()
    assert [t.get_text() for t in panels[1, 0].get_xticklabels()] == ["1", "2", "3"]
    assert [t.get_text() for t in panels[1, 1].get_xticklabels()] == ["big", "small"]
    assert all(panel.get_xticks(minor=True).size == 0 for panel in panels.flat)
    np.testing.assert_allclose(panels[0, 0].get_xlim(), [1 - 0.16, 3 + 0.16])
    np.testing.assert_allclose(panels[0, 1].get_xlim(), [-0.08, 1.08])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["b", "a", "c"]


def test_each_policy_has_a_line_of_means_where_it_has_the_axis(drawn):
    _, panels = drawn
    expected = {
        # γ = 1, 2, 3: b's runs are 3 and 4, 5 and 6, 1 and 2.
        (0, 0): {"b": ([1, 2, 3], [7, 11, 3]), "a": ([1, 2, 3], [19, 23, 15])},
        (1, 1): {"b": ([0, 1], [40, 30]), "a": ([0, 1], [100, 90]), "c": ([0], [130])},
    }
    for place, lines in expected.items():
        found = {line.get_label(): line for line in panels[place].get_lines()}
        assert list(found) == list(lines)
        for (name, points), colour in zip(lines.items(), PALETTE, strict=False):
            np.testing.assert_allclose(found[name].get_data(), points)
            assert to_hex(found[name].get_color()) == colour.lower()
            assert found[name].get_markevery() is None and found[name].get_marker() not in ("None", "", None)


def test_a_band_is_around_its_line():
    rows = crossed(gamma=[1.0, 2.0], seed=[0, 1])
    figure = main_effects(finals(rows), [LOSS])
    (panel,) = figure.axes
    (band,) = panel.collections
    # Two seeds that differ by 1, scaled by 2: t of one degree of freedom, 12.706, times 1.
    at, edges = band.get_paths()[0].vertices.T
    for x, mean in ((1, 3), (2, 7)):
        ends = edges[at == x].min(), edges[at == x].max()
        np.testing.assert_allclose(ends, (mean - 12.706, mean + 12.706), atol=1e-3)
    # The band is wider than the means are apart, and is cut: 3 to 7, and as much again on either side.
    np.testing.assert_allclose(panel.get_ylim(), [-1, 11])
    assert not figure.legends


@pytest.mark.parametrize(
    ("share", "means", "limits", "scale"),
    [
        (False, [2.0, 4.0], (0, 6), "linear"),
        (False, [2.0, np.nan, 4.0], (0, 6), "linear"),
        (False, [50.0], (49.95, 50.05), "linear"),
        (False, [-50.0], (-50.05, -49.95), "linear"),
        (True, [0.0, 20.0], (-20, 40), "linear"),
        (False, [0.0, 99.0], (-60, 80), "linear"),
        (False, [np.nan], (-60, 80), "linear"),
        (False, [1.0, 10.0], None, "log"),
    ],
)
def test_bands_have_as_much_room_as_the_means(share, means, limits, scale):
    panel = new_figure(2, 2).add_subplot()
    panel.set_ylim(-60, 80)
    effects._y_axis(panel, Measure("m", "m", share=share), np.array(means))
    assert panel.get_yscale() == scale
    if limits:
        np.testing.assert_allclose(panel.get_ylim(), limits)


def axis_of(values):
    """A panel's axis of some levels, and the levels."""
    levels = Levels(runs_of(crossed(gamma=values)), ("gamma",))
    panel = new_figure(2, 2).add_subplot()
    effects._x_axis(panel, levels, "gamma", labelled=True)
    return panel, [text.get_text() for text in panel.get_xticklabels()], levels


@pytest.mark.parametrize(
    ("values", "shares", "logarithmic"),
    [
        ([1.0, 2.0, 5.0], [0, 0.25, 1], False),
        ([2.0, 20.0, 200.0], [0, 0.5, 1], True),
        ([0.0, 5.0, 100.0], [0, 0.05, 1], False),
        (["a", "b", "d"], [0, 0.5, 1], False),
    ],
)
def test_levels_lie_where_their_values_are(values, shares, logarithmic):
    panel, texts, levels = axis_of(values)
    positions, found, on_log = effects._places(levels, "gamma")
    np.testing.assert_allclose(found, np.array(shares) / 1.16)
    assert on_log == logarithmic == (panel.get_xscale() == "log")
    expected = [0, 1, 2] if isinstance(values[0], str) else values
    np.testing.assert_allclose(positions, expected)
    np.testing.assert_allclose(panel.get_xticks(), expected)
    first, *_, final = expected
    if logarithmic:
        ends = [first * (final / first) ** -0.08, final * (final / first) ** 0.08]
    else:
        ends = [first - 0.08 * (final - first), final + 0.08 * (final - first)]
    np.testing.assert_allclose(panel.get_xlim(), ends)
    assert panel.get_xlabel() == "γ" and len(texts) == 3


@pytest.mark.parametrize(
    ("values", "upright", "texts"),
    [
        # 1.12 inches: 0.48 from one to the next.
        (["a", "b", "c"], 0, ["a", "b", "c"]),
        # A character takes 0.06 inches, with one between two words: 6 and 8 fit into 0.48, 7 and 8 do not.
        (["aaaaaa", "bbbbbbbb", "c"], 0, ["aaaaaa", "bbbbbbbb", "c"]),
        (["a", "bbbbbbb", "cccccccc"], 90, ["a", "bbbbbbb", "cccccccc"]),
        (["aaaaaaa", "bbbbbbbb", "c"], 90, ["aaaaaaa", "bbbbbbbb", "c"]),
        # 2.6 inches at the most: 2.24 for 0 to 100, and 1 would touch 0.
        ([0.0, 1.0, 50.0, 100.0], 90, ["0", "", "50", "100"]),
    ],
)
def test_numbers_that_would_touch_stand_upright_or_are_left_out(values, upright, texts):
    panel, found, _ = axis_of(values)
    assert found == texts
    assert {text.get_rotation() for text in panel.get_xticklabels()} == {upright}


@pytest.mark.parametrize(
    ("axes", "policies", "measures", "inches"),
    [
        ({"gamma": [1.0, 2.0]}, 1, 1, (2.4, 0.6 + 1.1 + 0.05)),
        ({"gamma": [1.0, 2.0], "model": ["x", "y"]}, 2, 1, (0.75 + 2 * 1.12, 0.6 + 1.1 + 0.3)),
        ({"gamma": [1.0, 2.0, 20.0], "model": ["x", "y"]}, 5, 2, (0.75 + 1.12 + 1.12, 0.6 + 2.2 + 0.6)),
        # An eleventh of the axis between two levels: 0.12 inches for each 1 / 11 / 1.16 of it, and 0.1.
        ({"model": ["x", "y"], "gamma": [0.0, 1.0, 11.0]}, 4, 3, (0.75 + 1.12 + 1.6312, 0.6 + 3.3 + 0.3)),
    ],
)
def test_the_size_of_a_picture_is_that_of_its_panels(axes, policies, measures, inches):
    rows = crossed(policy=[f"p{n}" for n in range(policies)], **axes)
    figure = main_effects(finals(rows), [LOSS, TIME, LOSS][:measures])
    np.testing.assert_allclose(figure.get_size_inches(), inches)
    grid = figure.axes[0].get_subplotspec().get_gridspec()
    assert grid.get_geometry() == (measures, len(axes))
    assert len(figure.legends) == (policies > 1)
    if len(axes) > 1:
        np.testing.assert_allclose(0.75 + sum(grid.get_width_ratios()), inches[0])


def test_the_legend_stands_above_the_panels():
    figure = main_effects(finals(ROWS), [LOSS])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().y0 >= max(panel.get_window_extent().y1 for panel in figure.axes)
    assert main_effects(finals(ROWS), []) is None
