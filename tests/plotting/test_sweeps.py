"""Charts of many settings, and the table to choose from: against loops over the runs."""

import numpy as np
import pytest

from pausejax import analysis, kinds
from pausejax.analysis.metrics import metrics_of
from pausejax.analysis.quantities import objectives_in
from pausejax.plotting import sweeps

from .made import build, crossed, of, runs_of, series_of, with_figures

AXES = ("privacy_weight", "generalization_weight", "temperature_divisor")
GRID = {
    "pause": {"privacy_weight": [1.0, 5.0, 25.0], "generalization_weight": [1.0, 1000.0]},
    "annealed": {
        "privacy_weight": [1.0, 5.0, 25.0],
        "generalization_weight": [1.0, 1000.0],
        "temperature_divisor": [1.0, 30.0],
    },
    "uniform": {},
}


@pytest.fixture(scope="module", params=["training", "bandit"])
def grid(request):
    result, rows, _ = build(GRID, 4, AXES, request.param)
    return result.load(), rows


def numbers(rows, **columns):
    """Figures that say of which run they are, and others."""
    number = np.arange(1.0, len(rows) + 1)
    return with_figures(runs_of(rows), loss=number, time=10 * number, **columns)


ROWS = [
    *crossed(policy=["b", "a"], gamma=[3.0, 1.0, 2.0], model=["small", "big"]),
    *crossed(policy=["c"], model=["big"]),
]
"""Runs 1 to 6 of b, 7 to 12 of a, and 13 of c, which lacks γ."""


def test_each_policy_has_a_line_of_means_where_it_has_the_axis():
    runs = numbers(ROWS)
    drawn = sweeps.effects(runs, [*of(runs, "loss", scale=2.0), *of(runs, "time")])
    assert list(drawn) == ["main_effects_loss", "main_effects_time"]
    expected = {
        # γ = 1, 2, 3: b's runs are 3 and 4, 5 and 6, 1 and 2. The model's places are big and small.
        ("loss", 0): {"b": ([1, 2, 3], [7, 11, 3]), "a": ([1, 2, 3], [19, 23, 15])},
        ("time", 1): {"b": ([0, 1], [40, 30]), "a": ([0, 1], [100, 90]), "c": ([0], [130])},
    }
    for (metric, place), lines in expected.items():
        panel = drawn[f"main_effects_{metric}"].panels[place]
        found = series_of(panel)
        assert list(found) == list(lines)
        assert (panel.x.label, panel.x.names) == (("γ", ()), ("model", ("big", "small")))[place]
        for name, (x, y) in lines.items():
            np.testing.assert_allclose([found[name].x, found[name].y], [x, y])
            assert found[name].low is None and found[name].style == "bac".index(name)


def test_points_of_binned_values_stand_at_values_of_their_own_policy():
    """Each bin has three values of `a` and, far beside them, one of `b`."""
    values = {"a": np.arange(24.0), "b": 3 * np.arange(8) + 2.5}
    rows = [crossed(policy=[name], gamma=own.tolist()) for name, own in values.items()]
    runs = numbers([*rows[0], *rows[1]])
    chart = sweeps.effects(runs, of(runs, "loss"))["main_effects_loss"]
    (panel,) = chart.panels
    found = series_of(panel)
    np.testing.assert_array_equal(found["a"].x, values["a"].reshape(8, 3)[:, 1])
    np.testing.assert_array_equal(found["b"].x, values["b"])
    assert "Values of γ are in bins, each at its median." in chart.caption
    rows = [crossed(policy=[name], gamma=own) for name, own in {"a": [*range(1, 25)], "b": [0, 30]}.items()]
    chart = sweeps.effects(runs := numbers([*rows[0], *rows[1]]), of(runs, "loss"))["main_effects_loss"]
    assert chart.panels[0].x.scale == "linear" and series_of(chart.panels[0])["b"].x[0] == 0


