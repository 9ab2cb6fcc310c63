"""The best setting and the Pareto front against brute force."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pausejax import analysis
from pausejax.analysis import choice
from pausejax.analysis.quantities import as_json
from pausejax.clients.variables import METRICS
from pausejax.commands import main as cli

from .made_up import store


def brute_front(values, maximize):
    """Point by point, pair by pair."""
    costs = np.where(maximize, -values, values)
    found = []
    for one in costs:
        beaten = any(
            (other <= one).all() and (other < one).any() for other in costs if not np.isnan(other).any()
        )
        found.append(not np.isnan(one).any() and not beaten)
    return found


# Few distinct values, so that ties and equal points are the rule; infinities and missing values too.
coarse = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, -1.5, np.inf, -np.inf, np.nan])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_front_is_that_of_brute_force(data):
    dims = data.draw(st.integers(1, 4))
    elements = data.draw(st.sampled_from([coarse, st.floats(-10, 10)]))
    values = data.draw(hnp.arrays(np.float64, (data.draw(st.integers(0, 12)), dims), elements=elements))
    maximize = data.draw(st.lists(st.booleans(), min_size=dims, max_size=dims))
    assert analysis.non_dominated(values, maximize).tolist() == brute_front(values, maximize)


@pytest.mark.parametrize("dims", [2, 3])
def test_front_over_many_blocks_is_that_of_brute_force(dims, monkeypatch):
    monkeypatch.setattr(choice, "_BLOCK", 7)
    values = np.random.default_rng(0).integers(0, 30, (300, dims)).astype(float)
    maximize = [True, False, True][:dims]
    found = analysis.non_dominated(values, maximize)
    assert found.tolist() == brute_front(values, maximize) and 1 < found.sum() < 100


def test_pareto_is_the_front_of_the_seed_means(made):
    result, _, _ = made
    found = analysis.pareto(result)
    names = found["metric"].values.tolist()
    assert names[1:] == ["mean_latency", "max_leakage"]
    every = [analysis.mean_ci(result, name) for name in names]
    means = np.stack([one["mean"].values for one in every], axis=1)
    lost = np.max([one["left_out"].values for one in every], axis=0)
    labels = analysis.mean_ci(result, names[0])["label"].values
    ways = [name == "test_accuracy" for name in names]
    assert lost.min() == 0 and (lost.max() > 0) == (ways[0])
    weighed = np.where(lost[:, None] == 0, means, np.nan)
    assert set(found["label"].values) == set(labels[brute_front(weighed, ways)])
    assert found["maximize"].values.tolist() == ways
    leading = found["mean"].values[:, 0]
    assert (np.diff(leading) <= 0).all() if ways[0] else (np.diff(leading) >= 0).all()
    for setting in range(found.sizes["setting"]):
        row = labels.tolist().index(str(found["label"].values[setting]))
        np.testing.assert_array_equal(found["mean"].values[setting], means[row])


def test_pareto_takes_directions_from_the_caller(result):
    worst = analysis.pareto(result, {"mean_latency": True})
    means = analysis.mean_ci(result, "mean_latency")["mean"].values
    assert float(worst["mean"][0, 0]) == means.max()
    with pytest.raises(ValueError, match="metric 'rounds_played': neither more nor less is better"):
        analysis.pareto(result, ["mean_latency", "rounds_played"])
    with pytest.raises(ValueError, match="metrics: must name one metric"):
        analysis.pareto(result, [])


@pytest.mark.parametrize(("metric", "pick"), [("mean_latency", np.argmin), ("test_accuracy", np.nanargmax)])
def test_best_has_the_best_mean(result, metric, pick):
    means = analysis.mean_ci(result, metric)
    # Each has six runs; whoever has lost none of them comes first.
    weighed = np.where(means["left_out"] == 0, means["mean"], np.nan)
    place = np.nanargmin(weighed) if pick is np.argmin else pick(weighed)
    found = analysis.best(result, metric)
    assert found.sizes == {} and str(found["label"].values) == str(means["label"].values[place])
    for name in ("mean", "low", "high", "count"):
        assert float(found[name]) == float(means[name][place])
    other = analysis.best(result, metric, maximize=pick is np.argmin)
    assert float(other["mean"]) == (np.nanmax(weighed) if pick is np.argmin else np.nanmin(weighed))


def test_best_per_policy_and_axis(result):
    means = analysis.mean_ci(result, "mean_latency")
    found = analysis.best(result, "mean_latency", per=("policy", "γ"))
    assert found.sizes["setting"] == 5
    for setting in range(5):
        own = means["policy"].values == found["policy"].values[setting]
        gamma, column = found["privacy_weight"].values[setting], means["privacy_weight"].values
        own &= np.isnan(column) if np.isnan(gamma) else column == gamma
        assert float(found["mean"][setting]) == means["mean"].values[own].min()


def test_of_equal_settings_the_first_is_best(result):
    level = result.assign(max_leakage=result["max_leakage"] * 0 + 1)
    first = str(analysis.mean_ci(level, "max_leakage")["label"].values[0])
    assert str(analysis.best(level, "max_leakage")["label"].values) == first
    assert str(analysis.best(level, "max_leakage", maximize=True)["label"].values) == first
    assert analysis.pareto(level, ["max_leakage"]).sizes["setting"] == 11


def test_best_refuses_what_has_no_answer(result):
    with pytest.raises(ValueError, match="neither more nor less is better"):
        analysis.best(result, "rounds_played")
    with pytest.raises(ValueError, match="per = 'privacy_weight': must not be named in `over`"):
        analysis.best(result, "elapsed", over=("seed", "gamma"), per="gamma")
    nothing = result.assign(elapsed=result["elapsed"] * np.nan)
    with pytest.raises(ValueError, match="no setting has a finite mean"):
        analysis.best(nothing, "elapsed")


def lucky(survivors=1, of=20, axis=1):
    """`lucky` has a few runs that did not diverge, and these are the best there are."""
    runs = [("sound", 0.8, 0)] * of + [("lucky", 0.9, 0)] * survivors
    runs += [("lucky", np.nan, 3)] * (of - survivors)
    policy, accuracy, diverged = map(np.array, zip(*runs, strict=True))
    seed = np.concatenate([np.arange(of), np.arange(of)])
    return xr.Dataset(
        {
            "test_accuracy": (("run", "eval"), accuracy[:, None].astype(float)),
            "elapsed": (("run", "round"), np.where(policy == "sound", 2.0, 1.0)[:, None]),
            "diverged_round": ("run", diverged),
        },
        {
            "policy": ("run", policy),
            "algorithm": ("run", policy),
            "seed": ("run", seed),
            "identity": ("run", np.arange(2 * of).astype(str)),
            "eta": ("run", seed % axis),
            "round": [1],
            "eval_round": ("eval", [1]),
        },
        {
            "axes": '["eta"]' if axis > 1 else "[]",
            "ranking": "test_accuracy",
            "metrics": as_json(
                {name: METRICS[name] for name in ("test_accuracy", "elapsed", "diverged_round")}
            ),
        },
    )


def test_one_survivor_of_twenty_beats_nobody():
    result = lucky()
    assert str(analysis.best(result)["policy"].values) == "sound"
    found = analysis.verdict(result)
    assert [str(one["policy"].values) for one in (found.best, found.runner_up)] == ["sound", "lucky"]
    assert [int(found.runner_up[name]) for name in ("left_out", "runs", "diverged")] == [19, 20, 19]
    front = analysis.pareto(result, ["test_accuracy", "elapsed"])
    assert front["policy"].values.tolist() == ["sound"]
    # Of diverging settings alone those with more survivors come first.
    more = lucky(5)
    both = xr.concat([result, more], "run").sel(run=np.r_[20:40, 60:80])
    both["policy"] = ("run", ["one"] * 20 + ["five"] * 20)
    assert str(analysis.best(both)["policy"].values) == "five"
    assert analysis.pareto(both, ["test_accuracy"])["policy"].values.tolist() == ["five"]


def test_a_run_that_shares_its_seed_with_a_survivor_counts_as_lost():
    """Averaged seed by seed over an axis, one of ten runs of the seed may be all that is left."""
    result = lucky(survivors=2, of=20, axis=10)
    result["seed"] = ("run", np.arange(40) % 20 // 10)
    found = analysis.mean_ci(result, over=("seed", "eta"))
    assert found["count"].values.tolist() == [2, 1] and found["left_out"].values.tolist() == [0, 18]
    assert found["runs"].values.tolist() == [20, 20]
    assert str(analysis.best(result, over=("seed", "eta"))["policy"].values) == "sound"


def test_the_command_says_how_many_diverged(tmp_path, capsys):
    store(lucky(), tmp_path)
    assert cli.main(["best", str(tmp_path)]) == cli.OK
    _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "  best of 2: sound: 80.0 (80.0 to 80.0)"
    assert second == "  runner-up: lucky: 90.0; 19 of 20 runs diverged"
    # Of what has a value all the same it is said as well.
    assert cli.main(["best", str(tmp_path), "--metric", "elapsed"]) == cli.OK
    assert capsys.readouterr().out.splitlines()[1].endswith("; 19 of 20 runs diverged")
