"""Charts of metrics, runs and axes that a reader names: what they hold, against loops over the runs."""

import numpy as np
import pytest
from scipy import stats

from pausejax import analysis, kinds
from pausejax.analysis.mean_curves import has_curve, samples
from pausejax.plotting import request
from pausejax.plotting.grid import arrange

from ..analysis.made_up import build
from .made import series_of

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


def test_a_sweep_has_regret_curves_out_of_the_box(swept):
    drawn = kinds.charts(swept)
    chart = drawn["cumulative_pseudo_regret_vs_round"]
    assert (len(chart.panels), chart.columns) == (12, 4)
    for panel in chart.panels:
        gamma, alpha = (float(part.split(" = ")[1]) for part in panel.title.split(", "))
        assert list(series_of(panel)) == ["pause", "uniform"]
        for one in panel.series:
            own = runs_with(swept, policy=one.label, alpha=alpha, gamma=gamma)
            total = np.cumsum(own["pseudo_regret"].values, axis=1, dtype=np.float64)
            np.testing.assert_allclose(one.y, total.mean(axis=0))
    assert len({panel.y for panel in chart.panels}) == len({panel.x for panel in chart.panels}) == 1
    assert {
        "main_effects_mean_latency",
        "pareto",
        "max_leakage_vs_time",
        "cumulative_regret_vs_round",
    } <= set(drawn)
    assert not any(name.startswith("heatmap") for name in drawn)


def test_a_curve_is_the_mean_with_its_t_interval_seed_by_seed(swept):
    chart = kinds.charts(swept, measures=["pseudo_regret"], by=["gamma"])["cumulative_pseudo_regret_vs_round"]
    panel = next(panel for panel in chart.panels if panel.title == "pause")
    found, own = series_of(panel)["γ = 5"], runs_with(swept, policy="pause", gamma=5.0)
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
    for drawn, expected in ((found.y, by_seed.mean(axis=0)), (found.low, low), (found.high, high)):
        np.testing.assert_allclose(drawn[whole], expected[whole])
    np.testing.assert_array_equal(found.x, swept["round"].values)
    assert "each seed is averaged over α first" in chart.caption


def test_where_chooses_runs_by_name_alias_and_symbol(swept):
    for spelling in ("privacy_weight", "gamma", "γ"):
        kept = analysis.select(swept, {spelling: "5", "policy": ["pause"]})
        assert set(kept["privacy_weight"].values) == {5.0} and set(kept["policy"].values) == {"pause"}
        assert kept.sizes["run"] == 12
    drawn = kinds.charts(swept, where={"alpha": 1, "γ": [5, 25]})
    assert not any(name.startswith("main_effects") for name in drawn)
    labels = list(series_of(drawn["cumulative_regret_vs_round"].panels[0]))
    assert len(labels) == 4 and all("γ = 5" in label or "γ = 25" in label for label in labels)
    alone = build({"pause": BOTH, "uniform": {}}, 2, AXES)[0]
    assert set(analysis.select(alone, {"gamma": 5})["policy"].values) == {"pause", "uniform"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measures": ["pseudo_regert"]}, "did you mean 'pseudo_regret'"),
        (
            {"measures": ["counts"]},
            "counts: must have one value per round, not values over run, client. Metrics of it: parti",
        ),
        ({"where": {"gama": 5}}, "where: 'gama': is no label of this result's runs; did you mean 'gamma'"),
        (
            {"where": {"gamma": 7}},
            r"where: gamma = 7: no run has this value; did you mean 5\? known: 0.1, 1, 5, 25",
        ),
        (
            {"where": {"policy": "pose"}},
            "where: policy = 'pose': no run has this value; did you mean 'pause'",
        ),
        ({"by": ["gama"]}, "by: 'gama': is no axis of this result; did you mean 'gamma'"),
        ({"by": ["num_clients"]}, "by: 'num_clients': is no axis of this result; known: policy, gen"),
        ({"by": ["gamma", "γ"]}, "by: gamma: is named twice"),
    ],
)
def test_mistakes_are_named_with_a_guess(swept, options, message):
    for ask in (kinds.charts, kinds.omitted):
        with pytest.raises(ValueError, match=message):
            ask(swept, **options)


