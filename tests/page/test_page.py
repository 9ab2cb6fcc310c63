"""The page of a study as text: what it says is what the result says, and nothing of it is believed."""

import base64
import hashlib
import html.parser
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import pausejax
from pausejax import analysis, page
from pausejax.commands import main as cli
from pausejax.page import figures as figures_of
from pausejax.page import tables
from pausejax.plotting import vega
from pausejax.plotting.data import GREY, PALETTE, Axis, ChartData, Panel, Series
from pausejax.results import labels

from ..plotting.every_kind import HOSTILE as LABELS
from ..plotting.every_kind import charts, curves, sweep
from ..plotting.made import sampled
from .conftest import HOSTILE, TITLE

VOID = {"meta", "link", "img", "br", "input"}


class Read(html.parser.HTMLParser):
    """Elements with their attributes and text; every element must be closed where it was opened."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self._open = [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag.lower()

    def handle_data(self, text):
        for element in self._open:
            element[2] += text

    def all(self, tag):
        return [element for element in self.elements if element[0] == tag]


@pytest.fixture(scope="module")
def text(study):
    return page.build(study, charts(LABELS), notes=["heat maps: <b>ask</b> with --measure"])


@pytest.fixture(scope="module")
def explored(study):
    return page.build(study, {}, sweep=sweep())


def data_of(text):
    return json.loads(next(found[2] for found in Read(text).all("script") if found[1].get("type")))


def test_the_same_result_makes_the_same_bytes(study, text):
    assert page.build(study, charts(LABELS), notes=["heat maps: <b>ask</b> with --measure"]) == text


def test_what_a_result_says_is_shown_and_never_obeyed(text):
    read = Read(text)
    types = [attributes.get("type") for _, attributes, _ in read.all("script")]
    assert types == ["application/json", *[None] * 4]
    assert not read.all("b") and not read.all("img")
    assert [found[2] for found in read.all("h1")] == [TITLE] == [found[2] for found in read.all("title")[:1]]
    assert any(HOSTILE in found[2] for found in read.all("th"))
    assert "heat maps: <b>ask</b> with --measure" in [found[2].strip() for found in read.all("li")]
    buttons = [
        attributes["data-label"] for _, attributes, _ in read.all("button") if "data-label" in attributes
    ]
    assert set(buttons) == set(LABELS)
    assert not [name for _, attributes, _ in read.elements for name in attributes if name.startswith("on")]
    shown = [row["series"] for panel in data_of(text)["panels"] for row in panel["data"]["values"]]
    assert set(LABELS) <= set(shown)


def test_no_label_ends_a_script(text, explored):
    for one in (text, explored):
        assert one.count("</script") == 5 == one.count("<script")
        body = one.split('id="data">')[1].split("</script>")[0]
        assert "<" not in body and "\u2028" not in body


def test_only_the_scripts_of_the_page_run(text):
    read = Read(text)
    policy = next(a["content"] for _, a, _ in read.all("meta") if a.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    scripts = [found[2] for found in read.all("script") if not found[1].get("type")]
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests] and len(digests) == 4


def test_libraries_are_those_that_were_fetched():
    folder = Path(page.__file__).parent / "vendor"
    known = tomllib.loads((folder / "versions.toml").read_text(encoding="utf-8"))
    assert {path.name for path in folder.iterdir()} == {
        "versions.toml",
        *(f"{name}.{ending}" for name in known for ending in ("min.js", "LICENSE")),
    }
    for name, found in known.items():
        script = (folder / f"{name}.min.js").read_bytes()
        assert hashlib.sha256(script).hexdigest() == found["sha256"] and found["licence"] == "BSD-3-Clause"
        assert b"</script" not in script and b"<!--" not in script


def test_a_chart_has_its_caption_its_panels_and_its_numbers(text):
    read = Read(text)
    drawn = charts(LABELS)
    figures = read.all("figure")
    assert [attributes["data-chart"] for _, attributes, _ in figures] == list(drawn)
    for chart, (_, _, words) in zip(drawn.values(), figures, strict=True):
        assert figures_of.title_of(chart.name) in words and chart.caption in words
        for panel in chart.panels:
            assert panel.title in words and panel.note in words
    plots = [attributes["data-panel"] for _, attributes, _ in read.all("div") if "data-panel" in attributes]
    assert plots == [str(place) for place in range(sum(len(chart.panels) for chart in drawn.values()))]
    assert len(data_of(text)["panels"]) == len(plots)
    assert all("open" in attributes for _, attributes, _ in read.all("details") if attributes.get("class"))


def test_hundreds_of_lines_make_a_page_that_can_be_sent():
    lines = curves([f"policy {place}" for place in range(512)], 1000)
    chart = ChartData("a_vs_b", "", (Panel(Axis("x"), Axis("y"), lines),))
    _, (spec,), buttons = figures_of.figures({"a_vs_b": chart})
    assert len(vega.as_json(spec)) < 550_000 and len(buttons) == 512
    assert min(len(row["x"]) for row in spec["data"]["values"]) >= 15


def test_a_sweep_has_an_explorer_and_a_table_with_the_front_first(explored):
    made = sweep()
    read = Read(explored)
    selects = read.all("select")
    assert len(selects) == 4 and len(read.all("option")) == 4 * len(made.axes)
    (table,) = (found for found in read.all("table") if found[1].get("class") == "sortable")
    rows = figures_of.settings(made).rows
    assert all(label in table[2] for label in made.labels)
    count = int(made.front.sum())
    assert [row[1] for row in rows] == ["yes"] * count + [""] * (60 - count)
    # After the metrics come the parameters: the policy, and one that a policy lacks.
    policy = 2 + len(made.axes) - made.parameters
    assert {row[policy + 1] for row in rows if row[policy] != "PAUSE"} == {"–"}
    assert data_of(explored)["panels"][0]["vconcat"]


@pytest.mark.parametrize("which", ["text", "explored"])
def test_nothing_leads_out_of_the_page(request, which):
    text = request.getfixturevalue(which)
    read = Read(text)
    own = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    for _, attributes, _ in read.elements:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:")), attributes
    identities = [attributes["id"] for _, attributes, _ in read.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    wanted = {a["href"][1:] for _, a, _ in read.elements if a.get("href", "").startswith("#")}
    assert wanted <= set(identities)
    assert "url(" not in own and "@import" not in own and not re.search(r"""(src|href)=["']?http""", own)


