"""The examples of docs/analysis.md, report.md and paper_figures.md run, and give what these pages say."""

import contextlib
import re
from pathlib import Path

import pytest

from pausejax.clients.variables import METRICS as CLIENTS
from pausejax.plotting import grid

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PAPER, CHARTS = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("analysis.md", "paper_figures.md", "report.md")
)


def examples(page, folder):
    """The names that the examples of a page leave, run in order."""
    found = {}
    with contextlib.chdir(folder):
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(compile(block, "a page", "exec"), found)
    return found


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    found = examples(PAGE, tmp_path_factory.mktemp("page"))
    found["again"].load()
    return found


@pytest.mark.slow
def test_examples_give_what_the_page_says(names):
    assert names["figures"].sizes["run"] == 32
    assert [names[some].sizes["run"] for some in ("pause", "annealed", "first")] == [4, 16, 16]
    assert names["again"].identical(names["result"])
    assert names["found"].best["label"] == names["fastest"]["label"]
    assert set(names["mean"].dims) == {"setting"} and names["mean"].sizes["setting"] == 8
    assert names["by_gamma"].sizes["setting"] == 6
    assert set(names["curves"]["mean"].dims) == {"setting", "round"}
    assert names["gain"]["privacy_weight"].values.tolist() == [1.0, 5.0] and (names["gain"]["mean"] > 0).all()
    assert names["cold"].sizes["setting"] == 2
    assert sorted(names["of_each"]["policy"].values) == ["pause", "random", "sa_pause"]
    assert str(names["fastest"]["policy"].values) != "random" and names["front"].sizes["setting"] >= 1
    assert (len(names["runs"]), len(names["rounds"]), len(names["cohorts"])) == (32, 32 * 60, 32 * 60 * 3)
    assert (len(names["regret"]), len(names["leakage"])) == (8 * 60, 8 * 200)
    assert names["tracker"].seen == 3


@pytest.mark.slow
def test_numbers_in_the_text_are_the_codes(names):
    assert f"{grid.MAX_LINES} settings" in CHARTS and f"{grid.MAX_PANELS} panels" in CHARTS
    assert names["analysis"].metrics_of(names["result"]).keys() <= CLIENTS.keys()


@pytest.mark.slow
def test_the_examples_of_charts_leave_a_figure_for_a_paper(tmp_path, capsys):
    found = examples(PAPER + CHARTS, tmp_path)
    assert (tmp_path / "leakage.pdf").read_bytes()[:4] == b"%PDF"
    assert found["axes"].get_title() == "mine" and len(found["axes"].lines) >= 2
    said = capsys.readouterr().out
    assert "2 charts: cumulative_pseudo_regret_vs_round, cumulative_pseudo_regret_vs_time" in said
