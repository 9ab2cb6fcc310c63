"""Tables of a page: what they say is what the analysis says."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

import pausejax
from pausejax import analysis, page
from pausejax.analysis.summaries import summary_text
from pausejax.commands.tables import print_summary
from pausejax.page import figures, tables
from pausejax.plotting.data import Axis, ChartData, Panel, Series, Sweep
from pausejax.plotting.explorer import explorer

from ..analysis.made_up import AXES, POLICIES, build
from ..plotting.every_kind import charts
from ..plotting.made import runs_of, with_figures


def test_numbers_beneath_a_chart_are_the_chart_s():
    made = charts(("PAUSE", "random"))
    (table,), more = figures.numbers(made["regret_vs_round"])
    last = np.sqrt(40)
    assert (
        table.rows[0] == ("PAUSE", "40", f"{last:.4g}", f"{0.9 * last:.4g} to {1.1 * last:.4g}") and not more
    )
    first, second = figures.numbers(made["heatmap_time"])[0]
    cells = made["heatmap_time"].panels[0].cells
    assert first.headings[1:] == ("1", "3", "30") and [row[0] for row in first.rows] == ["100", "0.1"]
    assert first.rows[1][1:] == (f"{cells[0, 0]:.4g}", "–", f"{cells[0, 2]:.4g}") and len(second.rows) == 2
    (table,), more = figures.numbers(made["pareto"])
    assert table.headings[1] == "point" and table.rows[0][1].startswith("PAUSE, κ = ")
    x = np.arange(100.0)
    many = tuple(Series(f"s{place}", x, x, mark="point") for place in range(3))
    (table,), more = figures.numbers(ChartData("a_b", "", (Panel(Axis("x"), Axis("y"), many),)))
    assert len(table.rows) == 60 and more


def test_points_of_panels_with_unlike_axes_say_whose_they_are():
    point = (Series("pause", np.ones(1), np.ones(1), mark="point"),)
    panels = tuple(Panel(Axis(name), Axis("time"), point) for name in "αγ")
    (table,), _ = figures.numbers(ChartData("effects", "", panels))
    assert table.headings == ("series", "panel", "x", "y")
    assert [row[1] for row in table.rows] == ["time against α", "time against γ"]
    (table,), _ = figures.numbers(ChartData("curves", "", panels[:1] * 2))
    assert table.headings == ("series", "α", "time")


def test_a_switch_of_the_scale_stands_where_all_values_are_positive():
    made = charts()
    switches = {figure.name: figure.scales for figure in figures.figures(made)[0]}
    assert switches["regret_vs_round"] == [("y", False), ("x", False)]
    assert switches["leakage_vs_round"] == [("y", True), ("x", False)]
    assert switches["realized_vs_round"] == [] == switches["heatmap_time"]
    assert switches["participation"] == []


def test_the_table_is_the_printed_one(study):
    written = io.StringIO()
    print_summary(Console(file=written, width=500), summary_text(study))
    read = tables.summary(study)
    lines = [line.split("  ") for line in written.getvalue().splitlines()]
    printed = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert all(list(row) in printed for row in read.rows) and len(read.rows) == 4


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_narrow_terminal_has_every_label_and_number(study, width):
    console = Console(file=io.StringIO(), width=width)
    print_summary(console, summary_text(study))
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    for label, *cells in tables.summary(study).rows:
        own = [line for line in lines if line.startswith(label[:12])]  # a long label is folded
        assert all(any(cell in re.split("  +", line)[1:] for line in own) for cell in cells)


@pytest.mark.parametrize("label", ["a", "b" * 50])
def test_where_there_is_room_a_heading_or_a_label_has_one_line(label):
    console = Console(file=io.StringIO(), width=100)
    runs = with_figures(runs_of([{"policy": label}, {"policy": "c"}]), loss=[1.0, 2.0])
    metrics = json.loads(runs.attrs["metrics"])
    metrics["loss"]["heading"] = "loss"
    print_summary(console, summary_text(runs.assign_attrs(ranking="loss", metrics=json.dumps(metrics))))
    words = console.file.getvalue().split()
    assert {"policy", label, "c"} <= set(words)


def test_another_policy_can_be_what_is_compared_with():
    result, _, _ = build(POLICIES, 3, AXES)
    names = list(dict.fromkeys(result["policy"].values.tolist()))
    found, _ = tables.differences(result, names[-1])
    assert found.title == names[-1] and not any(row[0].startswith(names[-1]) for row in found.rows)
    assert f"Difference from {names[-1]}" in page.build(result, {}, baseline=names[-1])
    with pytest.raises(ValueError, match=r"baseline = 'x': must be one of 'pause', "):
        page.build(result, {}, baseline="x")


def test_differences_are_those_of_the_analysis():
    result, _, _ = build(POLICIES, 5, AXES, whole=True)
    found, left_out = tables.differences(result)
    first, *rivals = dict.fromkeys(result["policy"].values.tolist())
    assert found.title == first == "annealed" and not left_out
    column = found.headings.index("simulated time, s")
    sides = [analysis.paired_difference(result, one, first, "elapsed") for one in rivals]
    count = sum(side.sizes["setting"] for side in sides)
    assert len(found.rows) == count == 16 and "99.69 % each, so that all 16" in found.caption
    row = 0
    for rival in rivals:
        expected = analysis.paired_difference(result, rival, first, "elapsed", level=1 - 0.05 / count)
        for place in range(expected.sizes["setting"]):
            mean, low, high = (float(expected[name][place]) for name in ("mean", "low", "high"))
            assert found.rows[row][0].startswith(rival)
            assert found.rows[row][column] == f"{mean:+.1f}\n{low:+.1f} to {high:+.1f}"
            word = "" if low <= 0 <= high else "better" if mean < 0 else "worse"
            assert found.marks[row][column - 1] == word
            row += 1


def equal_policies(count, seeds, metrics, rng):
    """Figures of runs that differ by nothing but luck; a seed's network is met by all."""
    runs = runs_of([{"policy": f"p{n}", "seed": seed} for n in range(count) for seed in range(seeds)])
    figures = {
        f"m{n}": (rng.normal(size=(1, seeds)) + rng.normal(size=(count, seeds))).ravel()
        for n in range(metrics)
    }
    made = with_figures(runs, [True] * metrics, **figures)
    table = {name: {**metric, "heading": name} for name, metric in json.loads(made.attrs["metrics"]).items()}
    return made.assign_attrs(metrics=json.dumps(table))


