"""The MLflow adapter against a local store, read back through MLflow's own client."""

import sys

import numpy as np
import pytest

import pausejax
from pausejax.analysis import finals
from pausejax.engine import tracking

STUDY = {"name": "tracked", "mode": "training", "spec": "", "versions": "{}", "axes": "[]"}


@pytest.fixture
def address(tmp_path, monkeypatch):
    """A store in a folder; nothing leaves the machine."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    return (tmp_path / "mlruns").as_uri()


@pytest.fixture(scope="module")
def result():
    found = pausejax.simulate(
        "random",
        seeds=4,
        rounds=6,
        eval_every=2,
        num_clients=4,
        clients_per_round=2,
        train_samples=80,
        gamma=[1.0, 5.0],
        name="tracked",
    )
    # As if the run had stopped after its fourth round, and another had diverged.
    for name in ("elapsed", "max_leakage", "round_latency", "test_accuracy"):
        stopped = found[name].values.copy()
        stopped[1, -1 if name == "test_accuracy" else -2 :] = np.nan
        found[name] = found[name].copy(data=stopped)
    found["diverged_round"] = found["diverged_round"].copy(data=np.arange(8) // 7)
    return found


def read_back(address):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("tracked")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return client, {run.data.tags["pausejax.identity"]: run for run in runs}, runs


def test_every_run_arrives_with_its_values_and_figures(result, address):
    tracker = tracking.make("mlflow")
    tracker.start(STUDY)
    for chunk in (slice(0, 3), slice(3, 8)):
        tracker.runs_finished(result.isel(run=chunk))
    tracker.finish()
    client, found, _ = read_back(address)
    figures = finals(result)
    assert set(found) == set(result["identity"].values.tolist())
    for place in range(8):
        own, logged = figures.isel(run=place), found[str(result["identity"].values[place])]
        assert logged.info.status == "FINISHED"
        assert logged.data.tags["pausejax.policy"] == str(own["policy"].values)
        assert logged.data.tags["pausejax.study"] == "tracked"
        assert int(logged.data.params["seed"]) == int(own["seed"])
        assert float(logged.data.params["privacy_weight"]) == float(own["gamma"])
        assert "gamma" not in logged.data.params and "temperature_divisor" not in logged.data.params
        for name in ("elapsed", "max_leakage", "cumulative_regret", "participation_imbalance"):
            assert logged.data.metrics[name] == pytest.approx(float(own[name]))
        history = client.get_metric_history(logged.info.run_id, "test_accuracy")
        wanted = result["test_accuracy"].values[place]
        assert [point.step for point in history] == result["eval_round"].values[np.isfinite(wanted)].tolist()
        np.testing.assert_allclose([point.value for point in history], wanted[np.isfinite(wanted)])
        (time,) = client.get_metric_history(logged.info.run_id, "elapsed")
        assert time.step == (4 if place == 1 else 6)
    assert found[str(result["identity"].values[7])].data.metrics["diverged_round"] == 1


def test_a_resumed_study_repeats_no_run(result, address):
    for chunk in (slice(0, 3), slice(0, 8)):
        tracker = tracking.MlflowTracker(address)
        tracker.start(STUDY)
        tracker.runs_finished(result.isel(run=chunk))
        tracker.runs_finished(result.isel(run=chunk))
    _, found, runs = read_back(address)
    assert len(runs) == len(found) == 8


def test_long_curves_are_sent_in_parts(result, address, monkeypatch):
    monkeypatch.setattr(tracking, "_BATCH", 4)
    tracker = tracking.make("mlflow")
    tracker.start(STUDY)
    tracker.runs_finished(result.isel(run=[0]))
    client, _, (run,) = read_back(address)
    assert len(client.get_metric_history(run.info.run_id, "test_accuracy")) == 3
    assert len(run.data.metrics) >= len(finals(result).data_vars) - 1


def test_a_store_that_refuses_is_named(tmp_path, monkeypatch):
    tracker = tracking.MlflowTracker("nosuchscheme://somewhere")
    with pytest.raises(ValueError, match="tracker mlflow: nosuchscheme://somewhere: "):
        tracker.start(STUDY)


def test_unknown_tracker_names_the_known_ones():
    with pytest.raises(ValueError, match="tracker = 'wandb': must be one of mlflow"):
        tracking.make("wandb")


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        ValueError, match=r"tracker mlflow: is not installed; pip install 'pausejax\[mlflow\]'"
    ):
        tracking.make("mlflow")
