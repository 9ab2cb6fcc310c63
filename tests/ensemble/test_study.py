"""Ensemble studies from specs: checks, results, charts, and the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.analysis import finals
from pausejax.commands import main as cli
from pausejax.data.host import DataCache
from pausejax.ensemble import Runs, fit_pool, load_regression, simulate, simulation
from pausejax.kinds import charts, load, parse
from pausejax.plotting.data import Axis
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

from ..legible import assert_legible

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"
SMALL = {"mode": "ensemble", "seeds": 2, "rounds": 20, "eval_every": 5, "num_clients": 40}


@pytest.fixture(scope="module")
def result():
    policies = [
        {"name": "efl_fg", "learning_rate": [0.05, 0.2]},
        {"name": "fedboost", "label": "thrifty", "spending": 0.6},
    ]
    return pausejax.simulate(policies, **SMALL)


def problems_of(**document):
    with pytest.raises(SpecError) as caught:
        parse({"mode": "ensemble", "policy": [{"name": "efl_fg"}], **document})
    return "\n".join(caught.value.problems)


def test_result_is_labelled(result):
    assert result.sizes == {"run": 6, "round": 4, "model": 22}
    assert result["policy"].values.tolist() == ["efl_fg"] * 4 + ["thrifty"] * 2
    np.testing.assert_array_equal(result["round"], [5, 10, 15, 20])
    np.testing.assert_allclose(result["learning_rate"], [0.05, 0.05, 0.2, 0.2, 20**-0.5, 20**-0.5])
    np.testing.assert_allclose(result["exploration_rate"][:4], 20**-0.5)
    assert np.isnan(result["exploration_rate"][4:]).all() and np.isnan(result["regret_bound"][4:]).all()
    np.testing.assert_array_equal(result["budget"], 3)
    assert result.attrs["mode"] == "ensemble" and (result["rounds_played"] == 20).all()
    assert result["model_cost"].values.max() == 1
    assert len(set(result["identity"].values)) == 6


@pytest.mark.parametrize("every", [1, 5])
def test_a_result_is_saved_and_opened(result, tmp_path, every):
    result = (
        result if every == 5 else pausejax.simulate("fedboost", **{**SMALL, "rounds": 3, "eval_every": 1})
    )
    pausejax.save(result, tmp_path)
    xr.testing.assert_identical(pausejax.open(tmp_path).load(), result)
    pausejax.save(result.isel(run=[0]), tmp_path / "one")


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        ({"round": slice(0, 2)}, "the dimension round must have the length 4, not 2"),
        ({"round": slice(1, 4)}, "the dimension round must have the length 4, not 3"),
        ({"model": 0}, "all values of model"),
        ({"model": slice(0, 5)}, "the dimension model must have the length 22, not 5"),
        ({"model": slice(None, None, -1)}, "the coordinate model must begin with "),
    ],
)
@pytest.mark.parametrize("whole_pass", [False, True])
def test_what_lacks_rounds_or_models_is_not_saved(result, tmp_path, cut, said, whole_pass):
    """The spec of a study of one pass over the data names no number of rounds."""
    if whole_pass:
        result = result.assign_attrs(spec=result.attrs["spec"].replace("rounds = 20", "rounds = 0"))
    with pytest.raises(ValueError, match=said):
        pausejax.save(result.isel(cut), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.slow
def test_a_single_round_can_be_simulated():
    result = pausejax.simulate(["efl_fg", "fedboost"], **{**SMALL, "rounds": 1, "eval_every": 1})
    np.testing.assert_allclose(result["exploration_rate"][:2], 2**-0.5)
    assert np.isfinite(result["mse"]).all()


@pytest.mark.slow
def test_result_is_the_simulation(result):
    pool = fit_pool(load_regression("diabetes"))
    direct = simulate(
        pool,
        "efl_fg",
        Runs([0, 1], 0.2, 20**-0.5, 3.0, 50),
        rounds=20,
        num_clients=40,
        record_every=5,
    )
    np.testing.assert_array_equal(result["sent_counts"][2:4], direct["sent_counts"])
    for name in ("mse", "regret", "regret_bound", "cost"):
        np.testing.assert_allclose(result[name][2:4], direct[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ridge", 0.02),
        ("feature_scaling", "row_norm"),
        ("kernel_parameters", "coefficients"),
        ("fit_fraction", 0.2),
        ("pool_seed", 5),
    ],
)
def test_the_pool_is_fitted_as_the_spec_says(result, name, value):
    found = pausejax.simulate("best_expert", **{name: value}, **{**SMALL, "seeds": 1})
    argument = "seed" if name == "pool_seed" else name
    pool = fit_pool(load_regression("diabetes"), **{argument: value})
    direct = simulate(
        pool, "best_expert", Runs(0, 0.1, 0.1, 3.0, 50), rounds=20, num_clients=40, record_every=5
    )
    np.testing.assert_allclose(found["model_cost"][0], pool.costs, rtol=1e-6)
    for series in ("mse", "best_expert_mse"):
        np.testing.assert_allclose(found[series][0], direct[series][0], rtol=1e-5)
    default = fit_pool(load_regression("diabetes"))
    assert not np.array_equal(default.predictions, pool.predictions) or (default.costs != pool.costs).any()


def test_regret_is_below_its_bound(result):
    of_graph = result.isel(run=slice(0, 4))
    assert (of_graph["regret"] <= of_graph["regret_bound"]).all()
    assert (of_graph["violations"] == 0).all()


def test_spending_less_violates_less():
    policies = [{"name": "fedboost", "spending": [0.4, 1.0]}]
    result = pausejax.simulate(policies, **{**SMALL, "rounds": 200, "eval_every": 200})
    thrifty, plain = (finals(result.isel(run=pair))["violations"].values.mean() for pair in ([0, 1], [2, 3]))
    assert thrifty < 0.15 < 0.3 < plain
    np.testing.assert_allclose(result["cost"].values[:, -1], [1.2, 1.2, 3, 3], atol=0.35)


def test_rounds_left_out_last_as_long_as_the_stream(monkeypatch):
    monkeypatch.setattr(simulation, "_ROUNDS_PER_CALL", 4)  # 4, 4 and 2 of them
    result = pausejax.simulate("exp3", **{**SMALL, "rounds": 0, "eval_every": 1})
    # 398 samples for 40 clients.
    assert (result["rounds_played"] == 10).all() and result.sizes["round"] == 10
    np.testing.assert_allclose(result["learning_rate"], 10**-0.5)
    # EXP3 sends one model, whose users report two losses each.
    assert (result["sent_counts"].sum("model") == 10).all()
    np.testing.assert_array_equal(result["reports"], [25 * np.arange(1, 11)] * 2)


@pytest.mark.slow
def test_charts_show_the_numbers(result):
    """Of two data sets, the second half as long: means over the seeds, and each set's own rounds."""
    short = result.assign_coords(
        dataset=("run", ["bias"] * 6), rounds_played=("run", np.full(6, 10, np.int32))
    )
    short["regret"] = short["regret"] - 1e3  # which has no logarithm
    both = xr.concat([result, short], "run", combine_attrs="override")
    both.attrs["axes"] = json.dumps([*json.loads(result.attrs["axes"]), "dataset"])
    drawn = charts(both)
    assert list(drawn) == ["mse_vs_round", "regret_vs_round", "models_sent"]
    assert {tuple(panel.title for panel in chart.panels) for chart in drawn.values()} == {
        ("diabetes", "bias")
    }
    for place, (rounds, shift) in enumerate((([5, 10, 15, 20], 0), ([5, 10], 1e3))):
        mse, regret, sent = (chart.panels[place] for chart in drawn.values())
        assert (mse.x, mse.y) == (Axis("round", zero=True), Axis("MSE (10⁻³)", "log"))
        assert (regret.x.scale, regret.y.scale, regret.y.label) == ("log", "symlog", "cumulative regret")
        assert sent.y == Axis("rounds sent (%)", zero=True)
        assert sent.x.names == tuple(result["model"].values.tolist())
        assert len(mse.series) == len(sent.series) == 3 and len(regret.series) == 5  # FedBoost has no bound
        for line in range(3):
            runs = result.isel(run=slice(2 * line, 2 * line + 2), round=slice(len(rounds)))
            np.testing.assert_array_equal(mse.series[line].x, rounds)
            np.testing.assert_allclose(mse.series[line].y, 1e3 * runs["mse"].mean("run"), rtol=1e-5)
            np.testing.assert_allclose(regret.series[line].y, runs["regret"].mean("run") - shift, rtol=1e-5)
            share = 100 * runs["sent_counts"].mean("run") / rounds[-1]
            np.testing.assert_allclose(sent.series[line].y, share, rtol=1e-5)
            names = {(panel.series[line].label, panel.series[line].style) for panel in (mse, regret, sent)}
            assert len(names) == 1
        thin = [one for one in regret.series if one.style == -1]
        bounds = [result["regret_bound"][i : i + 2, : len(rounds)].mean("run") for i in (0, 2)]
        np.testing.assert_allclose([one.y for one in thin], bounds, rtol=1e-5)
        assert all(one.x.tolist() == rounds and one.low is None for one in thin)
    for chart in drawn.values():
        assert_legible(chart.figure())


