"""What charts omit, and the option that shows it."""

import json
import re

import numpy as np
import pytest

from pausejax.analysis.quantities import Metric, as_json, metrics_in
from pausejax.analysis.selecting import select
from pausejax.plotting import request, sweeps
from pausejax.plotting.grid import arrange
from pausejax.plotting.request import resolve

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
        metrics=as_json({**METRICS, **changed}),
        parameters=json.dumps(ALIASES),
        objectives=json.dumps(["time", "loss", "final"]),
        ranking="loss",
    )


def omitted(result, measures=(), where=None, by=()):
    """What a request omits."""
    runs, wanted = resolve(result, measures, where)
    return request.omitted(runs, wanted, arrange(runs, by))


MORE = "--measure NAME draws other metrics: time, nothing, played, other"


def has(lines, *ends):
    """Whether there are as many lines, each with its words."""
    return len(lines) == len(ends) and all(end in line for line, end in zip(lines, ends, strict=True))


def test_what_can_be_asked_for_is_listed():
    assert has(omitted(result_of(crossed(alpha=[1.0, 2.0]))), MORE)
    alone = {name: metric._replace(label=name) for name, metric in METRICS.items() if name != "nothing"}
    alone["nothing"] = METRICS["nothing"]._replace(reduce="itself")
    assert omitted(result_of([{"alpha": 1.0}], **alone)) == []


def test_too_much_that_varies_comes_with_ways_out_that_work():
    rows = crossed(policy=["p", "q"], alpha=[2.0, 1.0], eta=[0.5, 0.1], gamma=[3.0, 4.0], zeta=["x", "y"])
    said = omitted(result_of(rows))[0]
    assert all(part in said for part in ("(policy, a, eta, g, zeta)", "--by policy,a", "--where a=2"))
    averaged = omitted(result_of(rows), by=["g", "policy"])[0]
    assert "means over α, η, zeta too" in averaged
    # Seventeen are too many for lines.
    rows = crossed(zeta=names(17), alpha=[2.0, 1.0], gamma=[3.0, 4.0], eta=[0.5, 0.1])
    assert "--by a,g. Or fix some axes: --where " in omitted(result_of(rows))[0]
    arrange(result_of(rows), ["a", "g"])
    rows = crossed(zeta=names(17), policy=names(17))
    assert omitted(result_of(rows))[0].endswith("(policy, zeta). Fix some axes: --where zeta=" + names(1)[0])


def test_proposed_values_are_those_of_a_run():
    """Of parameters that are sampled together, no run has the smallest values of all."""
    rng = np.random.default_rng(0)
    rows = [dict(zip(("alpha", "eta"), rng.uniform(1, 2, 2).tolist(), strict=True)) for _ in range(20)]
    rows = [{"zeta": zeta, **row} for row in rows for zeta in names(17)]
    result = result_of(rows)
    said = " ".join(omitted(result))
    proposed = re.findall(r"--where (\S+?)\.? ", f"{said} ")
    assert len(proposed) == 2 and "a=" in proposed[1] and "eta=" in proposed[1]
    for text in proposed:
        where = dict(pair.split("=") for pair in text.split(","))
        assert select(result, where).sizes["run"] > 0


def test_each_data_set_is_judged_by_itself():
    """Losses with different α can't be compared: those of one data set have one α."""
    rows = crossed(dataset=["x"], alpha=[1.0], zeta=names(17))
    rows += crossed(dataset=["y"], alpha=[2.0, 3.0], zeta=names(17))
    result = result_of(rows)
    (line,) = [line for line in omitted(result) if "main effects" in line]
    assert line.startswith("loss: no main effects of y, because not comparable") and "--where a=2" in line
    assert set(sweeps.sweep_charts(result)) == {"main_effects_loss_x"}
    lines = omitted(result, measures=["time", "loss"])
    assert [line[:19] for line in lines if "front" in line] == ["no front of y: loss"]
    assert {"pareto_x"} == {
        name for name in sweeps.charts_of(*resolve(result, ["time", "loss"])) if "pareto" in name
    }


UNLIKE = "not comparable between runs with different alpha. Choose one value: --where a=1"
CURVELESS = ": has only one value for each run, so it has no curve"


