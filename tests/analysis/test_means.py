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
    metric = "test_accuracy" if "test_accuracy" in result else "mean_latency"
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


def test_runs_of_one_seed_are_no_independent_sample():
    """Two values may be played alike, such as a rate of 0, which stands for another value of the axis."""
    once = build({"pause": {}, "random": {}}, 3, (), mode="bandit")[0]
    twice = once.isel(run=np.repeat(np.arange(once.sizes["run"]), 2))
    for name in ("mean_latency", "max_leakage"):
        xr.testing.assert_allclose(
            analysis.mean_ci(twice, name).drop_vars(["left_out", "runs"]),
            analysis.mean_ci(once, name).drop_vars(["left_out", "runs"]),
        )
        pairs = analysis.paired_difference(twice, "pause", "random", name)
        xr.testing.assert_allclose(
            pairs.drop_vars(["left_out", "runs"]),
            analysis.paired_difference(once, "pause", "random", name).drop_vars(["left_out", "runs"]),
        )
        assert pairs["count"].values.tolist() == [3]


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
    metric = "mean_latency"
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
    found = analysis.paired_difference(result, low, high, "mean_latency").sortby("label")
    back = analysis.paired_difference(result, high, low, "mean_latency").sortby("label")
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


def test_labels_of_differences_say_where_the_sides_differ():
    """A value of which only one side has several is not taken for the other side's value."""
    values = {"a": {"rate": [0.1, 0.3], "decay": [2.0]}, "b": {"rate": [0.3], "decay": [2.0, 3.0]}, "c": {}}
    result, _, _ = build(values, 3, {"rate": "rate", "decay": "decay"})

    def labels(a, b):
        found = analysis.paired_difference(result, a, b, "mean_latency")
        assert (found["runs"] == 3).all() and len(set(found["label"].values)) == found.sizes["setting"]
        return set(found["label"].values.tolist())

    assert labels("a", "b") == {
        "rate = 0.1, decay = 2, minus b with rate = 0.3",
        "rate = 0.1, decay = 2, minus b with rate = 0.3, decay = 3",
        "rate = 0.3, decay = 2",
        "rate = 0.3, decay = 2, minus b with decay = 3",
    }
    assert labels("a", "c") == {"rate = 0.1, decay = 2", "rate = 0.3, decay = 2"}
    assert labels("c", "a") == {f"minus a with rate = {rate}, decay = 2" for rate in (0.1, 0.3)}
    cold = {"policy": "a", "rate": 0.1}
    assert labels(cold, "a") == {"decay = 2, rate = 0.1", "decay = 2, rate = 0.1, minus a with rate = 0.3"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: analysis.paired_difference(r, "pause", "pasue"), "policy_b: no run has policy = 'pasue'"),
        (
            lambda r: analysis.paired_difference(r, {"policy": "pause", "γ": 2.0}, "uniform"),
            "no run has γ|privacy_weight = 2.0",
        ),
        (lambda r: analysis.paired_difference(r, {"colour": 1}, "uniform"), "'colour': is no axis"),
        (lambda r: analysis.mean_ci(r, over="eta"), "over = 'eta': is no axis of this result; known: policy"),
        (lambda r: analysis.mean_ci(r, level=95), "level = 95: must be > 0 and < 1"),
        (lambda r: analysis.mean_ci(r, r["round"]), "the first dimension of the array must be"),
    ],
)
def test_mistakes_are_named(result, call, message):
    with pytest.raises(ValueError, match=message):
        call(result)


def test_sides_without_a_policy_pair_the_runs_of_each(result):
    """Runs of one policy alone make a pair; a policy without the axis has none."""
    low, high = {"γ": 1.0}, {"γ": 5.0}
    found = analysis.paired_difference(result, low, high, "mean_latency").sortby("label")
    assert set(found["policy"].values) == {"pause", "annealed"} and (found["runs"] == 6).all()
    for policy, count in (("pause", 1), ("annealed", 4)):
        sides = ({"policy": policy, **side} for side in (low, high))
        alone = analysis.paired_difference(result, *sides, "mean_latency").sortby("label")
        mine = found.isel(setting=np.flatnonzero(found["policy"] == policy))
        assert alone.sizes["setting"] == mine.sizes["setting"] == count
        np.testing.assert_array_equal(mine["low"], alone["low"])
    whole = analysis.paired_difference(result, low, high, "mean_latency", over=("seed", "policy", "J", "κ"))
    assert whole["count"].values.tolist() == [6] and whole["runs"].values.tolist() == [30]
    over = ("seed", "J", "κ")
    fixed = analysis.paired_difference(result, {"policy": "uniform"}, low, "mean_latency", over=over)
    assert fixed["policy"].values.tolist() == list(
        dict.fromkeys(p for p in result["policy"].values.tolist() if p != "uniform")
    )


