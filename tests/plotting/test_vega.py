"""Charts as Vega-Lite: a compiler takes every kind, labels stay data, and numbers stay what they are."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from pausejax.plotting import explorer, paper, vega
from pausejax.plotting.data import GREY, PALETTE, Axis, ChartData, Panel, Series, Sweep

from .every_kind import HOSTILE, ROUND, charts, curves, sweep

KINDS = list(charts())


def compiled(document):
    vl_convert = pytest.importorskip("vl_convert", reason="no vl-convert-python, of the extra test")
    return vl_convert.vegalite_to_vega(vega.as_json(document), vl_version="6.4")


def walk(document):
    yield document
    children = document.values() if isinstance(document, dict) else document
    for child in children if isinstance(document, dict | list) else ():
        yield from walk(child)


def rows_of(document):
    return document["data"]["values"]


@pytest.mark.parametrize("labels", [("PAUSE", "random"), HOSTILE], ids=["plain", "hostile"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_chart_compiles(kind, labels):
    chart = charts(labels)[kind]
    for panel in chart.panels:
        for document in (vega.spec(chart, panel), vega.page_spec(chart, panel)):
            assert compiled(document)["marks"]
    whole = vega.combined(chart)
    assert len(whole["concat"]) == len(chart.panels) and whole["columns"] == chart.columns
    assert compiled(whole)["marks"]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_data_and_never_part_of_an_expression(kind):
    word = "hostile'\"]"
    chart = charts((word, "random"))[kind]
    for panel in chart.panels:
        document = vega.page_spec(chart, panel)
        for found in (part for part in walk(document) if isinstance(part, dict)):
            for key in ("field", "filter", "calculate", "expr", "labelExpr", "test", "as"):
                assert word not in str(found.get(key, ""))
        assert "domain" not in str(document) or word not in str(
            [part["domain"] for part in walk(document) if isinstance(part, dict) and "domain" in part]
        )


@pytest.mark.parametrize("title", [*HOSTILE, "two\nlines", "ends in \\", '\\"', ""])
def test_headings_of_tooltips_are_whatever_they_are(title):
    x = np.arange(3.0)
    points = (Series("a", x, x, mark="point"),)
    chart = ChartData("a", title, (Panel(Axis(title), Axis(title), points, title=title, note=title),))
    assert compiled(vega.spec(chart, chart.panels[0]))["marks"]


def test_what_is_not_finite_is_null():
    x, bad = np.arange(4.0), np.array([np.nan, np.inf, -np.inf, 1.0])
    chart = ChartData("a", "", (Panel(ROUND, Axis("y"), (Series("a", x, bad, bad, bad, color=bad),)),))
    document = vega.spec(chart, chart.panels[0])
    (row,) = rows_of(document)
    assert row["y"] == row["low"] == row["shade"] == [None, None, None, 1]
    assert not [part for part in walk(document) if isinstance(part, float) and not math.isfinite(part)]
    assert json.loads(vega.as_json(document)) == document
    with pytest.raises(ValueError):
        vega.as_json({"a": float("nan")})


def test_numbers_keep_five_digits():
    x = np.array([1 / 3, 123456.0, 2.0])
    chart = ChartData("a", "", (Panel(ROUND, Axis("y"), (Series("a", x, x, mark="point"),)),))
    (row,) = rows_of(vega.spec(chart, chart.panels[0]))
    assert row["x"] == [0.33333, 123460, 2] and row["low"] == []


def test_a_band_belongs_to_its_line_where_labels_and_colours_come_again():
    lines = curves(("same",) * 16)
    lines = (dataclasses.replace(lines[0], low=None, high=None), *lines[1:])
    chart = ChartData("a", "", (Panel(ROUND, Axis("y"), lines),))
    document = vega.spec(chart, chart.panels[0])
    rows = rows_of(document)
    assert [row["key"] for row in rows] == [f"s{place}" for place in range(16)]
    assert [bool(row["low"]) for row in rows] == [False] + [True] * 15
    area, line, *_ = document["layer"]
    assert area["mark"]["type"] == "area" and line["mark"]["type"] == "line"
    assert (
        area["encoding"]["color"]["scale"] == line["encoding"]["color"]["scale"]
        and line["encoding"]["color"]["field"] == "key"
    )
    scale = line["encoding"]["color"]["scale"]
    assert scale["domain"] == [row["key"] for row in rows]
    assert scale["range"] == [c.replace("#000000", "currentColor") for c in PALETTE * 2]


@pytest.mark.parametrize("tinted", [False, True])
def test_points_of_many_policies_differ_and_the_legend_tells_them_apart(tinted):
    """Colours come again after eight policies, and may show a metric instead of the policy."""
    x = np.arange(3.0)
    shown = {"color": x} if tinted else {}
    points = [Series(f"policy {i}", x, x + i, mark="point", style=i, **shown) for i in range(15)]
    front = Series("front", x, x, mark="step", style=-1)
    chart = ChartData("a", "", (Panel(ROUND, Axis("y"), (*points, front)),), color=Axis("ζ"))
    document = vega.spec(chart, chart.panels[0])
    (encoding,) = [one["encoding"] for one in document["layer"] if "shape" in one["encoding"]]
    shapes = encoding["shape"]["scale"]
    assert shapes["domain"] == [f"s{i}" for i in range(15)] and len({*shapes["range"]}) == 15
    found = [one for one in walk(compiled(document)) if isinstance(one, dict)]
    legends = [legend for one in found for legend in one.get("legends", []) if "values" in legend]
    front_line, cloud = sorted(legends, key=lambda legend: len(legend["values"]))
    assert front_line["values"] == ["s15"] and front_line["symbolType"] == "stroke"
    assert cloud["values"] == shapes["domain"] and "shape" in cloud and ("fill" in cloud) != tinted
    scales = {one["name"]: one["type"] for whole in found for one in whole.get("scales", [])}
    widths = {kind for name, kind in scales.items() if name.endswith("strokeWidth")}
    assert widths == {"ordinal"}  # another scale has no width for a single line


def test_panels_with_equal_axes_share_their_ends():
    x = np.array([2.0, 8.0])
    low = (Series("a", x, x, x - 1, x + 1),)
    high = (Series("a", 10 * x, 10 * x),)
    shared, own = Axis("y"), Axis("y", "log")
    chart = ChartData(
        "a", "", (Panel(ROUND, shared, low), Panel(ROUND, shared, high), Panel(ROUND, own, low))
    )
    ends = [
        {one["name"]: one["value"] for one in vega.page_spec(chart, panel)["params"]}
        for panel in chart.panels
    ]
    assert ends[0]["x_ends"] == ends[1]["x_ends"] == ends[2]["x_ends"] == [2, 80]
    assert ends[0]["y_ends"] == ends[1]["y_ends"] and ends[0]["y_ends"][0] < 1 and ends[0]["y_ends"][1] > 80
    assert 0 < ends[2]["y_ends"][0] < 1 and 9 < ends[2]["y_ends"][1] < 11


def test_an_axis_may_begin_at_0_and_a_logarithmic_one_never_does():
    x = np.array([5.0, 9.0])
    series = (Series("a", x, x, x - 7, x + 1),)
    for scale, zero, expected in (("linear", True, 0.0), ("log", False, 2.0)):
        chart = ChartData("a", "", (Panel(ROUND, Axis("y", scale, zero=zero), series),))
        document = vega.spec(chart, chart.panels[0])
        low, high = document["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert low == pytest.approx(expected, rel=0.3) and 10 <= high < 11
    # The end of the interval that no logarithm has stays at the end of the axis.
    assert any(f"max(datum.low, {low})" in step.get("calculate", "") for step in document["transform"])
    positive = (Series("a", x, x),)
    chart = ChartData("a", "", (Panel(ROUND, Axis("y", zero=True), positive),))
    assert vega.page_spec(chart, chart.panels[0])["params"][3]["value"][0] == 0


def test_colours_share_one_scale_and_what_has_none_is_grey():
    chart = charts()["pareto"]
    fills = [layer["encoding"].get("fill") for layer in vega.spec(chart, chart.panels[0])["layer"]]
    (fill,) = [fill for fill in fills if fill]
    assert fill["value"] == "#888888" and fill["condition"]["scale"]["type"] == "log"
    low, high = np.nanmin(chart.panels[0].series[0].color), np.nanmax(chart.panels[0].series[0].color)
    np.testing.assert_allclose(fill["condition"]["scale"]["domain"], [low, high], rtol=1e-4)


def test_the_explorer_compiles_with_every_column_anywhere():
    made = sweep()
    document = explorer.explorer(made)
    meta = document["usermeta"]
    (row,) = rows_of(document)
    assert row["c1"].count(None) == int(np.isnan(made.values[:, 1]).sum()) and row["label"] == [*made.labels]
    for place in range(len(made.axes)):
        top, strip = document["vconcat"]
        top["encoding"] |= {"x": meta["x"][place], "y": meta["y"][-1 - place]}
        top["layer"][0]["encoding"]["fill"] = meta["fill"][place]
        strip["encoding"]["x"] = meta["strip"][place]
        assert compiled(document)["marks"]


def test_a_parameter_of_the_explorer_is_that_of_the_runs():
    """And not its first five digits, of which several settings have the same."""
    gamma = np.array([100001.0, 100002.0, 100003.0])
    axes = (Axis("γ"), Axis("time"), Axis("leakage"))
    columns = np.stack([gamma, gamma / 7, gamma / 3], axis=1)
    made = Sweep(("a", "b", "c"), axes, columns, 1, np.ones(3, bool), (1, 2, 0))
    (row,) = explorer.explorer(made)["data"]["values"]
    assert row["c0"] == gamma.tolist() and row["c1"] == [float(f"{value:.5g}") for value in gamma / 7]


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
@pytest.mark.parametrize(("high", "linear"), [(10, 0.1), (0.004, 0.001), (3e7, 1.0), (400, 0.5)])
def test_labels_of_ticks_are_where_their_numbers_are(scale, high, linear):
    vl_convert = pytest.importorskip("vl_convert", reason="no vl-convert-python, of the extra test")
    y = np.array([linear if scale == "log" else -high / 3, high])
    axis = Axis("y", scale, linear=linear)
    chart = ChartData("a", "", (Panel(ROUND, axis, (Series("a", np.arange(2.0), y),)),))
    document = vega.spec(chart, chart.panels[0])
    low, top = document["layer"][0]["encoding"]["y"]["scale"]["domain"]
    svg = vl_convert.vegalite_to_svg(vega.as_json(document), vl_version="6.4")
    labels = re.findall(r'role-axis-label".*?</g>', svg, re.DOTALL)[1]
    found = re.findall(r'translate\([^,]*,([-\d.]+)\)"[^>]*>([^<]+)<', labels)
    places, values = np.array(
        [(float(at), float(text.replace("−", "-").replace(",", ""))) for at, text in found]
    ).T
    bend = {
        "linear": np.asarray,
        "log": np.log,
        "symlog": lambda v: np.sign(v) * np.log1p(np.abs(np.asarray(v)) / linear),
    }[scale]
    share = (bend(values) - bend(low)) / (bend(top) - bend(low))
    assert len(found) >= 3 and not any("e" in text for _, text in found if high < 1e6)
    slope, start = np.polyfit(share, places, 1)
    np.testing.assert_allclose(start + slope * share, places, atol=1)


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (8.4236, 29.321), (0.21059, 0.73303), (3e-4, 50.0)])
def test_labels_of_a_colour_scale_are_its_numbers(scale, low, high):
    vl_convert = pytest.importorskip("vl_convert", reason="no vl-convert-python, of the extra test")
    x = np.array([1.0, 2.0])
    points = Series("a", x, x, mark="point", color=np.array([low, high]))
    chart = ChartData("a", "", (Panel(ROUND, Axis("y"), (points,)),), color=Axis("ζ", scale))
    svg = vl_convert.vegalite_to_svg(vega.as_json(vega.spec(chart, chart.panels[0])), vl_version="6.4")
    labels = re.findall(r'role-legend-label".*?</g>', svg, re.DOTALL)[0]
    found = [float(text.replace("−", "-")) for text in re.findall(r">([^<>]+)</text>", labels)]
    assert len(found) >= 2 and all(low * 0.999 <= number <= high * 1.001 for number in found)
    assert len(set(found)) == len(found)


def test_points_between_gaps_are_drawn():
    """A line without length has no ink, in either renderer."""
    vl_convert = pytest.importorskip("vl_convert", reason="no vl-convert-python, of the extra test")
    x = np.arange(4.0)
    for mark in ("line", "step"):
        for y, count in (([1, np.nan, 2, 2], 1), ([np.nan, 3, np.nan, 4], 2), ([1, 2, 3, 4], 0)):
            y = np.array(y, float)
            line = Series("a", x, y, low=y - 1, high=y + 1, mark=mark)
            chart = ChartData("a", "", (Panel(ROUND, Axis("y"), (line,)),))
            for document in (vega.spec(chart, chart.panels[0]), vega.page_spec(chart, chart.panels[0])):
                svg = vl_convert.vegalite_to_svg(vega.as_json(document), vl_version="6.4")
                points = re.findall('<path [^>]*aria-roledescription="point"[^>]*>', svg)
                # The specification for notebooks has transparent points to point at.
                assert sum('opacity="0"' not in point for point in points) == count
                assert len(re.findall('aria-roledescription="rule mark"', svg)) == count
            (axes,) = paper.figure(chart).axes
            assert sum(len(one.get_xdata()) for one in axes.lines if one.get_linestyle() == "None") == count


def test_points_without_a_colour_are_drawn_in_grey():
    """Counted in the drawn picture: Vega-Lite left them out, though every row is in the data."""
    vl_convert = pytest.importorskip("vl_convert", reason="no vl-convert-python, of the extra test")

    def drawn(document):
        svg = vl_convert.vegalite_to_svg(vega.as_json(document), vl_version="6.4")
        return len(re.findall('aria-roledescription="point"', svg)), svg.count(f'="{GREY}"')

    x, colors = np.arange(1.0, 5), np.array([1.0, np.nan, 3.0, np.inf])
    for mark in ("point", "ring", "cross"):
        points = Series("a", x, x, mark=mark, color=colors)
        chart = ChartData("a", "", (Panel(ROUND, Axis("y"), (points,)),), color=Axis("ζ"))
        assert drawn(vega.spec(chart, chart.panels[0])) == (4, 2 * (mark == "point"))
    columns = np.stack([x, x, colors], axis=1)
    made = Sweep(tuple("abcd"), (Axis("γ"), Axis("y"), Axis("ζ")), columns, 1, np.zeros(4, bool), (0, 1, 2))
    assert drawn(explorer.explorer(made)) == (4, 2)
