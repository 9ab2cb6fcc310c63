"""Pictures of measures, runs and axes that a reader names: what they draw, against loops over the runs."""

import numpy as np
import pytest
from scipy import stats

from pausejax import analysis, kinds
from pausejax.commands import main as cli
from pausejax.report import arrange, asked
from pausejax.report.series import has_curve, series_of

from ..analysis.made_up import build, store
from ..legible import assert_legible

ALPHA, GAMMA = [1.0, 10.0, 100.0], [0.1, 1.0, 5.0, 25.0]
AXES = {"generalization_weight": "alpha", "privacy_weight": "gamma"}
BOTH = {"generalization_weight": ALPHA, "privacy_weight": GAMMA}


@pytest.fixture(scope="module")
def swept():
    """α (3) by γ (4) by two policies: 24 settings, 4 seeds."""
    return build({"pause": BOTH, "uniform": BOTH}, 4, AXES, "bandit")[0].load()


def runs_with(result, **values):
    kept = np.ones(result.sizes["run"], bool)
    for name, value in values.items():
        kept &= (result[{symbol: full for full, symbol in AXES.items()}.get(name, name)] == value).values
    return result.isel(run=np.flatnonzero(kept))


def measure(result, name):
    runs, (found,) = asked.chosen(result, [name])
    return runs, found


def test_a_sweep_draws_regret_curves_with_bands_out_of_the_box(swept):
    drawn = kinds.draw(swept)
    figure = drawn["pseudo_regret_vs_rounds"]
    assert len(figure.axes) == 12
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pause", "uniform"]
    for axes in figure.axes:
        gamma, alpha = (float(part.split(" = ")[1]) for part in axes.get_title().split(", "))
        for line, policy in zip(axes.get_lines(), ("pause", "uniform"), strict=True):
            own = runs_with(swept, policy=policy, alpha=alpha, gamma=gamma)
            total = np.cumsum(own["pseudo_regret"].values, axis=1, dtype=np.float64)
            np.testing.assert_allclose(line.get_ydata(), total.mean(axis=0))
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert {"main_effects", "pareto", "leakage_vs_latency", "regret_vs_rounds"} <= set(drawn)
    assert not any(name.startswith("heatmap") for name in drawn)


def test_a_curve_is_the_mean_with_its_t_interval_seed_by_seed(swept):
    runs, pseudo = measure(swept, "pseudo_regret")
    own = runs_with(runs, policy="pause", gamma=5.0)
    found = series_of(own, pseudo, label="γ = 5")
    by_seed = np.stack(
        [
            np.cumsum(runs_with(own, seed=seed)["pseudo_regret"].values, axis=1, dtype=np.float64).mean(
                axis=0
            )
            for seed in range(4)
        ]
    )
    whole = np.isfinite(by_seed).all(axis=0)
    low, high = stats.t.interval(0.95, 3, loc=by_seed.mean(axis=0), scale=stats.sem(by_seed, axis=0))
    np.testing.assert_allclose(found.mean[whole], by_seed.mean(axis=0)[whole])
    np.testing.assert_allclose(found.low[whole], low[whole])
    np.testing.assert_allclose(found.high[whole], high[whole])
    np.testing.assert_array_equal(found.x, swept["round"].values)
    assert found.label == "γ = 5"


@pytest.mark.parametrize("gamma", ["gamma", "γ", "privacy_weight"])
def test_by_says_which_axis_is_lines_and_which_is_panels(swept, gamma):
    grid = arrange(swept, [gamma, "policy"])
    assert [panel.title for panel in grid.panels] == ["pause", "uniform"]
    assert [line.label for line in grid.panels[0].lines] == ["γ = 0.1", "γ = 1", "γ = 5", "γ = 25"]
    assert grid.averaged == ("generalization_weight",)
    assert all(line.runs.sizes["run"] == 12 for panel in grid.panels for line in panel.lines)
    # Policies are never averaged, named or not.
    assert arrange(swept, [gamma]).panels[1].title == "uniform"
    three = arrange(swept, ["policy", gamma, "alpha"])
    assert three.columns == 4 and len(three.panels) == 12 and not three.averaged
    assert [panel.title for panel in three.panels[:2]] == ["γ = 0.1, α = 1", "γ = 1, α = 1"]


