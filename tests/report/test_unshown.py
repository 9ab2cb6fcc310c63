"""What pictures leave out, word for word, and which pictures of many settings there are."""

import json

import numpy as np
import pytest

from pausejax.analysis.quantities import Metric
from pausejax.report import many
from pausejax.report.asked import chosen
from pausejax.report.grid import arrange
from pausejax.report.unshown import left_out

from .made import crossed, names, runs_of

METRICS = {
    "loss": Metric("loss", "last", False, "1", "loss", label="loss", scaled_by=("alpha", "eta")),
    "time": Metric("time", "total", False, "s", "time"),
    "nothing": Metric("nothing", "mean", False, "1", "nothing"),
    "played": Metric("time", "rounds_played", None, "1", "rounds"),
    "final": Metric("final", "itself", True, "1", "final"),
    "other": Metric("time", "mean", True, "1", "other"),
}
ALIASES = {"alpha": (("a", "weight"), "α"), "eta": ((), "η"), "gamma": (("g",), "γ")}


def result_of(rows, **changed):
    """Numbers that grow with the runs."""
    runs = runs_of(rows)
    number = np.arange(1.0, len(rows) + 1)
    series = np.stack([number, 2 * number], 1)
    return runs.assign(
        loss=(("run", "round"), series),
        time=(("run", "round"), series),
        nothing=(("run", "round"), np.full_like(series, np.nan)),
        final=("run", number),
    ).assign_attrs(
        metrics=json.dumps({name: metric._asdict() for name, metric in {**METRICS, **changed}.items()}),
        parameters=json.dumps(ALIASES),
        objectives=json.dumps(["time", "loss", "final"]),
        ranking="loss",
    )


MORE = "more can be drawn by --measure NAME: time, nothing, played, other"


def test_what_can_be_asked_for_is_listed():
    assert left_out(result_of(crossed(alpha=[1.0, 2.0]))) == [MORE]
    alone = {name: metric._replace(label=name) for name, metric in METRICS.items() if name != "nothing"}
    alone["nothing"] = METRICS["nothing"]._replace(reduce="itself")
    assert left_out(result_of([{"alpha": 1.0}], **alone)) == []


def test_of_many_settings_it_is_said_what_cannot_be_compared():
    rows = crossed(alpha=[2.0, 1.0], eta=[0.5, 0.1], zeta=names(5))
    assert left_out(result_of(rows)) == [
        MORE,
        "loss: no heat maps or main effects: it means something else for each alpha and eta; "
        "choose one: --where a=1,eta=0.1; all the same: --measure loss",
    ]
    assert left_out(result_of(crossed(zeta=names(5), gamma=[1.0, 2.0, 3.0, 4.0]))) == [MORE]


def test_too_much_that_varies_comes_with_two_ways_out():
    rows = crossed(policy=["p", "q"], alpha=[2.0, 1.0], eta=[0.5, 0.1], gamma=[3.0, 4.0], zeta=["x", "y"])
    assert left_out(result_of(rows))[0] == (
        "no curves: too much varies for one grid of panels (policy, a, eta, g, zeta); name the axes of lines "
        "and panels, the others are averaged: --by policy,a, or fix some: --where a=2"
    )
    # Seventeen are too many for lines.
    rows = crossed(zeta=names(17), alpha=[2.0, 1.0], gamma=[3.0, 4.0], eta=[0.5, 0.1])
    assert ": --by a,g, or fix some: --where " in left_out(result_of(rows))[0]
    arrange(result_of(rows), ["a", "g"])
    rows = crossed(zeta=names(17), policy=names(17))
    assert left_out(result_of(rows))[0].endswith("(policy, zeta); fix some: --where zeta=" + names(1)[0])
    rows = crossed(policy=["p", "q"], alpha=[2.0, 1.0], eta=[0.5, 0.1], gamma=[3.0, 4.0], zeta=["x", "y"])
    assert left_out(result_of(rows), by=["g", "policy"])[0] == (
        "curves are means over α, η, zeta too: fix them by --where, or add them to --by"
    )


@pytest.mark.parametrize(
    ("measures", "said"),
    [
        (["time"], []),
        (["nothing"], ["nothing: no run has a finite value"]),
        (["played"], ["played: is one figure for a run and has no curve"]),
        (["loss"], []),
        (["time", "loss"], ["no front: loss means something else for each alpha; choose one: --where a=1"]),
        (
            ["time", "played"],
            ["played: is one figure for a run and has no curve", "no front: neither way of played is better"],
        ),
        (["time", "other", "nothing"], ["nothing: no run has a finite value"]),
        (
            ["time", "other", "final", "loss"],
            [
                "final: is one figure for a run and has no curve",
                "the front weighs the first three measures, not loss",
            ],
        ),
    ],
)
def test_of_each_measure_it_is_said_what_it_lacks(measures, said):
    assert left_out(result_of(crossed(alpha=[1.0, 2.0])), measures=measures) == said


def test_one_number_among_infinite_ones_is_a_value():
    result = result_of(crossed(alpha=[1.0, 2.0]))
    result["time"][0] = np.inf
    assert left_out(result, measures=["time"]) == []


