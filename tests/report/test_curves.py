"""Small multiples and the curves in them: panels, shared axes, one legend, bands, scales."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.report import curves
from pausejax.report.curves import Curve, figure, measure_plot
from pausejax.report.grid import Grid, Panel
from pausejax.report.levels import Measure
from pausejax.report.series import Series
from pausejax.report.statistics import Line
from pausejax.report.style import look, new_figure

LEAKAGE = Measure("max_leakage", "leakage", scale=2, variable="max_leakage", running="last")


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
    assert drawn.axes[0].get_gridspec().get_geometry() == (2, 2)
    # All that the highest panel draws has room in the lowest one.
    low, high = drawn.axes[0].get_ylim()
    assert low < -2 and high > 2 * (3 * 200 + 4)
    assert drawn.get_supxlabel() == "round" and drawn.get_supylabel() == "leakage"
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


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


@pytest.mark.parametrize("clock", ["rounds", "latency"])
def test_what_is_infinite_is_drawn_up_to_there_and_said(clock):
    """Of three runs whose clocks share the time from 3 to 5 s."""
    grid = grid_of(1, 1, "abc")
    bounded, free, never = grid.panels[0].lines
    some, none = free.runs["max_leakage"].copy(), never.runs["max_leakage"] + np.inf
    some[:2, 2] = np.inf
    times = (("run", "round"), [[1.0, 4.0, 5.0], [2.0, 4.5, 5.0], [3.0, 4.0, 5.0]])
    lines = tuple(
        line._replace(runs=line.runs.assign(max_leakage=values, elapsed=times))
        for line, values in ((bounded, bounded.runs["max_leakage"]), (free, some), (never, none))
    )
    (axes,) = figure(measure_plot(LEAKAGE, clock), Grid((Panel("", lines),), 1)).axes
    ends = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert list(ends) == ["a", "b"] and np.isfinite(ends["a"]).all()
    there = np.isfinite(ends["b"])
    assert there[:2].all() and not there[-1] and (there.sum() == 2 or clock == "latency")
    (said,) = axes.texts
    words = "infinite, and without a line from there on: b (2 of 3 runs), c (3 of 3 runs)"
    assert " ".join(said.get_text().split()) == words


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_line_whose_clock_is_nowhere_finite_is_left_out_and_its_picture_is_drawn(value):
    runs = runs_at(10.0)
    lost = runs.assign(elapsed=runs["elapsed"] * value)
    drawn = figure(measure_plot(LEAKAGE, "latency"), Grid((Panel("", (Line("a", "", lost),)),), 1))
    assert not drawn.axes[0].lines
    drawn.canvas.draw()


def one_seed(runs):
    return runs.isel(run=[0, 0]).assign_coords(seed=("run", [3, 3]))


def test_of_one_seed_no_picture_has_an_interval():
    """Also not over the settings that a line averages, and none of width 0."""
    alone = Line("a", "a", one_seed(runs_at(1.0)))
    (axes,) = figure(measure_plot(LEAKAGE), Grid((Panel("", (alone,)),), 1)).axes
    assert axes.get_lines() and not axes.collections and not axes.containers
    curves.draw_points(axes, [3, 7], np.array([[1.0, 10.0]]), Curve("b", alone.runs.isel(run=[0]), look(1)))
    (bars,) = axes.containers
    assert not bars.has_yerr


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
    assert bars.get_label() == "a"


def test_rounds_in_which_some_run_has_no_value_are_counted():
    """Such as the training loss of rounds in which nobody arrives; a run that has ended leaves no gap."""
    values = np.arange(12.0).reshape(2, 6)
    values[0, 1] = values[1, 3] = np.nan
    values[0, 5] = np.nan
    runs = xr.Dataset(
        {"elapsed": (("run", "round"), values)}, {"round": np.arange(1, 7), "seed": ("run", [0, 1])}
    )
    grid = Grid((Panel("", (Line("a", "a", runs),)),), 1)
    drawn = figure(measure_plot(Measure("own", "own", variable="elapsed")), grid)
    assert [text.get_text() for text in drawn.axes[0].texts] == [
        "without a mean where some run has no value: a (2 of 6)"
    ]
