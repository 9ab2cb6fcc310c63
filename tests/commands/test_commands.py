"""The commands as a user meets them: output, files, exit codes, and no traceback for a user's mistake."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.commands import main as cli
from pausejax.execution import rounds

from ..alike import assert_alike

ROOT = Path(__file__).resolve().parents[2]
SPEC = """
name = "a small study"
mode = "bandit"
rounds = 12
seeds = 3
[network]
num_clients = 6
clients_per_round = 2
[reward]
gamma = [1.0, 5.0]
[[policy]]
name = "pause"
[[policy]]
name = "random"
label = "uniform"
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "spec.toml").write_text(SPEC)
    assert cli.main(["run", str(folder / "spec.toml"), "--out", str(folder / "out"), "--quiet"]) == cli.OK
    return folder


def test_run_leaves_one_store_its_spec_its_page_and_charts(study):
    out = study / "out"
    result = xr.open_zarr(out / "results.zarr")
    assert dict(result.sizes) == {"run": 12, "round": 12, "slot": 2, "client": 6}
    assert json.loads(result.attrs["axes"]) == ["privacy_weight"]
    assert result["selected"].dtype == np.int32 and result["reward"].dtype == np.float32
    assert set(result["policy"].values.tolist()) == {"pause", "uniform"}
    assert result["reward"].attrs["units"] == "1" and "(9)" in result["reward"].attrs["long_name"]
    again = pausejax.open(out)
    xr.testing.assert_identical(result.load(), again.load())
    assert 'name = "a small study"' in (out / "spec.toml").read_text()
    assert (out / "report.html").read_text().startswith("<!")
    charts = set(pausejax.charts(again))
    assert {"max_leakage_vs_round", "cumulative_regret_vs_round", "participation"} <= charts
    assert {path.stem for path in out.glob("*.png")} == charts and not list(out.glob("*.pdf"))
    assert all(path.read_bytes()[1:4] == b"PNG" for path in out.glob("*.png"))


def test_the_exact_spec_runs_again_to_the_same_result(study, tmp_path):
    spec = study / "out" / "spec.toml"
    assert cli.main(["run", str(spec), "--out", str(tmp_path / "b"), "--quiet", "--no-report"]) == cli.OK
    old, new = (pausejax.open(folder).load() for folder in (study / "out", tmp_path / "b"))
    assert_alike(old, new)
    assert not list((tmp_path / "b").glob("*.png")) and not (tmp_path / "b" / "report.html").exists()


def test_summary_has_a_row_for_each_policy_and_axis_value(study, tmp_path, capsys):
    assert cli.main(["run", str(study / "spec.toml"), "--out", str(tmp_path), "--no-report"]) == cli.OK
    shown = capsys.readouterr().out
    for label in ("pause, γ = 1", "pause, γ = 5", "uniform, γ = 1", "uniform, γ = 5"):
        assert label in shown
    assert "over 3 seeds" in shown and "12 runs in" in shown


def test_plan_runs_nothing(study, monkeypatch, capsys):
    def refuse(*arguments):
        raise AssertionError("the plan ran something")

    monkeypatch.setattr(rounds, "play_rounds", refuse)
    before = sorted(study.rglob("*"))
    assert cli.main(["plan", str(study / "spec.toml")]) == cli.OK
    shown = capsys.readouterr().out
    assert "12 runs in 2 groups, one compilation each; axes: privacy_weight; seeds: 3" in shown
    assert sorted(study.rglob("*")) == before


@pytest.mark.slow
def test_plan_compiles_no_program_of_the_study():
    """Two or three seconds on an idle core, mostly imports of libraries; ten where none is idle."""
    spec = str(ROOT / "sweeps" / "quickstart.toml")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "pausejax", "plan", spec], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


def test_a_failed_run_leaves_its_folder_usable(study, tmp_path, capsys):
    arguments = ["run", str(study / "spec.toml"), "--out", str(tmp_path / "o"), "--quiet", "--no-report"]
    refused = ["--set", "mode=training", "--set", "network.num_clients=1000"]
    assert cli.main([*arguments, *refused]) == cli.BAD_SPEC
    assert 'data.partition = "iid"' in capsys.readouterr().err
    assert cli.main(arguments) == cli.OK


