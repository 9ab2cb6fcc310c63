"""Accuracy against simulated time: the coordinate `eval_elapsed`."""

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.analysis.eval_times import with_eval_elapsed

from .made_up import AXES, EVALUATED, POLICIES, build, store

SETTINGS = {
    "rounds": 13,
    "eval_every": 5,
    "seeds": 3,
    "num_clients": 6,
    "clients_per_round": 2,
    "model": "linear",
    "train_samples": 120,
    "max_steps": 1,
    "stop_at_latency": 4.0,
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """(In memory, opened from its folder, that folder): two groups, whose runs end at unlike rounds."""
    folder = tmp_path_factory.mktemp("study")
    policies = ["fastest", "random"]
    in_memory = pausejax.simulate(policies, **SETTINGS)
    pausejax.simulate(policies, **SETTINGS, out=folder)
    return in_memory, pausejax.open(folder), folder


@pytest.mark.slow
def test_it_is_the_sum_of_the_latencies(simulated):
    for result in simulated[:2]:
        assert result["eval_elapsed"].dims == ("run", "eval")
        total = np.cumsum(result["round_latency"].values.astype(np.float64), axis=1)
        expected = total[:, result["eval_round"].values - 1]  # NaN from a run's end on
        ended = np.isnan(expected)
        assert ended.any() and not ended.all() and len(set(ended.sum(axis=1))) > 1
        np.testing.assert_allclose(result["eval_elapsed"].values, expected, rtol=1e-6)
        np.testing.assert_array_equal(ended, np.isnan(result["test_accuracy"].values))


@pytest.mark.slow
def test_opening_reads_no_times(simulated):
    opened = pausejax.open(simulated[2])
    some = pausejax.select(opened, policy="random")
    for result in (opened, some):
        # xarray's own word for a variable whose values have been read.
        assert not any(result.variables[name]._in_memory for name in ("eval_elapsed", "elapsed"))
    some["eval_elapsed"].load()
    assert not opened.variables["elapsed"]._in_memory


@pytest.mark.slow
def test_a_saved_selection_gets_it_anew(simulated, tmp_path):
    some = pausejax.select(simulated[1], policy="random")
    pausejax.save(some, tmp_path / "saved")
    assert not (tmp_path / "saved/results.zarr/eval_elapsed").exists()
    again = pausejax.open(tmp_path / "saved")
    np.testing.assert_array_equal(again["eval_elapsed"], some["eval_elapsed"])


def test_diverged_runs_keep_their_times():
    result, _, last = build(POLICIES, 6, AXES)
    diverged = result["diverged_round"].values > 0
    found = with_eval_elapsed(result)["eval_elapsed"].values
    assert (diverged & (last < EVALUATED[-1])).any()
    for run, elapsed in enumerate(result["elapsed"].values):
        for place, at in enumerate(EVALUATED):
            expected = elapsed[at - 1] if at <= last[run] else np.nan
            np.testing.assert_equal(found[run, place], expected)


def test_results_without_evaluations_have_none(tmp_path):
    bandit, *_ = build(POLICIES, 2, AXES, "bandit")
    assert with_eval_elapsed(bandit) is bandit
    training, *_ = build(POLICIES, 2, AXES)
    assert "eval_elapsed" not in with_eval_elapsed(training.drop_vars("elapsed"))
    own = training.assign(eval_elapsed=training["test_accuracy"])  # a quantity of an older release's user
    assert with_eval_elapsed(own) is own


def test_a_folder_of_before_has_it(tmp_path):
    """Nothing of it is stored, so nothing of it has to be."""
    result, *_ = build(POLICIES, 3, AXES)
    store(result, tmp_path, runs=7)
    stored = xr.open_zarr(tmp_path / "results.zarr")
    assert "eval_elapsed" not in stored
    expected = stored["elapsed"].values[:, EVALUATED - 1]
    np.testing.assert_array_equal(pausejax.open(tmp_path)["eval_elapsed"], expected)