def test_any_metric_is_a_curve_a_heat_map_and_an_axis_of_a_front(swept):
    drawn = kinds.charts(swept, measures=["participation_imbalance", "elapsed", "round_latency"])
    assert {"elapsed_vs_round", "round_latency_vs_time", "main_effects_elapsed"} <= set(drawn)
    assert {"heatmap_elapsed_pause", "heatmap_round_latency_uniform"} <= set(drawn)
    assert "participation_imbalance_vs_round" not in drawn and "pareto" not in drawn
    (front,) = kinds.charts(swept, measures=["participation_imbalance", "mean_latency"])["pareto"].panels
    assert "time" in front.x.label and "imbalance" in front.y.label
    latency = drawn["round_latency_vs_round"].panels[0].series[0]
    own = runs_with(swept, policy="pause", alpha=1.0, gamma=0.1)
    np.testing.assert_allclose(latency.y, own["round_latency"].values.mean(axis=0), rtol=1e-6)
    own = runs_with(swept, policy="pause", alpha=1.0, gamma=5.0, seed=0)
    for name in analysis.metrics_of(swept):
        runs, (metric,) = request.resolve(swept, [name])
        if has_curve(runs, metric):
            values = samples(own, metric).values[0]
            shown = values[np.isfinite(values)]
            final = metric.scale * analysis.finals(own, [name])[name].values[0]
            assert not shown.size or shown[-1] == pytest.approx(final, rel=1e-5)


def test_data_sets_are_never_mixed():
    axes = {"dataset": "dataset", "privacy_weight": "gamma"}
    swept = {"dataset": ["digits", "mnist"], "privacy_weight": [1.0, 5.0]}
    result = build({"pause": swept, "uniform": swept}, 2, axes)[0]
    grid = arrange(result)
    assert [panel.title for panel in grid.panels] == ["digits", "mnist"]
    assert [len(panel.lines) for panel in grid.panels] == [4, 4]
    with pytest.raises(ValueError, match="by: dataset: its values are not comparable in one panel"):
        arrange(result, ["dataset"])
    drawn = kinds.charts(result, measures=["test_accuracy", "mean_latency"])
    assert {"pareto_digits", "pareto_mnist"} <= set(drawn) and "pareto" not in drawn
    for refused in (analysis.best, analysis.pareto):
        with pytest.raises(ValueError, match="not comparable between runs with different dataset"):
            refused(result, "test_accuracy" if refused is analysis.best else ["test_accuracy"])
    per = analysis.best(result, "test_accuracy", per="dataset")
    assert sorted(per["dataset"].values) == ["digits", "mnist"]


@pytest.mark.slow
def test_a_label_has_one_colour_in_all_charts_although_some_leave_it_out():
    """Policies that single data sets or axes lack, and one that the charts of regret leave out."""
    axes = {"dataset": "dataset", "privacy_weight": "gamma"}
    gamma = [float(n) for n in range(9)]
    policies = {
        "x alone": {"dataset": ["x"], "privacy_weight": gamma},
        "y alone": {"dataset": ["y"], "privacy_weight": gamma},
        "both": {"dataset": ["x", "y"], "privacy_weight": gamma},
        "no axis": {"dataset": ["y", "x"]},
    }
    result = build(policies, 2, axes)[0].sortby("seed")
    large = (result["policy"] == "x alone").values
    selected = result["selected"].pad(slot=(0, 1), constant_values=-1).astype(int)
    selected[large] = np.arange(3)
    result = result.drop_vars("selected").assign(selected=selected)
    charts = [*kinds.charts(result).values(), *kinds.charts(result, measures=["elapsed"]).values()]
    charts += kinds.charts(result, by=["policy"]).values()
    charts += kinds.charts(result, measures=["elapsed", "max_leakage"]).values()
    styles = {}
    for chart in charts:
        for one in (one for panel in chart.panels for one in panel.series):
            styles.setdefault(one.label, set()).add(one.style)
    assert set(policies) <= set(styles) and all(len(styles[name]) == 1 for name in policies)
    assert len({next(iter(styles[name])) for name in policies}) == 4
    regrets = kinds.charts(result, by=["policy"])["cumulative_regret_vs_round"]
    assert not any("x alone" in series_of(panel) for panel in regrets.panels)


def test_a_name_may_stand_alone_and_a_window_is_a_count(swept):
    one = kinds.charts(swept, measures="max_leakage", by="gamma")
    assert list(one) == list(kinds.charts(swept, measures=["max_leakage"], by=["gamma"]))
    for window in (0, -2, 2.5):
        with pytest.raises(ValueError, match=f"smoothing = {window}: must be an integer >= 1"):
            kinds.charts(swept, smoothing=window)
