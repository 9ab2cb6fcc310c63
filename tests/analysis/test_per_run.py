"""The figures of each run against plain loops over its recorded rounds."""

import math
import tracemalloc
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import analysis, kinds
from pausejax.analysis import per_run
from pausejax.analysis.metrics import REDUCTIONS, imbalance, last, rounds_played
from pausejax.analysis.quantities import as_json, format_number
from pausejax.clients.variables import METRICS as CLIENTS
from pausejax.federated import tasks

from .made_up import build


def expected(result, place, last_round):
    run = result.isel(run=place)
    played = {
        name: run[name].values[:last_round].astype(np.float64) for name in run if "round" in run[name].dims
    }
    share = run["counts"].values / run["counts"].values.sum()
    gap = played["selection_gap"][np.isfinite(played["selection_gap"])]
    found = {
        "elapsed": played["elapsed"][-1],
        "mean_latency": played["elapsed"][-1] / last_round,
        "rounds_played": last_round,
        "max_leakage": played["max_leakage"][-1],
        "cumulative_regret": sum(played["regret"]),
        "cumulative_pseudo_regret": sum(played["pseudo_regret"]),
        "participation_imbalance": sum(max(s - 1 / len(share), 0) for s in share),
        "mean_selection_gap": gap.mean() if gap.size else np.nan,
        "exact_share": np.mean(gap < 1e-5) if gap.size else np.nan,
    }
    if "test_accuracy" in run:
        measured = run["test_accuracy"].values[run["eval_round"].values <= last_round]
        found["test_accuracy"] = np.nan if run["diverged_round"] else measured[-1]
        found["diverged_round"] = int(run["diverged_round"])
    return found


def test_finals_are_those_of_the_last_recorded_round(made):
    result, _, last_rounds = made
    found = analysis.finals(result)
    for place, last_round in enumerate(last_rounds):
        wanted = expected(result, place, last_round)
        assert set(found.data_vars) == set(wanted)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name].values[place], value, rtol=2e-6, atol=1e-6, err_msg=name)


def test_an_own_quantity_has_its_value_in_the_last_round_that_a_run_played(made, own_parts, monkeypatch):
    """NaN if this value is NaN, and for a run that diverged; never a value of an earlier round."""
    result, _, last_rounds = made

    @pausejax.quantity
    def own(seen): ...

    spec = {"mode": result.attrs["mode"], "policy": [{"name": "random"}], "quantities": ["own"]}
    table = kinds.parse(spec).outputs.metrics
    values = np.random.default_rng(0).random(result["elapsed"].shape).astype(np.float32)
    values[np.arange(1, values.shape[1] + 1) > last_rounds[:, None]] = np.nan
    wanted = values[np.arange(len(values)), last_rounds - 1]
    wanted[::3] = values[np.arange(0, len(values), 3), last_rounds[::3] - 1] = np.nan
    if "diverged_round" in result:
        wanted = np.where(result["diverged_round"] > 0, np.nan, wanted)
    result = result.assign(own=(("run", "round"), values)).assign_attrs(metrics=as_json(table))
    for max_bytes in (1, per_run.MAX_BYTES):
        monkeypatch.setattr(per_run.run_blocks, "__kwdefaults__", {"max_bytes": max_bytes})
        np.testing.assert_array_equal(analysis.finals(result)["own"], wanted)
    left_out = analysis.mean_ci(result, "own")["left_out"].sum()
    assert left_out == np.isnan(wanted).sum() >= len(wanted) / 3
    with pytest.raises(ValueError, match="result: lacks elapsed, which tells in which round a run ended"):
        analysis.finals(result.drop_vars("elapsed"), ["own"])


