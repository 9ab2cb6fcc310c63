"""Mean curves as a table, against rounds and simulated time, by hand from the runs."""

import numpy as np
import pytest
from scipy import stats

from pausejax import analysis

from .made_up import EVALUATED, build

POLICIES = {"a": {"exploitation_gain": [1.0, 2.0]}, "b": {}}


@pytest.fixture(scope="module")
def result():
    return build(POLICIES, 4, ("exploitation_gain",))[0]


def runs_of(result, policy, gain=None):
    kept = result.policy.values == policy
    return result.isel(run=kept if gain is None else kept & (result.exploitation_gain.values == gain))


@pytest.mark.parametrize(("policy", "gain"), [("a", 1.0), ("a", 2.0), ("b", None)])
def test_a_mean_curve_is_that_of_the_settings_runs(result, policy, gain):
    table = analysis.curves(result, "cumulative_pseudo_regret")
    rows = table[(table.policy == policy) & ((table.exploitation_gain == gain) | (gain is None))]
    regret = runs_of(result, policy, gain)["pseudo_regret"].values.astype(float)
    for row in rows.itertuples():
        values = np.cumsum(regret, axis=1)[:, row.x - 1]
        assert row.count == (~np.isnan(values)).sum()
        # A mean over the runs that have not ended would be one of another group.
        np.testing.assert_allclose(row.mean, values.mean())
        if not np.isnan(values).any():
            half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
            np.testing.assert_allclose((row.low, row.high), (row.mean - half, row.mean + half))
        else:
            assert np.isnan(row.low) and np.isnan(row.high)
    assert set(table.label) == {"a, ζ = 1", "a, ζ = 2", "b"} and rows.x.tolist() == list(range(1, 13))


def test_what_is_learned_is_measured_at_evaluations_by_runs_that_did_not_diverge(result):
    table = analysis.curves(result, "test_accuracy")
    assert set(table.x) == set(EVALUATED)
    runs = runs_of(result, "b")
    sound = runs["test_accuracy"].values[runs["diverged_round"].values == 0]
    assert np.isfinite(sound.mean(axis=0)).any() and np.isnan(sound).any()
    np.testing.assert_allclose(table[table.label == "b"]["mean"], sound.mean(axis=0), rtol=1e-6)


def test_against_time_a_run_has_what_its_last_round_by_then_left(result):
    table = analysis.curves(result, "max_leakage", against="elapsed", points=50)
    assert (table.groupby("label").size() == 50).all() and table.label.nunique() == 3
    for (policy, gain), rows in table.groupby(["policy", "exploitation_gain"], dropna=False):
        runs = runs_of(result, policy, None if np.isnan(gain) else gain)
        times, leakage = runs["elapsed"].values, runs["max_leakage"].values
        for row in rows.itertuples():
            each = [v[np.flatnonzero(t <= row.x)[-1]] for t, v in zip(times, leakage, strict=True)]
            np.testing.assert_allclose(row.mean, np.mean(each), rtol=1e-6)
            assert all(row.x <= np.nanmax(t) for t in times)


def test_a_setting_without_a_sound_run_is_there_and_has_no_value(result):
    broken = result.assign(diverged_round=("run", np.where(result.policy.values == "b", 2, 0)))
    for against in ("round", "elapsed"):
        table = analysis.curves(broken, "test_accuracy", against=against)
        rows = table[table.label == "b"]
        assert len(rows) and rows["mean"].isna().all() and (rows["count"] == 0).all()
        assert table.label.nunique() == 3


def test_mistakes_are_named(result):
    with pytest.raises(ValueError, match="metric 'accuracy': must be one of "):
        analysis.curves(result, "accuracy")
    with pytest.raises(ValueError, match="metric 'participation_imbalance': has only one value for each run"):
        analysis.curves(result, "participation_imbalance")
    with pytest.raises(ValueError, match="against = 'elapsed': must be 'round', or"):
        analysis.curves(result.drop_vars(["elapsed", "round_latency"]), "max_leakage", against="elapsed")
    with pytest.raises(ValueError, match="against = 'time'"):
        analysis.curves(result, "max_leakage", against="time")
    for smoothing in (0, -3, np.nan, 1.5):
        with pytest.raises(ValueError, match=r"smoothing = .*: must be an integer >= 1"):
            analysis.curves(result, "test_accuracy", smoothing=smoothing)
    with pytest.raises(ValueError, match="points = 0: must be an integer >= 1"):
        analysis.curves(result, "test_accuracy", points=0)
