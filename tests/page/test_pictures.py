"""What a page reads back from figures, against what was drawn."""

import re

import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pausejax.page import pictures
from pausejax.page.charts import cells_of, labels_of, names_along, panels_of, thinned
from pausejax.report.curves import Curve, draw_line, draw_points, draw_series
from pausejax.report.series import Series
from pausejax.report.style import look


@pytest.fixture
def axes():
    figure = Figure(figsize=(3.5, 2.7), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(xlabel="round", ylabel="regret")


def numbers(path):
    return np.array([[float(n) for n in point.split()] for point in re.split("[MLZ]", path) if point])


def made(axes, name="a_vs_b"):
    (picture,), left_out = pictures.make({name: axes.figure})
    assert not left_out
    return picture


def test_lines_have_their_bands_and_their_gaps(axes):
    x = np.arange(1.0, 9)
    y = np.array([1, 2, np.nan, 4, 5, 3, 2, 1.0])
    for colour, shift in (("#0072b2", 0), ("#d55e00", 10)):
        up = y + shift
        draw_line(axes, x, up, up - 1, up + 2, color=colour, label=f"up {shift}")
    axes.axhline(3, color="black", label="budget")
    axes.text(0.1, 0.9, "a word", transform=axes.transAxes)
    (panel,) = panels_of(axes.figure)
    assert [trace.label for trace in panel.traces] == ["up 0", "up 10", "budget"] and panel.whole
    assert labels_of([panel]) == ["up 0", "up 10"]
    for trace, shift in zip(panel.traces, (0, 10), strict=False):
        np.testing.assert_array_equal(trace.values, [x, y + shift, y + shift - 1, y + shift + 2])
    picture = made(axes)
    assert picture.alt == "regret against round. At the right: up 0 1 (0 to 3); up 10 11 (10 to 13)"
    assert picture.data["panels"][0]["traces"][0]["y"] == [1, 2, None, 4, 5, 3, 2, 1]


def test_many_points_lie_where_they_lay(axes):
    x = np.arange(1.0, 5001)
    y = np.sqrt(x)
    draw_line(axes, x, y, y - 1, y + 1, label="root")
    axes.set_xlim(0, 5000)
    picture = made(axes)
    (panel,) = picture.data["panels"]
    left, top, right, bottom = panel["box"]
    path = numbers(re.search(rf'id="{panel["traces"][0]["ids"][0]}"><path d="([^"]+)"', picture.markup)[1])
    assert 200 < len(path) < 400 and len(picture.markup) < 20_000
    across = (path[:, 0] - left) / (right - left) * 5000
    low, high = panel["y"]["from"], panel["y"]["to"]
    up = low + (bottom - path[:, 1]) / (bottom - top) * (high - low)
    np.testing.assert_allclose(up, np.sqrt(across), atol=0.6)
    assert np.abs(across - 1).min() < 1 and np.abs(across - 5000).min() < 1
    assert thinned(np.stack([x, y, y, y]))[0, [0, -1]].tolist() == [1, 5000]


def test_points_have_their_bars(axes):
    axes.errorbar([0, 1, 2], [5, 6, 7], yerr=[0.5, 0, 2], linestyle="none", marker="o", label="counts")
    (panel,) = panels_of(axes.figure)
    (trace,) = panel.traces
    np.testing.assert_allclose(trace.values, [[0, 1, 2], [5, 6, 7], [4.5, 6, 5], [5.5, 6, 9]])
    assert trace.label == "counts" and not panel.whole


def test_each_of_sixteen_lines_has_its_own_band(axes):
    """Lines eight places apart have one colour; the first has one seed, and so no band."""
    x = np.arange(1.0, 5)
    nothing = np.full_like(x, np.nan)
    for place in range(16):
        y = np.full_like(x, float(place))
        band = (y - 0.1, y + 0.1) if place else (nothing, nothing)
        draw_series(axes, Series(f"line {place}", x, y, *band), look(place))
    (panel,) = panels_of(axes.figure)
    for place, trace in enumerate(panel.traces):
        assert (trace.label, trace.band is None) == (f"line {place}", place == 0)
        np.testing.assert_allclose(trace.values[2:, 0], [place - 0.1, place + 0.1] if place else [np.nan] * 2)
    assert panel.whole and len({id(trace.band) for trace in panel.traces}) == 16
    picture = made(axes)
    assert "line 0 0; line 1 1 (0.9 to 1.1)" in picture.alt
    told = picture.data["panels"][0]["traces"]
    assert "band" not in told[0] and "low" not in told[0]
    bands = [trace["band"] for trace in told[1:]]
    assert len(set(bands)) == 15 and all(f'id="{band}"' in picture.markup for band in bands)


def test_one_seed_has_no_interval_in_what_is_pointed_at_or_read_out(axes):
    runs = xr.Dataset(coords={"seed": ("run", [0])})
    draw_points(axes, [0, 1], np.array([[3.0, 4.0]]), Curve("PAUSE", runs, look(0)))
    picture = made(axes)
    assert picture.alt.endswith("At the right: PAUSE 4")
    assert "low" not in picture.data["panels"][0]["traces"][0]


def test_cells_have_their_values_and_names(axes):
    values = np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 6.0]])
    mesh = axes.pcolormesh(np.ma.masked_invalid(values))
    axes.set_xticks([0.5, 1.5], ["1", "5"])
    axes.text(0.5, 0.5, "1.0", color="black")
    axes.figure.colorbar(mesh, label="leakage")
    assert len(panels_of(axes.figure)) == 1
    np.testing.assert_array_equal(cells_of(axes, mesh).values, values)
    assert names_along(axes, "x") == ["round = 1", "round = 5"]
    picture = made(axes)
    assert picture.data["panels"][0]["cells"]["values"][0] == [1, None]
    assert "from 1 to 6" in picture.alt and "leakage" in picture.alt
    # The number within a light cell stays dark in the dark.
    assert re.search(r'style="fill:rgb\(0,0,0\)[^>]*>1\.0<', picture.markup)


def test_what_is_not_understood_is_drawn_all_the_same(axes):
    axes.bar(["a", "b"], [1, 2])
    picture = made(axes, "bars")
    assert picture.title == "Bars" and picture.markup.count("<path") > 5
    assert picture.data["panels"][0]["traces"] == []


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_scales_are_told_as_they_are(axes, scale):
    axes.plot([1, 10, 100], [1, 10, 100], label="x")
    axes.set_yscale(scale)
    found = made(axes).data["panels"][0]
    assert found["y"]["scale"] == scale and found["whole"] == 1 and found["y"]["free"] == 1
    assert ("linear" in found["y"]) == (scale == "symlog")