def test_the_metric_of_an_own_task_is_that_of_the_last_evaluation(own_parts):
    """NaN if it is NaN there at a finite loss; the accuracy of the package's tasks can't be."""

    @pausejax.task
    def own():
        return tasks.classification()._replace(metric_name="test_own")

    asked = {"policy": [{"name": "random"}], "training": {"task": ["classification", "own"]}}
    table = kinds.parse(asked).outputs.metrics
    assert [table[name].reduce for name in ("test_accuracy", "test_own")] == ["last", "at_end"]
    other = {**asked, "training": {"task": ["own", "opposite"]}}

    @pausejax.task
    def opposite():
        return tasks.classification()._replace(metric_name="test_own", higher_is_better=False)

    with pytest.raises(ValueError, match="'test_own': another task has this name, but another direction"):
        kinds.parse(other).outputs  # noqa: B018
    result, _, last_rounds = build({"a": {}}, 30, {})
    place = np.searchsorted(result["eval_round"].values, last_rounds, side="right") - 1
    values = result["test_accuracy"].values.copy()
    values[np.arange(0, 30, 2), place[::2]] = np.nan
    wanted = np.where(result["diverged_round"] > 0, np.nan, values[np.arange(30), place])
    own_values = result.assign(test_own=(("run", "eval"), values)).assign_attrs(metrics=as_json(table))
    np.testing.assert_array_equal(analysis.finals(own_values, ["test_own"])["test_own"], wanted)


def test_what_describes_a_metric_depends_on_no_parameter(own_parts):
    """With `best` of its first value, errors were ranked as accuracies."""

    @pausejax.task
    def own(*, score: Literal["accuracy", "error"] = "accuracy"):
        return tasks.classification()._replace(metric_name="own", higher_is_better=score == "accuracy")

    def maximize(*policies, **task):
        asked = {"policy": [*policies], "training": {"task": "own", **task}}
        return kinds.parse(asked).outputs.metrics["own"].maximize

    plain, error = {"name": "random"}, {"name": "random", "label": "b", "score": "error"}
    assert maximize(plain) and not maximize(error) and not maximize(plain, score="error")
    for policies, task in (((plain, error), {}), ((plain,), {"score": ["accuracy", "error"]})):
        with pytest.raises(ValueError, match="task own: higher_is_better: True or False, by score; must not"):
            maximize(*policies, **task)


@pytest.mark.parametrize("unlike", [{"unit": "%"}, {"higher_is_better": False}])
def test_an_accuracy_is_a_share_of_which_the_higher_is_better(own_parts, unlike):
    """Tables show it in percent, and `best` looks for the highest."""

    @pausejax.task
    def own():
        return tasks.classification()._replace(**unlike)

    asked = {"policy": [{"name": "random"}], "training": {"task": "own"}}
    with pytest.raises(ValueError, match="task own: metric_name = 'test_accuracy': is a share"):
        kinds.parse(asked).outputs  # noqa: B018


def test_the_last_round_must_be_evaluated(result):
    """So accuracy and time are those of one round."""
    evaluated = result["eval_round"].values
    for cut in (
        {"eval": slice(0, 1)},
        {"eval": 0},
        {"eval": slice(0, 0)},
        {"round": slice(0, evaluated[1])},
        {"round": slice(0, evaluated[1] + 1), "eval": slice(0, 2)},
        {"round": slice(0, evaluated[1]), "eval": slice(0, 2)},
    ):
        with pytest.raises(ValueError, match="rounds or evaluations were selected"):
            analysis.finals(result.assign_attrs(rounds=result.sizes["round"]).isel(cut))


def test_finals_of_finals_are_the_same(result):
    once = analysis.finals(result)
    xr.testing.assert_identical(analysis.finals(once), once)
    xr.testing.assert_identical(analysis.finals(once, ["elapsed"]), analysis.finals(result, ["elapsed"]))


def test_learned_metrics_need_to_know_which_runs_diverged(result):
    """A diverged run would otherwise count with its last accuracy before it diverged."""
    assert (result["diverged_round"] > 0).any()
    part = result[["test_accuracy", "elapsed"]]
    for ask in (analysis.finals, analysis.mean_ci, analysis.best, analysis.curves, pausejax.summary):
        with pytest.raises(ValueError, match="result: lacks diverged_round, without which a diverged run"):
            ask(part) if ask is not analysis.best else ask(part, "test_accuracy")
    told = result[["test_accuracy", "diverged_round"]]
    xr.testing.assert_identical(analysis.mean_ci(told), analysis.mean_ci(result))
    figures = analysis.finals(result, ["test_accuracy"])
    xr.testing.assert_identical(analysis.mean_ci(figures), analysis.mean_ci(result).drop_vars("diverged"))
    assert np.isfinite(analysis.mean_ci(part, "elapsed")["mean"]).all()