def test_a_variable_without_a_metric_is_drawn_as_it_is():
    result = result_of([{"alpha": 1.0}])
    result["queue_length"] = (("run", "round"), [[1.0, 2.0]])
    result["delay"] = (("run", "round"), [[1.0, 2.0]], {"units": "s", "long_name": "waiting time"})
    runs, found = chosen(result, ["queue_length", "delay", "loss", "delay"])
    assert [(m.name, m.label, m.running) for m in found] == [
        ("queue_length", "queue length", "last"),
        ("delay", "waiting time (s)", "last"),
        ("loss", "loss", "last"),
    ]
    assert set(json.loads(runs.attrs["metrics"])) == {*METRICS, "queue_length", "delay"}
    # What is added up is drawn as its sum, also where its own name is asked for.
    other = result_of([{"alpha": 1.0}], spent=Metric("cost", "total", False, "1", "spent"))
    other["cost"] = other["time"]
    _, (spent,) = chosen(other, ["cost"])
    assert (spent.name, spent.running) == ("spent", "total")


def drawn_of(rows, monkeypatch, **changed):
    """The names of all pictures, and what each is asked to show."""
    monkeypatch.setattr(many, "main_effects", lambda runs, own: (runs.sizes["run"], [m.name for m in own]))
    monkeypatch.setattr(
        many, "heat_maps", lambda levels, measure, policy: (levels.runs.sizes["run"], measure.name, policy)
    )
    monkeypatch.setattr(
        many, "trade_off", lambda runs, *measures: (runs.sizes["run"], *(m and m.name for m in measures))
    )
    labels = {name: METRICS[name]._replace(label=name, scaled_by=()) for name in ("loss", "time", "final")}
    result = result_of(rows, **{**labels, **changed})
    return result, many.draw(result)


def test_pictures_are_named_after_policies_and_data_sets(monkeypatch):
    rows = crossed(policy=["p, q", "r"], dataset=["x y", "z"], gamma=[1.0, 2.0])
    result, drawn = drawn_of([row for row in rows if row != rows[-1]], monkeypatch)
    measures = ["loss", "time", "final"]
    expected = {"main_effects_x_y": (4, measures), "main_effects_z": (3, measures)}
    for policy, short in (("p, q", "p_q"), ("r", "r")):
        for data, runs in (("x_y", 2), ("z", 2 if policy != "r" else 1)):
            expected |= {f"heatmap_{m}_{short}_{data}": (runs, m, policy) for m in measures}
    # Across, up and in colour; a result says up, across, colour.
    expected |= {"pareto_x_y": (4, "loss", "time", "final"), "pareto_z": (3, "loss", "time", "final")}
    assert drawn == expected
    two = many.fronts(many.finals(result), chosen(result, ["time", "loss"])[1])
    assert two["pareto_z"] == (3, "loss", "time", None)


def test_a_measure_that_is_not_on_one_scale_is_in_no_table(monkeypatch):
    rows = crossed(alpha=[1.0, 2.0])
    unlike = METRICS["loss"]._replace(label="loss", scaled_by=("alpha",))
    _, drawn = drawn_of(rows, monkeypatch, loss=unlike)
    assert set(drawn) == {"main_effects", "heatmap_time", "heatmap_final"}
    _, drawn = drawn_of(rows, monkeypatch, final=METRICS["final"]._replace(label=""))
    assert set(drawn) == {"main_effects", "heatmap_time", "heatmap_loss"}


def test_a_fourth_measure_is_not_weighed(monkeypatch):
    unlike = METRICS["loss"]._replace(label="loss", scaled_by=("alpha",))
    result, _ = drawn_of(crossed(alpha=[1.0, 2.0]), monkeypatch, loss=unlike)
    drawn = many.of_measures(result, chosen(result, ["time", "other", "final", "loss"])[1], None)
    assert drawn["pareto"] == (2, "other", "time", "final")


def test_tables_leave_out_what_has_no_number(monkeypatch):
    result, _ = drawn_of(crossed(policy=["p", "q"], alpha=[1.0, 2.0]), monkeypatch)
    result["time"][:3] = np.inf
    found = many.of_measures(result, chosen(result, ["time", "nothing"])[1], None)
    assert set(found) == {"main_effects", "heatmap_time_q", "pareto"}
    assert found["main_effects"] == (4, ["time"])
    assert set(many.of_measures(result, chosen(result, ["time"])[1], None)) == {
        "main_effects",
        "heatmap_time_q",
    }


def test_curves_are_smoothed_as_asked_for(monkeypatch):
    result, _ = drawn_of(crossed(alpha=[1.0, 2.0]), monkeypatch)
    asked = []
    monkeypatch.setattr(many, "measure_plot", lambda *given, **scales: asked.append((*given[1:], scales)))
    monkeypatch.setattr(many, "figure", lambda plot, grid: grid)
    (measure,) = chosen(result, ["time"])[1]
    found = many.of_measures(result, [measure], "grid", 7)
    assert found["time_vs_rounds"] == "grid" and asked == [("rounds", 7, {})]
    many.of_measures(result, [measure], "grid")
    assert asked[-1] == ("rounds", 1, {})
