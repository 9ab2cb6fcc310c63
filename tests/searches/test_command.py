"""`pausejax search` and `pausejax.search` as a user meets them."""

import contextlib
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pausejax
from pausejax.commands.main import main
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed

SPEC = """
mode = "bandit"
rounds = 50
seeds = 2

[network]
num_clients = 6
clients_per_round = 2

[reward]
generalization_weight = { log_uniform = [1, 1000] }

[[policy]]
name = "pause"
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    (folder / "spec.toml").write_text(SPEC)
    typed = ["search", "spec.toml", "--out", "out", "--trials", "20", "--lanes", "8", "--fresh-seeds", "4"]
    typed += ["--metric", "cumulative_pseudo_regret"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(typed) == 0
    return folder, typed, out.getvalue(), err.getvalue()


@pytest.mark.slow
def test_the_command_says_what_it_found_and_leaves_it(searched):
    folder, _, shown, told = searched
    assert "on 4 fresh seeds, at 50 rounds" in shown
    for label in ("best: pause", "second: pause", "default: pause"):
        assert label in shown
    assert "20 of 20 settings" in told
    out = folder / "out"
    assert {"search_history.png", "search_slices.png", "trials.json", "optuna.log", "spec.toml"} <= {
        path.name for path in out.iterdir()
    }
    trials = json.loads((out / "trials.json").read_text())
    result = pausejax.open(out)
    assert result.sizes["run"] == 2 * len(trials)
    for trial in trials:
        runs = result.isel(run=slice(2 * trial["number"], 2 * trial["number"] + 2))
        assert (runs["generalization_weight"] == trial["values"]["generalization_weight"]).all()
        assert np.isfinite(runs["reward"].values).sum() == trial["rounds"]
    confirmed = pausejax.open(out / "confirmation")
    assert set(confirmed["policy"].values) == {"best", "second", "default"}
    assert not set(confirmed["seed"].values) & set(result["seed"].values)


@pytest.mark.slow
def test_the_same_command_has_nothing_left_to_play(searched):
    folder, typed, shown, _ = searched
    command = [sys.executable, "-m", "pausejax", *typed]
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    assert again.stdout == shown


@pytest.mark.slow
def test_json_and_a_tracker_hear_of_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "runs"))
    (tmp_path / "spec.toml").write_text(SPEC)
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--trials", "6"]
    typed += ["--metric", "cumulative_pseudo_regret", "--fresh-seeds", "2", "--no-report", "--log", "json"]
    assert main([*typed, "--tracker", "tensorboard"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    first, last = events[0], next(event for event in events if event["event"] == "end")
    assert (first["event"], first["trials"], first["sampler"]) == ("start", 6, "tpe")
    assert "compiled" in {event["event"] for event in events[1:-1]}
    trials = json.loads((tmp_path / "out" / "trials.json").read_text())
    assert (last["event"], last["completed"], last["rounds"]) == ("end", True, 6 * 2 * 50)
    assert last["settings"] == len(trials) == 6
    assert last["best"] == min(trial["figures"]["cumulative_pseudo_regret"] for trial in trials)
    (study,) = (tmp_path / "runs").iterdir()
    assert len(list(study.iterdir())) == 2 * len(trials)
    assert main([*typed, "--tracker", "tensorboard"]) == 0
    assert len(list(study.iterdir())) == 2 * len(trials)


@pytest.mark.slow
def test_report_draws_a_search_and_its_page_again(searched, capsys):
    folder, *_ = searched
    out = folder / "out"
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert main(["report", str(out), "--chart", "search_history", "--format", "csv"]) == 0
    assert "search_history.csv" in capsys.readouterr().out and (out / "search_history.csv").exists()
    assert (out / "report.html").read_bytes() == before
    trials = json.loads((out / "trials.json").read_text())
    for said in (
        "goal: least cumulative_pseudo_regret at 50 rounds",
        "on 4 fresh seeds",
        f"{len(trials)} rows",
        "search_slices",
    ):
        assert said in before.decode(), said
    # The table of finalists has the differences at the horizon.
    assert "Difference from" not in before.decode() and "There are none" not in before.decode()
    assert main(["report", str(out), "--measure", "reward"]) == 0
    assert "search_history" not in capsys.readouterr().out
    assert main(["report", str(out), "--baseline", "second"]) == 2
    assert "Choose another baseline in `pausejax report " in capsys.readouterr().err
    assert main(["report", f"{out}/confirmation", "--baseline", "second", "--quiet"]) == 0


PARTS = """
import jax.numpy as jnp
import pausejax
from pausejax.network import Law


