"""The charts of client selection, of numbers that are written down here and of made-up runs."""

import numpy as np
import pytest
import xarray as xr

from pausejax import analysis, kinds
from pausejax.analysis.quantities import Metric, described
from pausejax.clients import charts as listed
from pausejax.clients.variables import METRICS
from pausejax.plotting.data import Axis
from pausejax.plotting.grid import Cell, Grid, Line

from ..analysis.made_up import CLIENTS, EVALUATED, build
from ..legible import assert_legible

PLAYED = 30
OWN = {
    "harm": Metric("harm", "total", False, "kg", "harm that is done", label="harm (kg)"),
    "unsaid": Metric("harm", "last", False, "1", "a figure without a label"),
    "final": Metric("once", "itself", None, "1", "a number of the whole run", label="once"),
}
ATTRIBUTES = {
    **described({**METRICS, **OWN}, ("test_accuracy", "mean_latency", "max_leakage"), "test_accuracy", {}),
    "axes": "[]",
}
RAMP = np.linspace(0.0, 15.0, PLAYED)


def runs(count=2, /, **variables):
    """Runs with some variables [round] or [run, round], the same for all runs where [round]."""
    shape = (count, PLAYED)
    whole = dict.fromkeys(("max_leakage", "regret", "pseudo_regret", "harm"), np.zeros(PLAYED)) | variables
    found = {name: (("run", "round"), np.broadcast_to(v, shape).copy()) for name, v in whole.items()}
    found["selected"] = (("run", "round", "slot"), np.tile([0, 1, -1], (*shape, 1)))
    found["counts"] = (("run", "client"), np.full((count, 3), 10))
    found["once"] = ("run", np.ones(count))
    coords = {
        "round": np.arange(1, PLAYED + 1),
        "seed": ("run", np.arange(count)),
        "clients_per_round": ("run", np.full(count, 2)),
        "privacy_budget": ("run", np.full(count, 40.0)),
        "policy": ("run", np.full(count, "pause")),
    }
    return xr.Dataset(found, coords, ATTRIBUTES)


def greedy(found):
    """The same with three clients in one round of one run."""
    selected = found["selected"].copy(deep=True)
    selected[-1, 4] = [0, 1, 2]
    return found.assign(selected=selected)


def grid(*found):
    return Grid((Cell("", tuple(Line(f"line {n}", "pause", one, n) for n, one in enumerate(found))),), 1)


def made(*found):
    """The charts of some lines by name."""
    return {chart.name: chart for chart in listed.charts(found[0], grid(*found), smoothing=1)}


def leakage(*found):
    return made(*found)["max_leakage_vs_round"].panels[0]


def test_the_budget_is_shown_where_leakage_comes_half_as_high():
    budget = ("budget ε̄ = 40 per update", 40.0)
    assert leakage(runs(max_leakage=RAMP)).levels == ()
    near = runs(max_leakage=RAMP * 20 / 15)
    assert leakage(near).levels == (budget,) and leakage(near).y == Axis("maximum leakage ε", zero=True)
    # Of several budgets none is that of the panel, whether they are in one line or in two.
    assert leakage(near.assign_coords(privacy_budget=("run", [10.0, 40.0]))).levels == ()
    assert leakage(near, near.assign_coords(privacy_budget=("run", [50.0, 50.0]))).levels == ()
    assert leakage(runs(max_leakage=np.inf)).levels == ()
    assert leakage(near, runs(max_leakage=np.inf)).levels == (budget,)
    # A run without privacy in one round has no budget to be compared with.
    once = np.append(RAMP[:-1], np.inf)
    other = runs(max_leakage=once).assign_coords(privacy_budget=("run", [9.0, 9.0]))
    assert leakage(near, other).levels == (budget,)


