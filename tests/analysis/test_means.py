"""Means and paired differences against loops over the runs and against scipy."""

import itertools

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pausejax import analysis
from pausejax.analysis.intervals import interval

from .made_up import build

KEYS = ("policy", "privacy_weight", "annealing_steps", "temperature_divisor")


def groups(rows, keys):
    """Places of the rows that agree on the keys, in the order of first appearance."""
    found = {}
    for place, row in enumerate(rows):
        found.setdefault(tuple(row.get(key) for key in keys), []).append(place)
    return found


def test_mean_over_seeds_is_that_of_each_settings_runs(made):
    result, rows, _ = made
    metric = "test_accuracy" if "test_accuracy" in result else "elapsed"
    final = analysis.finals(result)[metric].values
    found = analysis.mean_ci(result, metric)
    wanted = groups(rows, KEYS)
    assert found.sizes["setting"] == len(wanted)
    for row, (key, places) in zip(found["label"].values, wanted.items(), strict=True):
        values = final[places].astype(np.float64)
        kept = values[~np.isnan(values)]
        setting = found.isel(setting=list(found["label"].values).index(row))
        assert str(setting["policy"].values) == key[0]
        np.testing.assert_equal(float(setting["privacy_weight"]), key[1] if key[1] is not None else np.nan)
        assert int(setting["count"]) == kept.size and int(setting["left_out"]) == values.size - kept.size
        np.testing.assert_allclose(setting["mean"], kept.mean())
        low, high = stats.t.interval(0.95, kept.size - 1, kept.mean(), stats.sem(kept))
        np.testing.assert_allclose([setting["low"], setting["high"]], [low, high])


def test_labels_name_only_what_a_policy_has(result):
    labels = set(analysis.mean_ci(result, "elapsed")["label"].values.tolist())
    assert {"uniform", "pause, γ = 1", "annealed, γ = 5, J = 50, κ = 30"} <= labels
    assert len(labels) == 11


def test_mean_over_axes_averages_within_the_seed_first(made):
    result, rows, _ = made
    final = analysis.finals(result)["max_leakage"].values.astype(np.float64)
    found = analysis.mean_ci(result, "max_leakage", over=("seed", "J", "κ"), level=0.9)
    for setting, places in zip(range(3), groups(rows, KEYS[:2]).values(), strict=False):
        per_seed = [final[[p for p in places if rows[p]["seed"] == seed]].mean() for seed in range(6)]
        np.testing.assert_allclose(found["mean"][setting], np.mean(per_seed))
        half = stats.t.ppf(0.95, 5) * stats.sem(per_seed)
        np.testing.assert_allclose(found["high"][setting] - found["mean"][setting], half)
        assert int(found["count"][setting]) == 6


def test_curves_keep_their_dimension(result):
    found = analysis.mean_ci(result, result["elapsed"])
    assert found["mean"].dims == ("setting", "round") and found["round"].size == 12
    one = np.flatnonzero((result["policy"] == "uniform").values)
    setting = found.isel(setting=int(np.flatnonzero(found["policy"].values == "uniform")[0]))
    values = result["elapsed"].values[one].astype(np.float64)
    np.testing.assert_allclose(setting["mean"], np.nanmean(values, axis=0), rtol=1e-6)
    np.testing.assert_array_equal(setting["count"], (~np.isnan(values)).sum(axis=0))


def test_curves_over_axes_are_averaged_within_the_seed_first(made):
    result, rows, _ = made
    curves = result["elapsed"].values.astype(np.float64)
    found = analysis.mean_ci(result, result["elapsed"], over=("seed", "J", "κ"))
    assert found["mean"].dims == ("setting", "round")
    for setting, places in zip(range(3), groups(rows, KEYS[:2]).values(), strict=False):
        for t in range(curves.shape[1]):
            own = [[curves[p, t] for p in places if rows[p]["seed"] == seed] for seed in range(6)]
            played = [np.nanmean(values) for values in own if not np.isnan(values).all()]
            expected = np.mean(played) if played else np.nan
            np.testing.assert_allclose(found["mean"][setting, t], expected, rtol=1e-6)


def test_paired_difference_pairs_by_seed_and_shared_axes(made):
    result, rows, _ = made
    metric = "elapsed"
    final = analysis.finals(result)[metric].values.astype(np.float64)
    found = analysis.paired_difference(result, "pause", "annealed", metric)
    assert found.sizes["setting"] == 8 and found.attrs["policy_a"] == "pause"
    for gamma, steps, kappa in itertools.product([1.0, 5.0], [10, 50], [1.0, 30.0]):
        gaps = []
        for seed in range(6):
            a = next(
                p
                for p, r in enumerate(rows)
                if r == {"policy": "pause", "seed": seed, "privacy_weight": gamma}
            )
            other = {"policy": "annealed", "seed": seed, "privacy_weight": gamma}
            other |= {"annealing_steps": steps, "temperature_divisor": kappa}
            b = next(p for p, r in enumerate(rows) if r == other)
            gaps.append(final[a] - final[b])
        where = (found["privacy_weight"] == gamma) & (found["annealing_steps"] == steps)
        where &= found["temperature_divisor"] == kappa
        setting = found.isel(setting=int(np.flatnonzero(where)[0]))
        np.testing.assert_allclose(setting["mean"], np.mean(gaps))
        low, high = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
        np.testing.assert_allclose([setting["low"], setting["high"]], [low, high])


