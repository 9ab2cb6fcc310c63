"""Pictures of many settings: what they draw against loops over the runs, and that no text touches another."""

import numpy as np
import pytest

from pausejax import analysis
from pausejax.commands import main as cli
from pausejax.kinds import draw, left_out
from pausejax.report import grid as grids
from pausejax.report import many, save
from pausejax.report.effects import main_effects
from pausejax.report.heatmaps import heat_maps, table
from pausejax.report.levels import levels_of, measures_of
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
    assert set(panels) == {"α", "γ", "κ"}
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
        low, high = panel.get_xlim()
        assert all((low < line.get_xdata()).all() and (line.get_xdata() < high).all() for line in panel.lines)


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


def drawn_of(result):
    """Every picture of many settings, the heat maps of what is shown unasked among them."""
    shown = measures_of(result)
    maps = many.maps(analysis.finals(result, [measure.name for measure in shown]), shown)
    unasked = many.draw(result)
    assert maps and not maps.keys() & unasked.keys()
    return unasked | maps


def test_what_is_left_out_of_pictures_that_are_not_drawn_is_not_said():
    result = sampled(48, 1, "bandit")[0]
    assert grids.arrange(result) is None
    assert not [line for line in left_out(result) if line.startswith("not in the pictures")]
    assert [line for line in left_out(result, by=["m"]) if line.startswith("not in the pictures")]


def test_of_many_axes_the_first_four_have_heat_maps():
    axes = [
        "privacy_weight",
        "generalization_weight",
        "budget_decay",
        "temperature_divisor",
        "latency_weight",
    ]
    result = build({"a": {name: [1.0, 2.0] for name in axes}}, 1, axes)[0]
    levels = levels_of(analysis.finals(result))
    assert len(levels.axes) == 5
    drawn = heat_maps(levels, measures_of(result)[0], "a")
    panels = [axes for axes in drawn.axes if axes.collections and axes.get_label() != "<colorbar>"]
    assert len(panels) == 6 and drawn.get_suptitle() == "a: mean over seeds and the other axes"


def test_no_text_touches_another(grid):
    for name, figure in drawn_of(grid[0]).items():
        try:
            assert_legible(figure)
        except AssertionError as clash:
            raise AssertionError(name) from clash


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_no_text_touches_another_with_sampled_axes(seeds):
    drawn = drawn_of(sampled(48, seeds)[0])
    assert {"main_effects", "pareto", "heatmap_test_accuracy", "heatmap_max_leakage"} <= set(drawn)
    for figure in drawn.values():
        assert_legible(figure)
    # A band is over seeds, so with one seed there is none.
    assert bool(drawn["main_effects"].axes[0].collections) == (seeds > 1)


def test_an_unbounded_leakage_is_grey_and_no_number(grid):
    result, rows, _ = grid
    free = np.array([row["policy"] == "pause" for row in rows])[:, None]
    result = result.assign(max_leakage=result["max_leakage"] + np.where(free, np.inf, 0))
    drawn = drawn_of(result)
    assert "heatmap_max_leakage_pause" not in drawn and "heatmap_max_leakage_annealed" in drawn
    _, labels = drawn["pareto"].axes[0].get_legend_handles_labels()
    assert "unbounded" in labels
    assert_legible(drawn["pareto"])


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


@pytest.mark.parametrize(("settings", "many"), [(grids.MAX_LINES, False), (grids.MAX_LINES + 1, True)])
def test_a_picture_has_room_for_so_many_lines(settings, many):
    weights = np.linspace(1, 2, settings).tolist()
    assert grids.is_many(build({"a": {"privacy_weight": weights}}, 1, ("privacy_weight",))[0]) == many


@pytest.mark.slow
def test_report_command_draws_many_settings(grid, tmp_path, capsys):
    store(grid[0], tmp_path)
    assert cli.main(["report", str(tmp_path)]) == cli.OK
    assert "heat maps of a measure are drawn by --measure NAME" in capsys.readouterr().out
    assert not list(tmp_path.glob("heatmap*"))
    for picture in ("main_effects", "pareto"):
        assert (tmp_path / f"{picture}.png").read_bytes()[1:4] == b"PNG"
        assert (tmp_path / f"{picture}.pdf").read_bytes()[:4] == b"%PDF"


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