@pytest.mark.parametrize(
    ("clips", "words"),
    [
        (["vector", "vector"], "per update"),
        (["coordinate", "coordinate"], "per coordinate"),
        (["", "coordinate"], "per coordinate"),
        (["vector", "coordinate"], ""),
    ],
)
def test_the_budget_is_said_to_be_that_of_what_is_clipped(clips, words):
    unread = ["" if clip else "clip" for clip in clips]
    found = runs(max_leakage=2 * RAMP).assign_coords(clip=("run", clips), unread_parameters=("run", unread))
    ((said, _),) = leakage(found).levels
    assert said == f"budget ε̄ = 40 {words}".strip()


def test_who_leaks_without_bound_has_a_line_as_long_as_there_is_one():
    once = np.tile(RAMP, (2, 1))
    once[1, -1] = np.inf
    panel = leakage(runs(max_leakage=RAMP), runs(max_leakage=once), runs(max_leakage=np.inf))
    bounded, partly, never = panel.series
    assert np.isfinite(bounded.y).all() and not np.isfinite(never.y).any()
    assert np.isfinite(partly.y[:-1]).all() and np.isnan(partly.y[-1])
    assert "line 1 (1 of 2 runs), line 2 (2 of 2 runs)" in panel.note


@pytest.mark.parametrize(
    ("variable", "name", "x"),
    [
        ("regret", "cumulative_regret", Axis("round", zero=True)),
        ("expected_regret", "cumulative_expected_regret", Axis("round", zero=True)),
        ("pseudo_regret", "cumulative_pseudo_regret", Axis("round", "log")),
    ],
)
def test_regret_is_added_up_for_those_that_take_m_clients(variable, name, x):
    lost = 1.0 + np.arange(2 * PLAYED).reshape(2, PLAYED) % 7
    found = runs(**{"expected_regret": RAMP, variable: lost})
    (panel,) = made(greedy(found), found)[f"{name}_vs_round"].panels
    (line,) = panel.series
    expected = [(sum(lost[0, :t]) + sum(lost[1, :t])) / 2 for t in range(1, PLAYED + 1)]
    assert (line.label, line.style) == ("line 1", 1)
    np.testing.assert_allclose([line.x, line.y], [np.arange(1, PLAYED + 1), expected], rtol=1e-6)
    assert (panel.x, panel.y.scale, panel.y.zero) == (x, "symlog", True)
    (panel,) = made(runs(**{"expected_regret": RAMP, variable: -lost}))[f"{name}_vs_round"].panels
    assert (panel.y.scale, panel.y.zero) == ("symlog", False)


def test_the_gap_is_the_mean_of_the_last_20_rounds_in_which_all_runs_chose():
    rng = np.random.default_rng(0)
    gap = rng.random((3, PLAYED))
    gap[0, 0], gap[1, :2], gap[2, 7] = np.inf, np.inf, np.nan
    (panel,) = made(runs(3, selection_gap=gap))["selection_gap_vs_round"].panels
    kept = [t for t in range(PLAYED) if t not in (0, 1, 7)]
    expected = [
        np.mean([gap[:, u] for u in kept[max(place - 19, 0) : place + 1]]) for place in range(len(kept))
    ]
    np.testing.assert_allclose([panel.series[0].x, panel.series[0].y], [np.array(kept) + 1, expected])
    assert panel.x.zero and panel.y.zero
    assert "selection_gap_vs_round" not in made(runs())


def test_participation_is_of_lines_whose_runs_have_the_same_clients():
    counted = runs().assign(counts=(("run", "client"), [[4, 0, 1, -1], [6, 2, 0, -1]]))
    mixed = runs().assign(counts=(("run", "client"), [[4, 0, 1, 7], [6, 2, 0, -1]]))
    chart = made(counted, mixed)["participation"]
    (panel,) = chart.panels
    (points,) = panel.series
    assert panel.title == "line 0" and points.mark == "point" and panel.y.zero
    np.testing.assert_allclose([points.x, points.y], [[0, 1, 2], [5, 1, 0.5]])
    assert panel.levels == (("equal share", 13 / 6),)
    said = listed.omitted(counted, grid(counted, mixed))
    assert any("differ in the number of clients: line 1" in line for line in said)
    # Who takes more than m clients is left out, and of several panels there is no such chart.
    assert "participation" not in made(greedy(counted), mixed)
    two = Grid(grid(counted).panels * 2, 2)
    assert "participation" not in {chart.name for chart in listed.charts(counted, two, smoothing=1)}
    assert any("drawn only for one panel" in line for line in listed.omitted(counted, two))


