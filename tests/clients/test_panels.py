"""One panel of each picture of client selection, drawn of numbers that are written down here."""

import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from pausejax.analysis.quantities import Metric, described
from pausejax.clients import bound, pictures, reward_picture
from pausejax.clients.variables import METRICS
from pausejax.report.curves import Curve
from pausejax.report.grid import Grid, Panel
from pausejax.report.statistics import Line
from pausejax.report.style import look

ROUNDS = 30
OWN = {
    "harm": Metric("harm", "total", False, "kg", "harm that is done", label="harm (kg)"),
    "unsaid": Metric("harm", "last", False, "1", "a figure without a label"),
    "final": Metric("once", "itself", None, "1", "a number of the whole run", label="once"),
}
ATTRIBUTES = {
    **described({**METRICS, **OWN}, ("test_accuracy", "mean_latency", "max_leakage"), "test_accuracy", {}),
    "axes": "[]",
}


def runs(count=2, /, rounds=ROUNDS, **variables):
    """Runs with some variables [round] or [run, round], the same for all runs where [round]."""
    shape = (count, rounds)
    found = {name: (("run", "round"), np.broadcast_to(v, shape).copy()) for name, v in variables.items()}
    coords = {
        "round": np.arange(1, rounds + 1),
        "seed": ("run", np.arange(count)),
        "clients_per_round": ("run", np.full(count, 2)),
        "privacy_budget": ("run", np.full(count, 40.0)),
        "policy": ("run", np.full(count, "pause")),
    }
    selected = (("run", "round", "slot"), np.tile([0, 1, -1], (*shape, 1)))
    return xr.Dataset({"selected": selected, **found}, coords, ATTRIBUTES)


def greedy(found):
    """The same with three clients in one round of one run."""
    selected = found["selected"].copy(deep=True)
    selected[-1, 4] = [0, 1, 2]
    return found.assign(selected=selected)


def curves(*found):
    return [Curve(f"line {place}", one, look(place)) for place, one in enumerate(found)]


def grid(*found):
    return Grid(
        (Panel("", tuple(Line(f"line {place}", "pause", one) for place, one in enumerate(found))),), 1
    )


def panel(plot, *found, **options):
    axes = Figure().subplots()
    plot(axes, curves(*found), **options)
    return axes


def shown(axes):
    """The lines of a panel by their labels."""
    return {line.get_label(): np.asarray(line.get_data()) for line in axes.get_lines()}


RAMP = np.linspace(0.0, 15.0, ROUNDS)


def leakage(top, *found, clock="rounds"):
    axes = Figure().subplots()
    axes.set_ylim(-5, top)
    pictures._leakage(axes, curves(*found), clock)
    assert not found or axes.get_ylim() == (0, top)
    return shown(axes)


def test_the_budget_is_shown_where_leakage_comes_half_as_high():
    found = runs(max_leakage=RAMP)
    budget = "budget ε̄ = 40 per update"
    assert leakage(20.0, found).keys() == {"line 0"} and leakage(13.5, found).keys() == {"line 0"}
    lines = leakage(20.1, found)
    assert lines.keys() == {"line 0", budget} and lines[budget][1].tolist() == [40, 40]
    assert leakage(90.0, found).keys() == lines.keys()
    # Of several settings in one line the largest budget counts, of several lines none.
    several = found.assign_coords(privacy_budget=("run", [10.0, 40.0]))
    assert leakage(90.0, several).keys() == {"line 0", budget}
    other = found.assign_coords(privacy_budget=("run", [50.0, 50.0]))
    assert leakage(90.0, found, other).keys() == {"line 0", "line 1"}
    assert leakage(90.0) == {}


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
    found = runs(max_leakage=RAMP).assign_coords(clip=("run", clips), unread_parameters=("run", unread))
    assert f"budget ε̄ = 40 {words}" in leakage(90.0, found)


