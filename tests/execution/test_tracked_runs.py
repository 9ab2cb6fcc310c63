"""What trackers are told of runs."""

import sys
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import analysis
from pausejax.execution import tracking
from pausejax.execution.tracking import runs

from ..analysis.made_up import EVALUATED, build

STUDY = {"name": "a study", "versions": "1.2"}


@pytest.fixture(scope="module")
def made():
    """Two policies, of which one has the axis; three seeds; the runs' last rounds."""
    found, rows, last = build({"a": {"exploitation_gain": [1.0, 2.0]}, "b": {}}, 3, ("exploitation_gain",))
    return found.assign_attrs(STUDY), rows, last


def test_a_run_is_told_with_what_its_policy_reads_and_its_finite_numbers(made):
    result, rows, last = made
    found = list(runs.tracked_runs(result))
    assert [run.identity for run in found] == result["identity"].values.tolist()
    for place, (run, row) in enumerate(zip(found, rows, strict=True)):
        assert (run.policy, run.algorithm, run.seed) == (row["policy"], row["policy"], row["seed"])
        swept = f", ζ = {row['exploitation_gain']:g}" if "exploitation_gain" in row else ""
        assert run.title == f"{row['policy']}{swept}, seed {row['seed']}"
        assert run.parameters["seed"] == row["seed"] and run.parameters["privacy_weight"] == 1.0
        assert (run.parameters["policy"], run.parameters["rounds"]) == (row["policy"], 12)
        leading = run.leading({runs.VARYING: '["exploitation_gain"]'})
        assert leading == {name: row[name] for name in ("policy", "seed", "exploitation_gain") if name in row}
        assert run.parameters.get("exploitation_gain") == row.get("exploitation_gain")
        points = {(point.name, point.round): point.value for point in run.points}
        assert len(points) == len(run.points) and all(np.isfinite(list(points.values())))
        elapsed = result["elapsed"].values[place]
        assert points["elapsed", last[place]] == pytest.approx(np.nanmax(elapsed))
        assert points["mean_latency", last[place]] == pytest.approx(np.nanmax(elapsed) / last[place])
        accuracy = {r: value for (name, r), value in points.items() if name == "test_accuracy"}
        # The last value of a run that diverged would pass for what it came to.
        diverged = result["diverged_round"].values[place] > 0
        assert list(accuracy) == [r for r in EVALUATED if r <= last[place] and not diverged]
        np.testing.assert_array_equal(
            list(accuracy.values()), result["test_accuracy"].values[place][: len(accuracy)]
        )


def test_the_last_point_of_a_curve_is_the_metric(own_parts):
    """Trackers rank runs by the last points, so these must not be values of a single round."""
    for reduce in ("last", "mean", "total", "each"):

        def slowest(seen):
            return jnp.where(seen.round % 3 == 0, jnp.nan, jnp.max(seen.latency))

        slowest.__name__ = f"slowest_{reduce}"
        pausejax.quantity(units="s", reduce=reduce)(slowest)
    names = [f"slowest_{reduce}" for reduce in ("last", "mean", "total", "each")]
    result = pausejax.simulate(["random", "pause"], mode="bandit", rounds=8, num_clients=6, quantities=names)
    figures = analysis.finals(result)
    for place, run in enumerate(runs.tracked_runs(result)):
        ends = {point.name: point.value for point in run.points}
        assert len({ends[name] for name in names}) == 3  # the mean is shown by two of them
        for name, value in ends.items():
            assert value == pytest.approx(float(figures[name][place]), rel=1e-6), name


def test_a_metric_that_ends_infinite_is_not_told(made):
    """Its last finite value would pass for what the run came to."""
    result = made[0].copy(deep=True)
    first = int(np.flatnonzero(result["diverged_round"].values == 0)[0])
    accuracy = result["test_accuracy"].values[first]
    accuracy[np.flatnonzero(~np.isnan(accuracy))[-1]] = np.inf
    names = [{point.name for point in run.points} for run in runs.tracked_runs(result)]
    assert "test_accuracy" not in names[first] and "elapsed" in names[first]
    assert any("test_accuracy" in others for others in names)