def test_the_chart_of_a_studys_own_quantity_shows_its_metric():
    """As in tables: of a total, the sum so far."""
    drawn = made(runs(harm=RAMP))
    assert "harm_vs_round" in drawn and not {"unsaid_vs_round", "final_vs_round"} & drawn.keys()
    (panel,) = drawn["harm_vs_round"].panels
    np.testing.assert_allclose(panel.series[0].y, np.cumsum(RAMP), rtol=1e-6)
    assert panel.y.label == "harm (kg)"


def test_each_task_has_a_chart_with_its_runs():
    """A run has no value of another task's metric. A run that has none at all is named in each chart."""
    absent, rising = np.full(2, np.nan), np.array([0.25, 0.5])
    error = Metric("test_rmse", "last", False, "1", "final error", learned=True, label="rmse")
    tables = described({"test_rmse": error, **METRICS}, ("test_rmse", "mean_latency"), "test_rmse", {})

    def evaluated(rmse, accuracy):
        numbers = {"test_rmse": rmse, "test_accuracy": accuracy}
        found = {name: (("run", "eval"), np.tile(one, (2, 1))) for name, one in numbers.items()}
        found["diverged_round"] = ("run", np.zeros(2))
        whole = runs(elapsed=RAMP).assign(found).assign_coords(eval_round=("eval", [15, 30]))
        return whole.assign_attrs(tables)

    drawn = made(evaluated(rising, absent), evaluated(absent, rising), evaluated(absent, absent))
    for name, line, y in (("test_rmse", "line 0", rising), ("test_accuracy", "line 1", 100 * rising)):
        (panel,) = drawn[f"{name}_vs_round"].panels
        assert [one.label for one in panel.series if one.y.size] == [line]
        np.testing.assert_allclose(panel.series[0].y, y)
        assert panel.note == "no line, because its runs have no value: line 2"
        assert f"{name}_vs_time" in drawn
    alone = made(evaluated(rising, absent))  # such as `report --where task=regression`
    assert "test_rmse_vs_round" in alone and "test_accuracy_vs_round" not in alone


def test_who_is_in_no_chart_of_regret_is_named():
    """A line that is missing is named, though another of the same policy is drawn."""
    quiet = runs(max_leakage=RAMP)
    found = {"p": quiet, "q": greedy(quiet), "r": greedy(quiet), "q, γ = 1": quiet}
    for kept, expected in (("pqr", ["q, r"]), ("p", []), ("r", ["r"])):
        lines = tuple(Line(label, label, one) for label, one in found.items() if label[0] in kept)
        told = listed.omitted(quiet, Grid((Cell("", lines),), 1))
        assert [text.rpartition(": ")[2] for text in told] == expected


@pytest.fixture(scope="module")
def result():
    """Eight runs of one policy on five clients, some of them short, some diverged."""
    found, _, last = build({"pause": {}}, 8, {})
    assert len(set(last)) > 1
    return found


@pytest.fixture(scope="module")
def drawn(result):
    return {name: chart.panels[0].series[0] for name, chart in kinds.charts(result).items()}


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.5, 7.0])
def test_everything_written_lies_in_the_figure(result, width):
    charts = kinds.charts(result.assign(expected_regret=np.abs(result["regret"])))
    assert {"selection_gap_vs_round", "cumulative_expected_regret_vs_round"} <= charts.keys()
    for chart in charts.values():
        assert_legible(chart.figure(width))


def test_lines_of_runs_that_stopped_early_end_where_the_first_does(result, drawn):
    last = (result["selected"].values[:, :, 0] >= 0).sum(axis=1)
    assert np.isfinite(drawn["max_leakage_vs_round"].y).sum() == min(last)
    line = drawn["max_leakage_vs_time"]
    ends = np.nanmax(result["elapsed"].values, axis=1)
    assert np.isfinite(line.y).all() and line.x[-1] == pytest.approx(ends.min())