def law(factor):
    return Law(lambda key: jnp.full(6, factor, jnp.float32))


@pausejax.latency
def first(*, num_clients: int, pace: float = 0.5) -> Law:
    return law(pace)


@pausejax.latency
def second(*, num_clients: int, pace: float = 9.0) -> Law:
    return law(pace)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--minimize", "--maximize"])
def test_finalists_may_use_only_some_of_the_parts_with_equal_names_of_parameters(way, tmp_path, capsys):
    """Whichever part wins, the study on fresh seeds does not use the other."""
    (tmp_path / "laws.py").write_text(PARTS)
    laws = 'latency = ["first", "second"]\nfirst.pace = [1.0, 2.0]\nsecond.pace = [7.0, 8.0]\n'
    spec = 'use = ["laws.py"]\n' + SPEC.replace("[network]\n", f"[network]\n{laws}")
    (tmp_path / "spec.toml").write_text(spec)
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--trials", "40", way]
    typed += ["--metric", "mean_latency", "--at-latency", "60", "--fresh-seeds", "2", "--quiet"]
    assert main(typed) == 0, capsys.readouterr().err
    confirmed = pausejax.open(tmp_path / "out" / "confirmation")
    best = confirmed["round_latency"].values[confirmed["policy"].values == "best"]
    np.testing.assert_allclose(best[~np.isnan(best)], {"--minimize": 1.0, "--maximize": 8.0}[way], rtol=1e-6)
    caption = "Rounds that end after 60 simulated seconds are not counted"
    assert caption in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_damaged_record_is_said(searched, tmp_path, capsys):
    folder, *_ = searched
    shutil.copytree(folder / "out", tmp_path / "out")
    (tmp_path / "out" / "search_record.json").write_text('{"name": 3')
    assert main(["report", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "search_record.json is damaged" in said
    held = read_sealed(Folder(folder / "out"), "search_record.json")
    write_sealed(Folder(tmp_path / "out"), "search_record.json", {**held, "runs": ["of another search"]})
    assert main(["report", str(tmp_path / "out")]) == 1
    assert "search_record.json is of another search" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plain_run_does_not_go_on_in_the_folder_of_a_search(searched, capsys):
    folder, *_ = searched
    plain = [str(folder / "spec.toml"), "--set", "reward.generalization_weight=5.0"]
    assert main(["run", *plain, "--out", str(folder / "out"), "--quiet"]) == 2
    assert "holds a search, not a study" in capsys.readouterr().err


@pytest.mark.slow
def test_the_function_finds_what_the_command_finds():
    result = pausejax.search(
        "pause",
        trials=20,
        metric="cumulative_pseudo_regret",
        mode="bandit",
        rounds=50,
        seeds=2,
        num_clients=6,
        clients_per_round=2,
        alpha={"log_uniform": [1, 1000]},
        fresh_seeds=4,
    )
    assert result.best["policy"] == "pause"
    assert 1 <= result.best["generalization_weight"] <= 1000
    assert "best: pause" in repr(result)
    assert set(result.charts()) == {"search_history", "search_slices"}
    best, second = result.finalists[:2]
    np.testing.assert_allclose(second.difference, (best.figures - second.figures).mean(axis=0), rtol=1e-12)