def test_pairs_of_one_policys_settings(result):
    low, high = ({"policy": "annealed", "κ": value} for value in (1.0, 30.0))
    found = analysis.paired_difference(result, low, high, "elapsed").sortby("label")
    back = analysis.paired_difference(result, high, low, "elapsed").sortby("label")
    assert found.sizes["setting"] == 4 and "kappa" not in found.coords
    np.testing.assert_allclose(found["mean"], -back["mean"])
    np.testing.assert_allclose(found["low"], -back["high"])


def test_pairs_take_out_what_the_network_did():
    """A difference that every seed shares has an interval of no width, however far seeds lie apart."""
    result, rows, _ = build({"a": {}, "b": {}}, 5, {}, "bandit")
    shift = np.array([10.0 * row["seed"] + (row["policy"] == "a") for row in rows])
    found = analysis.paired_difference(result, "a", "b", result["elapsed"] * 0 + shift[:, None])
    first = found.isel(round=0)
    np.testing.assert_allclose([first["mean"], first["low"], first["high"]], np.ones((3, 1)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda r: analysis.paired_difference(r, "pause", "pasue"),
            "policy_b: no run has policy = 'pasue'; known: ",
        ),
        (
            lambda r: analysis.paired_difference(r, {"policy": "pause", "γ": 2.0}, "uniform"),
            "no run has γ|privacy_weight = 2.0",
        ),
        (
            lambda r: analysis.paired_difference(r, {"colour": 1}, "uniform"),
            "policy_a = 'colour': is no axis",
        ),
        (
            lambda r: analysis.mean_ci(r, over="eta"),
            "over = 'eta': is no axis of this result; known: policy, ",
        ),
        (lambda r: analysis.mean_ci(r, method="z"), "method = 'z': must be one of t, bootstrap, percentile"),
        (lambda r: analysis.mean_ci(r, level=95), "level = 95: must be between 0 and 1"),
        (lambda r: analysis.mean_ci(r, r["round"]), "its first dimension must be the result's run"),
    ],
)
def test_mistakes_are_named(result, call, message):
    with pytest.raises(ValueError, match=message):
        call(result)


def test_policies_without_a_common_setting_make_no_pairs(result):
    one = result.isel(run=np.flatnonzero((result["policy"] == "pause") & (result["seed"] < 3)))
    two = result.isel(run=np.flatnonzero((result["policy"] == "annealed") & (result["seed"] >= 3)))
    with pytest.raises(ValueError, match="pause and annealed: no two runs agree in seed and privacy_weight"):
        analysis.paired_difference(xr.concat([one, two], "run"), "pause", "annealed", "elapsed")


samples = st.lists(
    st.lists(st.one_of(st.just(np.nan), st.floats(-1e3, 1e3)), min_size=5, max_size=5), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_t_interval_leaves_missing_values_out(rows):
    found = interval(np.array(rows))
    for place, row in enumerate(rows):
        kept = [value for value in row if not np.isnan(value)]
        assert found.counts[place] == len(kept)
        if len(kept) < 2:
            assert np.isnan(found.low[place]) and np.isnan(found.high[place])
            continue
        half = stats.t.ppf(0.975, len(kept) - 1) * np.std(kept, ddof=1) / np.sqrt(len(kept))
        np.testing.assert_allclose(found.high[place] - found.low[place], 2 * half, atol=1e-9)


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize(("method", "scipy_method"), [("bootstrap", "BCa"), ("percentile", "percentile")])
def test_bootstrap_is_scipys_sample_by_sample_whatever_the_company(method, scipy_method, level):
    rows = np.random.default_rng(1).exponential(size=(6, 8))
    rows[2, 3] = rows[4, 0] = np.nan
    rows[5] = 2.0
    options = {"method": method, "level": level, "resamples": 500, "random_seed": 7}
    found = interval(rows, **options)
    for place, row in enumerate(rows[:5]):
        kept = np.sort(row[~np.isnan(row)])
        alone = stats.bootstrap(
            (kept,),
            np.mean,
            n_resamples=500,
            confidence_level=level,
            method=scipy_method,
            rng=np.random.default_rng(7),
        ).confidence_interval
        # A resample that is the sample in another order ties with it, or not, by the order of summation.
        np.testing.assert_allclose([found.low[place], found.high[place]], alone, rtol=2e-2)
        assert found.low[place] < found.mean[place] < found.high[place]
    assert found.low[5] == found.mean[5] == found.high[5] == 2.0


def test_bootstrap_in_blocks_changes_nothing(monkeypatch):
    rows = np.random.default_rng(2).normal(size=(9, 5))
    whole = interval(rows, method="bootstrap", resamples=200)
    monkeypatch.setattr("pausejax.analysis.intervals._RESAMPLED", 2000)
    np.testing.assert_array_equal(whole.low, interval(rows, method="bootstrap", resamples=200).low)


def test_infinite_values_have_an_infinite_mean_and_no_interval():
    rows = np.array([[np.inf, np.inf, np.inf], [1.0, np.inf, 2.0]])
    for method in ("t", "bootstrap", "percentile"):
        found = interval(rows, method=method, resamples=50)
        assert np.isinf(found.mean).all() and np.isnan(found.low).all() and np.isnan(found.high).all()


def test_bootstrap_covers_about_as_often_as_it_says():
    """400 samples of 30: the hits are binomial; six standard deviations are 1 in 10^9."""
    rows = np.random.default_rng(3).exponential(size=(400, 30))
    found = interval(rows, method="bootstrap", resamples=1000, level=0.9)
    hits = ((found.low <= 1) & (found.high >= 1)).mean()
    # The bootstrap of 30 skewed values falls short by a few percent.
    assert abs(hits - 0.88) < 6 * np.sqrt(0.9 * 0.1 / 400)