def test_runs_without_a_partner_are_counted_in_a_note():
    result = build({"a": {}, "b": {}}, 5, (), "bandit", whole=True)[0]
    fewer = result.isel(run=np.flatnonzero((result["policy"].values == "a") | (result["seed"].values < 3)))
    _, notes = tables.differences(fewer, "b")
    assert notes == ["paired differences of a and b leave out 2 runs without a partner"]
    apart = result.isel(run=np.flatnonzero((result["policy"].values == "a") == (result["seed"].values < 3)))
    _, notes = tables.differences(apart, "b")
    assert notes == [
        "no paired differences: a and b: can't be paired, because no two of their runs have the same seed"
    ]


@pytest.mark.slow
def test_equal_policies_are_seldom_marked():
    """12 columns of 7 rivals: a column has a mark with a probability of at most 0.05, 4 of 12 with 0.002."""
    found, _ = tables.differences(equal_policies(8, 10, 12, np.random.default_rng(0)))
    assert len(found.rows) == 7 and sum(map(any, zip(*found.marks, strict=True))) < 4


def test_a_difference_says_how_many_pairs_are_left():
    rng = np.random.default_rng(0)
    result = equal_policies(2, 4, 1, rng)
    table = json.loads(result.attrs["metrics"])
    table["m0"]["learned"] = True
    result["m0"][5] = np.nan
    found, _ = tables.differences(result.assign_attrs(metrics=json.dumps(table)))
    assert found.rows[0][1].endswith("\n(3/4)") and "interval over 4 seeds, 95 %" in found.caption


def test_seeds_are_counted_not_runs():
    """Two values may be played alike, such as a rate of 0, which stands for another value of the axis."""
    result = equal_policies(2, 4, 1, np.random.default_rng(0))
    found, _ = tables.differences(result.isel(run=np.repeat(np.arange(result.sizes["run"]), 2)))
    assert found.caption.endswith("interval over 4 seeds, 95 %")


def test_without_pairs_the_page_says_why():
    one_seed, _, _ = build(POLICIES, 1, AXES)
    assert tables.differences(one_seed) == (
        None,
        ["no paired differences: with one seed, they have no intervals"],
    )
    gammas = {"pause": {"privacy_weight": [1.0, 5.0, 25.0]}}
    alone, _, _ = build(gammas, 4, {"privacy_weight": "gamma"}, whole=True)
    found, left_out = tables.differences(alone)
    assert len(left_out) == 1 and "not comparable between runs with different γ" in left_out[0]
    labels = list(dict.fromkeys(analysis.mean_ci(alone, "elapsed")["label"].values.tolist()))
    assert [found.title, *(row[0] for row in found.rows)] == labels
    single, _, _ = build({"pause": {}}, 4, {})
    assert tables.differences(single)[0] is None and len(tables.differences(single)[1]) == 1