def test_labels_are_shown_as_they_are(study, tmp_path, capsys):
    text = SPEC.replace('label = "uniform"', 'label = "uniform [/b] [private]"')
    (tmp_path / "spec.toml").write_text(text)
    assert (
        cli.main(["run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "o"), "--no-report"]) == cli.OK
    )
    assert "uniform [/b] [private]" in capsys.readouterr().out


@pytest.mark.slow
def test_a_damaged_result_is_one_line_and_is_made_again(study, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["run", str(study / "spec.toml"), "--out", str(out), "--no-report"]
    assert cli.main(arguments) == cli.OK
    whole = pausejax.open(out).load()
    file = out / "results.zarr" / "regret" / "c" / "0" / "0"
    file.write_bytes(file.read_bytes()[:-5])
    capsys.readouterr()
    assert cli.main(["report", str(out)]) == cli.FAILED
    message = capsys.readouterr().err
    assert "results.zarr is damaged" in message and len(message.strip().splitlines()) == 1
    assert cli.main(arguments) == cli.OK
    assert (
        "was damaged, so its runs were simulated again: results.zarr, runs 1 to 12" in capsys.readouterr().out
    )
    xr.testing.assert_identical(whole, pausejax.open(out).load())
    assert cli.main(arguments) == cli.OK
    assert "12 of 12 runs were finished before" in capsys.readouterr().out


@pytest.mark.slow
def test_report_draws_again(study, capsys):
    picture = study / "out" / "cumulative_regret_vs_round.png"
    before = picture.read_bytes()
    picture.unlink()
    # What is smoothed has a folder of its own; regrets are not smoothed.
    assert cli.main(["report", str(study / "out"), "--smooth", "3", "--format", "png"]) == cli.OK
    assert not picture.exists() and (study / "out/smooth_3" / picture.name).read_bytes() == before
    assert cli.main(["report", str(study / "out"), "--format", "png"]) == cli.OK
    assert picture.read_bytes() == before
    assert "cumulative_regret_vs_round" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "{missing}", "--out", "{out}"], 2, "can't be read: No such file"),
        (["run", "{spec}", "--out", "{out}", "--set", "rounds=none"], 2, '"none": must be an integer'),
        (["run", "{spec}", "--out", "{spec}"], 1, "File exists"),
        (["report", "{out}"], 1, "holds no result"),
        (["plan", "{spec}", "--set", "network.K=1"], 2, "_per_round = 2: must be <= network.num_clients"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(tmp_path, capsys, arguments, code, message):
    (tmp_path / "spec.toml").write_text(SPEC)
    names = {"missing": tmp_path / "none", "spec": tmp_path / "spec.toml", "out": tmp_path / "out"}
    assert cli.main([argument.format(**names) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run"], ["report", "x", "--smooth", "0"]])
def test_usage_errors_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: pausejax" in capsys.readouterr().err


def test_help_names_the_commands_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("run", "plan", "report", "exit codes"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "printed"),
    [("", "False\n"), ("import jax.numpy as jnp\nLIMITS = jnp.linspace(0, 1, 5)\n", "3\n")],
)
def test_jax_starts_with_one_device_per_core_and_after_all_checks(tmp_path, own, printed):
    """JAX that has started has one CPU device, whatever it is told later; and Ray forks before it starts."""
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "spec.toml").write_text(f'use = ["own.py"]\n{SPEC}')
    code = """
import sys
from jax._src import xla_bridge
from pausejax.commands import executors, main
from pausejax.execution import runtime

def executor(*_):
    print(xla_bridge.backends_are_initialized() and len(xla_bridge.local_devices()))
    sys.exit(0)

runtime._cores = lambda: 3
executors.executor = executor
main.main(["run", "spec.toml", "--out", "out", "--quiet", *sys.argv[1:]])
"""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    asked = ["--measure", "reward", "--where", "gamma=5", "--by", "gamma"]
    done = subprocess.run(
        [sys.executable, "-c", code, *asked], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


def test_an_output_without_some_letters_ends_no_command(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    code = "from pausejax.commands.main import main; import sys; sys.exit(main())"
    line = [sys.executable, "-c", code, "parts", "policy"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "\\u03b1" in done.stdout and not done.stderr


OWN = '# mine\nname = "mine"  # mine, too\nmode = "bandit"\nrounds = 5\n[[policy]]\nname = "random"\n'


def test_overrides_of_the_spec_that_lies_in_its_folder_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(OWN)
    for out in (".", str(tmp_path), f"file://{tmp_path}"):
        assert cli.main(["run", "spec.toml", "--out", out, "--set", "seeds=2"]) == cli.BAD_SPEC
        assert "would be replaced by the spec with the overrides. Choose" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"spec.toml": OWN}


@pytest.mark.slow
def test_a_spec_that_lies_in_its_folder_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(OWN)
    run = ["run", "spec.toml", "--out", ".", "--no-report"]
    for more in ([], ["--set", "rounds=5"], []):  # which is what the file says
        assert cli.main([*run, *more]) == cli.OK
    assert cli.main([*run, "--set", "seeds=2"]) == cli.BAD_SPEC
    Path("copy.toml").write_text(OWN)
    assert Path("spec.toml").read_text() == OWN and pausejax.open(".").sizes["run"] == 1
    assert cli.main(["run", "copy.toml", *run[2:], "--set", "seeds=2"]) == cli.OK  # as every extension
    assert "seeds = 2" in Path("spec.toml").read_text() and pausejax.open(".").sizes["run"] == 2
    pausejax.save(pausejax.open(".").isel(run=[0]), "saved")
    assert cli.main(["run", "saved/spec.toml", "--out", "saved", "--no-report"]) == cli.OK
    assert pausejax.open("saved").sizes["run"] == 2
