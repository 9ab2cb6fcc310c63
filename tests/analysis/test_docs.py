"""docs/analysis.md is true: its examples run in order, and say what the text says."""

import contextlib
import re
from pathlib import Path

import pytest

from pausejax.clients.variables import METRICS as CLIENTS
from pausejax.plotting import grid

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "analysis.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    found = {}
    with contextlib.chdir(tmp_path_factory.mktemp("page")):
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "docs/analysis.md", "exec"), found)
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
    assert f"Up to {grid.MAX_LINES} settings" in PAGE
    assert names["analysis"].metrics_of(names["result"]).keys() <= CLIENTS.keys()
