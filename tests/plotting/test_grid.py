"""Which runs go into which panel and line, and where there is room for no more."""

import pytest

from pausejax.plotting import grid
from pausejax.plotting.grid import arrange

from .made import crossed, names, runs_of


def drawn(found):
    """Titles of panels, and the lines in each: what they are called, and which runs they are of."""
    return {
        panel.title: {line.label: line.runs["number"].values.tolist() for line in panel.lines}
        for panel in found.panels
    }


def test_a_result_has_many_settings_where_some_data_set_has():
    rows = crossed(dataset=["digits", "mnist"], policy=names(16), seed=[0, 1])
    assert not grid.is_many(runs_of(rows))
    assert grid.is_many(runs_of([{"dataset": "digits", "policy": "p99"}, *rows]))
    # What is not kept apart is counted together.
    assert grid.is_many(runs_of(rows, apart=()))


@pytest.mark.parametrize(("sets", "columns"), [(1, 1), (3, 3), (4, 4), (5, 4)])
def test_of_few_settings_each_is_a_line(sets, columns):
    found = arrange(runs_of(crossed(gamma=[5.0, 1.0], seed=[0, 1], dataset=names(sets))))
    assert found.columns == columns and found.averaged == ()
    assert drawn(found) == {
        name: {"a, γ = 5": [place, place + sets], "a, γ = 1": [place + 2 * sets, place + 3 * sets]}
        for place, name in enumerate(names(sets))
    }


def test_of_many_settings_policies_are_lines_and_the_axis_with_most_values_is_columns():
    found = arrange(runs_of(crossed(alpha=[2.0, 1.0], policy=["b", "a"], gamma=[4.0, 1.0, 3.0, 2.0, 9.0])))
    assert found.columns == 5
    assert [panel.title for panel in found.panels] == [
        f"γ = {gamma}, α = {alpha}" for alpha in (1, 2) for gamma in (1, 2, 3, 4, 9)
    ]
    # Two runs for each pair: α is slowest, then the policy.
    assert drawn(found)["γ = 4, α = 1"] == {"b": [10], "a": [15]}


@pytest.mark.parametrize(
    ("values", "panels"),
    [
        ({"policy": ["a", "b"], "place": names(24)}, 24),
        ({"policy": ["a", "b"], "place": names(25)}, None),
        ({"policy": ["a", "b"], "place": names(12), "dataset": ["x", "y"]}, 24),
        ({"policy": ["a", "b"], "place": names(13), "dataset": ["x", "y"]}, None),
        ({"policy": names(16), "gamma": [1.0, 2.0]}, 2),
        ({"policy": names(17), "gamma": [1.0, 2.0]}, None),
        ({"policy": names(3), "gamma": [1.0, 2.0], "alpha": [1.0, 2.0], "eta": [1.0, 2.0]}, None),
    ],
)
def test_nobody_can_read_more_than_24_panels_16_lines_and_three_axes(values, panels):
    found = arrange(runs_of(crossed(**values)))
    assert (found and len(found.panels)) == panels


@pytest.mark.parametrize(
    ("by", "values", "problem"),
    [
        (["place"], {"place": names(16)}, ""),
        (["place"], {"place": names(17)}, "by: place: makes 17 lines; must be <= 16"),
        (["gamma", "place"], {"gamma": [1.0, 2.0], "place": names(24)}, ""),
        (["gamma", "place"], {"gamma": [1.0, 2.0], "place": names(25)}, "by: makes 25 panels; must be <= 24"),
    ],
)
def test_too_much_that_is_asked_for_is_refused(by, values, problem):
    runs = runs_of(crossed(**values))
    if not problem:
        assert len(drawn(arrange(runs, by))) == (1 if by == ["place"] else 24)
        return
    with pytest.raises(ValueError, match=problem):
        arrange(runs, by)


MIXED = [
    *crossed(policy=["pause"], gamma=[5.0, 1.0], alpha=[1.0, 2.0], dataset=["x", "y"]),
    *crossed(policy=["uniform"], gamma=[1.0, 5.0], dataset=["x", "y"]),
    *crossed(policy=["random"], dataset=["x", "y"]),
]
"""Runs 0 to 7, 8 to 11, and 12 and 13; the data set is fastest."""


def test_a_policy_without_the_axis_of_the_lines_has_one_by_its_name():
    found = arrange(runs_of(MIXED), ["gamma"])
    assert drawn(found) == {
        "pause, x": {"γ = 1": [4, 6], "γ = 5": [0, 2]},
        "pause, y": {"γ = 1": [5, 7], "γ = 5": [1, 3]},
        "uniform, x": {"γ = 1": [8], "γ = 5": [10]},
        "uniform, y": {"γ = 1": [9], "γ = 5": [11]},
        "random, x": {"random": [12]},
        "random, y": {"random": [13]},
    }
    assert found.averaged == ("alpha",)
    # Policies run along the rows, data sets are rows.
    assert found.columns == 3 and list(drawn(found))[:3] == ["pause, x", "uniform, x", "random, x"]
    assert [panel.lines[0].policy for panel in found.panels] == ["pause", "uniform", "random"] * 2


