"""What pictures leave out, word for word, and which pictures of many settings there are."""

import json

import numpy as np
import pytest

from pausejax.analysis.quantities import Metric
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


HEAT_MAPS = "heat maps of a measure are drawn by --measure NAME"
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
        HEAT_MAPS,
        "loss: no main effects: it means something else for each alpha and eta; "
        "choose one: --where a=1,eta=0.1; all the same: --measure loss",
    ]
    assert left_out(result_of(crossed(zeta=names(5), gamma=[1.0, 2.0, 3.0, 4.0]))) == [MORE, HEAT_MAPS]


def test_what_several_measures_lack_for_one_reason_is_one_line():
    rows = crossed(alpha=[2.0, 1.0], eta=[0.5, 0.1], zeta=names(5))
    time, final = (METRICS[name]._replace(label=name, scaled_by=("eta",)) for name in ("time", "final"))
    assert left_out(result_of(rows, time=time, final=final))[2:] == [
        "loss: no main effects: it means something else for each alpha and eta; "
        "choose one: --where a=1,eta=0.1; all the same: --measure loss",
        "time, final: no main effects: each means something else for each eta; "
        "choose one: --where eta=0.1; all the same: --measure time final",
    ]


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


@pytest.mark.parametrize(("policies", "axes"), [(["p"], "zeta, eta"), (["p", "q"], "zeta, eta, g")])
def test_axes_beyond_the_fourth_are_said_to_have_no_heat_map(policies, axes):
    ends = [1.0, 2.0]
    rows = crossed(policy=["p"], alpha=ends, beta=ends, rho=ends, sigma=ends, zeta=ends, eta=ends)
    if "q" in policies:
        rows += crossed(policy=["q"], rho=ends, sigma=ends, alpha=ends, beta=ends, gamma=ends)
    said = f"heat maps are of 4 axes at most, and not of {axes}; fix others by --where"
    assert said in left_out(result_of(rows), measures=["time"])


def test_of_four_axes_each_has_heat_maps():
    rows = crossed(**dict.fromkeys(("alpha", "beta", "eta", "gamma"), (1.0, 2.0)))
    assert left_out(result_of(rows), measures=["time"]) == []


def test_one_number_among_infinite_ones_is_a_value():
    result = result_of(crossed(alpha=[1.0, 2.0]))
    result["time"][0] = np.inf
    said = ["time: infinite in 1 of 2 runs; heat maps and main effects are means over the others"]
    assert left_out(result, measures=["time"]) == said


def test_diverged_runs_are_said_to_be_in_no_mean():
    result = result_of(crossed(alpha=[1.0, 2.0])).assign(diverged_round=("run", [3, 0]))
    said = "1 of 2 runs diverged: what their models learned is in no mean, curve, heat map or main effect"
    assert left_out(result) == [said, MORE] and left_out(result, measures=["time"]) == [said]


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
