"""Small multiples and the curves in them: panels, shared axes, one legend, bands, scales."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.report import curves
from pausejax.report.curves import Curve, figure, measure_plot, pair
from pausejax.report.grid import Grid, Panel
from pausejax.report.levels import Measure
from pausejax.report.series import Series
from pausejax.report.statistics import Line
from pausejax.report.style import PALETTE, SIZE, WIDE, look, new_figure

from .made import sampled

LEAKAGE = Measure("max_leakage", "leakage", scale=2, variable="max_leakage", running="last")


@pytest.mark.parametrize(
    ("panels", "columns", "rows"), [(2, 2, 1), (4, 2, 2), (5, 2, 3), (6, 2, 3), (7, 3, 3)]
)
def test_rows_are_as_many_as_the_panels_fill(panels, columns, rows):
    line = Line("pause", "", sampled(2, 1)[0])
    grid = Grid(tuple(Panel(f"panel {number}", (line,)) for number in range(panels)), columns)
    places = [axes.get_subplotspec() for axes in figure(lambda axes, curves: None, grid).axes]
    assert {place.get_gridspec().get_geometry() for place in places} == {(rows, columns)}


def runs_at(level, rounds=(1, 2, 3)):
    """Three seeds around a level, of values that grow with the rounds."""
    values = level * np.arange(1.0, len(rounds) + 1) + np.array([[-1.0], [0.0], [4.0]])
    return xr.Dataset(
        {"max_leakage": (("run", "round"), values), "elapsed": (("run", "round"), values + 10)},
        {"seed": ("run", [0, 1, 2]), "policy": ("run", ["a"] * 3), "round": list(rounds)},
        {"axes": json.dumps([])},
    )


def grid_of(panels, columns, lines=("a", "b")):
    """Panels whose lines grow from panel to panel."""
    return Grid(
        tuple(
            Panel(f"panel {n}", tuple(Line(x, "a", runs_at(10.0**n * (k + 1))) for k, x in enumerate(lines)))
            for n in range(panels)
        ),
        columns,
    )


def test_panels_share_their_axes_and_their_legend():
    drawn = figure(measure_plot(LEAKAGE), grid_of(3, 2))
    assert [axes.get_title() for axes in drawn.axes] == ["panel 0", "panel 1", "panel 2"]
    assert {axes.get_ylim() for axes in drawn.axes} == {drawn.axes[0].get_ylim()}
    # All that the highest panel draws has room in the lowest one.
    low, high = drawn.axes[0].get_ylim()
    assert low < -2 and high > 2 * (3 * 200 + 4)
    left, right = drawn.axes[0].get_xlim()
    assert left == 0 and right > 3
    assert [axes.get_xlabel() + axes.get_ylabel() for axes in drawn.axes] == [""] * 3
    assert drawn.get_supxlabel() == "round" and drawn.get_supylabel() == "leakage"
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "a",
        "b",
    ] and not legend.get_title().get_text()
    # Numbers stand below the lowest panel of each column.
    below = [axes.xaxis.get_tick_params()["labelbottom"] for axes in drawn.axes]
    assert below == [False, True, True]
    for axes in drawn.axes:
        assert [line.get_color() for line in axes.get_lines()] == list(PALETTE[:2])


def test_panels_of_their_own_scale_have_no_shared_one():
    drawn = figure(measure_plot(LEAKAGE), grid_of(2, 2), each_its_own=True)
    tops = [axes.get_ylim()[1] for axes in drawn.axes]
    assert tops[0] < 60 < tops[1] and not drawn.legends
    assert [axes.get_xlim()[0] for axes in drawn.axes] == [0, 0]


def test_the_size_of_a_picture_is_that_of_its_panels():
    sizes = [
        figure(measure_plot(LEAKAGE), grid_of(n, c)).get_size_inches() for n, c in ((1, 1), (2, 1), (6, 3))
    ]
    np.testing.assert_allclose(sizes, [SIZE, (SIZE[0], 0.75 + 2 * 1.6), (0.5 + 3 * 1.9, 0.75 + 2 * 1.6)])


def test_a_legend_of_many_lines_stands_beside_them():
    few, many = (figure(measure_plot(LEAKAGE), grid_of(1, 1, "abcdefgh"[:n])) for n in (6, 7))
    assert tuple(few.get_size_inches()) == SIZE and tuple(many.get_size_inches()) == WIDE
    places = []
    for drawn in (few, many):
        drawn.draw_without_rendering()
        places += [(drawn.axes[0].get_window_extent(), drawn.legends[0].get_window_extent())]
    (below, above), (left, right) = places
    assert above.y0 >= below.y1 and above.width > above.height
    assert right.x0 >= left.x1 and right.width < right.height


def test_six_names_of_policies_leave_the_curves_three_fifths_of_the_height():
    names = ["PAUSE", "SA-PAUSE", "by size", "clustered by similarity", "fastest", "FedAvg, private"]
    drawn = figure(measure_plot(LEAKAGE), grid_of(1, 1, names))
    drawn.draw_without_rendering()
    curves, legend = drawn.axes[0].get_tightbbox(), drawn.legends[0].get_window_extent()
    assert curves.height > 0.6 * drawn.bbox.height
    assert legend.x0 >= 0 and legend.x1 <= drawn.bbox.width


def test_what_lines_are_averaged_over_is_said_above_the_legend():
    grid = grid_of(1, 1)
    runs = [line.runs.assign_coords(gamma=("run", [1.0, 2.0, 3.0])) for line in grid.panels[0].lines]
    lines = tuple(Line(n, "a", r) for n, r in zip("ab", runs, strict=True))
    drawn = figure(measure_plot(LEAKAGE), Grid((Panel("", lines),), 1, ("gamma", "budget_decay")))
    assert drawn.legends[0].get_title().get_text() == "mean over seeds and gamma, budget decay"


def test_a_curve_is_a_mean_with_its_band():
    (axes,) = figure(measure_plot(LEAKAGE), grid_of(1, 1, ("a",))).axes
    samples = 2 * runs_at(1.0)["max_leakage"].values
    low, high = stats.t.interval(0.95, 2, loc=samples.mean(0), scale=stats.sem(samples, axis=0))
    (line,), (band,) = axes.get_lines(), axes.collections
    np.testing.assert_allclose(line.get_xydata(), np.stack([[1, 2, 3], samples.mean(0)], 1))
    corners = {tuple(np.round(corner, 6)) for corner in band.get_paths()[0].vertices}
    assert {(x, np.round(y, 6)) for x, *ys in zip([1, 2, 3], low, high, strict=True) for y in ys} <= corners


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_clock_begins_at_nought_unless_its_scale_is_asked_for(scale):
    settings = {} if scale == "linear" else {"xscale": "log", "yscale": "log"}
    (axes,) = figure(measure_plot(LEAKAGE, "latency", **settings), grid_of(1, 1)).axes
    assert axes.get_xlabel() == "simulated time (s)" and axes.get_xscale() == axes.get_yscale() == scale
    assert (axes.get_xlim()[0] == 0) == (scale == "linear")


def test_what_is_infinite_is_no_line():
    grid = grid_of(1, 1)
    bounded, free = grid.panels[0].lines
    some = free.runs["max_leakage"].copy()
    some[0, 1] = np.inf
    lines = (bounded, free._replace(runs=free.runs.assign(max_leakage=some)))
    (axes,) = figure(measure_plot(LEAKAGE), Grid((Panel("", lines),), 1)).axes
    assert [line.get_label() for line in axes.get_lines()] == ["a"]


def test_lines_of_runs_that_end_are_drawn_up_to_their_end():
    (line,) = grid_of(1, 1, ("a",)).panels[0].lines
    ended = line.runs["max_leakage"].copy()
    ended[:, 2] = np.nan
    lines = (line._replace(runs=line.runs.assign(max_leakage=ended)),)
    (axes,) = figure(measure_plot(LEAKAGE), Grid((Panel("", lines),), 1)).axes
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [4, 6, np.nan])


@pytest.mark.parametrize(("points", "drawn"), [(0, 0), (2000, 2000), (2001, None), (50_000, None)])
def test_a_long_curve_is_drawn_at_points_that_keep_its_ends(points, drawn):
    axes = new_figure(2, 2).add_subplot()
    x = np.arange(1.0, points + 1)
    curves.draw_series(axes, Series("a", x, x**2, x**2 - 1, x**2 + 1), look(0))
    if not points:
        assert not axes.get_lines()
        return
    kept = axes.get_lines()[0].get_xdata()
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), kept**2)
    assert kept[0] == 1 and kept[-1] == points and (np.diff(kept) > 0).all()
    assert kept.size == drawn if drawn else 1000 < kept.size <= 2000
    # No gap is longer than a thousandth of the picture; the first rounds are all there.
    assert np.diff(kept).max() <= points / 990 + 1
    np.testing.assert_array_equal(kept[:10], np.arange(1, 11))


def test_a_band_is_drawn_where_it_is_a_number():
    axes = new_figure(2, 2).add_subplot()
    nothing = np.full(3, np.nan)
    curves.draw_series(axes, Series("a", np.arange(3), np.ones(3), nothing, nothing), look(0))
    assert len(axes.get_lines()) == 1 and not axes.collections
    some = np.array([1.0, 2.0, np.nan])
    curves.draw_series(axes, Series("b", np.arange(3), some, some, some), look(1))
    assert len(axes.collections) == 1


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1.0, 10.0], {"yscale": "log"}),
        ([1.0, 9.0], {}),
        ([-1.0, 100.0], {"yscale": "symlog"}),
        ([-1.0, 99.0], {}),
        ([-0.1, 50.0], {"yscale": "symlog"}),
        ([-20.0, 30.0], {}),
        ([-100.0, 0.0, np.nan, 1.0], {"yscale": "symlog"}),
        ([0.0, 1.0, 1000.0], {}),
        ([0.0], {}),
        ([np.nan, np.inf], {}),
    ],
)
def test_decades_are_logarithmic_below_zero_too(values, scale):
    assert curves.scale_for(np.asarray(values)) == scale


def test_points_have_their_intervals_as_bars():
    axes = new_figure(2, 2).add_subplot()
    samples = np.array([[1.0, 10.0], [2.0, 20.0], [6.0, 30.0]])
    curves.draw_points(axes, [3, 7], samples, Curve("a", runs_at(1.0), look(1)), shift=0.25)
    (bars,) = axes.containers
    points, _, (lines,) = bars
    np.testing.assert_allclose(points.get_xydata(), [[3.25, 3], [7.25, 20]])
    half = stats.t.ppf(0.975, 2) * stats.sem(samples, axis=0)
    ends = [segment[:, 1] for segment in lines.get_segments()]
    np.testing.assert_allclose(ends, [(3 - half[0], 3 + half[0]), (20 - half[1], 20 + half[1])])
    assert points.get_color() == PALETTE[1] and bars.get_label() == "a"


def test_pictures_side_by_side_share_the_axis_upwards_and_the_legend():
    drawn = pair([measure_plot(LEAKAGE), measure_plot(LEAKAGE, "latency")], ["one", "other"], grid_of(1, 1))
    np.testing.assert_allclose(drawn.get_size_inches(), (WIDE[0], SIZE[1] + 0.1))
    assert [axes.get_title() for axes in drawn.axes] == ["one", "other"]
    assert [axes.get_ylabel() for axes in drawn.axes] == ["leakage", ""]
    assert [axes.get_xlabel() for axes in drawn.axes] == ["round", "simulated time (s)"]
    assert drawn.axes[0].get_ylim() == drawn.axes[1].get_ylim()
    assert {axes.get_subplotspec().get_gridspec().get_geometry() for axes in drawn.axes} == {(1, 2)}
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["a", "b"]
