"""A result at a glance: which curve it shows, in characters and in a picture, against loops over the runs."""

import json

import numpy as np
import pytest
import xarray as xr

from pausejax.analysis.quantities import Metric
from pausejax.report import overview
from pausejax.report.overview import Overview

LATENCY = Metric("elapsed", "last", False, "s", "time", label="time (s)", heading="time\n(s)", scale=10)
REGRET = Metric("regret", "total", False, "1", "regret", heading="summed\nregret")
GAIN = REGRET._replace(variable="gain", maximize=True, heading="gain")
ACCURACY = Metric("test_accuracy", "last", True, "1", "a", True, "accuracy (%)", "accuracy", scale=100)
HIDDEN = LATENCY._replace(label="", heading="")


def result(metrics, ranking="", policies=("a", "b"), **attributes):
    """Two seeds of each policy; the second policy's values are twice the first one's."""
    runs = 2 * len(policies)
    size = np.repeat(np.arange(1.0, len(policies) + 1), 2)[:, None]
    rounds = size * np.arange(1.0, 5) + np.tile([0.0, 1.0], len(policies))[:, None]
    evaluated = size * np.array([0.1, 0.2]) + np.zeros((runs, 2))
    return xr.Dataset(
        {
            "elapsed": (("run", "round"), rounds),
            "regret": (("run", "round"), rounds),
            "gain": (("run", "round"), rounds),
            "test_accuracy": (("run", "eval"), evaluated),
            "test_loss": (("run", "eval"), evaluated),
            "diverged_round": ("run", np.zeros(runs, int)),
        },
        {
            "policy": ("run", np.repeat(policies, 2)),
            "seed": ("run", [0, 1] * len(policies)),
            "identity": ("run", [f"{n:x}" for n in range(runs)]),
            "round": [1, 2, 3, 4],
            "eval_round": ("eval", [2, 4]),
        },
        {
            "axes": "[]",
            "metrics": json.dumps({name: metric._asdict() for name, metric in metrics.items()}),
            "ranking": ranking or next(iter(metrics)),
            **attributes,
        },
    )


@pytest.mark.parametrize(
    ("metrics", "ranking", "shown"),
    [
        ({"time": LATENCY, "sum": REGRET, "accuracy": ACCURACY}, "accuracy", ("eval", "accuracy (%)")),
        # A mean is the end of no curve: then a sum that should be small, else what there is.
        (
            {"time": LATENCY, "mean": LATENCY._replace(reduce="mean"), "sum": REGRET},
            "mean",
            ("round", "summed regret"),
        ),
        ({"gain": GAIN, "time": LATENCY, "sum": REGRET}, "none", ("round", "summed regret")),
        ({"mean": LATENCY._replace(reduce="mean"), "gain": GAIN}, "mean", ("round", "gain")),
        ({"hidden": HIDDEN, "time": LATENCY}, "hidden", ("round", "time (s)")),
        ({"other": LATENCY._replace(variable="nowhere"), "sum": REGRET}, "other", ("round", "summed regret")),
        ({"hidden": HIDDEN}, "hidden", None),
        ({"broken": LATENCY._replace(variable="diverged_round")}, "broken", None),
    ],
)
def test_the_curve_is_what_ranks_or_a_sum_that_should_be_small(metrics, ranking, shown):
    found = overview._shown_in(result(metrics, ranking))
    assert (found and (found.dim, found.label)) == shown


def test_text_has_a_curve_for_each_row_on_one_scale():
    text = repr(Overview(result({"sum": REGRET}, name="study")))
    assert text.splitlines()[0] == "study: 4 runs"
    # Cumulative means over two seeds: 1.5, 4, 7.5, 12 and 2.5, 7, 13.5, 22.
    assert "from 1.5 to 22" in text
    for policy, means in (("a", [1.5, 4, 7.5, 12]), ("b", [2.5, 7, 13.5, 22])):
        drawn = "".join("▁▂▃▄▅▆▇█"[min(int(8 * (mean - 1.5) / 20.5), 7)] for mean in means)
        (row,) = [line for line in text.splitlines() if line.split()[:1] == [policy]]
        assert row.split()[-1] == drawn
    assert repr(Overview(result({"sum": REGRET}).isel(run=[0]))).startswith("1 run\n")


def test_in_a_notebook_the_text_is_the_same(monkeypatch):
    shown = Overview(result({"sum": REGRET}))
    text = repr(shown)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(shown) == text


def test_a_learned_curve_is_in_per_cent_and_leaves_diverged_runs_out():
    made = result({"accuracy": ACCURACY})
    made["diverged_round"][1] = 3
    made["test_accuracy"][1] = 0.9
    text = repr(Overview(made))
    assert "from 10 to 40" in text and "diverged in round 3: a, seed 1, run 1" in text
    (axes,) = Overview(made).picture.axes
    np.testing.assert_allclose([line.get_ydata() for line in axes.get_lines()], [[10, 20], [20, 40]])
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), [2, 4])
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xlim()[0]) == ("round", "accuracy (%)", 0)


def test_a_curve_ends_where_the_first_run_has_ended():
    made = result({"sum": REGRET}, name="study")
    made["regret"][0, 3] = np.nan
    first, second = Overview(made).picture.axes[0].get_lines()
    np.testing.assert_allclose(first.get_xydata(), [[1, 1.5], [2, 4], [3, 7.5]])
    np.testing.assert_allclose(second.get_xydata(), [[1, 2.5], [2, 7], [3, 13.5], [4, 22]])
    made["regret"][:2] = np.nan
    (row,) = [line for line in repr(Overview(made)).splitlines() if line.split()[:1] == ["a"]]
    assert row.split()[-1] == "–"
    made["regret"][:] = np.nan
    assert "from" not in repr(Overview(made))


@pytest.mark.parametrize(("rows", "drawn"), [(8, 8), (9, 8)])
def test_a_picture_has_the_first_eight_rows_and_says_so(rows, drawn):
    found = Overview(result({"sum": REGRET}, policies=[f"p{n}" for n in range(rows)], name="<study>"))
    assert [line.get_label() for line in found.picture.axes[0].get_lines()] == [f"p{n}" for n in range(drawn)]
    shown = found._repr_html_()
    assert ("<p>drawn: the first 8 of these 9 rows</p>" in shown) == (rows > drawn)
    assert shown.count("<tr>") == rows + 1 and "<td>p1</td>" in shown and "&lt;study&gt;" in shown
    assert found.summary.headings[1] == "summed\nregret" and "<th>summed regret</th>" in shown
    assert shown.count("<img ") == 1 and 'alt="summed regret"' in shown


def test_without_a_curve_there_is_a_table_alone():
    found = Overview(result({"mean": LATENCY._replace(reduce="mean")}))
    assert found.picture is None and "<img" not in found._repr_html_()
    assert not set(repr(found)) & set("▁▂▃▄▅▆▇█")


@pytest.mark.parametrize(
    ("values", "high", "drawn"),
    [
        ([], 8, "–"),
        ([0.0, 8.0], 8, "▁█"),
        ([0.0, 0.99, 1.0, 3.9, 4.0, 7.0], 8, "▁▁▂▄▅█"),
        # Every other one of 31.
        (np.arange(31.0), 32, "▁▁▂▂▃▃▄▄▅▅▆▆▇▇██"),
    ],
)
def test_a_curve_is_sixteen_blocks_of_eight_heights(values, high, drawn):
    assert overview._in_characters(np.asarray(values), 0.0, float(high)) == drawn
