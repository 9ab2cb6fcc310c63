"""The picture of a trade-off: its front, and who is on none."""

import numpy as np
import pytest

from pausejax.report.levels import Measure
from pausejax.report.pareto import trade_off

from .made import runs_of, with_figures

TIME = Measure("time", "time", scale=2)
GAIN = Measure("gain", "gain", scale=100)
LEAK = Measure("leak", "leakage", scale=10)


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


def test_a_setting_that_has_lost_runs_is_crossed_out_and_on_no_front():
    """The best of all by its one survivor; the other two have both their runs."""
    rows = [{"gamma": float(n), "seed": seed} for n in range(3) for seed in range(2)]
    gain = [0.2, 0.2, 0.1, 0.3, 0.9, np.nan]
    time = [2.0, 2.0, 3.0, 3.0, 1.0, 1.0]
    figure = trade_off(with_figures(runs_of(rows), (False, True), time=time, gain=gain), TIME, GAIN, None)
    (axes,) = figure.axes
    (crossed,) = [c for c in axes.collections if "diverged" in str(c.get_label())]
    np.testing.assert_allclose(crossed.get_offsets(), [(2.0, 90.0)])
    crossed.remove()
    outlined = {place for place, (on, *_) in points_of(axes).items() if on}
    assert outlined == {(4.0, 20.0)} and not axes.get_lines()
    assert {"with runs that diverged, on no front: 1", "on the front: 1 of 3"} <= written(figure)