def test_a_policy_without_an_axis_is_in_every_panel():
    result = build({"pause": BOTH, "uniform": {}}, 2, AXES, "bandit")[0]
    for panel in arrange(result, ["policy", "gamma"]).panels:
        assert [line.label for line in panel.lines] == ["pause", "uniform"]
    lines = arrange(result, ["gamma"]).panels
    assert [line.label for line in lines[1].lines] == ["uniform"]


def test_where_chooses_runs_by_name_alias_and_symbol(swept):
    for spelling in ("privacy_weight", "gamma", "γ"):
        kept = analysis.select(swept, {spelling: "5", "policy": ["pause"]})
        assert set(kept["privacy_weight"].values) == {5.0} and set(kept["policy"].values) == {"pause"}
        assert kept.sizes["run"] == 12
    drawn = kinds.draw(swept, where={"alpha": 1, "γ": [5, 25]})
    assert "main_effects" not in drawn
    labels = [text.get_text() for text in drawn["regret_vs_rounds"].legends[0].get_texts()]
    assert len(labels) == 4 and all("γ = 5" in label or "γ = 25" in label for label in labels)
    alone = build({"pause": BOTH, "uniform": {}}, 2, AXES)[0]
    assert set(analysis.select(alone, {"gamma": 5})["policy"].values) == {"pause", "uniform"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measures": ["pseudo_regert"]}, "pseudo_regert: unknown here; did you mean 'pseudo_regret'"),
        ({"measures": ["counts"]}, "counts: has dims run, client, no value a round; its measures: parti"),
        ({"where": {"gama": 5}}, "where: 'gama': is no label of this result's runs; did you mean 'gamma'"),
        ({"where": {"gamma": 7}}, r"where: gamma = 7: no run has it; did you mean 5\? known: 0.1, 1, 5, 25"),
        ({"where": {"policy": "pose"}}, "where: policy = 'pose': no run has it; did you mean 'pause'"),
        ({"by": ["gama"]}, "by: 'gama': is no axis of this result; did you mean 'gamma'"),
        ({"by": ["num_clients"]}, "by: 'num_clients': is no axis of this result; known: policy, gen"),
        ({"by": ["gamma", "γ"]}, "by: gamma: is named twice"),
    ],
)
def test_mistakes_are_named_with_a_guess(swept, options, message):
    with pytest.raises(ValueError, match=message):
        kinds.draw(swept, **options)
    with pytest.raises(ValueError, match=message):
        kinds.left_out(swept, **options)


def test_any_measure_is_a_curve_a_heat_map_and_an_axis_of_a_front(swept):
    drawn = kinds.draw(swept, measures=["participation_imbalance", "elapsed", "round_latency"])
    assert {"elapsed_vs_rounds", "round_latency_vs_latency", "main_effects"} <= set(drawn)
    assert {"heatmap_elapsed_pause", "heatmap_round_latency_uniform"} <= set(drawn)
    assert "participation_imbalance_vs_rounds" not in drawn and "pareto" not in drawn
    front = kinds.draw(swept, measures=["participation_imbalance", "elapsed"])["pareto"].axes[0]
    assert "time" in front.get_xlabel() and "imbalance" in front.get_ylabel()
    latency = drawn["round_latency_vs_rounds"].axes[0].get_lines()[0]
    own = runs_with(swept, policy="pause", alpha=1.0, gamma=0.1)
    np.testing.assert_allclose(latency.get_ydata(), own["round_latency"].values.mean(axis=0), rtol=1e-6)
    for name in ("heatmap_elapsed_pause", "round_latency_vs_latency"):
        assert_legible(drawn[name])
    for name in analysis.metrics_of(swept):
        runs, found = measure(swept, name)
        if has_curve(runs, found):
            last = series_of(runs_with(runs, policy="pause", alpha=1.0, gamma=5.0, seed=0), found)
            final = analysis.finals(runs_with(swept, policy="pause", alpha=1.0, gamma=5.0, seed=0), [name])
            shown = last.mean[np.isfinite(last.mean)]
            assert not shown.size or shown[-1] == pytest.approx(found.scale * final[name].values[0], rel=1e-5)


