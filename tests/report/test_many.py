"""Pictures of many settings: what they draw against loops over the runs, and that no text touches another."""

import numpy as np
import pytest

from pausejax import analysis
from pausejax.commands import main as cli
from pausejax.kinds import draw
from pausejax.report import grid as grids
from pausejax.report import many, save, summary_table
from pausejax.report.effects import main_effects
from pausejax.report.heatmaps import heat_maps, table
from pausejax.report.levels import MAX_LEVELS, levels_of, measures_of, shown, values_of
from pausejax.report.pareto import trade_off
from pausejax.report.style import new_figure

from ..analysis.made_up import store
from ..legible import assert_legible
from .made import build, sampled

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


@pytest.fixture(params=["training", pytest.param("bandit", marks=pytest.mark.slow)])
def grid(request):
    return build(GRID, 4, AXES, request.param)


def the(measures, metric):
    return next(measure for measure in measures if measure.name == metric)


def test_heat_map_cells_are_means_over_seeds_and_other_axes(grid):
    result, rows, _ = grid
    final = analysis.finals(result)
    own = final.isel(run=np.flatnonzero((final["policy"] == "annealed").values))
    measure = the(measures_of(result), "max_leakage")
    found = table(levels_of(own), measure, "privacy_weight", "temperature_divisor")
    for i, gamma in enumerate([1.0, 5.0, 25.0]):
        for j, kappa in enumerate([1.0, 30.0]):
            mine = [
                place
                for place, row in enumerate(rows)
                if (row["policy"], row.get("privacy_weight"), row.get("temperature_divisor"))
                == ("annealed", gamma, kappa)
            ]
            np.testing.assert_allclose(found[i, j], final["max_leakage"].values[mine].mean(), rtol=1e-6)


def test_main_effects_draw_the_means(grid):
    result, rows, _ = grid
    final = analysis.finals(result)
    measure = the(measures_of(result), "mean_latency")
    figure = main_effects(final, [measure])
    panels = {panel.get_xlabel(): panel for panel in figure.axes}
    assert list(panels) == ["α", "γ", "κ"] or set(panels) == {"α", "γ", "κ"}
    lines = {line.get_label(): line for line in panels["γ"].get_lines()}
    assert set(lines) == {"pause", "annealed"}
    assert [line.get_label() for line in panels["κ"].get_lines()] == ["annealed"]
    assert panels["α"].get_xscale() == "log" and lines["pause"].get_xdata().tolist() == [1.0, 5.0, 25.0]
    for policy, line in lines.items():
        for gamma, drawn in zip([1.0, 5.0, 25.0], line.get_ydata(), strict=True):
            mine = [
                p for p, r in enumerate(rows) if (r["policy"], r.get("privacy_weight")) == (policy, gamma)
            ]
            np.testing.assert_allclose(drawn, final["mean_latency"].values[mine].mean())
    for panel in panels.values():
        scaled = np.log if panel.get_xscale() == "log" else np.asarray
        levels, ends = scaled(panel.get_lines()[0].get_xdata()), scaled(panel.get_xlim())
        margin = 0.08 * (levels[-1] - levels[0])
        np.testing.assert_allclose(ends, [levels[0] - margin, levels[-1] + margin])


def test_trade_off_marks_the_front(grid):
    result, _, _ = grid
    final = analysis.finals(result)
    shown = measures_of(result)
    up = the(shown, "test_accuracy" if "test_accuracy" in result else "participation_imbalance")
    across, colour = the(shown, "mean_latency"), the(shown, "max_leakage")
    figure = trade_off(final, across, up, colour)
    objectives = (across.name, up.name, colour.name)
    front = analysis.pareto(result, objectives)
    (axes, _) = figure.axes
    outlined = [
        point
        for points in axes.collections
        for point in points.get_offsets()
        if points.get_linewidth()[0] > 0 and points.get_label().startswith("_")
    ]
    scales = [across.scale, up.scale]
    wanted = front["mean"].sel(metric=list(objectives[:2])).values * scales
    np.testing.assert_allclose(sorted(map(tuple, outlined)), sorted(map(tuple, wanted)))
    two = analysis.pareto(result, objectives[:2])
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_xydata(), two["mean"].values * scales)


def test_sampled_axes_are_cut_into_quantiles():
    result, _, _ = sampled(48, 2)
    levels = levels_of(analysis.finals(result))
    assert set(levels.axes) == {"generalization_weight", "budget_decay", "clients_per_round"}
    for name in levels.axes:
        before, after = result[name].values, levels.runs[name].values
        values = values_of(levels, name)
        assert 2 <= len(values) <= MAX_LEVELS and values == sorted(values)
        order = np.argsort(before)
        assert (np.diff(after[order]) >= 0).all()
    _, sizes = np.unique(levels.runs["budget_decay"].values, return_counts=True)
    assert sizes.tolist() == [12] * 8


def test_few_values_stay_as_they_are():
    result = build({"a": {"privacy_weight": [1.0, 2.0, 30.0]}}, 2, ("privacy_weight",))[0]
    assert values_of(levels_of(analysis.finals(result)), "privacy_weight") == [1.0, 2.0, 30.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000.0, "1000"),
        (0.004, "0.004"),
        (0.0312345, "0.0312"),
        (1e-7, "1e-7"),
        (123456.0, "1.23e5"),
        (7, "7"),
    ],
)
def test_levels_are_shown_briefly(value, text):
    assert shown(value) == text


