"""Charts on paper: legible at a paper's widths whatever labels are, and on axes of one's own."""

import io
import json
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

from pausejax import kinds, page
from pausejax.analysis.quantities import Metric, as_json, metrics_in
from pausejax.analysis.summaries import summary_text
from pausejax.commands.tables import print_summary
from pausejax.plotting import paper
from pausejax.plotting.chart import Chart
from pausejax.plotting.data import Axis, ChartData, Panel, Series, look
from pausejax.searches import report

from ..legible import assert_legible
from ..searches.test_report import record
from .every_kind import charts
from .made import build, sampled

LABELS = (r"$\foo$ policy", "$5 to $10", "a [/] b", "[bold]fast", ":smile:", "x^{2}_i", r"50 \% $")
UNIT = "latency [s]"
WIDTHS = (paper.COLUMN, paper.PAGE)


def texts_of(figure):
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def assert_printable(chart, width):
    figure = paper.figure(chart, width)
    try:
        assert_legible(figure)
    except AssertionError as clash:
        raise AssertionError(f"{chart.name}, {width} inches") from clash
    assert figure.get_figwidth() == width
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows - 1) * grid.ncols < len(chart.panels)  # no row is empty
    assert all(7 <= text.get_fontsize() <= 9 for text in texts_of(figure)), chart.name


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("PAUSE", "random"), (*LABELS[:3], "x" * 2000, "two words " * 200)])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_kind_of_chart_is_legible(width, labels):
    for chart in charts(labels).values():
        assert_printable(chart, width)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_charts_of_searches_are_legible(width):
    rows = [(10.0**place, "abc"[place % 3]) for place in range(9)]
    for figures in ([(float(n), 9.0 - n) for n in range(9)], [(float(n),) for n in range(9)]):
        for chart in report.charts(record(rows, figures, broken={6})).values():
            assert_printable(chart, width)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mode", ["training", "bandit", "sampled", "lines", "panels"])
def test_charts_of_studies_are_legible(mode, width):
    """Small multiples, effects, heat maps and fronts; many long names of lines, and many panels."""
    if mode == "sampled":
        result = sampled(48, 2)[0]
    elif mode == "lines":
        result = build({f"clustered PAUSE ({n} clusters), γ = {n}": {} for n in range(16)}, 2, ())[0]
    elif mode == "panels":
        both = {"privacy_weight": [float(n) for n in range(12)], "generalization_weight": [1.0, 2.0]}
        result = build({"pause": both, "uniform": both}, 2, tuple(both), "bandit")[0]
    else:
        few = {"privacy_weight": [1.0, 5.0, 25.0], "generalization_weight": [1.0, 1000.0]}
        more = {**few, "temperature_divisor": [1.0, 30.0]}
        result = build({"pause": few, "annealed": more, "uniform": {}}, 4, tuple(more), mode)[0]
    asked = kinds.charts(result, measures=["max_leakage", "elapsed"])
    for chart in (kinds.charts(result) | asked).values():
        assert_printable(chart, width)


def test_a_chart_is_drawn_on_axes_of_ones_own():
    figure = Figure()
    axes = figure.subplots()
    chart = Chart(**vars(charts()["regret_vs_round"]))
    chart.draw(axes)
    for line, one in zip(axes.get_lines(), chart.panels[0].series, strict=True):
        np.testing.assert_allclose(line.get_data(), [one.x, one.y])
        assert (line.get_label(), line.get_color()) == (one.label, look(one.style).color)
    assert len(axes.collections) == 2 and axes.get_ylabel() == "regret" and not figure.legends
    panels = Chart(**vars(charts()["heatmap_time"]))
    two = Figure().subplots(2, 1)
    panels.draw(two)
    assert all(own.get_xlabel() == "α" and own.collections for own in two)
    panels.draw(list(Figure().subplots(1, 2)))
    for wrong in (axes, Figure().subplots(3, 1)):
        with pytest.raises(ValueError, match="axes: must be 2, one for each panel of heatmap_time"):
            panels.draw(wrong)


def test_scales_ends_and_gaps_are_those_of_the_data():
    x, y = np.arange(1.0, 6), np.array([1.0, 10, np.nan, 1000, 10])
    nothing = np.full(5, np.nan)
    series = (Series("a", x, y, y / 2, 2 * y), Series("b", x, nothing, nothing, nothing, style=1))
    drawn = paper.figure(Chart("c", "", (Panel(Axis("x", zero=True), Axis("y", "log"), series),)))
    (axes,) = drawn.axes
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlim()[0]) == ("linear", "log", 0)
    (line,) = axes.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), y)
    # A line of nothing is in no legend, and one label needs none.
    assert not drawn.legends
    signed = Panel(Axis("x", "log"), Axis("y", "symlog", linear=10.0), (Series("a", x, y - 50),))
    (axes,) = paper.figure(Chart("c", "", (signed,))).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "symlog")