def test_what_is_left_out_is_said_with_the_way_to_ask(swept):
    lines = kinds.left_out(swept)
    assert any("cumulative_pseudo_regret: no main effects" in line for line in lines)
    assert any("--measure NAME" in line and "elapsed" in line for line in lines)
    assert any("curves are means over α too" in line for line in kinds.left_out(swept, by=["gamma"]))
    asked_for = kinds.left_out(swept, measures=["pseudo_regret", "elapsed"])
    assert any(line.startswith("no front: cumulative_pseudo_regret") for line in asked_for)
    axes = {**AXES, "budget_decay": "eta", "exploitation_gain": "zeta"}
    values = {name: [1.0, 2.0] for name in axes}
    wide = build({"pause": values, "uniform": values}, 1, axes, "bandit")[0]
    assert "regret_vs_rounds" not in kinds.draw(wide)
    assert any(
        "no curves: too much varies" in line and "--by policy" in line for line in kinds.left_out(wide)
    )


def test_data_sets_are_never_mixed():
    axes = {"dataset": "dataset", "privacy_weight": "gamma"}
    swept = {"dataset": ["digits", "mnist"], "privacy_weight": [1.0, 5.0]}
    result = build({"pause": swept, "uniform": swept}, 2, axes)[0]
    grid = arrange(result)
    assert [panel.title for panel in grid.panels] == ["digits", "mnist"]
    assert [len(panel.lines) for panel in grid.panels] == [4, 4]
    with pytest.raises(ValueError, match="by: dataset: is never drawn in one panel"):
        arrange(result, ["dataset"])
    drawn = kinds.draw(result, measures=["test_accuracy", "mean_latency"])
    assert {"pareto_digits", "pareto_mnist"} <= set(drawn) and "pareto" not in drawn
    for refused in (analysis.best, analysis.pareto):
        with pytest.raises(ValueError, match="test_accuracy: means something else for each dataset"):
            refused(result, "test_accuracy" if refused is analysis.best else ["test_accuracy"])
    per = analysis.best(result, "test_accuracy", per="dataset")
    assert sorted(per["dataset"].values) == ["digits", "mnist"]


def test_regrets_of_unlike_rewards_are_not_compared(swept):
    with pytest.raises(ValueError, match=r"means something else for each α, which is 1, 10, 100 here.*per="):
        analysis.best(swept, "cumulative_pseudo_regret")
    with pytest.raises(ValueError, match="means something else for each γ"):
        analysis.best(swept, "cumulative_regret", per="alpha")
    many = swept.assign_coords(generalization_weight=("run", np.arange(swept.sizes["run"], dtype=float)))
    with pytest.raises(ValueError, match=r"which is 0, 1, 2, 3, 4, … \(\d+ in all\) here"):
        analysis.best(many, "cumulative_pseudo_regret")
    one = analysis.best(swept, "cumulative_pseudo_regret", where={"alpha": 1, "gamma": 5})
    means = analysis.mean_ci(runs_with(swept, alpha=1.0, gamma=5.0), "cumulative_pseudo_regret")
    assert float(one["mean"]) == means["mean"].values.min()
    each = analysis.best(swept, "cumulative_pseudo_regret", per=("alpha", "gamma"))
    assert each.sizes["setting"] == 12
    with pytest.raises(ValueError, match="cumulative_regret: means something else"):
        analysis.pareto(swept, ["cumulative_regret", "elapsed"])
    assert analysis.best(swept, "elapsed").sizes == {}


def test_rewards_are_unlike_where_the_least_latency_is():
    """A reward is τ_min over a latency, so that the same rounds pay more under a larger τ_min."""
    slow = build({"pause": {"min_latency": [0.01, 0.05]}}, 2, {"min_latency": "tau_min"}, "bandit")[0]
    with pytest.raises(ValueError, match=r"means something else for each τ_min, which is 0\.01, 0\.05 here"):
        analysis.best(slow, "cumulative_pseudo_regret")
    assert analysis.best(slow, "elapsed").sizes == {}


def test_report_command_takes_measures_runs_and_axes(swept, tmp_path, capsys):
    store(swept, tmp_path)
    options = ["--measure", "reward", "pseudo_regret", "--where", "gamma=5,gamma=25", "--by", "γ,policy"]
    missing = cli.main(["report", str(tmp_path), *options])
    problem = capsys.readouterr().err
    assert missing == cli.BAD_SPEC and problem.count("\n") == 1 and "measure: reward: unknown" in problem
    assert cli.main(["report", str(tmp_path), *options[:1], *options[2:]]) == cli.OK
    said = " ".join(capsys.readouterr().out.split())
    assert "cumulative_pseudo_regret_vs_latency" in said and "curves are means over α too" in said
    asked = tmp_path / "measure_pseudo_regret_where_gamma_5_gamma_25_by_γ_policy"
    assert (asked / "heatmap_cumulative_pseudo_regret_pause.png").read_bytes()[1:4] == b"PNG"
    assert not (asked / "leakage_vs_rounds.png").exists()
    for wrong in ("gamma", "gamma=", "=5"):
        with pytest.raises(SystemExit):
            cli.main(["report", str(tmp_path), "--where", wrong])
        assert "is no condition: KEY=VALUE" in capsys.readouterr().err


