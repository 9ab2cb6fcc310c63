"""The picture of a trade-off: its points, colours, fronts, scales and legend."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import Normalize, to_hex, to_rgba

from pausejax.report.levels import Measure
from pausejax.report.pareto import trade_off
from pausejax.report.style import MARKERS, PALETTE

from .made import runs_of, with_figures

TIME = Measure("time", "time", scale=2)
GAIN = Measure("gain", "gain", scale=100)
LEAK = Measure("leak", "leakage", scale=10)

POINTS = [
    # time, gain, leakage; less, more and less are better.
    (1.0, 0.2, 5.0),
    (2.0, 0.4, 4.0),
    (3.0, 0.3, 3.0),
    (4.0, 0.3, 6.0),
    (5.0, 0.1, np.inf),
    (3.5, 0.5, np.inf),
    (2.5, np.nan, 1.0),
]
ON_ALL_THREE = [0, 1, 2, 5]
ON_TWO = [0, 1, 5]


def finals(points, policies, ways=(False, True, False)):
    """One run of each setting."""
    runs = runs_of([{"policy": p, "gamma": float(n)} for n, p in enumerate(policies)])
    return with_figures(
        runs, ways, **dict(zip(("time", "gain", "leak"), zip(*points, strict=True), strict=False))
    )


def points_of(axes):
    """Place: whether it is outlined, its size, its marker's place among all markers, its colour."""
    return {
        tuple(np.round(place, 6)): (points.get_linewidth()[0] > 0, points.get_zorder(), tuple(colour))
        for points in axes.collections
        for place, colour in zip(
            points.get_offsets(),
            np.broadcast_to(points.get_facecolor(), (len(points.get_offsets()), 4)),
            strict=True,
        )
    }


def written(figure):
    return {text.get_text() for text in figure.legends[0].get_texts()}


def test_points_are_coloured_by_a_third_measure_and_the_front_of_all_three_is_outlined():
    policies = ["a", "a", "b", "b", "a", "b", "a"]
    figure = trade_off(finals(POINTS, policies), TIME, GAIN, LEAK)
    axes, bar = figure.axes
    shade = colormaps["viridis"]
    expected = {}
    for place, (time, gain, leak) in enumerate(POINTS[:6]):
        own = shade(Normalize(30, 60)(10 * leak)) if np.isfinite(leak) else to_rgba("0.6")
        on = place in ON_ALL_THREE
        expected[2 * time, np.round(100 * gain, 6)] = (on, 3 if on else 2, tuple(own))
    found = points_of(axes)
    assert found.keys() == expected.keys()
    for place, (outlined, order, colour) in expected.items():
        assert found[place][:2] == (outlined, order)
        np.testing.assert_allclose(found[place][2], colour)
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [(2 * POINTS[p][0], 100 * POINTS[p][1]) for p in ON_TWO])
    # Less time is better: up to the next point the gain is what the last one has.
    assert line.get_drawstyle() == "steps-post" and line.get_zorder() < 2
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == ("time", "gain", "leakage")
    assert axes.get_xscale() == axes.get_yscale() == "linear"
    assert bar.get_ylim() == (30, 60)
    all_three = "on the front of all three: 4 of 6"
    assert written(figure) == {"front of the two axes", "a", "b", all_three, "unbounded"}
    by_label = {points.get_label(): points for points in axes.collections}
    assert to_hex(by_label["a"].get_facecolor()[0]) == to_hex("0.4")
    (front,) = by_label[all_three].get_facecolor()
    (edge,) = by_label[all_three].get_edgecolor()
    assert (to_hex(front), to_hex(edge)) == ("#ffffff", "#000000")


def test_two_measures_tell_policies_by_colours():
    points = [(1.0, 2.0), (2.0, 30.0), (0.5, 1.0), (3.0, 5.0)]
    figure = trade_off(finals(points, ["a", "b", "a", "b"]), TIME, GAIN._replace(scale=1), None)
    (axes,) = figure.axes
    assert {place: (on, to_hex(colour)) for place, (on, _, colour) in points_of(axes).items()} == {
        (2.0, 2.0): (True, PALETTE[0].lower()),
        (4.0, 30.0): (True, PALETTE[1].lower()),
        (1.0, 1.0): (True, PALETTE[0].lower()),
        (6.0, 5.0): (False, PALETTE[1].lower()),
    }
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    assert written(figure) == {"front", "a", "b", "on the front: 3 of 4"}
    by_label = {points.get_label(): points for points in axes.collections}
    assert to_hex(by_label["b"].get_facecolor()[0]) == PALETTE[1].lower()


@pytest.mark.parametrize(
    ("ways", "style", "front"),
    [
        ((True, True), "steps-pre", [(2, 30), (3, 5)]),
        ((True, False), "steps-pre", [(0.5, 1), (1, 2), (3, 5)]),
        ((False, False), "steps-post", []),
        ((False, True), "steps-post", [(0.5, 1), (1, 2), (2, 30)]),
    ],
)
def test_steps_of_a_front_are_what_can_be_had(ways, style, front):
    points = [(1.0, 2.0), (2.0, 30.0), (0.5, 1.0), (3.0, 5.0)]
    figure = trade_off(finals(points, "aaaa", ways), TIME._replace(scale=1), GAIN._replace(scale=1), None)
    lines = figure.axes[0].get_lines()
    assert [line.get_xydata().tolist() for line in lines] == ([[list(p) for p in front]] if front else [])
    assert all(line.get_drawstyle() == style for line in lines)
    # One policy needs no name.
    assert "a" not in written(figure)


def test_without_a_setting_that_has_both_there_is_no_picture():
    points = [(1.0, np.nan, 1.0), (np.inf, 1.0, 1.0)]
    assert trade_off(finals(points, "ab"), TIME, GAIN, LEAK) is None


def test_settings_at_one_place_are_no_front_to_draw():
    (axes, _) = trade_off(finals([(1.0, 2.0, 3.0), (1.0, 2.0, 4.0)], "aa"), TIME, GAIN, LEAK).axes
    assert not axes.get_lines()


def test_with_nothing_bounded_there_is_no_scale_of_colours():
    points = [(1.0, 2.0, np.inf), (20.0, 3.0, np.inf)]
    figure = trade_off(finals(points, "aa"), TIME, GAIN, LEAK)
    (axes,) = figure.axes
    assert {tuple(colour) for _, _, colour in points_of(axes).values()} == {to_rgba("0.6")}
    assert axes.get_xscale() == "log" and "unbounded" in written(figure)


def test_markers_come_back_after_all_have_been_used():
    policies = [f"p{n}" for n in range(len(MARKERS) + 1)]
    points = [(float(n), float(n)) for n in range(len(policies))]
    (axes,) = trade_off(finals(points, policies), TIME, GAIN, None).axes
    shapes = {p.get_label(): p.get_paths()[0].vertices for p in axes.collections if p.get_label() in policies}
    np.testing.assert_array_equal(shapes["p0"], shapes[policies[-1]])
    assert not np.array_equal(shapes["p0"], shapes["p1"])
