"""A summary: which settings are shown, what is counted, what is left out, what is said of it."""

import json

import numpy as np
import pytest
import xarray as xr

from pausejax.analysis.quantities import Metric
from pausejax.report.summary import _measured, cell, diverged_runs, summary_table


@pytest.mark.parametrize(
    ("samples", "said"),
    [([np.inf] * 3, "∞"), ([2.0], "2.0"), ([1.0, 2.0, 3.0], "2.0 ± 2.5")],
)
def test_a_cell_is_a_mean_with_its_interval(samples, said):
    assert cell(np.asarray(samples), ".1f") == said


@pytest.mark.parametrize(
    ("learned", "values", "said"),
    [
        (True, [1.0, np.nan, 1.0], "1.0 ± 0.0 (2/3)"),
        (True, [1.0, 1.0], "1.0 ± 0.0"),
        (False, [1.0, np.nan, 1.0], "1.0 ± 0.0"),
        (True, [np.nan], "–"),
    ],
)
def test_what_diverged_models_learned_is_left_out_and_counted(learned, values, said):
    metric = Metric("test_loss", "final", False, "1", "of a test", learned=learned, shown=".1f")
    assert _measured(np.asarray(values), metric) == said


GAIN = Metric("gain", "itself", True, "1", "gain of a test", heading="gain\n(%)", scale=100, shown=".0f")


def result_of(values, metric=GAIN, **coords):
    """A run for each value, of a setting of its own where no coordinate says otherwise."""
    coords = {"seed": [0] * len(values), "gamma": np.arange(1.0, len(values) + 1), **coords}
    coords = {"policy": ["a"] * len(values), **coords}
    return xr.Dataset(
        {"gain": ("run", np.asarray(values, float))},
        {name: ("run", column) for name, column in coords.items()},
        {
            "axes": json.dumps([name for name in coords if name not in ("policy", "seed")]),
            "metrics": json.dumps({"gain": metric._asdict()}),
            "ranking": "gain",
        },
    )


def written(table):
    """The labels and the numbers of a table."""
    labels, numbers = ([str(cell) for cell in column.cells] for column in table.columns)
    return dict(zip(labels, numbers, strict=True))


def test_forty_settings_are_all_shown_in_the_order_of_the_study():
    values = np.random.default_rng(0).permutation(40)
    table = summary_table(result_of(values))
    assert written(table) == {f"a, gamma = {n}": f"{100 * v}" for n, v in enumerate(values, 1)}
    assert list(written(table))[:2] == ["a, gamma = 1", "a, gamma = 2"]
    assert table.caption is None and table.title == "mean ± 95 % interval over 1 seed"
    assert [column.header for column in table.columns] == ["policy", "gain\n(%)"]


@pytest.mark.parametrize("maximize", [True, False])
def test_of_more_the_best_twenty_are_shown_and_the_best_of_each_policy(maximize):
    values = np.random.default_rng(0).permutation(41)
    policies = np.where(np.isin(values, [3, 4] if maximize else [35, 36]), "b", "a")
    table = summary_table(result_of(values, GAIN._replace(maximize=maximize), policy=policies))
    places = np.argsort(-values if maximize else values)
    best = [f"a, gamma = {place + 1}" for place in places if policies[place] == "a"][:20]
    (other,) = np.flatnonzero(values == (4 if maximize else 35))
    assert list(written(table)) == [*best, f"b, gamma = {other + 1}"]
    assert table.caption == (
        "the best 21 of 41 settings by gain of a test; "
        "for all of them: pausejax export DIR, or pausejax.analysis"
    )


@pytest.mark.parametrize(("groups", "each"), [(2, 10), (3, 6), (21, 1)])
def test_what_cannot_be_compared_has_its_own_best(groups, each):
    metric = GAIN._replace(scaled_by=("dataset", "nowhere"))
    rows = 14 * 3 if groups < 21 else 42
    values = np.arange(1.0, rows + 1)
    table = summary_table(result_of(values, metric, dataset=[f"d{n % groups:02}" for n in range(rows)]))
    # The best of the policy is the best of some data set already; of any other it is the one of this name.
    wanted = [rows - 1 - k for g in range(groups) for k in range(rows) if (rows - 1 - k) % groups == g]
    per = rows // groups
    kept = [place for g in range(groups) for place in wanted[g * per : g * per + each]]
    assert list(written(table)) == [f"a, gamma = {n + 1}, dataset = d{n % groups:02}" for n in kept]
    assert f"the best {len(kept)} of {rows} settings by gain of a test within each group" in table.caption


def test_settings_are_ranked_by_their_mean_over_what_there_is():
    """41 settings of three seeds; one has a single value, one has none at all."""
    values = np.repeat(np.arange(41.0), 3)
    values[-3:] = [np.nan, np.nan, 30.5]
    values[:3] = np.nan
    names = np.repeat([*["a"] * 40, "b"], 3)
    names[:3] = "c"
    runs = result_of(values, policy=names, gamma=np.repeat(np.arange(41.0), 3), seed=[0, 1, 2] * 41)
    found = written(summary_table(runs))
    best = [39, 38, 37, 36, 35, 34, 33, 32, 31, 40, 30]
    shown = [f"{'b' if n == 40 else 'a'}, gamma = {n}" for n in best]
    assert list(found)[:11] == shown and len(found) == 21
    assert list(found.items())[-1] == ("c, gamma = 0", "–")
    assert summary_table(runs).title == "mean ± 95 % interval over 3 seeds"


@pytest.mark.parametrize(
    ("values", "why", "said"),
    [
        ([-1.0, np.nan, 2.0, 4.0], "of noise", "gain (%) may be negative: of noise"),
        ([1.0, -1.0, 0.5, 0.4], "of noise", None),
        ([np.nan, np.nan, -2.0, -2.0], "of noise", "gain (%) may be negative: of noise"),
        ([-1.0, -1.0, 2.0, 2.0], "", None),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_mean_below_zero_is_explained_where_it_may_surprise(values, why, said):
    pairs = {"gamma": [1.0, 1.0, 2.0, 2.0], "seed": [0, 1, 0, 1]}
    assert summary_table(result_of(values, GAIN._replace(if_negative=why), **pairs)).caption == said


def test_runs_that_diverged_are_named():
    runs = result_of([1.0, 2.0, 3.0], policy=["a", "b", "c"], seed=[4, 5, 6], identity=["x", "y", "z"])
    assert diverged_runs(runs) == []
    runs["diverged_round"] = ("run", [0, 7, 1])
    assert diverged_runs(runs) == [
        "diverged in round 7: b, seed 5, run y",
        "diverged in round 1: c, seed 6, run z",
    ]


def test_a_cell_with_a_number_is_not_unbounded():
    with np.errstate(invalid="ignore"):
        assert cell(np.array([np.inf, 1.0]), ".1f") == "inf"
    assert _measured(np.array([1.0, 3.0, np.nan]), GAIN) == "200 ± 1271"
