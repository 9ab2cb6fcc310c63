"""Charts of curves: means with intervals, panels, scales, notes, captions."""

import itertools
import json

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.analysis.quantities import Metric
from pausejax.plotting.chart import Chart
from pausejax.plotting.curves import curves
from pausejax.plotting.data import Axis, Panel, Series, thinned
from pausejax.plotting.grid import Cell, Grid, Line

LEAKAGE = Metric(
    "max_leakage", "last", False, "1", "final leakage", label="leakage", scale=2, name="max_leakage"
)


def runs_at(level, rounds=(1, 2, 3)):
    """Three seeds around a level, of values that grow with the rounds."""
    values = level * np.arange(1.0, len(rounds) + 1) + np.array([[-1.0], [0.0], [4.0]])
    return xr.Dataset(
        {"max_leakage": (("run", "round"), values), "elapsed": (("run", "round"), values + 10)},
        {"seed": ("run", [0, 1, 2]), "policy": ("run", ["a"] * 3), "round": list(rounds)},
        {"axes": json.dumps([]), "parameters": json.dumps({})},
    )


def one_panel(*runs, averaged=()):
    """A grid of one panel with the lines a, b, c, …"""
    lines = tuple(Line("abcdef"[n], "a", found, n) for n, found in enumerate(runs))
    return Grid((Cell("", lines),), 1, averaged)


@pytest.mark.parametrize(
    ("ends", "share", "scale"),
    [
        ((1, 9), False, "linear"),
        ((1, 10), False, "log"),
        ((1, 10), True, "linear"),
        ((-1, 50), False, "linear"),
        ((-1, 100), False, "symlog"),
        ((0, 100), False, "linear"),
    ],
)
def test_values_that_lie_decades_apart_have_a_logarithmic_axis(ends, share, scale):
    runs = [runs_at(1.0) for _ in ends]
    for one, end in zip(runs, ends, strict=True):
        one["max_leakage"][:] = end
    metric = LEAKAGE._replace(scale=1, share=share)
    assert curves(one_panel(*runs), metric).panels[0].y.scale == scale


def test_a_curve_is_a_mean_with_its_band():
    (panel,) = curves(one_panel(runs_at(1.0)), LEAKAGE).panels
    samples = 2 * runs_at(1.0)["max_leakage"].values
    low, high = stats.t.interval(0.95, 2, loc=samples.mean(0), scale=stats.sem(samples, axis=0))
    (drawn,) = panel.series
    for found, expected in ((drawn.x, [1, 2, 3]), (drawn.y, samples.mean(0)), (drawn.low, low)):
        np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(drawn.high, high)
    assert drawn.mark == "line" and drawn.x.dtype == drawn.y.dtype == np.float64


def test_captions_say_seeds_other_axes_and_who_diverged():
    runs = runs_at(1.0).assign_coords(gamma=("run", [1.0, 2.0, 3.0]))
    said = curves(one_panel(runs, averaged=("gamma", "budget_decay")), LEAKAGE).caption
    assert said.startswith("Leakage, against round: mean over 3 seeds")
    assert "averaged over gamma, budget decay first" in said
    alone = runs.isel(run=[0])
    assert "one seed, so there are no intervals" in curves(one_panel(alone), LEAKAGE, "time").caption
    lost = runs.assign(diverged_round=("run", [0, 2, 0]))
    learned = curves(one_panel(lost), LEAKAGE._replace(learned=True))
    assert "1 of 3 runs diverged" in learned.caption
    np.testing.assert_allclose(learned.panels[0].series[0].y, 2 * (np.arange(1, 4) + 1.5))
    assert "diverged" not in curves(one_panel(lost), LEAKAGE).caption
    # A run that is in two panels is one run.
    twice = one_panel(lost)
    twice = twice._replace(panels=twice.panels * 2, columns=2)
    assert "1 of 3 runs diverged" in curves(twice, LEAKAGE._replace(learned=True)).caption


@pytest.mark.parametrize("against", ["round", "time"])
def test_runs_without_a_value_are_left_out_and_said(against):
    """One was stopped before its first evaluation; the mean is over the others, and the caption says so."""
    runs = runs_at(1.0)
    runs["max_leakage"][1] = np.nan
    times = (("run", "round"), np.tile([1.0, 2.0, 3.0], (3, 1)))
    chart = curves(one_panel(*(one.assign(elapsed=times) for one in (runs, runs_at(2.0)))), LEAKAGE, against)
    (panel,) = chart.panels
    assert "runs without a value are left out: a (1 of 3 runs)" in panel.note
    assert "mean over 2 to 3 seeds" in chart.caption
    if against == "round":
        expected = 2 * runs["max_leakage"].values[[0, 2]].mean(axis=0)
        np.testing.assert_allclose(panel.series[0].y, expected)


