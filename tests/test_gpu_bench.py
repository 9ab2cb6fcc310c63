"""`scripts/bench/gpu.py`: what is measured, in which order, and how the model is held against it."""

import json
import sys
from pathlib import Path

import pytest

from .programs import load

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "gpu.md").read_text()
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def bench():
    return load("scripts/bench/gpu.py")


def test_the_model_s_times_are_those_of_the_page(bench):
    model = bench.tables.modelled(PAGE, H100)
    row = next(line for line in PAGE.splitlines() if line.startswith("| mlp | 8 |"))
    assert model["mlp", 8] == float(row.split("|")[9].replace(",", "")) and len(model) > 25
    assert bench.tables.modelled(PAGE, "NVIDIA L4") != model
    assert bench.tables.modelled(PAGE, "somebody's chip") == {}


def test_model_and_measurement_stand_side_by_side(bench):
    found = [
        {"case": "mlp", "runs": 8, "tuned": tuned, "seconds": 1e-3, "memory": 2e9, "layout": {"lanes": 4}}
        for tuned in (False, True)
    ]
    usual, tuned = bench.table(found, {("mlp", 8): 400.0}).splitlines()[2:]
    assert usual == "| mlp | 8 | 4 | 400 | 1,000.0 | 2.50 | 8k | 2.000 |"
    assert tuned == "| mlp | 8 | tuned 4 |  | 1,000.0 |  | 8k | 2.000 |"


@pytest.mark.slow
def test_it_runs_small_on_any_device(bench, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    out, page = tmp_path / "gpu.json", tmp_path / "gpu.md"
    arguments = ["--small", "--case", "pause-30", "mlp", "--tune", "0.1", "--out", out, "--table", page]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *map(str, arguments)])
    bench.main()
    kept = json.loads(out.read_text())
    assert [(row["case"], row["runs"]) for row in kept["found"] if not row["tuned"]] == [
        ("mlp", 1),
        ("pause-30", 4),
    ]
    assert all(row["seconds"] > 0 and row["memory"] > 0 for row in kept["found"])
    assert "| pause-30 | 4 |" in page.read_text() and "rounds x runs/s" in capsys.readouterr().out