def test_run_refuses_what_it_could_not_draw_before_it_computes(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'mode = "bandit"\nrounds = 10\n[reward]\ngamma = [1.0, 5.0]\n[[policy]]\nname = "pause"\n'
    )
    out = tmp_path / "out"
    for options, message in (
        (["--by", "kappa"], "--by: 'kappa': is no axis of this result"),
        (["--measure", "test_accuracy"], "--measure: test_accuracy"),
        (["--where", "gamma=3"], "--where: gamma = 3: no run has it; did you mean 1? known: 1, 5"),
    ):
        assert cli.main(["run", str(spec), "--out", str(out), *options]) == cli.BAD_SPEC
        assert message in capsys.readouterr().err
        assert not out.exists()


def test_conditions_may_hold_commas(swept, tmp_path):
    from pausejax.commands.options import conditions

    assert conditions("policy=PAUSE, exact,gamma=5") == {"policy": ["PAUSE, exact"], "gamma": ["5"]}


def test_what_is_asked_for_leaves_the_page_of_the_whole_study_as_it_is(swept, tmp_path, capsys):
    store(swept, tmp_path)
    (tmp_path / "report.html").write_text("of the whole study")
    (tmp_path / "heatmap_elapsed_pause.png").write_bytes(b"of the whole study")
    asked = ["--measure", "elapsed", "--where", "gamma=5,policy=pause"]
    assert cli.main(["report", str(tmp_path), *asked]) == cli.OK
    assert (tmp_path / "report.html").read_text() == "of the whole study"
    assert (tmp_path / "heatmap_elapsed_pause.png").read_bytes() == b"of the whole study"
    own = tmp_path / "measure_elapsed_where_gamma_5_policy_pause"
    assert f"{own.name}/report.html" in "".join(capsys.readouterr().out.split())
    html = (own / "report.html").read_text()
    assert "this page shows what was asked for: --measure elapsed --where gamma=5,policy=pause" in html
    assert "every picture is here" not in html
    runs = analysis.select(swept, {"gamma": 5, "policy": "pause"}).sizes["run"]
    assert f"runs: {runs}, of 1 policy" in html and (own / "elapsed_vs_rounds.png").exists()
    (tmp_path / "where_gamma_1").symlink_to(tmp_path.parent)
    assert cli.main(["report", str(tmp_path), "--where", "gamma=1"]) == cli.FAILED
    assert "is a link; nothing is written into it" in capsys.readouterr().err


def test_evaluations_of_a_measure_are_smoothed_as_asked_for():
    result = build({"pause": {}}, 6, {})[0]
    plain, smoothed = (
        kinds.draw(result, measures=["test_accuracy"], smoothing=count)["test_accuracy_vs_rounds"]
        .axes[0]
        .get_lines()[0]
        .get_ydata()
        for count in (1, 2)
    )
    np.testing.assert_allclose(smoothed[:2], [plain[0], plain[:2].mean()])
    assert plain[0] != plain[1]


def test_decades_are_drawn_on_a_logarithmic_axis(swept):
    growing = 10.0 ** (np.arange(swept.sizes["run"]) % 4)
    wide = swept.assign(max_leakage=(1 + swept["max_leakage"]) * growing[:, None])
    few = kinds.draw(wide, measures=["max_leakage"], where={"gamma": 5, "policy": "pause"})
    assert few["max_leakage_vs_rounds"].axes[0].get_yscale() == "log"


def test_every_policy_and_data_set_has_a_heat_map_of_its_own():
    axes = {"dataset": "dataset", **AXES}
    swept = {"dataset": ["x y", "z"], "privacy_weight": [1.0, 5.0], "generalization_weight": [1.0, 10.0]}
    drawn = kinds.draw(build({"p, q": swept, "r": swept}, 1, axes)[0], measures=["elapsed"])
    names = {f"heatmap_elapsed_{policy}_{data}" for policy in ("p_q", "r") for data in ("x_y", "z")}
    assert names | {"main_effects_x_y", "main_effects_z"} <= set(drawn)