def test_a_row_names_no_setting_that_was_not_simulated():
    """The baseline has two values, the other policy has one of them."""
    axes = {"random": {"learning_rate": [0.001, 0.03]}, "pause": {"learning_rate": [0.03]}}
    found, _ = tables.differences(build(axes, 4, {"learning_rate": "eta"})[0], "random")
    assert sorted(row[0] for row in found.rows) == [
        "pause, learning_rate = 0.03",
        "pause, learning_rate = 0.03, minus random with learning_rate = 0.001",
    ]


def test_a_result_of_an_older_release_says_what_it_does_not_know(study):
    old = study.copy()
    del old.attrs["made"], old.attrs["spec"]
    assert tables.facts(old)[-3:] == [
        ("devices", ["not recorded"]),
        ("versions", ["not recorded"]),
        ("command", ["not recorded"]),
    ]
    assert "not recorded" in page.build(old, {})


def simulated(**parameters):
    asked = {"mode": "bandit", "seeds": 4, "rounds": 20, "num_clients": 6, "clients_per_round": 2}
    return pausejax.simulate(**{**asked, **parameters})


def cells_of(table, heading):
    place = table.headings.index(heading)
    return [row[place] for row in table.rows], [row[place - 1] for row in table.marks]


@pytest.mark.slow
def test_what_cannot_be_compared_has_no_difference():
    """Regrets under unlike γ: of the settings of one policy, and of two policies that fix it unlike."""
    swept = simulated(policies="pause", gamma=[1.0, 25.0])
    fixed = simulated(policies=[{"name": "pause", "gamma": 1.0}, {"name": "random", "gamma": 25.0}])
    for result in (swept, fixed):
        table, notes = tables.differences(result)
        for heading in ("pseudo-regret", "realized regret"):
            assert cells_of(table, heading) == (["–"], [""])
        assert cells_of(table, "simulated time, s")[0] != ["–"]
        assert [
            note
            for note in notes
            if "no paired differences of cumulative_pseudo_regret, cumulative_regret" in note
        ]
    # Within one γ they are compared, for each γ.
    both = simulated(policies=["pause", "random"], gamma=[1.0, 25.0])
    table, notes = tables.differences(both)
    assert len(table.rows) == 2 and "–" not in cells_of(table, "pseudo-regret")[0] and not notes


@pytest.mark.slow
def test_the_table_of_all_settings_tells_infinite_from_missing():
    values = np.array([[1.0, np.inf], [2.0, np.nan], [3.0, 0.5]])
    sweep = Sweep(("a", "b", "c"), (Axis("γ"), Axis("leakage")), values, 1, np.array([0, 0, 1]), (0, 1, 1))
    table = figures.settings(sweep)
    assert table.rows == [("c", "yes", "0.5", "3"), ("a", "", "∞", "1"), ("b", "", "–", "2")]
    assert "Infinity" not in json.dumps(explorer(sweep))


def test_averaging_over_many_settings_mixes_no_unlike_rewards():
    result = simulated(policies=["pause", "random"], gamma=list(range(1, 11)), seeds=2)
    table, notes = tables.differences(result)
    assert "values are first averaged over γ" in table.caption
    assert cells_of(table, "pseudo-regret")[0] == ["–"] and len(notes) == 1


@pytest.mark.slow
def test_accuracies_on_unlike_data_have_no_difference(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for name in "ab":
        files.append(str(tmp_path / f"{name}.npz"))
        np.savez(files[-1], **samples(rng, "train", 60), **samples(rng, "test", 20))
    result = pausejax.simulate(
        "random",
        seeds=2,
        rounds=2,
        eval_every=1,
        num_clients=3,
        clients_per_round=2,
        dataset="npz",
        data_file=files,
        batch_size=5,
    )
    table, notes = tables.differences(result)
    assert cells_of(table, "final accuracy, %") == (["–"], [""]) and any("data" in note for note in notes)


def samples(rng, split, count):
    inputs, labels = rng.normal(size=(count, 4)).astype("f4"), np.arange(count) % 2
    return {f"x_{split}": inputs, f"y_{split}": labels}
