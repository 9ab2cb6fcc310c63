"""Labels are text: what a user calls a policy or a unit is drawn and printed letter by letter."""

import io
import json

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from rich.console import Console

from pausejax import kinds, overview, page
from pausejax.analysis.quantities import Metric
from pausejax.report import save, summary_table
from pausejax.report.curves import figure as drawn
from pausejax.report.curves import measure_plot
from pausejax.report.figure import png
from pausejax.report.grid import Grid, Panel
from pausejax.report.levels import Measure
from pausejax.report.statistics import Line
from pausejax.report.style import new_figure, styled_context, tidy

from .made import build

LABELS = (r"$\foo$ policy", "$5 to $10", "a [/] b", "[bold]fast", ":smile:", "x^{2}_i", r"50 \% $")
UNIT = "latency [s]"


def result_of(label=LABELS[0], heading=UNIT):
    """A made-up study whose policies and one of whose quantities are called so."""
    result, _, _ = build({label: {}, "plain": {}}, 2, (), random_seed=1)
    metrics = json.loads(result.attrs["metrics"])
    metrics["own"] = Metric("elapsed", "last", False, "s", "own", label=heading, heading=heading)._asdict()
    return result.assign_attrs(metrics=json.dumps(metrics))


@pytest.fixture(autouse=True)
def _light(monkeypatch):
    """Fewer dots: what is asked is what the texts are."""
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 40)


def texts_of(figure):
    return {text.get_text(): text for text in figure.findobj(Text) if text.get_text()}


def test_every_label_is_drawn_letter_by_letter():
    for label in LABELS:
        line = Line(label, "", result_of(label).isel(run=slice(1)))
        figure = drawn(
            measure_plot(Measure("own", label, variable="elapsed")), Grid((Panel(label, (line,)),) * 2, 2)
        )
        png(figure)
        texts = texts_of(figure)
        assert label in texts and not any(text.get_parse_math() for text in texts.values())


def test_the_page_and_the_files_of_a_study_with_a_broken_formula_for_a_name(tmp_path):
    result = result_of()
    figures = kinds.draw(result)
    html = page.build(result, figures)
    assert LABELS[0] in html and UNIT in html
    save({"own_vs_rounds": figures["own_vs_rounds"]}, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("label", [*LABELS, UNIT, "energy [/]"])
def test_tables_keep_every_letter(label):
    result = result_of(label, label)
    metrics = json.loads(result.attrs["metrics"])
    few = json.dumps({name: metrics[name] for name in ("test_accuracy", "own")})
    result = result.assign_attrs(metrics=few)
    printed = Console(file=io.StringIO(), width=200)
    printed.print(summary_table(result))
    assert printed.file.getvalue().count(label) == 2
    assert repr(overview(result)).count(label) >= 2
    table = page.page.tables.summary(result)
    assert label in table.headings and label in {row[0] for row in table.rows}


def test_numbers_on_logarithmic_axes_have_raised_digits_and_no_formula():
    with styled_context():
        figure = new_figure(3, 3)
        axes = figure.subplots()
        axes.plot([1, 1e4], [0.02, 0.07])
        axes.set(xscale="log", yscale="log")
        tidy(axes)
        other = figure.add_axes((0, 0, 0.4, 0.4))
        other.plot([0, 1], [-500, 500])
        other.set_yscale("symlog")
        inset = axes.inset_axes((0.0, 1.0, 1.0, 0.2))
        inset.plot([1, 2], [1e7, 1e9])
        inset.set_yscale("log")
    png(figure)
    texts = set(texts_of(figure))
    assert {"10⁰", "10⁴", "2×10⁻²", "5×10⁻²", "−10²", "10²", "0", "10⁷"} <= texts
    assert not any(set(text) & set("$\\{}^") for text in texts)


def test_a_style_of_the_users_own_makes_no_formulas(monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setitem(matplotlib.rcParams, "axes.formatter.use_mathtext", True)
    with styled_context():
        figure = new_figure(3, 3)
        axes = figure.subplots()
        axes.plot(np.array([1e9, 2e9]), [1, 2], label=r"\undefined")
        figure.legend()
    png(figure)
    assert not any("$" in text for text in texts_of(figure))