def test_who_leaks_without_bound_is_drawn_as_long_as_there_is_one():
    once = np.tile(RAMP, (2, 1))
    once[1, -1] = np.inf
    lines = leakage(20.0, runs(max_leakage=RAMP), runs(max_leakage=once), runs(max_leakage=np.inf))
    assert lines.keys() == {"line 0", "line 1"}
    # Drawn up to where the first of its runs is unbounded.
    assert np.isfinite(lines["line 1"][1, :-1]).all() and np.isnan(lines["line 1"][1, -1])
    assert leakage(20.0, runs(max_leakage=np.inf)) == {}


def test_the_law_of_growth_is_that_of_the_policy_that_loses_least():
    """Also where all lose little: its regret is the root of the rounds, the others' in proportion."""
    rounds = 2000
    n = np.arange(1, rounds + 1)
    for size in (1e-4, 1.0):
        totals = [size * n, size * (3 + 2 * np.sqrt(n)), 2 * size * n]
        found = [runs(rounds=rounds, pseudo_regret=np.diff(total, prepend=0)) for total in totals]
        found = [one.assign_coords(latency=("run", ["trace"] * 2)) for one in found]
        lines = shown(panel(pictures.pseudo_regret_vs_rounds, *found))
        ((label, (at, fitted)),) = [item for item in lines.items() if item[0].startswith("last decade")]
        assert label == "last decade: a + b √n" and at[0] == 200 and at[-1] == rounds
        np.testing.assert_allclose(fitted, size * (3 + 2 * np.sqrt(at)), rtol=1e-3)


@pytest.mark.parametrize(
    ("plot", "variable", "words", "scale"),
    [
        (pictures.regret_vs_rounds, "regret", "cumulative realized regret", ("linear", "symlog")),
        (
            pictures.expected_regret_vs_rounds,
            "expected_regret",
            "cumulative expected regret",
            ("linear", "symlog"),
        ),
        (pictures.pseudo_regret_vs_rounds, "pseudo_regret", "cumulative pseudo-regret", ("log", "symlog")),
    ],
)
def test_regret_is_added_up_for_those_that_take_m_clients(plot, variable, words, scale):
    lost = 1 + np.arange(2 * ROUNDS).reshape(2, ROUNDS) % 7
    found = runs(**{variable: lost})
    axes = panel(plot, greedy(found), found, **({"alone": False} if "pseudo" in variable else {}))
    lines = shown(axes)
    assert lines.keys() == {"line 1"}
    expected = [(sum(lost[0, :t]) + sum(lost[1, :t])) / 2 for t in range(1, ROUNDS + 1)]
    np.testing.assert_allclose(lines["line 1"], [np.arange(1, ROUNDS + 1), expected], rtol=1e-6)
    assert axes.get_ylabel() == words and axes.get_xlabel() in ("round", "round n")
    assert (axes.get_xscale(), axes.get_yscale()) == scale
    if scale[0] == "linear":
        assert axes.get_xlim()[0] == 0
    else:
        assert axes.get_ylim()[0] == 0 and not axes.child_axes


def pseudo(*totals):
    """Policies of two runs that have lost so much in the end, the same in every round."""
    return [runs(pseudo_regret=total / ROUNDS) for total in totals]


def test_a_bound_is_that_of_all_runs_of_a_line(monkeypatch):
    """γ = 1 has another bound than γ = 5; a line over both has none, and the picture says so."""
    bounds = {1.0: 1e3, 5.0: 2e3}
    monkeypatch.setattr(
        bound, "_bound_of", lambda run: np.full(run.sizes["round"], bounds[run["gamma"].item()])
    )
    sweep = [runs(pseudo_regret=0.1).assign_coords(gamma=("run", [gamma] * 2)) for gamma in (1.0, 5.0)]
    both = xr.concat(sweep, "run")
    sweep, both = ([one.assign_attrs(axes='["gamma"]') for one in some] for some in (sweep, [both]))
    for found, expected in ((sweep, [1e3, 2e3]), ([*both, sweep[1]], [2e3])):
        axes = panel(pictures.pseudo_regret_vs_rounds, *found)
        (strip,) = axes.child_axes
        assert [line.get_ydata()[0] for line in strip.get_lines()] == expected
        said = [" ".join(text.get_text().split()) for text in axes.texts]
        words = ["without Theorem 3's bound, as their settings have several: line 0"]
        assert said == (words if len(expected) == 1 else [])
    assert not panel(pictures.pseudo_regret_vs_rounds, *both).child_axes


