"""Every spec in examples/ runs from the command line and shows what it says."""

import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pausejax
from pausejax import analysis, kinds
from pausejax.commands import main as cli

ENDINGS = ("all", "deadline", "first", "patience")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SHORT = {"rounds": "3", "eval_every": "3", "seeds": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The examples, and the data set that one of them makes."""
    copy = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("*.npz", "__pycache__"))
    spec = importlib.util.spec_from_file_location("made", copy / "natural_owners.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(str(copy / "people.npz"))
    return copy


def run(folder, name, tmp_path, finite=("reward",), **settings):
    """A short run's result; `settings` override the spec."""
    given = [word for key, value in (SHORT | settings).items() for word in ("--set", f"{key}={value}")]
    out = tmp_path / "out"
    arguments = ["run", str(folder / f"{name}.toml"), "--out", str(out), "--quiet", "--no-report", *given]
    assert cli.main(arguments) == cli.OK
    found = pausejax.open(out).load()
    assert all(np.isfinite(found[name]).all() for name in finite)
    if found.attrs["mode"] == "training":
        assert not found["diverged_round"].any()
    return found


def values(found, name):
    return sorted(set(found[name].values.tolist()))


def test_there_is_a_test_for_each():
    here = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.toml"):
        assert f'"{path.stem}"' in here, path


def test_a_policy_with_its_own_parameter(folder, tmp_path):
    found = run(folder, "sticky", tmp_path, rounds="40", mode="bandit", seeds="4")
    assert values(found.sel(run=found.policy == "sticky"), "stickiness") == [0.0, 0.5, 0.9]
    assert "stickiness" in json.loads(found.attrs["axes"])
    stayed = {}
    for s in (0.0, 0.5, 0.9):
        members = found["selected"].values[(found.policy == "sticky") & (found.stickiness == s)]
        pairs = zip(members[:, :-1].reshape(-1, 3), members[:, 1:].reshape(-1, 3), strict=True)
        stayed[s] = np.mean([len(set(a) & set(b)) / 3 for a, b in pairs])
    assert stayed[0.0] < stayed[0.5] < stayed[0.9]
    assert 0.85 < stayed[0.9] < 0.97


@pytest.mark.slow
def test_an_ending_of_ones_own(folder, tmp_path):
    found = run(folder, "patience", tmp_path, rounds="40", seeds="4", finite=("max_leakage",))
    of = {name: found.isel(run=np.flatnonzero(found["ending"].values == name)) for name in ENDINGS}
    lasts = {name: float(own["elapsed"][:, -1].mean()) for name, own in of.items()}
    assert max(lasts, key=lasts.get) == "all"
    late = {name: int(own["late_count"].sum()) for name, own in of.items() if name != "all"}
    assert late["first"] == 2 * 40 * 4 and late["patience"] > 0
    assert np.isfinite(of["all"]["reward"]).all() and np.isnan(of["patience"]["reward"]).all()


@pytest.mark.slow
def test_an_algorithm_of_ones_own(folder, tmp_path):
    found = run(folder, "fednova", tmp_path, rounds="6", eval_every="6", seeds="2")
    assert values(found, "federated_algorithm") == ["fedavg", "fednova", "scaffold"]
    losses = {name: of["test_loss"].values for name, of in found.groupby("federated_algorithm")}
    assert len({float(loss[0, -1]) for loss in losses.values()}) == 3


@pytest.mark.slow
def test_a_mechanism_of_ones_own(folder, tmp_path):
    found = run(folder, "random_sign", tmp_path, rounds="6", eval_every="6", seeds="2")
    signs = found.isel(run=np.flatnonzero(found["mechanism"].values == "random_sign"))
    most = signs["releases"].max("client").values
    np.testing.assert_allclose(signs["max_leakage"].values[:, -1], most * signs["sign_epsilon"].values)
    assert values(signs, "sign_epsilon") == [0.5, 1.0, 2.0] and found.sizes["run"] == 2 * 2 * 9


@pytest.mark.slow
def test_an_aggregator_of_ones_own(folder, tmp_path):
    found = run(folder, "geometric_median", tmp_path, rounds="4", eval_every="4", seeds="2")
    losses = [float(of["test_loss"][0, -1]) for _, of in found.groupby("aggregator")]
    assert len(losses) == 5 and len(set(losses)) == 5


@pytest.mark.slow
def test_a_model_with_dropout(folder, tmp_path):
    found = run(folder, "nnx_dropout", tmp_path)
    assert values(found, "dropout_rate") == pytest.approx([0.0, 0.2, 0.5])
    assert set(found["model"].values) == {"dropout_mlp"} and set(found["hidden_units"].values) == {24}
    losses = found["train_loss"].values
    assert len(np.unique(losses[:, 0])) == 3


@pytest.mark.slow
def test_batch_norm_and_what_becomes_of_its_statistics(folder, tmp_path):
    found = run(folder, "batch_norm", tmp_path)
    leaked = dict(zip(found["batch_statistics"].values, found["max_leakage"].values[:, -1], strict=True))
    assert leaked["clear"] == np.inf and np.isfinite(leaked["private"]) and np.isfinite(leaked["local"])


@pytest.mark.slow
def test_regression_has_its_own_metric(folder, tmp_path):
    found = run(folder, "diabetes", tmp_path, rounds="20", eval_every="20")
    assert "test_accuracy" not in found and found["test_rmse"].dims == ("run", "eval")
    # The targets' standard deviation is 1: better than the mean.
    assert (found["test_rmse"].values[:, -1] < 0.95).all()
    assert found.attrs["ranking"] == "test_rmse"


@pytest.mark.slow
def test_a_language_model(folder, tmp_path):
    settings = {"data.num_sequences": "300", "width": "16", "rounds": "10", "eval_every": "5"}
    found = run(folder, "characters", tmp_path, **settings)
    assert values(found, "num_sequences") == [300] and values(found, "width") == [16]
    assert (found["test_loss"].values[:, -1] < found["test_loss"].values[:, 0]).all()


@pytest.mark.slow
def test_natural_owners(folder, tmp_path):
    found = run(folder, "natural_owners", tmp_path)
    assert set(found["partition"].values) == {"natural"} and found.sizes["client"] == 10
    assert "people.npz" in json.loads(found.attrs["used_files"])


@pytest.mark.slow
def test_availability_from_a_table_and_by_a_process(folder, tmp_path):
    found = run(folder, "time_zones", tmp_path, rounds="48")
    assert values(found.sel(run=found.availability == "time_zones"), "awake") == pytest.approx([0.4, 0.8])
    table = np.loadtxt(folder / "office_hours.csv", delimiter=",", skiprows=1)

    def there(run, round):
        """[K] who is surely available and who may be: some hours lie on a limit."""
        if found["availability"].values[run] == "availability_trace":
            return table[(round - 1) % 24] > 0, table[(round - 1) % 24] > 0
        hour = (round / 24 - np.arange(12) / 12) % 1
        awake = found.awake.values[run]
        return (hour > 1e-6) & (hour < awake - 1e-6), (hour > 1 - 1e-6) | (hour < awake + 1e-6)

    for run_, round_ in itertools.product(range(found.sizes["run"]), range(1, 49)):
        surely, maybe = there(run_, round_)
        available = found["available_count"].values[run_, round_ - 1]
        assert surely.sum() <= available <= maybe.sum()
        members = found["selected"].values[run_, round_ - 1]
        members = members[members >= 0]
        assert maybe[members].all() and len(members) == min(3, available)
    assert found["failed_count"].values.sum() > 0


@pytest.mark.slow
def test_a_latency_law(folder, tmp_path):
    found = run(folder, "heavy_tail", tmp_path, rounds="60")
    assert len(values(found, "tail_index")) == 4
    assert (found["tail_index"].values > 1.5).all()
    fastest = found["selected"].values[found.policy.values == "fastest"]
    assert (fastest == [0, 1, 2]).all()


@pytest.mark.slow
def test_a_partitioner(folder, tmp_path):
    found = run(folder, "power_law", tmp_path, **{"data.train_samples": "480"})
    assert values(found, "skew") == [0.0, 1.5]


@pytest.mark.slow
def test_a_server_optimizer(folder, tmp_path):
    found = run(folder, "fedadagrad", tmp_path, server_learning_rate="[0.01, 0.1]")
    own = found.sel(run=found.server_optimizer == "fedadagrad")
    assert values(own, "server_learning_rate") == pytest.approx([0.01, 0.1]) and own.sizes["run"] == 2
    assert np.isnan(found.sel(run=found.server_optimizer == "fedavg")["server_learning_rate"]).all()
    assert len(np.unique(found["test_loss"].values[:, -1])) == 5


@pytest.mark.slow
def test_quantities(folder, tmp_path):
    found = run(folder, "fairness", tmp_path, rounds="30")
    joined = (found["selected"].values[..., None] == np.arange(12)).any(axis=2)
    counts = np.cumsum(joined, axis=1)
    expected = counts.sum(axis=2) ** 2 / (12 * (counts**2).sum(axis=2))
    np.testing.assert_allclose(found["jain_index"], expected, rtol=1e-5)
    assert found["jain_index"].dims == ("run", "round") and found["waiting_time"].attrs["units"] == "s"
    assert found["waiting_time"].attrs["long_name"].startswith("Mean time in seconds")
    charts = kinds.charts(found)
    assert "jain_index_vs_round" in charts and "waiting_time_vs_round" not in charts
    finals = analysis.finals(found)
    np.testing.assert_allclose(finals["jain_index"], expected[:, -1], rtol=1e-5)
    np.testing.assert_allclose(finals["waiting_time"], found["waiting_time"].mean("round"), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize("name", ["sticky", "diabetes"])
def test_on_ray_workers_that_have_no_such_file(folder, tmp_path, name):
    arguments = ["--quiet", "--no-report", "--set", "rounds=5", "--set", "seeds=2"]
    for out, more in (("one", []), ("ray", ["--executor", "ray", "--ray-address", "local"])):
        command = ["run", str(folder / f"{name}.toml"), "--out", str(tmp_path / out), *arguments, *more]
        subprocess.run([sys.executable, "-m", "pausejax", *command], check=True, timeout=300)
    one, ray = (pausejax.open(tmp_path / out).load() for out in ("one", "ray"))
    np.testing.assert_array_equal(one["identity"], ray["identity"])
    np.testing.assert_array_equal(one["selected"], ray["selected"])