def test_without_seeds_there_is_no_interval(result):
    """The values of an axis were chosen, so they are no sample."""
    found = analysis.mean_ci(result, "mean_latency", over=("J", "κ"))
    assert (found["count"] == 4).any() and np.isfinite(found["mean"]).all()
    pairs = analysis.paired_difference(result, "annealed", "pause", "mean_latency", over=("J", "κ"))
    assert (pairs["count"] == 4).all() and np.isfinite(pairs["mean"]).all()
    for one in (found, pairs):
        assert np.isnan(one["low"]).all() and np.isnan(one["high"]).all()


def test_an_array_of_other_runs_is_refused(result):
    pause, annealed = (
        analysis.select(result, policy=name).isel(run=slice(12)) for name in ("pause", "annealed")
    )
    ordered = result["elapsed"].sortby("seed")
    for runs, array in (
        (pause, annealed["elapsed"]),
        (result, ordered),
        (result, ordered.drop_vars("identity")),
    ):
        with pytest.raises(ValueError, match="has other runs or another order"):
            analysis.mean_ci(runs, array)
        with pytest.raises(ValueError, match="has other runs or another order"):
            analysis.paired_difference(runs, "pause", "annealed", array)
    bare = xr.DataArray(result["elapsed"].values, dims=("run", "round"))
    for array in (bare, 1 * result["elapsed"]):
        np.testing.assert_array_equal(
            analysis.mean_ci(result, array)["mean"], analysis.mean_ci(result, result["elapsed"])["mean"]
        )


def test_policies_without_a_common_setting_make_no_pairs(result):
    one = result.isel(run=np.flatnonzero((result["policy"] == "pause") & (result["seed"] < 3)))
    two = result.isel(run=np.flatnonzero((result["policy"] == "annealed") & (result["seed"] >= 3)))
    with pytest.raises(ValueError, match="no two of their runs have the same seed and privacy_weight"):
        analysis.paired_difference(xr.concat([one, two], "run"), "pause", "annealed", "mean_latency")


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


def test_infinite_values_have_an_infinite_mean_and_no_interval():
    found = interval(np.array([[np.inf, np.inf, np.inf], [1.0, np.inf, 2.0]]))
    assert np.isinf(found.mean).all() and np.isnan(found.low).all() and np.isnan(found.high).all()


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_an_interval_covers_as_often_as_it_says(seeds):
    """4,000 samples: the hits are binomial, so right code fails this with a probability of 6e-5 a case."""
    samples = np.random.default_rng(seeds).normal(1.0, 2.0, (4000, seeds))
    for level in (0.95, 0.8):
        found = interval(samples, level=level)
        hits = ((found.low <= 1) & (found.high >= 1)).sum()
        assert stats.binomtest(int(hits), 4000, level).pvalue > 3e-5, (level, hits)


def test_a_parameter_of_which_one_policy_has_one_value_pairs_no_runs():
    """PAUSE sweeps a parameter that the other policy has at one value, in its list or not."""
    for value in (5.0, 7.0):
        policies = {
            "pause": {"privacy_weight": [1.0, 5.0, 25.0]},
            "random": {"privacy_weight": [value]},
        }
        result = build(policies, 4, ("privacy_weight",), "bandit", whole=True)[0]
        policy, seed, weight = (result[name].values for name in ("policy", "seed", "privacy_weight"))
        elapsed = analysis.finals(result)["mean_latency"].values.astype(np.float64)
        own = {(p, s, w): e for p, s, w, e in zip(policy, seed, weight, elapsed, strict=True)}
        each = analysis.paired_difference(result, "random", "pause", "mean_latency").sortby("privacy_weight")
        assert each["privacy_weight"].values.tolist() == [1.0, 5.0, 25.0] and each.attrs["unpaired"] == 0
        expected = [
            [own["random", s, value] - own["pause", s, w] for s in range(4)] for w in (1.0, 5.0, 25.0)
        ]
        np.testing.assert_allclose(each["mean"], np.mean(expected, axis=1))
        whole = analysis.paired_difference(
            result, "pause", "random", "mean_latency", over=("seed", "privacy_weight")
        )
        np.testing.assert_allclose(whole["mean"], [-np.mean(expected)])
        assert whole["runs"].values.tolist() == [12] and whole["count"].values.tolist() == [4]


def test_runs_in_no_pair_are_counted():
    result = build({"a": {}, "b": {}}, 5, (), "bandit", whole=True)[0]
    fewer = result.isel(run=np.flatnonzero((result["policy"].values == "a") | (result["seed"].values < 3)))
    assert analysis.paired_difference(fewer, "a", "b", "mean_latency").attrs["unpaired"] == 2
    weights = {"a": {"privacy_weight": [1.0, 5.0]}, "b": {"privacy_weight": [5.0, 25.0]}}
    result = build(weights, 5, ("privacy_weight",), "bandit", whole=True)[0]
    found = analysis.paired_difference(result, "a", "b", "mean_latency")
    assert found["privacy_weight"].values.tolist() == [5.0] and found.attrs["unpaired"] == 10