@pytest.mark.parametrize("against", ["round", "time"])
def test_what_is_infinite_is_drawn_up_to_there_and_said(against):
    """Of three runs whose clocks share the time from 3 to 5 s."""
    bounded, free, never = runs_at(1.0), runs_at(2.0), runs_at(3.0) + np.inf
    free["max_leakage"][:2, 2] = np.inf
    times = (("run", "round"), [[1.0, 4.0, 5.0], [2.0, 4.5, 5.0], [3.0, 4.0, 5.0]])
    lines = [one.assign(elapsed=times).assign_coords(runs_at(1).coords) for one in (bounded, free, never)]
    (panel,) = curves(one_panel(*lines), LEAKAGE, against).panels
    a, b, c = panel.series
    assert np.isfinite(a.y).all() and not np.isfinite(c.y).any()
    there = np.isfinite(b.y)
    assert there[:2].all() and not there[-1] and (there.sum() == 2 or against == "time")
    assert not np.isinf(b.y).any() and np.isnan(b.low[~there]).all() and np.isnan(b.high[~there]).all()
    assert "b (2 of 3 runs), c (3 of 3 runs)" in panel.note and panel.y.scale == "linear"


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_line_whose_clock_is_nowhere_finite_is_empty_and_its_chart_is_drawn(value):
    runs = runs_at(10.0)
    drawn = curves(one_panel(runs.assign(elapsed=runs["elapsed"] * value)), LEAKAGE, "time")
    assert drawn.panels[0].series[0].x.size == 0
    assert drawn.encode("png")[1:4] == b"PNG" and len(drawn.to_dataframe()) == 0


def test_of_one_seed_no_line_has_an_interval():
    """Also not over the settings that a line averages, and none of width 0."""
    runs = runs_at(1.0).isel(run=[0, 2]).assign_coords(seed=("run", [3, 3]))
    (drawn,) = curves(one_panel(runs), LEAKAGE).panels[0].series
    assert drawn.low is None and drawn.high is None
    np.testing.assert_allclose(drawn.y, 2 * (np.arange(1, 4) + 1.5))


def test_lines_of_runs_that_end_are_drawn_up_to_their_end():
    runs = runs_at(1.0)
    runs["max_leakage"][1:, 2] = np.nan
    (panel,) = curves(one_panel(runs), LEAKAGE).panels
    np.testing.assert_allclose(panel.series[0].y, [4, 6, np.nan])
    assert panel.note == ""


def test_rounds_in_which_some_run_has_no_value_are_counted():
    """Such as the training loss of rounds in which nobody arrives; a run that has ended leaves no gap."""
    runs = runs_at(1.0, range(1, 7))
    runs["max_leakage"][0, 1] = runs["max_leakage"][1, 3] = runs["max_leakage"][0, 5] = np.nan
    (panel,) = curves(one_panel(runs), LEAKAGE).panels
    assert "a (2 of 6)" in panel.note
    np.testing.assert_array_equal(np.isnan(panel.series[0].y), [False, True, False, True, False, True])


@pytest.mark.parametrize("points", [0, 300, 301, 50_000])
def test_a_long_line_is_drawn_at_points_that_keep_its_ends(points):
    kept = thinned(np.sin(np.arange(points)), 300)
    if points <= 300:
        assert kept.tolist() == list(range(points))
        return
    assert kept[0] == 0 and kept[-1] == points - 1 and (np.diff(kept) > 0).all() and kept.size <= 450
    # No gap is longer than a fortieth of the picture; the first rounds are all there.
    assert np.diff(kept).max() <= points / 40 + 1
    np.testing.assert_array_equal(kept[:6], np.arange(6))


@pytest.mark.parametrize("place", [1, 777, 3999])
def test_no_spike_and_no_gap_is_lost_when_a_line_is_thinned(place):
    values = np.linspace(0, 1, 4001)
    for odd in (50.0, -50.0):
        values[place] = odd
        assert odd in values[thinned(values, 300)]
    values[place] = np.nan
    kept = thinned(values, 300)
    assert np.isnan(values[kept]).any() and {place - 1, place, place + 1} <= set(kept.tolist())


@pytest.mark.parametrize("most", [20, 300])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.9])
def test_a_thinned_line_breaks_at_its_longest_gaps(share, most):
    """It breaks at all gaps if they are few, and loses no part in which all values are there."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(4001) < share, np.nan, rng.normal(size=4001))
    values[2000:2500] = values[-1] = np.nan
    kept = thinned(values, most)
    assert kept.size <= 3 * most and (np.diff(kept) > 0).all() and kept[0] == 0 and kept[-1] == 4000
    drawn = [(a, b) for a, b in itertools.pairwise(kept) if np.isfinite(values[[a, b]]).all()]
    crossed = [
        len(run) for a, b in drawn for run in "".join(" x"[int(v)] for v in np.isnan(values[a:b])).split()
    ]
    lost = np.isfinite(values[1:] + values[:-1])
    for a, b in drawn:
        lost[a:b] = False
    assert (
        not lost.any()
        and (1999, 2500) not in drawn
        and {1999, 2500} <= {*kept, *np.flatnonzero(np.isnan(values))}
    )
    gaps = "".join(" x"[int(v)] for v in np.isnan(values)).split()
    shown = sorted(map(len, gaps), reverse=True)[: most // 2]
    assert max(crossed, default=0) <= shown[-1] and (len(gaps) <= most // 2) == (not crossed)


def test_a_front_keeps_all_of_its_steps():
    """Between two steps that are left out nobody was."""
    x = np.arange(4000.0)
    series = (Series("front", x, np.sqrt(x), mark="step", style=-1),)
    chart = Chart("a", "", (Panel(Axis("x"), Axis("y"), series),))
    (spec,) = chart.to_vega()
    assert len(spec["data"]["values"][0]["x"]) == 4000