def test_main_effects_have_bands_over_seeds_and_one_scale():
    runs = numbers(crossed(gamma=[1.0, 2.0], eta=[0.1, 10.0], seed=[0, 1]))
    drawn = sweeps.effects(runs, of(runs, "loss"))["main_effects_loss"]
    (line,) = drawn.panels[0].series
    # Two seeds that differ by 1: t of one degree of freedom, 12.706, times 1 / 2.
    np.testing.assert_allclose([line.y, line.high - line.y], [[2.5, 6.5], [6.353, 6.353]], atol=1e-3)
    np.testing.assert_allclose(line.high + line.low, 2 * line.y)
    assert [panel.x.scale for panel in drawn.panels] == ["linear", "log"]
    assert [panel.y.scale for panel in drawn.panels] == ["linear"] * 2
    wide = runs.assign(loss=10.0 ** runs["loss"])
    for share, scale in ((False, "log"), (True, "linear")):
        drawn = sweeps.effects(wide, of(wide, "loss", share=share))["main_effects_loss"]
        assert {panel.y.scale for panel in drawn.panels} == {scale}


def test_heat_map_cells_are_means_over_seeds_and_other_axes(grid):
    result, rows = grid
    final = analysis.finals(result)
    drawn = sweeps.heat_maps(final, of(result, "max_leakage"))
    assert set(drawn) == {"heatmap_max_leakage_pause", "heatmap_max_leakage_annealed"}
    assert "mean over 4 seeds." in drawn["heatmap_max_leakage_pause"].caption
    chart = drawn["heatmap_max_leakage_annealed"]
    assert "mean over 4 seeds and the other parameters" in chart.caption and chart.color is not None
    panel = next(p for p in chart.panels if {p.x.label, p.y.label} == {"γ", "κ"})
    cells = panel.cells if panel.x.label == "κ" else panel.cells.T
    for i, gamma in enumerate([1.0, 5.0, 25.0]):
        for j, kappa in enumerate([1.0, 30.0]):
            mine = [
                place
                for place, row in enumerate(rows)
                if (row["policy"], row.get("privacy_weight"), row.get("temperature_divisor"))
                == ("annealed", gamma, kappa)
            ]
            np.testing.assert_allclose(cells[i, j], final["max_leakage"].values[mine].mean(), rtol=1e-6)


def test_cells_without_runs_or_with_infinite_ones_alone_are_empty():
    rows = [{"gamma": g, "eta": e} for g, e in ((1.0, 1.0), (1.0, 2.0), (2.0, 2.0))]
    runs = with_figures(runs_of(rows), loss=[1.0, np.inf, 3.0])
    chart = sweeps.heat_maps(runs, of(runs, "loss"))["heatmap_loss"]
    (panel,) = chart.panels
    np.testing.assert_array_equal(panel.cells, [[1, np.nan], [np.nan, 3]])
    assert (panel.x.names, panel.y.names) == (("1", "2"), ("1", "2"))
    main = sweeps.effects(runs, of(runs, "loss"))["main_effects_loss"]
    assert all("Left out: 1 of 3 runs, without a finite value." in one.caption for one in (chart, main))


def test_every_policy_and_data_set_has_a_heat_map_of_its_own():
    """Joined by "_", two of the four pairs are the same words."""
    rows = crossed(policy=["p", "p_q"], dataset=["q_r", "r"], gamma=[1.0, 2.0], eta=[1.0, 2.0])
    runs = numbers(rows)
    drawn = sweeps.heat_maps(runs, of(runs, "loss"))
    assert len({chart.panels[0].cells.sum() for chart in drawn.values()}) == 4


def test_an_unbounded_leakage_is_no_number_and_grey(grid):
    result, rows = grid
    free = np.array([row["policy"] == "pause" for row in rows])[:, None]
    final = analysis.finals(result.assign(max_leakage=result["max_leakage"] + np.where(free, np.inf, 0)))
    assert set(sweeps.heat_maps(final, of(result, "max_leakage"))) == {"heatmap_max_leakage_annealed"}
    objectives = of(result, "participation_imbalance", "mean_latency", "max_leakage")
    chart = sweeps.fronts(final, objectives)["pareto"]
    found = series_of(chart.panels[0])
    assert np.isinf(found["pause"].color).all() and np.isfinite(found["annealed"].color).all()
    assert "Grey" in chart.caption