def test_runs_that_are_known_are_not_told_again(made):
    result, *_ = made
    first, *others = list(runs.tracked_runs(result))
    assert list(runs.tracked_runs(result, {first.key})) == others


def test_two_labels_with_the_same_settings_are_two_runs(made):
    one = made[0].isel(run=[0])
    twin = one.assign_coords(policy=("run", ["twin"]))
    assert len({run.key for part in (one, twin) for run in runs.tracked_runs(part)}) == 2


def test_wandb_offline_leaves_out_what_its_folder_has_of_the_project(made, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))  # it can't begin a run
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    result, *_ = made
    tracker = tracking.make("wandb")
    tracker.start(STUDY)  # another process may log the runs later
    (tmp_path / "wandb" / "offline-run-old").mkdir(parents=True)  # not a name that the library gives
    for place, run in enumerate(runs.tracked_runs(result)):
        folder = (
            tmp_path
            / ("wandb" if place % 2 else ".wandb")
            / f"offline-run-20260101_120000-{run.key}{'-1' * (place % 3)}"
        )
        folder.mkdir(parents=True)
        (folder / "pausejax-project").write_text("a study")
    tracker.runs_finished(result)
    # One that was killed while it was written, or that belongs to another project, is written again.
    for change in (Path.unlink, lambda file: file.write_text("another")):
        change(folder / "pausejax-project")
        tracker.start(STUDY)
        with pytest.raises(AttributeError):
            tracker.runs_finished(result)


def test_every_metric_with_a_value_in_many_rounds_has_a_curve(made):
    result, _, last = made
    for place, run in enumerate(runs.tracked_runs(result)):
        steps = [r for r in EVALUATED if r < last[place]] + [last[place]]
        for name in ("elapsed", "max_leakage", "cumulative_pseudo_regret"):
            assert [point.round for point in run.points if point.name == name] == steps, name
        regret = np.nancumsum(result["pseudo_regret"].values[place].astype(float))
        drawn = [point.value for point in run.points if point.name == "cumulative_pseudo_regret"]
        np.testing.assert_allclose(drawn, [regret[r - 1] for r in steps], rtol=1e-6)


@pytest.mark.slow
def test_without_evaluations_curves_have_some_hundred_points(made):
    bandit, *_ = build({"a": {}}, 2, {}, "bandit")
    for run in runs.tracked_runs(bandit):
        assert {"elapsed", "participation_imbalance"} <= {point.name for point in run.points}
    long = pausejax.simulate("random", mode="bandit", rounds=1001, num_clients=4, clients_per_round=2)
    (run,) = runs.tracked_runs(long)
    steps = [point.round for point in run.points if point.name == "elapsed"]
    assert len(steps) == 100 and (steps[0], steps[-1]) == (1, 1001) and np.ptp(np.diff(steps)) <= 1
    timeless = bandit.drop_vars(["elapsed", "round_latency"])
    assert all(point.name != "elapsed" for run in runs.tracked_runs(timeless) for point in run.points)
    unmeasured = made[0].drop_vars("test_accuracy")
    assert all(point.name != "test_accuracy" for run in runs.tracked_runs(unmeasured) for point in run.points)


@pytest.mark.slow
def test_an_ensemble_s_rounds_are_those_that_it_played():
    """Not the places of those that are recorded: every seventh."""
    result = pausejax.simulate("efl_fg", mode="ensemble", seeds=1, rounds=49, eval_every=7, num_clients=20)
    (run,) = runs.tracked_runs(result)
    curve = {point.round: point.value for point in run.points if point.name == "mse"}
    assert list(curve) == result["round"].values.tolist() == [7, 14, 21, 28, 35, 42, 49]
    np.testing.assert_allclose(list(curve.values()), result["mse"].values[0])
    assert run.parameters["rounds"] == 49