@pytest.mark.slow
def test_a_run_says_how_it_was_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        'mode = "bandit"\nrounds = 30\nseeds = [7, 9]\n[network]\nnum_clients = 6\nclients_per_round = 2\n'
        '[[policy]]\nname = "random"\n'
    )
    assert cli.main(["run", "mine.toml", "--out", "out", "--set", "eval_every=4"]) == cli.OK
    shown = capsys.readouterr().out
    assert "the page with all charts: out/report.html" in shown
    (record,) = analysis.made.provenance_of(pausejax.open("out"))
    assert record["command"] == "pausejax run mine.toml --out out --set eval_every=4"
    assert record["devices"] == "2 × cpu" and record["versions"] == labels.versions()
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    said = [found[2] for found in Read(text).all("dd")]
    assert {record["command"], "2 × cpu", "2: 7, 9"} <= set(said)
    assert f"python {record['versions']['python']}" in text and "seeds = [" in text
    assert str(tmp_path) not in text
    assert all(identity in text for identity in pausejax.open("out")["identity"].values)
    (tmp_path / "out" / "report.html").unlink()
    assert cli.main(["report", "out", "--quiet"]) == cli.OK
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8") == text
    # Runs that another command adds: both are named, and what was there keeps its own.
    more = ["run", "mine.toml", "--out", "out", "--set", "eval_every=4", "--set", "seeds=[7, 9, 11]"]
    assert cli.main([*more, "--no-report", "--quiet"]) == cli.OK
    assert len(analysis.made.provenance_of(pausejax.open("out"))) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["results.zarr"]


def test_a_password_in_a_url_is_kept_by_nobody():
    typed = "pausejax run a.toml --out s3://key:secret@host/b --set x='ftp://me@host'"
    assert (
        labels.provenance(typed)["command"]
        == "pausejax run a.toml --out s3://…@host/b --set x='ftp://…@host'"
    )


@pytest.mark.slow
def test_thousands_of_runs_make_a_page_that_can_be_sent():
    result, _, _ = sampled(500, 6)
    text = page.build(result.assign_attrs(spec="x = 1\n"), {})
    assert len(text.encode()) < 2_000_000
    assert "3000 runs are too many to list here" in text
    assert "and 4" in text.split('id="left-out"')[1].split("</ul>")[0], (
        "most of the diverged runs are counted"
    )
    assert tables.runs(result) is None


def test_series_that_look_otherwise_than_their_buttons_have_a_legend():
    x, ends = np.arange(3.0), (Axis("x"), Axis("y"))
    labels = [f"policy {i}" for i in range(9)]
    lines = [Series(label, x, x, style=i) for i, label in enumerate(labels)]
    points = [Series(label, x, x, mark="point", style=i) for i, label in enumerate(labels)]
    tinted = [Series(label, x, x, mark="point", color=x, style=i) for i, label in enumerate(labels)]

    def made(*kinds):
        panels = [Panel(*ends, tuple(series)) for series in kinds]
        charts = {str(i): ChartData(str(i), "", (one,), color=Axis("ζ")) for i, one in enumerate(panels)}
        found, _, buttons = figures_of.figures(charts)
        assert [key.label for key in buttons] == labels
        return [figure.legend for figure in found], buttons

    (of_tinted, of_lines), buttons = made(tinted, lines)
    assert {key.mark for key in buttons} == {"line"} and not of_lines
    assert buttons[0].dash == "" and [key.label for key in of_tinted] == labels
    assert len({key.shape for key in of_tinted}) == 9 and {key.color for key in of_tinted} == {GREY}
    legends, buttons = made(points, points)
    assert not any(legends) and len({(key.color, key.shape) for key in buttons}) == 9
    (of_tinted, of_points), buttons = made(tinted, points)
    assert not of_points and {key.color for key in of_tinted} == {GREY} and buttons[0].color == PALETTE[0]


def test_a_logarithmic_colour_scale_is_called_so():
    for scale, label in (("linear", "ζ"), ("log", "ζ, log scale")):
        panel = Panel(Axis("x", names=("a", "b")), Axis("y", names=("c",)), cells=np.array([[1.0, 100.0]]))
        (found,), *_ = figures_of.figures({"a": ChartData("a", "", (panel,), color=Axis("ζ", scale))})
        assert found.colors == (label, "1", "100")