def test_the_front_is_that_of_the_analysis(grid):
    result, _ = grid
    up = "test_accuracy" if "test_accuracy" in result else "participation_imbalance"
    metrics = of(result, up, "mean_latency", "max_leakage")
    final = analysis.finals(result, [metric.name for metric in metrics])
    chart = sweeps.fronts(final, metrics)["pareto"]
    (panel,) = chart.panels
    (ring,) = [one for one in panel.series if one.mark == "ring"]
    front = analysis.pareto(result, [metric.name for metric in metrics])
    wanted = front["mean"].sel(metric=["mean_latency", up]).values * [metrics[1].scale, metrics[0].scale]
    order, other = np.argsort(ring.names), np.argsort(front["label"].values)
    np.testing.assert_allclose(np.stack([ring.x, ring.y], 1)[order], wanted[other])
    # Every point says which setting it is, those on the front too.
    assert [ring.names[place] for place in order] == front["label"].values[other].tolist()
    means = [analysis.mean_ci(final, metric.name) for metric in metrics]
    place = {str(label): n for n, label in enumerate(means[0]["label"].values)}
    points = [one for one in panel.series if one.mark in ("point", "cross")]
    assert sorted(name for one in points for name in one.names) == sorted(place)
    for one in points:
        at = [place[name] for name in one.names]
        for drawn, metric, found in zip((one.y, one.x, one.color), metrics, means, strict=True):
            if drawn is not None:
                np.testing.assert_allclose(drawn, metric.scale * found["mean"].values[at])
    at = [place[name] for name in ring.names]
    np.testing.assert_allclose(ring.low, metrics[0].scale * means[0]["low"].values[at])
    two = analysis.pareto(result, ["mean_latency", up])["mean"].values * [metrics[1].scale, metrics[0].scale]
    (line,) = [one for one in panel.series if one.mark == "step"]
    np.testing.assert_allclose(sorted(zip(line.x, line.y, strict=True)), sorted(map(tuple, two)))


@pytest.mark.parametrize(
    ("ways", "front"),
    [
        # Held up to the next point: from the best place across on, y stays what was reached.
        ((True, True), [(3, 5), (2, 30)]),
        ((True, False), [(3, 5), (1, 2), (0.5, 1)][::-1]),
        ((False, False), [(0.5, 1)]),
        ((False, True), [(2, 30), (1, 2), (0.5, 1)][::-1]),
    ],
)
def test_steps_of_a_front_begin_where_it_is_best_across(ways, front):
    points = [(1.0, 2.0), (2.0, 30.0), (0.5, 1.0), (3.0, 5.0)]
    rows = [{"gamma": float(n)} for n in range(4)]
    time, gain = zip(*points, strict=True)
    # `ways` are of time, then of gain.
    runs = with_figures(runs_of(rows), ways, time=time, gain=gain)
    (panel,) = sweeps.fronts(runs, of(runs, "gain", "time"))["pareto"].panels
    (line,) = [one for one in panel.series if one.mark == "step"]
    assert list(zip(line.x.tolist(), line.y.tolist(), strict=True)) == sorted(front, reverse=ways[0])
    (ring,) = [one for one in panel.series if one.mark == "ring"]
    assert sorted(zip(ring.x, ring.y, strict=True)) == sorted(front) and ring.low is None
    assert f"on the front: {len(front)} of 4" in ring.label


def test_without_a_setting_that_has_both_or_a_better_way_there_is_no_front():
    rows = [{"policy": name} for name in "ab"]
    runs = with_figures(
        runs_of(rows), (False, True, None), time=[1.0, np.inf], gain=[np.nan, 1.0], leak=[1, 1]
    )
    assert sweeps.fronts(runs, of(runs, "gain", "time")) == {}
    assert sweeps.fronts(runs, of(runs, "time", "leak")) == {}