def test_leakage_is_the_largest_clients(result, drawn):
    leaked = result["max_leakage"].values.astype(float)
    np.testing.assert_allclose(drawn["max_leakage_vs_round"].y, leaked.mean(axis=0), rtol=1e-6)
    line = drawn["max_leakage_vs_time"]
    clock = result["elapsed"].values.astype(float)
    played = [~np.isnan(own) for own in clock]
    for time, value in zip(line.x[::60], line.y[::60], strict=True):
        known = zip(clock, leaked, played, strict=True)
        expected = [values[there][own[there] <= time][-1] for own, values, there in known]
        assert value == pytest.approx(np.mean(expected), rel=1e-6)


def test_accuracy_is_in_per_cent_without_diverged_runs(result, drawn):
    kept = result["diverged_round"].values == 0
    assert 2 <= kept.sum() < 8
    accuracy = result["test_accuracy"].values[kept].astype(float)
    line = drawn["test_accuracy_vs_round"]
    np.testing.assert_array_equal(line.x, EVALUATED)
    np.testing.assert_allclose(line.y, 100 * accuracy.mean(axis=0), rtol=1e-6)
    line = drawn["test_accuracy_vs_time"]
    clock = result["elapsed"].values[kept][:, EVALUATED - 1].astype(float)
    known = [
        (own[there], row[there])
        for own, row in zip(clock, accuracy, strict=True)
        if (there := ~np.isnan(own)).any()
    ]
    assert line.x[0] == pytest.approx(max(own[0] for own, _ in known))
    for time, value in zip(line.x[::60], line.y[::60], strict=True):
        assert value == pytest.approx(100 * np.mean([row[own <= time][-1] for own, row in known]), rel=1e-6)
    chart = kinds.charts(result)["test_accuracy_vs_time"]
    assert "(%)" in chart.panels[0].y.label and f"{(~kept).sum()} of 8 runs diverged" in chart.caption


def test_participation_goes_from_the_fastest_client_to_the_slowest(result, drawn):
    expected = result["counts"].values.mean(axis=0)
    assert len(set(expected)) > 3
    np.testing.assert_allclose(
        [drawn["participation"].x, drawn["participation"].y], [np.arange(CLIENTS), expected]
    )


MORE = ("test_accuracy", "cumulative_reward", "exact_share")
NEITHER = ("rounds_played", "diverged_round")


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_best_setting_is_that_of_the_most_accuracy_and_reward_and_of_the_least_else(metric):
    result, rows, _ = build({"a": {"annealing_divisor": [1.0, 2.0, 3.0, 4.0]}}, 3, ("annealing_divisor",))
    rng, shape = np.random.default_rng(1), result["elapsed"].shape
    others = ("reward", "expected_regret", "regret_own_history", "max_leakage_update", "train_loss")
    result = result.assign({name: (("run", "round"), rng.random(shape)) for name in others})
    result["test_loss"] = (("run", "eval"), rng.random(result["test_accuracy"].shape))
    result["diverged_round"] = ("run", np.zeros(shape[0], int))
    if metric.startswith("cumulative_") or metric == "elapsed":
        with pytest.raises(ValueError, match="is a sum over 8 to 12 rounds"):
            analysis.best(result, metric)
        result = result.fillna(0.0)  # as if all runs had played every round
    if metric in NEITHER:
        with pytest.raises(ValueError, match="neither more nor less is better"):
            analysis.best(result, metric)
        return
    final = analysis.finals(result)[metric].values
    weight = np.array([row["annealing_divisor"] for row in rows])
    means = [np.nanmean(final[weight == value]) for value in (1.0, 2.0, 3.0, 4.0)]
    assert len(set(means)) == 4
    place = np.argmax(means) if metric in MORE else np.argmin(means)
    assert float(analysis.best(result, metric)["annealing_divisor"]) == place + 1
