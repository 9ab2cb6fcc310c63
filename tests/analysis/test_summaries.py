"""A summary: which settings are shown, what is counted, what is left out, what is said of it."""

import json

import numpy as np
import pytest
import xarray as xr

from pausejax.analysis.quantities import Metric, as_json
from pausejax.analysis.summaries import diverged_runs, summary, summary_text

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
            "metrics": as_json({"gain": metric}),
            "ranking": "gain",
        },
    )


def written(text):
    """The labels and the numbers of a table."""
    assert len(text.headings) == 2
    return dict(text.rows)


def cell_of(values, **fields):
    """The cell of one setting; each value is of a seed of its own."""
    seeds = {"seed": range(len(values)), "gamma": [1.0] * len(values)}
    return written(summary_text(result_of(values, GAIN._replace(**fields), **seeds)))["a, gamma = 1"]


@pytest.mark.parametrize(
    ("learned", "values", "said"),
    [
        (False, [np.inf] * 3, "∞"),
        (False, [np.inf, np.nan], "∞ (1/2)"),
        (True, [np.inf, np.nan], "∞ (1/2)"),
        (False, [np.inf, 1.0], "∞"),
        (False, [2.0], "2.0"),
        (False, [1.0, 2.0, 3.0], "2.0 ± 2.5"),
        (True, [1.0, np.nan, 1.0], "1.0 ± 0.0 (2/3)"),
        (True, [1.0, 1.0], "1.0 ± 0.0"),
        (False, [1.0, np.nan, 1.0], "1.0 ± 0.0 (2/3)"),
        (True, [np.nan], "–"),
    ],
)
def test_a_cell_is_a_mean_with_its_interval_and_counts_what_diverged(learned, values, said):
    assert cell_of(values, learned=learned, scale=1.0, shown=".1f") == said


@pytest.mark.filterwarnings("error")
def test_numbers_are_the_means_of_every_setting_and_metric():
    metrics = {"gain": GAIN._replace(learned=True), "rest": GAIN._replace(heading="", units="s")}
    result = result_of([1.0, 2.0, np.nan, 4.0, 7.0], policy=list("aaabb"), seed=[0, 1, 2, 0, 1])
    result = result.drop_vars("gamma").assign_coords(gamma=("run", [1.0, 1.0, 1.0, np.nan, np.nan]))
    result = result.assign(rest=("run", [np.inf, 1.0, 1.0, 3.0, 5.0]))
    result = result.assign_attrs(metrics=as_json(metrics))
    found = summary(result, ["rest", "gain"], level=0.9)
    columns = ["setting", "policy", "gamma", "metric", "units", "mean", "low", "high"]
    assert list(found) == [*columns, "seeds", "runs", "left_out", "infinite"]
    assert found["setting"].tolist() == ["a, gamma = 1"] * 2 + ["b"] * 2
    assert found["metric"].tolist() == ["rest", "gain"] * 2 and found["units"].tolist() == ["s", "1"] * 2
    np.testing.assert_array_equal(found["mean"], [np.inf, 1.5, 4.0, 5.5])
    half_width = 6.313751514675041  # t of 0.95 with one degree of freedom
    np.testing.assert_allclose(
        found["low"], [np.nan, 1.5 - half_width / 2, 4 - half_width, 5.5 - 1.5 * half_width]
    )
    np.testing.assert_allclose(found["high"] - found["mean"], found["mean"] - found["low"])
    counts = found[["seeds", "runs", "left_out", "infinite"]].to_numpy().tolist()
    assert counts == [[3, 3, 0, 1], [2, 3, 1, 0], [2, 2, 0, 0], [2, 2, 0, 0]]
    assert found["gamma"].isna().tolist() == [False, False, True, True]
    assert set(summary(result)["metric"]) == {"gain"}
    with pytest.raises(ValueError, match="metric 'other': must be one of gain, rest"):
        summary(result, ["other"])


def test_forty_settings_are_all_shown_in_the_order_of_the_study():
    values = np.random.default_rng(0).permutation(40)
    table = summary_text(result_of(values))
    assert written(table) == {f"a, gamma = {n}": f"{100 * v}" for n, v in enumerate(values, 1)}
    assert list(written(table))[:2] == ["a, gamma = 1", "a, gamma = 2"]
    assert table.notes == [] and table.title == "mean ± 95 % interval over 1 seed"
    assert table.headings == ("policy", "gain\n(%)")