@pytest.mark.parametrize(("max_bytes", "widths"), [(1, [7, 7, 7, 5]), (40 * 14, [14, 12]), (10**9, [26])])
def test_blocks_hold_as_many_whole_chunks_as_fit(max_bytes, widths):
    array = xr.DataArray(np.zeros((26, 10), np.float32), dims=("run", "round"))
    array.encoding["chunks"] = (7, 10)
    cut = list(per_run.run_blocks(array, max_bytes=max_bytes))
    assert [piece.stop - piece.start for piece in cut] == widths
    assert [piece.start for piece in cut[1:]] == [piece.stop for piece in cut[:-1]]


def test_a_run_that_recorded_nothing_has_no_figures():
    empty = np.full((2, 4), np.nan)
    empty[1, :2] = [3.0, np.inf]
    np.testing.assert_array_equal(last(empty), [np.nan, np.inf])
    np.testing.assert_array_equal(rounds_played(empty), [0, 2])
    for metric in CLIENTS.values():
        if metric.variable not in ("counts", "diverged_round", "elapsed"):
            assert np.isnan(REDUCTIONS[metric.reduce](empty)[0])


def test_imbalance_is_zero_for_equal_shares_and_largest_for_one_client():
    counts = np.array([[4, 4, 4, 4], [16, 0, 0, 0], [8, 8, 0, -1], [0, 0, 0, 0]])
    np.testing.assert_allclose(imbalance(counts), [0, 3 / 4, 1 / 3, np.nan])


def test_imbalance_is_rounded_once_in_any_order_of_the_clients():
    """Otherwise a setting that another one beats can stay on a Pareto front."""
    rng = np.random.default_rng(0)
    for clients in (3, 7, 30):
        counts = rng.multinomial(200, rng.dirichlet(np.ones(clients)))
        exact = sum(abs(Fraction(int(c), 200) - Fraction(1, clients)) for c in counts) / 2
        orders = np.stack([rng.permutation([*counts, -1, -1]) for _ in range(200)])
        assert set(imbalance(orders).tolist()) == {float(exact)}


def test_unknown_metric_names_the_known_ones(result):
    with pytest.raises(ValueError, match="metric 'acuracy': must be one of test_accuracy, elapsed"):
        analysis.finals(result, ["acuracy"])


def test_memory_does_not_grow_with_the_number_of_runs(tmp_path, monkeypatch):
    chunk, rounds = 50, 1000
    monkeypatch.setattr(per_run.run_blocks, "__kwdefaults__", {"max_bytes": 4 * chunk * rounds})
    peaks = {}
    for runs in (100, 1500):
        elapsed = np.cumsum(np.ones((runs, rounds), np.float32), axis=1)
        coords = {"policy": ("run", np.full(runs, "a")), "seed": ("run", np.arange(runs))}
        made = xr.Dataset({"elapsed": (("run", "round"), elapsed)}, coords, {"axes": "[]", "mode": "bandit"})
        made["elapsed"].encoding["chunks"] = (chunk, rounds)
        made.to_zarr(tmp_path / f"{runs}.zarr", zarr_format=2, consolidated=True)
        stored = xr.open_zarr(tmp_path / f"{runs}.zarr")
        analysis.finals(stored)
        tracemalloc.start()
        analysis.finals(stored)
        peaks[runs] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # All of the longer result would be 6 MB; its figures are some bytes a run.
    assert peaks[1500] < peaks[100] + 1e6


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-0.001, ".1f", "0.0"),
        (0.0, ".2e", "0"),
        (-0.0, "g", "0"),
        (-0.06, ".1f", "-0.1"),
        (1.5e5, ".2e", "1.50e+05"),
        (math.nan, ".1f", "–"),
        (-math.inf, ".2e", "−∞"),
        (math.inf, "g", "∞"),
    ],
)
def test_a_zero_has_no_sign_and_no_exponent(value, form, text):
    assert format_number(value, form) == text