@pytest.mark.parametrize(
    "exponent", [pytest.param(-3, marks=pytest.mark.slow), 0, pytest.param(6, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("ends", [(1.5, 40), (9, 110), (1, 11), (0.99, 98)])
def test_a_logarithmic_axis_of_under_two_decades_has_ticks_between_powers_of_ten(ends, exponent):
    values = np.geomspace(*ends, 50) * 10.0**exponent
    line = Series("m", np.arange(50.0), values)
    across = Series("m", values, np.arange(50.0))
    chart = ChartData("c", "c", (Panel(Axis("round"), Axis("error", "log"), (line,)),))
    narrow = ChartData("n", "n", (Panel(Axis("error", "log"), Axis("round"), (across,)),) * 3, columns=3)
    assert_legible(paper.figure(narrow, paper.COLUMN))
    figure = paper.figure(chart, paper.COLUMN)
    figure.canvas.draw()
    axis = figure.axes[0].yaxis
    low, high = figure.axes[0].get_ylim()
    shown = [place for place in axis.get_majorticklocs() if low <= place <= high]
    assert len(shown) >= 3
    assert all(tick.label1.get_text() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)
    assert_legible(figure)


def test_a_style_of_the_users_own_makes_no_formulas(monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    chart = charts((r"\undefined", "random"))["regret_vs_round"]
    figure = paper.figure(chart)
    figure.savefig(io.BytesIO(), format="png")
    assert r"\undefined" in {text.get_text() for text in texts_of(figure)}
    assert not any(text.get_usetex() for text in texts_of(figure))


def result_of(label=LABELS[0], heading=UNIT):
    """A made-up study whose policies and one of whose quantities are called so."""
    result, _, _ = build({label: {}, "plain": {}}, 2, (), random_seed=1)
    own = Metric("elapsed", "last", False, "s", "own", label=heading, heading=heading)
    return result.assign_attrs(metrics=as_json({**metrics_in(result), "own": own}))


@pytest.mark.parametrize("label", LABELS)
def test_every_label_is_drawn_letter_by_letter(label):
    result = result_of(label, label)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = kinds.charts(result)["own_vs_round"].figure()
        figure.savefig(io.BytesIO(), format="svg")
    for text in texts_of(figure):
        shown, math = text._preprocess_math(text.get_text())
        assert not math or "mathdefault" in shown  # the numbers of axes
    drawn = {text._preprocess_math(text.get_text())[0] for text in texts_of(figure)}
    assert label in drawn


@pytest.mark.parametrize("label", [*LABELS, UNIT, "energy [/]"])
def test_tables_keep_every_letter(label):
    result = result_of(label, label)
    metrics = json.loads(result.attrs["metrics"])
    few = json.dumps({name: metrics[name] for name in ("test_accuracy", "own")})
    result = result.assign_attrs(metrics=few)
    printed = Console(file=io.StringIO(), width=200)
    print_summary(printed, summary_text(result))
    assert printed.file.getvalue().count(label) == 2
    table = page.page.tables.summary(result)
    assert label in table.headings and label in {row[0] for row in table.rows}


def test_a_note_covers_no_line_and_a_long_name_breaks_at_an_underscore():
    x = np.arange(3.0)
    series = (Series("s", x, x),)
    panel = Panel(Axis("round"), Axis("y"), series, title="value_per_second", note="a note " * 9)
    drawn = paper.figure(ChartData("a", "", (panel,) * 3, columns=3), paper.COLUMN, 3)
    for axes in drawn.axes:
        (note,), title = axes.texts, axes.title
        assert "a note" in note.get_text() and title.get_text().startswith("value_per_\n")
        plot, below, above = (one.get_window_extent() for one in (axes, note, title))
        assert plot.ymax <= below.ymin and below.ymax <= above.ymin


def test_points_of_many_series_look_different():
    """As those of `models_sent` and of the Pareto chart, which lines can not tell apart by dashes."""
    series = tuple(Series(str(i), np.ones(1), np.full(1, float(i)), mark="point", style=i) for i in range(16))
    (axes,) = paper.figure(Chart("c", "", (Panel(Axis("x"), Axis("y"), series),))).axes
    signs = [
        (one.get_paths()[0].vertices.tobytes(), tuple(one.get_facecolor()[0])) for one in axes.collections
    ]
    assert len(signs) == 16 == len(set(signs)) and len({shape for shape, _ in signs}) >= 15


@pytest.mark.parametrize("width", WIDTHS)
def test_names_that_stand_upright_leave_the_panels_their_height(width):
    names = ("no privacy term", "pause", "sa_pause", "WIDE CAPITALS, CUT")
    panels = []
    for x in (Axis("policy", names=names), Axis("weight")):
        numbers = np.arange(4.0)
        series = (Series("settings", numbers, numbers, mark="point", color=numbers),)
        panels.append(Panel(x, Axis("time per round (s)"), series))
    chart = Chart("c", "", (*panels, panels[-1]), 3, Axis("number of the setting"))
    figure = paper.figure(chart, width)
    assert_legible(figure)
    dots = figure.dpi
    assert min(axes.get_window_extent().height for axes in figure.axes) > 0.6 * dots