@pytest.mark.parametrize(
    ("measures", "said"),
    [
        (["time"], []),
        (["nothing"], ["nothing: no run has a finite value"]),
        (["played"], [f"played{CURVELESS}"]),
        (
            ["time", "loss"],
            [
                f"loss: drawn as asked, but {UNLIKE}",
                f"no front: loss is {UNLIKE}",
            ],
        ),
        (
            ["time", "played"],
            [f"played{CURVELESS}", "no front: neither more nor less of played is better by definition"],
        ),
        (["time", "other", "nothing"], ["nothing: no run has a finite value"]),
        (
            ["nothing", "time", "other"],
            ["nothing: no run", "no front: no setting has a finite mean of both nothing and time"],
        ),
        (
            ["time", "other", "final", "loss"],
            [f"final{CURVELESS}", f"loss: drawn as asked, but {UNLIKE}", "three measures, without loss"],
        ),
    ],
)
def test_of_each_metric_it_is_said_what_it_lacks(measures, said):
    assert has(omitted(result_of(crossed(alpha=[1.0, 2.0])), measures=measures), *said)


def test_sums_over_unequally_many_rounds_are_in_no_front_and_on_request_in_main_effects():
    """One's own quantity with `reduce="total"` too: only its reduction makes it a sum."""
    charted = {name: metric._replace(label=name, scaled_by=()) for name, metric in METRICS.items()}
    result = result_of(crossed(alpha=[1.0, 2.0], zeta=names(17)), **charted)
    result = result.assign_attrs(objectives=json.dumps(["other", "time"]))
    table = metrics_in(result)
    played = table["played"]._replace(name="rounds_played")
    result = result.assign_attrs(metrics=as_json({**table, "rounds_played": played}))
    assert {"main_effects_time", "pareto"} <= set(sweeps.sweep_charts(result))
    assert not any("time" in line for line in omitted(result))
    result["time"][0, -1] = np.nan
    drawn = sweeps.sweep_charts(result)
    assert "main_effects_other" in drawn and not {"main_effects_time", "pareto"} & set(drawn)
    why = "not comparable: sums over unequally many rounds"
    assert omitted(result)[-2:] == [
        f"time: no main effects, because {why}. To draw them anyway: --measure time",
        f"no front: time is {why}",
    ]
    drawn = sweeps.charts_of(*resolve(result, ["time", "other"]))
    assert "main_effects_time" in drawn and "pareto" not in drawn
    assert omitted(result, ["time", "other"])[-2:] == [
        f"time: drawn as asked, but {why}",
        f"no front: time is {why}",
    ]


def test_a_missing_objective_is_said():
    result = result_of(crossed(alpha=[1.0], zeta=names(17)))
    assert "no front: no run has a finite time or final. --measure draws other fronts" in omitted(result)


def test_runs_that_are_in_no_mean_are_counted():
    result = result_of(crossed(alpha=[1.0, 2.0]))
    result["time"][0] = np.inf
    assert has(omitted(result, measures=["time"]), "time: infinite in 1 of 2 runs")
    result = result_of(crossed(alpha=[1.0, 2.0])).assign(diverged_round=("run", [3, 0]))
    assert has(omitted(result), "1 of 2 runs diverged", MORE)


def test_a_variable_without_a_metric_is_shown_round_by_round():
    result = result_of([{"alpha": 1.0}])
    result["queue_length"] = (("run", "round"), [[1.0, 2.0]])
    result["delay"] = (("run", "round"), [[1.0, 2.0]], {"units": "s", "long_name": "waiting time"})
    runs, found = resolve(result, ["queue_length", "delay", "loss", "delay"])
    assert [(m.name, m.axis_label, m.reduce) for m in found] == [
        ("queue_length", "queue length", "each"),
        ("delay", "waiting time (s)", "each"),
        ("loss", "loss", "last"),
    ]
    assert set(metrics_in(runs)) == {*METRICS, "queue_length", "delay"}
    # What is added up is shown as its sum, also where its own name is asked for.
    other = result_of([{"alpha": 1.0}], spent=Metric("cost", "total", False, "1", "spent"))
    other["cost"] = other["time"]
    _, (spent,) = resolve(other, ["cost"])
    assert (spent.name, spent.reduce) == ("spent", "total")
