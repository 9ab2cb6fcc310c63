"""Settings whose numbers differ late are told apart wherever a setting is known by its label."""

import pytest

from pausejax.analysis import mean_ci
from pausejax.analysis.settings import labels
from pausejax.analysis.summaries import summary_text
from pausejax.page import tables
from pausejax.plotting.grid import arrange, lines
from pausejax.plotting.levels import format_levels

from .made import build

AXES = {"privacy_weight": "gamma"}
NEAR = ["a, γ = 1.0", "a, γ = 1.000001", "b"]


def near(policies=None):
    """γ of two settings is the same in six digits."""
    policies = policies or {"a": {"privacy_weight": [1.0, 1.000001]}, "b": {}}
    result = build(policies, 3, AXES)[0]
    return result.sortby("seed").sortby("privacy_weight")


def test_every_setting_has_a_label_of_its_own():
    result = near()
    assert sorted(line.label for line in lines(result)) == NEAR
    assert sorted(mean_ci(result, "elapsed")["label"].values) == NEAR
    assert sorted(row[0] for row in summary_text(result).rows) == NEAR


def test_a_policy_that_is_called_as_a_setting_of_another_is_numbered():
    rows = [{"policy": "a, x = 2"}, {"policy": "a", "x": 2}, {"policy": "a", "x": 3}]
    assert labels(rows, {}) == ["a, x = 2", "a, x = 2 (2)", "a, x = 3"]


def test_a_page_compares_each_of_them():
    found, _ = tables.differences(
        near({"b": {"privacy_weight": [1.0, 1.000001]}, "a": {"privacy_weight": [1.0, 1.000001]}})
    )
    assert found is not None and len(found.rows) == 2


@pytest.mark.parametrize("values", [(100.125, 100.25), (0.12341, 0.12342)])
def test_lines_and_ticks_have_as_many_digits_as_it_takes(values):
    result = near({"a": {"privacy_weight": list(values)}, "b": {"privacy_weight": list(values)}})
    grid = arrange(result, ["gamma", "policy"])
    assert [line.label for line in grid.panels[0].lines] == [f"γ = {value}" for value in values]
    assert format_levels([*values, 5.0]) == [*map(str, values), "5"]