@pytest.mark.parametrize(
    "by", [["gamma", "policy", "alpha"], ["gamma", "alpha", "policy"], ["gamma", "alpha"]]
)
def test_a_panel_is_not_called_by_what_its_policy_lacks(by):
    found = drawn(arrange(runs_of([row for row in MIXED if row["dataset"] == "x"]), by))
    assert found == {
        "pause, α = 1": {"γ = 1": [2], "γ = 5": [0]},
        "pause, α = 2": {"γ = 1": [3], "γ = 5": [1]},
        "uniform": {"γ = 1": [4], "γ = 5": [5]},
        "random": {"random": [6]},
    }


def test_a_policy_without_the_axis_of_the_panels_is_in_each():
    found = drawn(arrange(runs_of([row for row in MIXED if row["dataset"] == "x"]), ["policy", "gamma"]))
    assert found == {
        "γ = 1": {"pause": [2, 3], "uniform": [4], "random": [6]},
        "γ = 5": {"pause": [0, 1], "uniform": [5], "random": [6]},
    }


def test_an_axis_of_the_panels_that_no_selected_run_has_makes_no_panels():
    whole = runs_of([row for row in MIXED if row["dataset"] == "x"])
    chosen = whole.isel(run=(whole["policy"] == "random").values)
    assert drawn(arrange(chosen, ["policy", "gamma"])) == {"": {"random": [6]}}


PARTLY = [
    *crossed(policy=["a", "b"], ending=["all"], seed=[0, 1]),
    *crossed(policy=["a", "b"], ending=["deadline"], deadline=[0.2, 0.4], seed=[0, 1]),
    *crossed(policy=["c"], ending=["all"], seed=[0, 1]),
]
"""Runs without a deadline are 0 to 3 and 12, 13; those with 0.2 s are 4, 5 and 8, 9."""


def test_runs_without_an_axis_are_never_averaged_with_runs_that_have_it():
    found = drawn(arrange(runs_of(PARTLY), ["policy", "deadline"]))
    without = {"a, without deadline": [0, 1], "b, without deadline": [2, 3], "c": [12, 13]}
    assert found == {
        "deadline = 0.2": {"a": [4, 5], "b": [8, 9], **without},
        "deadline = 0.4": {"a": [6, 7], "b": [10, 11], **without},
    }
    found = drawn(arrange(runs_of(PARTLY), ["deadline", "policy"]))
    assert found == {
        "a": {"deadline = 0.2": [4, 5], "deadline = 0.4": [6, 7], "a, without deadline": [0, 1]},
        "b": {"deadline = 0.2": [8, 9], "deadline = 0.4": [10, 11], "b, without deadline": [2, 3]},
        "c": {"c": [12, 13]},
    }
    alone = [row for row in PARTLY if row["policy"] == "a"]
    assert drawn(arrange(runs_of(alone), ["deadline"])) == {
        "": {"deadline = 0.2": [2, 3], "deadline = 0.4": [4, 5], "a, without deadline": [0, 1]}
    }


def test_a_label_has_one_style_in_all_panels():
    """Whichever lines a panel has: q is in the second panel first, where p is in neither of the others."""
    rows = [*crossed(policy=["p", "r"], gamma=[1.0]), *crossed(policy=["q", "r"], gamma=[2.0])]
    found = arrange(runs_of(rows), ["policy", "gamma"])
    styles = [{line.label: line.style for line in panel.lines} for panel in found.panels]
    assert styles == [{"p": 0, "r": 1}, {"q": 2, "r": 1}]
    by_setting = arrange(runs_of(crossed(dataset=["x", "y"], policy=["a", "b"])))
    assert [[line.style for line in panel.lines] for panel in by_setting.panels] == [[0, 1], [0, 1]]


def test_a_binned_axis_is_named_by_the_ranges_of_its_bins():
    """A line of a bin is a mean of several values, of which the median may be none."""
    runs = runs_of(crossed(gamma=[float(n) for n in range(1, 18)], seed=[0, 1]))
    found = arrange(runs, ["gamma"])
    labels = [line.label for line in found.panels[0].lines]
    assert len(labels) == 8 and found.binned == ("gamma",)
    for line in found.panels[0].lines:
        values = line.runs["number"].values // 2 + 1.0
        low, high = values.min(), values.max()
        assert line.label == (f"γ = {low:g} to {high:g}" if low < high else f"γ = {low:g}")
