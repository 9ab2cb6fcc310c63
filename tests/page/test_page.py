"""The page of a study as text: what it says is what the result says, and nothing of it is believed."""

import html.parser
import io
import itertools
import json
import re

import numpy as np
import pytest
from rich.console import Console

import pausejax
from pausejax import analysis, kinds, page
from pausejax.commands import main as cli
from pausejax.page import pictures, tables
from pausejax.report import summary_table
from pausejax.results import provenance

from ..analysis.made_up import AXES, POLICIES, build
from ..report.made import runs_of, sampled, with_figures
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


def built(result, **options):
    return page.build(result, kinds.draw(result), **options)


@pytest.fixture(scope="module")
def text(study):
    return built(study, notes=["heat maps: <b>ask</b> with --measure"])


def test_the_same_result_makes_the_same_bytes(study, text):
    assert built(study, notes=["heat maps: <b>ask</b> with --measure"]) == text


def test_what_a_result_says_is_shown_and_never_obeyed(text):
    read = Read(text)
    assert [attributes.get("type") for _, attributes, _ in read.all("script")] == ["application/json", None]
    assert not read.all("b") and not read.all("img")
    assert [found[2] for found in read.all("h1")] == [TITLE] == [found[2] for found in read.all("title")[:1]]
    assert any(HOSTILE in found[2] for found in read.all("th"))
    assert any(HOSTILE in found[2] for found in read.all("text")), "the legend of a picture"
    assert "heat maps: <b>ask</b> with --measure" in [found[2].strip() for found in read.all("li")]
    assert HOSTILE in json.loads(read.all("script")[0][2])["labels"][2]
    assert not [name for _, attributes, _ in read.elements for name in attributes if name.startswith("on")]


def test_a_study_without_a_name_has_a_title(study):
    read = Read(page.build(study.assign_attrs(name=""), {}))
    assert [found[2] for found in (*read.all("h1"), *read.all("title"))] == ["a study"] * 2


