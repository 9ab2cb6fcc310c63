"""One panel of each picture of client selection, drawn of numbers that are written down here."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from pausejax.analysis.quantities import Metric, described
from pausejax.clients import pictures, reward_picture
from pausejax.clients.variables import METRICS
from pausejax.report.curves import Curve
from pausejax.report.grid import Grid, Panel
from pausejax.report.growth import Growth
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
    found = runs(max_leakage=RAMP).assign_coords(clip=("run", clips))
    assert f"budget ε̄ = 40 {words}" in leakage(90.0, found)


def test_who_leaks_without_bound_is_in_no_picture_of_leakage():
    once = np.tile(RAMP, (2, 1))
    once[1, -1] = np.inf
    assert leakage(20.0, runs(max_leakage=RAMP), runs(max_leakage=once)).keys() == {"line 0"}
    assert leakage(20.0, runs(max_leakage=once)) == {}


def test_leakage_stands_side_by_side_against_rounds_and_time():
    found = runs(max_leakage=RAMP, elapsed=np.linspace(0.5, 9.0, ROUNDS))
    left, right = pictures.leakage(grid(found)).axes
    assert (left.get_title(), left.get_xlabel()) == ("after as many rounds", "round")
    assert (right.get_title(), right.get_xlabel()) == ("in as much time", "simulated time (s)")
    assert shown(left)["line 0"][0, -1] == ROUNDS and shown(right)["line 0"][0, -1] == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("plot", "variable", "words", "scale"),
    [
        (pictures.regret_vs_rounds, "regret", "cumulative realized regret", ("linear", "symlog")),
        (
            pictures.expected_regret_vs_rounds,
            "expected_regret",
            "cumulative expected regret",
            ("linear", "log"),
        ),
        (pictures.pseudo_regret_vs_rounds, "pseudo_regret", "cumulative pseudo-regret", ("log", "log")),
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
        assert axes.get_ylim()[0] == 0.1 and not axes.child_axes


@pytest.fixture
def bounded(monkeypatch):
    """A bound of 1,000, and a law of growth that is asked for a curve."""
    asked = []

    def growth(rounds, mean):
        asked.append(mean)
        return Growth("c n", rounds[:4], np.array([-1.0, 0.0, 0.5, 2.0]), 0.0)

    monkeypatch.setattr(pictures, "growth", growth)
    monkeypatch.setattr(pictures, "regret_bound_of", lambda runs: np.full(runs.sizes["round"], 1000.0))
    return asked


def pseudo(*totals):
    """Policies of two runs that have lost so much in the end, the same in every round."""
    return [runs(pseudo_regret=total / ROUNDS) for total in totals]


def test_alone_the_law_of_the_lowest_is_shown_and_the_bound_above(bounded):
    # The lowest in the end was the highest at first.
    falling = np.full(ROUNDS, -0.01)
    falling[0] = 0.4
    figure = Figure(figsize=(5, 4))
    axes = figure.subplots()
    pictures.pseudo_regret_vs_rounds(axes, curves(*pseudo(0.8), runs(pseudo_regret=falling), *pseudo(0.9)))
    (asked,) = bounded
    np.testing.assert_allclose(asked, np.cumsum(falling), rtol=1e-5)
    np.testing.assert_allclose(shown(axes)["last decade: c n"], [[3, 4], [0.5, 2.0]])
    (law,) = (line for line in axes.get_lines() if line.get_label().startswith("last"))
    assert law.get_linestyle() == ":" and law.get_color() == "black"
    assert axes.get_yscale() == "log" and axes.get_ylim()[0] == 0.1
    (strip,) = axes.child_axes
    for line in strip.get_lines():
        np.testing.assert_allclose(line.get_data(), [np.arange(1, ROUNDS + 1), np.full(ROUNDS, 1000.0)])
    assert len(strip.get_lines()) == 3 and strip.get_yscale() == "log"
    assert not strip.xaxis.get_tick_params()["labelbottom"]
    figure.canvas.draw()
    below, above = axes.get_window_extent(), strip.get_window_extent()
    assert (above.x0, above.x1) == pytest.approx((below.x0, below.x1))
    assert below.y1 < above.y0 < below.y1 + 0.1 * below.height and above.height < 0.2 * below.height
    (words,) = strip.texts
    said = words.get_window_extent()
    assert words.get_text() == "Theorem 3's bound"
    assert above.x0 < said.x0 < said.x1 < above.x1 and above.y0 < said.y0 < above.y1


def test_the_lowest_of_two_that_hardly_lose_is_the_lowest(bounded):
    panel(pictures.pseudo_regret_vs_rounds, *pseudo(0.8, 0.4, 0.6))
    assert bounded[0][-1] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("totals", "scale", "bottom"),
    [
        ((0.0,), "linear", 0),
        ((np.nan,), "linear", 0),
        ((0.5,), "log", 0.1),
        ((0.0, 5.0), "log", 0.1),
        ((-3.0,), "linear", 0),
    ],
)
def test_the_scale_is_logarithmic_where_anything_is_lost(bounded, totals, scale, bottom):
    for alone in (True, False):
        axes = panel(pictures.pseudo_regret_vs_rounds, *pseudo(*totals), alone=alone)
        assert (axes.get_yscale(), axes.get_ylim()[0]) == (scale, bottom)
        assert len(axes.child_axes) == alone == ("last decade: c n" in shown(axes))


def test_nobody_who_takes_m_clients_is_no_line_and_no_bound(bounded):
    axes = panel(pictures.pseudo_regret_vs_rounds, greedy(*pseudo(0.5)))
    assert not shown(axes) and not axes.child_axes and not bounded


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


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (3, 3, 1), (5, 4, 2)])
def test_participation_has_a_panel_for_each_line_with_a_scale_of_its_own(count, columns, rows):
    found = [counted([[4 * 10**place, 0]]) for place in range(count)]
    drawn = pictures.selection_counts(grid(greedy(found[0]), *found))
    assert len(drawn.axes) == count
    table = drawn.axes[0].get_gridspec()
    assert (table.ncols, table.nrows) == (columns, rows)
    for place, axes in enumerate(drawn.axes):
        assert axes.get_title() == ("" if count == 1 else f"line {place + 1}")
        assert 4 * 10**place < axes.get_ylim()[1] < 5 * 10**place


def test_where_all_take_more_than_m_clients_the_panel_is_empty():
    (axes,) = pictures.selection_counts(grid(greedy(counted([[3, 4]])))).axes
    # Its one curve is drawn all the same, as nobody else's is.
    assert axes.get_ylabel() == "rounds taken part in"


def test_a_policy_selects_m_if_no_round_of_any_run_has_more():
    found = runs()
    assert pictures._selects_m(found)
    assert pictures._selects_m(found.assign_coords(clients_per_round=("run", [3, 2])))
    assert not pictures._selects_m(greedy(found))
    assert not pictures._selects_m(found.assign_coords(clients_per_round=("run", [1, 2])))


def test_who_is_in_no_picture_is_named(monkeypatch):
    quiet, loud = runs(max_leakage=RAMP), runs(max_leakage=np.inf)
    whole = [
        Line("", policy, found)
        for policy, found in (("p", quiet), ("q", loud), ("r", greedy(loud)), ("s", greedy(quiet)))
    ]
    # A policy with one private line is in the picture.
    whole += [Line("", "q", quiet)]
    for kept, expected in ((whole, ["r", "r, s"]), (whole[:1], []), (whole[3:4], ["s"])):
        monkeypatch.setattr(pictures, "lines", lambda result, kept=kept: kept)
        told = pictures.unshown(quiet)
        assert [text.rpartition(": ")[2] for text in told] == expected
    assert told[0].startswith("not in the pictures of regret and of participations")


@pytest.fixture
def drawn(monkeypatch):
    """`draw` without its figures: the plots by their names."""
    monkeypatch.setattr(pictures, "figure", lambda plot, grid: plot)
    for name in ("leakage", "selection_counts"):
        monkeypatch.setattr(pictures, name, lambda grid, name=name: name)
    monkeypatch.setattr(pictures, "reward_picture", SimpleNamespace(draw=lambda result: {"reward": result}))

    def draw(found, *, panels=1, smoothing=1):
        whole = grid(found)
        return pictures.draw(found, Grid(whole.panels * panels, panels), smoothing=smoothing)

    return draw


ALWAYS = {"leakage_vs_latency", "leakage_vs_rounds", "pseudo_regret_vs_rounds", "regret_vs_rounds", "reward"}
ALONE = {"leakage", "selection_counts"}


def test_what_is_drawn_is_what_there_are_data_for(drawn):
    found = runs(elapsed=RAMP, mean_latency=RAMP, max_leakage=RAMP, pseudo_regret=1.0)
    found = found.assign(harm=found["elapsed"], once=("run", [1.0, 2.0]))
    own = ALWAYS | {"harm_vs_rounds"}
    assert drawn(found).keys() == own | ALONE and drawn(found, panels=2).keys() == own
    more = found.assign(selection_gap=found["elapsed"], expected_regret=found["elapsed"])
    assert drawn(more).keys() - own - ALONE == {"selection_gap", "expected_regret_vs_rounds"}
    accuracy = (("run", "eval"), np.full((2, 3), 0.5))
    learned = {"accuracy_vs_rounds", "accuracy_vs_latency"}
    assert drawn(found.assign(test_accuracy=accuracy)).keys() - own - ALONE == learned
    assert drawn(found.assign(test_accuracy=found["harm"])).keys() == own | ALONE


def test_ones_own_quantity_is_drawn_as_it_was_recorded(drawn):
    found = runs(elapsed=RAMP, harm=RAMP).assign(once=("run", [1.0, 2.0]))
    axes = panel(drawn(found)["harm_vs_rounds"], found)
    np.testing.assert_allclose(shown(axes)["line 0"][1], RAMP)
    assert axes.get_ylabel() == "harm (kg)"


def test_pictures_against_time_and_against_rounds_are_that(drawn, bounded):
    found = runs(elapsed=RAMP, max_leakage=RAMP, pseudo_regret=1.0, harm=1.0).assign(once=("run", [1.0, 2.0]))
    accuracy = np.array([[0.2, 0.4, 0.9], [0.4, 0.6, 0.7]])
    found = found.assign(test_accuracy=(("run", "eval"), accuracy), diverged_round=("run", [0, 0]))
    found = found.assign_coords(eval_round=("eval", [10, 20, 30]))
    for clock, label in (("rounds", "round"), ("latency", "simulated time (s)")):
        for name in ("leakage", "accuracy"):
            assert panel(drawn(found)[f"{name}_vs_{clock}"], found).get_xlabel() == label
    for smoothing, expected in ((1, [30, 50, 80]), (2, [30, 40, 65])):
        axes = panel(drawn(found, smoothing=smoothing)["accuracy_vs_rounds"], found)
        np.testing.assert_allclose(shown(axes)["line 0"], [[10, 20, 30], expected])
    for panels in (1, 2):
        axes = panel(drawn(found, panels=panels)["pseudo_regret_vs_rounds"], found)
        assert len(axes.child_axes) == (panels == 1)


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