def test_regrets_are_drawn_without_a_policy_that_has_a_bound(result):
    alone = result.isel(run=slice(4, 6)).drop_vars("regret_bound")
    (panel,) = charts(alone)["regret_vs_round"].panels
    assert [one.label for one in panel.series] == ["thrifty, η = 0.223607"]
    assert not any("Dotted" in chart.caption for chart in charts(alone).values())


def test_a_study_without_rounds_lasts_one_pass_whatever_it_records():
    """398 rows of the diabetes set are a stream of 10 rounds for 40 clients, of one for 398."""

    def rounds(num_clients, **changes):
        network = {"num_clients": num_clients}
        document = {"mode": "ensemble", "policy": [{"name": "exp3"}], "network": network, **changes}
        plan = make_plan(parse(document))
        return simulation.rounds_of(plan.study, plan.groups[0], DataCache())

    assert [rounds(40, eval_every=every) for every in (1, 5, 10)] == [10, 10, 10]
    assert rounds(398) == 1 and rounds(40, rounds=7) == 7
    for every in (3, 20):
        with pytest.raises(SpecError, match=f"eval_every = {every}: must divide 10, the rounds of one pass"):
            rounds(40, eval_every=every)
    with pytest.raises(SpecError, match=r"num_clients = 399: must be <= 398"):
        rounds(399)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"network": {"budget": 0.5}}, "budget = 0.5: must be >= 1, the cost of the most expensive model"),
        (
            {"network": {"uplink": 22}},
            "network.uplink = 22: must be >= 23, the largest number of losses that one client",
        ),
        ({"weights": {"xi": 1}}, "weights.exploration_rate = 1.0: must be >= 0 and < 1"),
        ({"pool": {"fit_fraction": 0}}, "pool.fit_fraction = 0.0: must be > 0 and < 1"),
        ({"rounds": 20, "eval_every": 3}, "eval_every = 3: must divide rounds = 20"),
        ({"selection_gap": True}, 'selection_gap = true: not allowed with mode = "ensemble"'),
        ({"data": {"dataset": "digits"}}, 'data.dataset = "digits": must be one of diabetes, bias, ccpp'),
        ({"privacy": {}}, "privacy: unknown key"),
        ({"policy": [{"name": "pause"}]}, 'policy.name = "pause": must be one of all_experts, best_expert'),
        ({"policy": [{"name": "exp3", "spending": 0.5}]}, "spending = 0.5: the policy exp3 does not read"),
        ({"rounds": -1}, "rounds = -1: must be an integer >= 0"),
        (
            {"rounds": 250_000, "network": {"num_clients": [100, 8600]}},
            "rounds = 250000: times 8600 clients must be < 2^31",
        ),
        ({"weights": {"epsilon": 1}}, "weights.epsilon: unknown key"),
    ],
)
def test_mistakes_are_named(document, message):
    assert message in problems_of(**document)