def test_nothing_leads_out_of_the_page(text):
    read = Read(text)
    for _, attributes, _ in read.elements:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:")), attributes
    identities = [attributes["id"] for _, attributes, _ in read.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    wanted = {a["href"][1:] for _, a, _ in read.elements if a.get("href", "").startswith("#")}
    assert wanted <= set(identities)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(identities)
    assert not re.findall(r"url\((?!#)", text) and "@import" not in text


def test_headings_tables_and_pictures_can_be_read_aloud(study, text):
    read = Read(text)
    levels = [int(tag[1]) for tag, _, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(attributes.get("scope") in ("row", "col") for _, attributes, _ in read.all("th"))
    assert len(read.all("caption")) == len(read.all("table"))
    shown = [attributes for tag, attributes, _ in read.elements if tag == "svg"]
    assert len(shown) == len(kinds.draw(study))
    assert all(attributes["role"] == "img" for attributes in shown)
    leakage = next(
        a["aria-label"] for a in shown if re.match("maximum leakage .*against round", a["aria-label"])
    )
    last = analysis.mean_ci(study, "max_leakage")
    for label, mean in zip(last["label"].values, last["mean"].values, strict=True):
        assert f"{label} {mean:.3g} (" in leakage


def test_the_table_is_the_printed_one(study, text):
    written = io.StringIO()
    Console(file=written, width=500).print(summary_table(study))
    read = tables.summary(study)
    lines = [line.split("  ") for line in written.getvalue().splitlines()]
    printed = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert all(list(row) in printed for row in read.rows) and len(read.rows) == 4
    cells = [found[2] for found in Read(text).all("td")]
    assert all(cell in cells for row in read.rows for cell in row[1:])


def test_a_run_says_how_it_was_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        'mode = "bandit"\nrounds = 30\nseeds = [7, 9]\n[network]\nnum_clients = 6\nclients_per_round = 2\n'
        '[[policy]]\nname = "random"\n'
    )
    assert cli.main(["run", "mine.toml", "--out", "out", "--set", "eval_every=4"]) == cli.OK
    shown = capsys.readouterr().out
    assert "all of it on one page: out/report.html" in shown
    (record,) = analysis.made.records_in(pausejax.open("out"))
    assert record["command"] == "pausejax run mine.toml --out out --set eval_every=4"
    assert record["devices"] == "2 × cpu" and record["versions"] == provenance.versions()
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
    assert len(analysis.made.records_in(pausejax.open("out"))) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["results.zarr"]


def test_a_password_in_a_url_is_kept_by_nobody():
    typed = "pausejax run a.toml --out s3://key:secret@host/b --set x='ftp://me@host'"
    assert (
        provenance.record(typed)["command"]
        == "pausejax run a.toml --out s3://…@host/b --set x='ftp://…@host'"
    )


def test_differences_are_those_of_the_analysis():
    result, _, _ = build(POLICIES, 5, AXES)
    found, left_out = tables.differences(result)
    first, *rivals = dict.fromkeys(result["policy"].values.tolist())
    assert found.title == first == "annealed" and not left_out
    column = found.headings.index("simulated time, s")
    sides = [analysis.paired_difference(result, one, first, "elapsed") for one in rivals]
    count = sum(side.sizes["setting"] for side in sides)
    assert len(found.rows) == count == 16 and "99.69 % each, so that all 16" in found.caption
    row = 0
    for rival in rivals:
        expected = analysis.paired_difference(result, rival, first, "elapsed", level=1 - 0.05 / count)
        for place in range(expected.sizes["setting"]):
            mean, low, high = (float(expected[name][place]) for name in ("mean", "low", "high"))
            assert found.rows[row][0].startswith(rival)
            assert found.rows[row][column] == f"{mean:+.1f}\n{low:+.1f} to {high:+.1f}"
            word = "" if low <= 0 <= high else "better" if mean < 0 else "worse"
            assert found.marks[row][column - 1] == word
            row += 1


def equal_policies(count, seeds, metrics, rng):
    """Figures of runs that differ by nothing but luck; a seed's network is met by all."""
    runs = runs_of([{"policy": f"p{n}", "seed": seed} for n in range(count) for seed in range(seeds)])
    figures = {
        f"m{n}": (rng.normal(size=(1, seeds)) + rng.normal(size=(count, seeds))).ravel()
        for n in range(metrics)
    }
    made = with_figures(runs, [True] * metrics, **figures)
    table = {name: {**metric, "heading": name} for name, metric in json.loads(made.attrs["metrics"]).items()}
    return made.assign_attrs(metrics=json.dumps(table))


def test_equal_policies_are_seldom_marked():
    """12 columns of 7 rivals: a column has a mark with a probability of at most 0.05, 4 of 12 with 0.002."""
    found, _ = tables.differences(equal_policies(8, 10, 12, np.random.default_rng(0)))
    assert len(found.rows) == 7 and sum(map(any, zip(*found.marks, strict=True))) < 4


def test_a_difference_says_how_many_pairs_are_left():
    rng = np.random.default_rng(0)
    result = equal_policies(2, 4, 1, rng)
    table = json.loads(result.attrs["metrics"])
    table["m0"]["learned"] = True
    result["m0"][5] = np.nan
    found, _ = tables.differences(result.assign_attrs(metrics=json.dumps(table)))
    assert found.rows[0][1].endswith("\n(3/4)") and "interval over 4 seeds, 95 %" in found.caption


def test_without_pairs_the_page_says_why():
    one_seed, _, _ = build(POLICIES, 1, AXES)
    assert tables.differences(one_seed) == (
        None,
        ["paired differences: there is one seed, so there are no intervals"],
    )
    alone, _, _ = build({"pause": {"privacy_weight": [1.0, 5.0, 25.0]}}, 4, {"privacy_weight": "gamma"})
    found, left_out = tables.differences(alone)
    assert not left_out
    labels = list(dict.fromkeys(analysis.mean_ci(alone, "elapsed")["label"].values.tolist()))
    assert [found.title, *(row[0] for row in found.rows)] == labels
    single, _, _ = build({"pause": {}}, 4, {})
    assert tables.differences(single)[0] is None and len(tables.differences(single)[1]) == 1


@pytest.mark.slow
def test_thousands_of_runs_make_a_page_that_can_be_sent():
    result, _, _ = sampled(500, 6)
    text = built(result.assign_attrs(spec="x = 1\n"))
    assert len(text.encode()) < 2_000_000
    assert "3000 runs are too many to list here" in text
    assert "and 4" in text.split('id="left-out"')[1].split("</ul>")[0], (
        "most of the diverged runs are counted"
    )
    assert tables.runs(result) is None


@pytest.mark.slow
def test_an_ensemble_has_a_page(monkeypatch):
    result = pausejax.simulate(["efl_fg", "fedboost"], mode="ensemble", rounds=20, seeds=2, num_clients=6)
    text = built(result)
    read = Read(text)
    assert len(read.all("svg")) == len(kinds.draw(result)) and "MSE" in text
    assert tables.differences(result)[0]


def test_pictures_that_are_too_large_become_pixels_and_then_a_line(study, monkeypatch):
    figures = {"regret_vs_rounds": kinds.draw(study)["regret_vs_rounds"]}
    monkeypatch.setattr(pictures, "_MOST_OF_ONE", 10)
    read = Read(page.build(study, figures))
    (image,) = (attributes for _, attributes, _ in read.all("img"))
    assert not read.all("svg") and image["src"].startswith("data:image/png;base64,")
    assert [a["aria-label"][:19] for _, a, _ in read.all("div") if a.get("role") == "img"] == [
        "cumulative realized"
    ]
    monkeypatch.setattr(pictures, "MOST_BYTES", 10)
    text = page.build(study, figures)
    assert "There are no pictures of this result" in text
    assert "regret_vs_rounds: no room in this page; the picture is regret_vs_rounds.png beside it" in text


def test_a_result_of_an_older_release_says_what_it_does_not_know(study):
    old = study.copy()
    del old.attrs["made"], old.attrs["spec"]
    assert tables.facts(old)[-3:] == [
        ("devices", ["not recorded"]),
        ("versions", ["not recorded"]),
        ("command", ["not recorded"]),
    ]
    assert "not recorded" in page.build(old, {})


def test_the_order_of_the_records_does_not_matter(study):
    records = [{"command": name, "devices": "1 × cpu", "versions": {}} for name in "ab"]
    one, other = (analysis.made.said(study, found) for found in (records, records[::-1]))
    assert one.attrs == other.attrs and analysis.made.records_in(one) == records
    np.testing.assert_array_equal(analysis.made.said(study, [])["regret"], study["regret"])