def test_the_gap_is_the_mean_of_the_last_20_rounds_in_which_all_runs_chose():
    rng = np.random.default_rng(0)
    gap = rng.random((3, ROUNDS))
    gap[0, 0], gap[1, :2], gap[2, 7] = np.inf, np.inf, np.nan
    axes = panel(pictures.selection_gap, runs(3, selection_gap=gap))
    kept = [t for t in range(ROUNDS) if t not in (0, 1, 7)]
    expected = [
        np.mean([gap[:, u] for u in kept[max(place - 19, 0) : place + 1]]) for place in range(len(kept))
    ]
    np.testing.assert_allclose(shown(axes)["line 0"], [np.array(kept) + 1, expected])
    assert (axes.get_xlim()[0], axes.get_ylim()[0]) == (0, 0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "gap to the maximum of (14)")


def counted(counts):
    return runs(len(counts)).assign(counts=(("run", "client"), np.array(counts)))


def test_participation_is_shown_for_clients_that_all_runs_have():
    axes = panel(pictures._counts, counted([[4, 0, 1, 7], [6, 2, 0, -1]]))
    (points,) = axes.containers
    np.testing.assert_allclose(points[0].get_data(), [[0, 1, 2], [5, 1, 0.5]])
    (share,) = (line for line in axes.get_lines() if line.get_linestyle() == ":")
    np.testing.assert_allclose(share.get_ydata(), [13 / 6] * 2)
    assert axes.get_ylim()[0] == 0 and axes.get_ylabel() == "rounds taken part in"
    assert axes.get_xlabel() == "client, fastest to slowest"
    assert not panel(pictures._counts, counted([[-1, -1]])).containers


def test_who_is_in_no_picture_is_named(monkeypatch):
    once = np.tile(RAMP, (2, 1))
    once[1, -1] = np.inf
    quiet, loud = runs(max_leakage=RAMP), runs(max_leakage=once)
    whole = [
        Line(policy, policy, found)
        for policy, found in (("p", quiet), ("q", loud), ("r", greedy(loud)), ("s", greedy(quiet)))
    ]
    # A line that is missing is named, though another of the same policy is drawn.
    whole += [Line("q, γ = 1", "q", quiet)]
    for kept, expected in ((whole, ["q, r", "r, s"]), (whole[:1], []), (whole[3:4], ["s"])):
        monkeypatch.setattr(pictures, "lines", lambda result, kept=kept: kept)
        told = pictures.unshown(quiet)
        assert [text.rpartition(": ")[2] for text in told] == expected
    assert told[0].startswith("not in the pictures of regret and of participations")


def test_the_generalization_reward_is_8_of_each_exponent():
    """g = sign(m/K - T/t) |m/K - T/t|^β for K = 5 equal clients, m = 2; other axes make no such picture."""
    found = runs(4).assign_coords(
        generalization_exponent=("run", [1.5, 3.0, np.nan, 1.5]), num_clients=("run", [5] * 4)
    )
    told = found.assign_attrs(axes=json.dumps(["generalization_exponent"]))
    (axes,) = reward_picture.draw(told)["generalization_reward"].axes
    lines = shown(axes)
    assert list(lines) == ["β = 1.5", "β = 3"]
    for line, beta in zip(lines.values(), (1.5, 3), strict=True):
        share, reward = line.astype(np.float64)
        assert share[0] == 0 and share[-1] == 1 and len(share) > 100
        np.testing.assert_allclose(reward, np.sign(0.4 - share) * abs(0.4 - share) ** beta, atol=1e-6)
    assert "share of the rounds" in axes.get_xlabel() and "reward" in axes.get_ylabel()
    for swept in ([], ["gamma"], ["generalization_exponent", "num_clients"], ["num_clients"]):
        assert reward_picture.draw(found.assign_attrs(axes=json.dumps(swept))) == {}