@pytest.mark.parametrize("maximize", [True, False])
def test_of_more_the_best_twenty_are_shown_and_the_best_of_each_policy(maximize):
    values = np.random.default_rng(0).permutation(41)
    policies = np.where(np.isin(values, [3, 4] if maximize else [35, 36]), "b", "a")
    table = summary_text(result_of(values, GAIN._replace(maximize=maximize), policy=policies))
    places = np.argsort(-values if maximize else values)
    best = [f"a, gamma = {place + 1}" for place in places if policies[place] == "a"][:20]
    (other,) = np.flatnonzero(values == (4 if maximize else 35))
    assert list(written(table)) == [*best, f"b, gamma = {other + 1}"]
    assert table.notes == [
        "the best 20 of 41 settings by gain of a test, and the best of each policy that is not among them. "
        "All settings: pausejax.summary, or pausejax export DIR"
    ]


@pytest.mark.parametrize(("groups", "each"), [(2, 10), (3, 6), (21, 1)])
def test_what_cannot_be_compared_has_its_own_best(groups, each):
    metric = GAIN._replace(scaled_by=("dataset", "nowhere"))
    rows = 14 * 3 if groups < 21 else 42
    values = np.arange(1.0, rows + 1)
    table = summary_text(result_of(values, metric, dataset=[f"d{n % groups:02}" for n in range(rows)]))
    # The best of the policy is the best of some data set already; of any other it is the one of this name.
    wanted = [rows - 1 - k for g in range(groups) for k in range(rows) if (rows - 1 - k) % groups == g]
    per = rows // groups
    kept = [place for g in range(groups) for place in wanted[g * per : g * per + each]]
    assert list(written(table)) == [f"a, gamma = {n + 1}, dataset = d{n % groups:02}" for n in kept]
    said = f"the best {len(kept)} of {rows} settings by gain of a test, in groups of comparable settings"
    assert table.notes[0].startswith(said)


def test_settings_with_diverged_runs_come_last():
    """41 settings of three seeds; the best has lost two of them, one policy all."""
    values = np.repeat(np.arange(41.0), 3)
    values[-3:] = [np.nan, np.nan, 50.0]
    values[:3] = np.nan
    names = np.repeat([*["a"] * 40, "b"], 3)
    names[:3] = "c"
    runs = result_of(
        values,
        GAIN._replace(learned=True),
        policy=names,
        gamma=np.repeat(np.arange(41.0), 3),
        seed=[0, 1, 2] * 41,
    )
    found = written(summary_text(runs))
    assert list(found)[:20] == [f"a, gamma = {n}" for n in range(39, 19, -1)] and len(found) == 22
    assert list(found.items())[-2:] == [("b, gamma = 40", "5000 (1/3)"), ("c, gamma = 0", "–")]
    said = "Settings with runs that diverged or have no value come last. All settings"
    assert said in summary_text(runs).notes[0]
    assert summary_text(runs).title == "mean ± 95 % interval over 3 seeds"


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
    notes = summary_text(result_of(values, GAIN._replace(if_negative=why), **pairs)).notes
    assert notes == ([said] if said else [])


@pytest.mark.parametrize(
    ("rounds", "notes"),
    [([5.0, 7.0], ["gain (%): sums over 5 to 7 rounds, so not comparable"]), ([5.0] * 2, [])],
)
def test_sums_over_unequally_many_rounds_are_said(rounds, notes):
    lasted = Metric("rounds_played", "itself", None, "1", "rounds")
    result = result_of([1.0, 2.0], GAIN).assign(rounds_played=("run", rounds))
    metrics = {"gain": GAIN._replace(reduce="total"), "rounds_played": lasted}
    assert summary_text(result.assign_attrs(metrics=as_json(metrics))).notes == notes


def test_runs_that_diverged_are_named():
    runs = result_of([1.0, 2.0, 3.0], policy=["a", "b", "c"], seed=[4, 5, 6], identity=["x", "y", "z"])
    assert diverged_runs(runs) == []
    runs["diverged_round"] = ("run", [0, 7, 1])
    assert diverged_runs(runs) == [
        "diverged in round 7: b, seed 5, run y",
        "diverged in round 1: c, seed 6, run z",
    ]