def test_words_of_client_selection_stay_apart():
    with pytest.raises(SpecError, match=r"policy.name = .efl_fg.: must be one of"):
        parse({"policy": [{"name": "efl_fg"}]})
    with pytest.raises(SpecError, match="pool: unknown key"):
        parse({"policy": [{"name": "pause"}], "pool": {}})


def test_missing_data_is_one_line_and_no_compute(tmp_path, capsys):
    arguments = ["run", str(SWEEPS / "efl_fg_table1.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    assert cli.main([*arguments, "--data-dir", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "must hold Bias_correction_ucl.csv (or Bias_correction_ucl.csv.gz)" in lines[0]


@pytest.mark.slow
def test_command_line_runs_plans_and_reports(tmp_path, capsys):
    spec = str(SWEEPS / "efl_fg.toml")
    small = [part for key in ("rounds=20", "seeds=2", "num_clients=40") for part in ("--set", key)]
    assert cli.main(["plan", spec, *small]) == 0
    assert "12 runs in 6 groups" in capsys.readouterr().out
    out = tmp_path / "study"
    assert cli.main(["run", spec, *small, "--out", str(out), "--quiet"]) == 0
    assert {path.name for path in out.glob("*.png")} == {
        f"{kind}.png" for kind in ("mse_vs_round", "regret_vs_round", "models_sent")
    }
    result = pausejax.open(out)
    labels = result["policy"].values
    violations = result["violations"].values[:, -1]
    assert (violations[labels == "EFL-FG"] == 0).all()
    assert (violations[labels == "all models, no budget"] == 1).all()


@pytest.mark.parametrize("policy", ["fedboost", pytest.param("best_expert", marks=pytest.mark.slow)])
def test_a_finished_study_is_read_again_in_another_order_and_with_another_title(tmp_path, policy):
    """FedBoost has no exploration rate, and a fixed choice has no rate at all: the result lacks these."""
    first = pausejax.simulate([policy], **SMALL, out=tmp_path)
    again = pausejax.simulate([policy], **{**SMALL, "seeds": [1, 0]}, name="a title", out=tmp_path)
    assert "exploration_rate" not in first.coords and again.attrs["name"] == "a title"
    assert again["seed"].values.tolist() == [1, 0]
    assert (again["mse"].values == first["mse"].values[::-1]).all()
    larger = pausejax.simulate([policy, "efl_fg"], **SMALL, out=tmp_path)
    assert (larger["mse"].values[:2] == first["mse"].values).all()
    rates = np.isfinite(larger["exploration_rate"].values)
    assert rates.tolist() == [False, False, True, True]


@pytest.mark.parametrize("name", ["efl_fg", "efl_fg_table1"])
def test_ready_specs_are_valid(name):
    plan = make_plan(load(SWEEPS / f"{name}.toml"))
    assert len(plan.groups) == (6 if name == "efl_fg" else 21)
    assert len(plan.study.seeds) == 20


@pytest.mark.slow
def test_table_one_lies_in_the_papers_region(shared):
    """EFL-FG below FedBoost on every seed; within a factor of two of the paper's single run."""
    paper = {"bias": (4.81, 69.11), "ccpp": (4.92, 45.06), "energy": (8.36, 10.19)}
    result = pausejax.simulate(
        ["efl_fg", "fedboost", "fedboost_normalized"],
        mode="ensemble",
        seeds=20,
        rounds=0,
        eval_every=1,
        dataset=list(paper),
        data_dir=shared / "data" / "uci",
    )
    assert result["rounds_played"].values[::20].tolist() == [70, 87, 178] * 3
    for dataset, expected in paper.items():
        found = []
        for policy, value in zip(
            ("efl_fg", "fedboost", "fedboost_normalized"), (*expected, expected[1]), strict=True
        ):
            chosen = (result["dataset"].values == dataset) & (result["policy"].values == policy)
            runs = result.isel(run=np.flatnonzero(chosen))
            found.append(1e3 * finals(runs)["mse"].values)
            assert value / 2 < found[-1].mean() < 2 * value
            violations = 100 * finals(runs)["violations"].values.mean()
            assert violations == 0 if policy == "efl_fg" else 13 < violations < 50
        assert (found[0] < found[1]).all() and found[0].mean() < found[2].mean()
    # The rates follow from the lengths of the streams, so they differ between the data sets.
    assert len(charts(result)["regret_vs_round"].panels) == 3
    assert pausejax.summary(result, ["mse"])["setting"].nunique() == 9


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["bias", "ccpp", "energy"])
def test_regret_grows_sublinearly_below_its_bound(shared, dataset):
    """Exponent of the seed-mean regret over the second decade of 5,000 rounds, far below 1."""
    result = pausejax.simulate(
        "efl_fg",
        mode="ensemble",
        seeds=8,
        rounds=5000,
        eval_every=100,
        dataset=dataset,
        data_dir=shared / "data" / "uci",
    )
    regret, rounds = result["regret"].values, result["round"].values
    assert (regret <= result["regret_bound"].values).all()
    mean, late = regret.mean(axis=0), rounds >= 500
    exponent = np.polyfit(np.log(rounds[late]), np.log(mean[late]), 1)[0]
    assert exponent < 0.8
    assert mean[-1] / 5000 < 0.5 * mean[rounds == 500][0] / 500


@pytest.mark.slow
def test_regrets_of_unlike_numbers_of_reports_are_not_compared():
    """With twice the clients a stream lasts half the rounds; a regret sums over all reports."""
    result = pausejax.simulate(
        "exp3", mode="ensemble", rounds=4, eval_every=2, seeds=2, dataset="diabetes", num_clients=[5, 10]
    )
    with pytest.raises(ValueError, match="not comparable between runs with different N, here 5, 10"):
        pausejax.analysis.best(result, "regret")
    assert pausejax.analysis.best(result, "mse").sizes == {}
