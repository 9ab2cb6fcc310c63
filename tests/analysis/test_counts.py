"""Counts of a round are integers with -1 where there are none, which is no number to average."""

import numpy as np
import pandas as pd
import pytest

import pausejax
from pausejax import analysis
from pausejax.analysis import quantities
from pausejax.analysis.mean_curves import samples
from pausejax.clients import variables as clients_variables
from pausejax.ensemble import variables as ensemble_variables
from pausejax.plotting import grid, request

COUNTS = ("available_count", "failed_count")


@pytest.fixture(scope="module")
def result():
    """Runs that stop at a simulated time, each after a round of its own."""
    return pausejax.simulate(
        ["random", "fastest"],
        mode="bandit",
        seeds=3,
        rounds=40,
        num_clients=6,
        clients_per_round=2,
        stop_at_latency=5.0,
        availability="bernoulli",
        availability_probability=0.9,
        failure_probability=[0.0, 0.4],
    ).load()


def recorded(result, name):
    values = result[name].values.astype(float)
    assert (values < 0).any()
    return np.where(values < 0, np.nan, values)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_a_mean_is_over_the_rounds_that_were_played(result, name):
    runs, (metric,) = request.resolve(result, [name])
    expected = np.nanmean(recorded(result, name), axis=1)
    np.testing.assert_allclose(analysis.finals(runs, [name])[name].values, expected)
    chart = pausejax.charts(result, measures=[name])[f"{name}_vs_round"]
    ends = np.concatenate([one.y[np.isfinite(one.y)] for one in chart.panels[0].series])
    assert (ends >= 0).all() and (ends.max() > 0)
    line = grid.lines(result)[0].runs
    np.testing.assert_array_equal(samples(line, metric).values, recorded(line, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_is_not_there_is_missing_in_a_table(result, name):
    whole = analysis.to_dataframe(result, variables=[name, "reward"])
    played = np.isfinite(result["reward"].values)
    assert len(whole) == played.sum() and whole[name].notna().all()
    np.testing.assert_array_equal(whole[name].to_numpy(int), result[name].values[played])
    always = result.assign({name: result[name] * 0 - 1})
    table = analysis.to_dataframe(always, variables=[name, "reward"])
    assert table[name].isna().all() and not pd.isna(table["reward"]).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COUNTS, "counts"])
@pytest.mark.parametrize("at", [{}, {"round": -1}, {"round": slice(20, 30)}])
def test_a_mean_of_an_array_leaves_out_what_no_run_recorded(result, name, at):
    array = result[name] if name == "counts" else result[name].isel(at)
    if name == "counts":
        few = result["seed"].values == 1
        array = array.where(~(few[:, None] & (result["client"].values >= 4)), -1)
        result = result.assign({name: array})
        array = result[name]
    values = array.values.astype(float)
    assert array.dtype.kind == "i" and (values < 0).any()
    values[values < 0] = np.nan
    policy, rate = result["policy"].values, result["failure_probability"].values

    def mean(rows):
        held = ~np.isnan(rows)
        return np.where(held, rows, 0).sum(axis=0) / np.where(held.any(axis=0), held.sum(axis=0), np.nan)

    found = analysis.mean_ci(result, array)
    for place, row in enumerate(found["mean"].values):
        own = values[
            (policy == found["policy"].values[place]) & (rate == found["failure_probability"][place].item())
        ]
        np.testing.assert_allclose(row, mean(own))
        np.testing.assert_array_equal(found["left_out"].values[place], np.isnan(own).sum(axis=0))
    pairs = analysis.paired_difference(result, "random", "fastest", array)
    for place, row in enumerate(pairs["mean"].values):
        own = rate == pairs["failure_probability"][place].item()
        sides = (values[own & (policy == one)] for one in ("random", "fastest"))
        np.testing.assert_allclose(row, mean(np.subtract(*sides)))


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_xarray_has_made_floats_of_stay_counts(result, name):
    """Such as by `where`, or by joining results of which one lacks the count."""
    floats = result.where(result["seed"] >= 0, drop=True)
    late = result[name].where(result["round"] > 10)  # NaN masks some rounds
    expected = analysis.mean_ci(result, result[name])["mean"].where(result["round"] > 10)
    np.testing.assert_array_equal(analysis.mean_ci(result, late)["mean"], expected)
    counts = analysis.mean_ci(floats, floats["counts"])["mean"]
    np.testing.assert_array_equal(counts, analysis.mean_ci(result, result["counts"])["mean"])
    assert floats[name].dtype.kind == "f" and (floats[name] < 0).any()
    for asked in (
        lambda runs: analysis.finals(request.resolve(runs, [name])[0], [name])[name],
        lambda runs: analysis.mean_ci(runs, runs[name])["mean"],
        lambda runs: analysis.to_dataframe(runs, variables=[name])[name].to_numpy(float, na_value=np.nan),
        lambda runs: samples(runs, request.resolve(runs, [name])[1][0]).values,
    ):
        np.testing.assert_array_equal(asked(floats), asked(result))


@pytest.mark.slow
def test_numbers_below_zero_that_a_user_has_computed_are_numbers(result):
    balance = (result["failed_count"] - result["available_count"]).isel(round=0)
    assert (analysis.mean_ci(result, balance.astype(float))["mean"].values < 0).all()
    change = result["failed_count"].diff("round")
    for asked in (
        lambda: analysis.mean_ci(result, change),
        lambda: analysis.paired_difference(result, "random", "fastest", change),
        lambda: analysis.mean_ci(result, -result["failed_count"]),
        lambda: analysis.mean_ci(result, result["failed_count"] / 2),
        lambda: analysis.mean_ci(result, balance),
        lambda: analysis.mean_ci(analysis.finals(result), result["failed_count"].astype(float)),
    ):
        with pytest.raises(ValueError, match=r"this array of (failed_count|integers) has negative numbers"):
            asked()
    kept = analysis.mean_ci(result, change.astype(float).rename("change"))
    assert (kept["mean"].values < 0).any() and not kept["left_out"].values.any()


@pytest.mark.slow
def test_two_runs_of_a_seed_are_one_value_of_a_mean_curve():
    """Both rates are played as 1/√49."""
    result = pausejax.simulate(
        "efl_fg",
        mode="ensemble",
        seeds=3,
        rounds=49,
        eval_every=7,
        num_clients=20,
        learning_rate=[0.0, 1 / 7],
    )
    assert result.sizes["run"] == 6
    table = analysis.curves(result, "mse")
    means = analysis.summary(result, ["mse"]).iloc[0]
    assert set(table["count"]) == {3}
    last = table.groupby("label").last().iloc[0]
    for key in ("mean", "low", "high"):
        assert last[key] == pytest.approx(means[key])


def test_every_variable_with_minus_one_for_no_value_is_a_count():
    """Also if `xarray.concat` has made its integers floats."""
    tables = {**clients_variables.VARIABLES, **ensemble_variables.VARIABLES}
    assert {name for name, variable in tables.items() if variable.fill == -1} == quantities.COUNTS