def test_a_setting_that_has_lost_runs_is_crossed_out_and_on_no_front():
    """The best of all by its one survivor; the other two have both their runs."""
    rows = [{"gamma": float(n), "seed": seed} for n in range(3) for seed in range(2)]
    gain = [0.2, 0.2, 0.1, 0.3, 0.9, np.nan]
    time = [2.0, 2.0, 3.0, 3.0, 1.0, 1.0]
    runs = with_figures(runs_of(rows), (False, True), time=time, gain=gain)
    metrics = [*of(runs, "gain", scale=100.0), *of(runs, "time", scale=2.0)]
    (panel,) = sweeps.fronts(runs, metrics)["pareto"].panels
    at = {one.mark: (one.x.tolist(), one.y.tolist(), one.names) for one in panel.series}
    assert at["cross"] == ([2.0], [90.0], ("a, γ = 2",))
    assert at["ring"] == ([4.0], [20.0], ("a, γ = 0",))
    assert at["point"][0] == [4.0, 6.0]


def test_the_table_of_a_sweep_has_every_setting(grid):
    result, rows = grid
    table, known = kinds.sweep_table(result), metrics_of(result)
    settings = analysis.mean_ci(result, "elapsed")
    assert table.labels == tuple(settings["label"].values) and table.parameters == 4
    assert [axis.label for axis in table.axes[:4]] == ["policy", "γ", "α", "κ"]
    assert set(table.axes[0].names) == set(GRID)
    shown = [metric for metric in known.values() if metric.label or metric.heading]
    counted = table.axes[-1].label == "runs without a value"
    labels = [axis.label for axis in table.axes[4 : len(table.axes) - counted]]
    assert labels == [metric.axis_label for metric in shown if metric.axis_label in labels]
    final = analysis.finals(result, [metric.name for metric in shown])
    # A mean may be too good because bad runs have no value, so the table counts these runs.
    assert counted == bool(np.isnan(final.to_array()).any()) == ("diverged_round" in result)
    for place, values in enumerate(table.values):
        # A parameter that a policy lacks is NaN, and so is a mean that is no finite number.
        policy = table.axes[0].names[int(values[0])]
        own = {axis: value for axis, value in zip(AXES, values[1:4], strict=True) if np.isfinite(value)}
        assert own.keys() == GRID[policy].keys() and settings["policy"].values[place] == policy
        mine = [p for p, row in enumerate(rows) if {**row, "seed": 0} == {"policy": policy, "seed": 0, **own}]
        assert len(mine) == 4
        if counted:
            assert values[-1] == max(np.isnan(final[metric.name].values[mine]).sum() for metric in shown)
        for metric in shown:
            if metric.axis_label in labels:
                found = final[metric.name].values[mine].astype(float)
                expected = metric.scale * np.mean(found[~np.isnan(found)])
                column = 4 + labels.index(metric.axis_label)
                np.testing.assert_allclose(values[column], expected, rtol=1e-5)
    front = {label for label, on in zip(table.labels, table.front, strict=True) if on}
    assert front == set(analysis.pareto(result)["label"].values)
    up, across, color = (metric.axis_label for metric in of(result, *objectives_in(result)))
    assert [table.axes[place].label for place in table.start] == [across, up, color]


def test_there_is_no_table_of_few_settings_or_of_several_data_sets():
    assert kinds.sweep_table(build({"pause": {}}, 3, {})[0]) is None
    axes = {"dataset": "dataset", "privacy_weight": "gamma"}
    many = {"dataset": ["x", "y"], "privacy_weight": [float(n) for n in range(20)]}
    assert kinds.sweep_table(build({"pause": many}, 1, axes)[0]) is None


def test_a_setting_without_a_place_is_weighed_and_named():
    """An unprivate policy is the most accurate, and its leakage is infinite."""
    rows = crossed(policy=["a", "b", "c"])
    runs = with_figures(runs_of(rows), (True, False), gain=[0.5, 0.6, 0.9], leak=[1.0, 2.0, np.inf])
    (chart,) = sweeps.fronts(runs, [*of(runs, "gain"), *of(runs, "leak")]).values()
    (panel,) = chart.panels
    rings = next(one for one in panel.series if one.mark == "ring")
    assert rings.label == "on the front: 3 of 3" and rings.names == ("a", "b")
    assert "not drawn, because a value is infinite: c (1 of them on the front)" in panel.note
    # As the analysis has it.
    assert analysis.pareto(runs, {"gain": True, "leak": False}).sizes["setting"] == 3