def test_no_text_touches_another(grid):
    for name, figure in many.draw(grid[0]).items():
        try:
            assert_legible(figure)
        except AssertionError as clash:
            raise AssertionError(name) from clash


@pytest.mark.parametrize("seeds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_text_touches_another_with_sampled_axes(seeds):
    drawn = many.draw(sampled(48, seeds)[0])
    assert {"main_effects", "pareto", "heatmap_test_accuracy", "heatmap_max_leakage"} <= set(drawn)
    for figure in drawn.values():
        assert_legible(figure)
    # With one seed the band is over the points, so there is one all the same.
    bands = drawn["main_effects"].axes[0].collections
    assert np.isfinite(bands[0].get_paths()[0].vertices).all()


def test_an_unbounded_leakage_is_grey_and_no_number(grid):
    result, rows, _ = grid
    free = np.array([row["policy"] == "uniform" for row in rows])[:, None]
    result = result.assign(max_leakage=result["max_leakage"] + np.where(free, np.inf, 0))
    drawn = many.draw(result)
    assert "heatmap_max_leakage_uniform" not in drawn
    _, labels = drawn["pareto"].axes[0].get_legend_handles_labels()
    assert "unbounded" in labels
    for figure in drawn.values():
        assert_legible(figure)


def test_one_axis_has_no_heat_map_and_none_no_effects():
    result = build({"a": {"privacy_weight": [1.0, 2.0]}}, 3, ("privacy_weight",))[0]
    levels = levels_of(analysis.finals(result))
    assert heat_maps(levels, measures_of(result)[0], "a") is None
    alone = build({"a": {}}, 3, {})[0]
    assert main_effects(analysis.finals(alone), measures_of(alone)) is None


@pytest.mark.parametrize(("policy", "over"), [("pause", "seeds"), ("annealed", "seeds and the other axes")])
def test_a_heat_map_says_what_it_is_a_mean_over(policy, over, grid):
    result, _, _ = grid
    own = result.isel(run=np.flatnonzero((result["policy"] == policy).values))
    drawn = heat_maps(levels_of(analysis.finals(own)), measures_of(own)[0], policy)
    assert drawn.get_suptitle() == f"{policy}: mean over {over}"


def test_a_pdf_does_not_say_when_it_was_made(tmp_path):
    figure = new_figure(1, 1)
    save({"picture": figure}, tmp_path)
    assert b"/Producer" in (tmp_path / "picture.pdf").read_bytes()
    assert b"/CreationDate" not in (tmp_path / "picture.pdf").read_bytes()


def test_few_settings_are_drawn_as_lines_and_many_are_not(grid):
    result, _, _ = grid
    assert grids.is_many(result)
    assert "pareto" in draw(result)
    few = result.isel(run=np.flatnonzero((result["policy"] == "annealed").values))
    assert not grids.is_many(few)


@pytest.mark.parametrize(("settings", "many"), [(grids.MAX_LINES, False), (grids.MAX_LINES + 1, True)])
def test_a_picture_has_room_for_so_many_lines(settings, many):
    weights = np.linspace(1, 2, settings).tolist()
    assert grids.is_many(build({"a": {"privacy_weight": weights}}, 1, ("privacy_weight",))[0]) == many


@pytest.mark.slow
def test_report_command_draws_many_settings(grid, tmp_path, capsys):
    store(grid[0], tmp_path)
    assert cli.main(["report", str(tmp_path)]) == cli.OK
    assert "heatmap_max_leakage_annealed" in capsys.readouterr().out
    for picture in ("main_effects", "pareto", "heatmap_mean_latency_pause"):
        assert (tmp_path / f"{picture}.png").read_bytes()[1:4] == b"PNG"
        assert (tmp_path / f"{picture}.pdf").read_bytes()[:4] == b"%PDF"


def test_a_long_summary_shows_the_best_and_the_best_of_each_policy():
    policies = {"a": {"privacy_weight": np.linspace(1, 60, 60).tolist()}, "uniform": {}}
    result, rows, _ = build(policies, 3, ("privacy_weight",), "bandit")
    slow = np.array([row["policy"] == "uniform" for row in rows])[:, None]
    result = result.assign(elapsed=result["elapsed"] + 100 * slow)
    found = summary_table(result)
    labels = [str(text) for text in found.columns[0].cells]
    means = analysis.mean_ci(result, "mean_latency").sortby("mean")
    assert labels == [*means["label"].values[:20].tolist(), "uniform"]
    assert "the best 21 of 61 settings by simulated time per round" in found.caption


def test_summary_counts_the_runs_that_a_divergence_leaves():
    result = build({"a": {}}, 6, {})[0]
    result = result.assign(diverged_round=("run", np.array([0, 0, 3, 0, 1, 0])))
    (accuracy,) = summary_table(result).columns[1].cells
    assert accuracy.endswith("(4/6)")
    assert "(" not in next(iter(summary_table(result).columns[2].cells))


def test_lines_of_runs_that_stopped_early_end_where_the_first_does(tmp_path):
    result, _, last = build({"pause": {}}, 5, {})
    assert len(set(last)) > 1
    drawn = draw(result)
    (line,) = drawn["leakage_vs_rounds"].axes[0].get_lines()
    assert np.isfinite(line.get_ydata()).sum() == min(last)
    (line,) = drawn["leakage_vs_latency"].axes[0].get_lines()
    ends = np.nanmax(result["elapsed"].values, axis=1)
    assert np.isfinite(line.get_ydata()).all() and line.get_xdata()[-1] == pytest.approx(ends.min())
    assert len(save(drawn, tmp_path, ("png",))) == len(drawn)
