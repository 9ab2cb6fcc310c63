"""What must not be compared in silence, and sums that miss a round."""

import json

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import analysis, kinds
from pausejax.analysis import settings
from pausejax.analysis.comparing import UnlikeMeaning, refuse_unlike
from pausejax.analysis.metrics import REDUCTIONS, RUNNING
from pausejax.execution.tracking.runs import tracked_runs
from pausejax.page import tables
from pausejax.plotting.grid import arrange
from pausejax.searches.result import summary

from ..plotting.made import runs_of
from .made_up import AXES, POLICIES, build

SMALL = {
    "rounds": 3,
    "seeds": 2,
    "num_clients": 4,
    "clients_per_round": 2,
    "model": "linear",
    "private": False,
}


@pytest.fixture(scope="module")
def two_files(tmp_path_factory):
    """A study of two files with data."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    paths = []
    for name, spread in (("easy", 3.0), ("hard", 0.1)):
        centers = spread * rng.normal(size=(2, 3))
        labels = np.tile([0, 1], 60)
        inputs = (centers[labels] + rng.normal(size=(120, 3))).astype(np.float32)
        paths.append(str(folder / f"{name}.npz"))
        split = {"x_train": inputs[:90], "y_train": labels[:90], "x_test": inputs[90:], "y_test": labels[90:]}
        np.savez(paths[-1], **split)
    return pausejax.simulate("pause", dataset="npz", data_file=paths, **SMALL), paths


@pytest.mark.slow
def test_files_with_data_are_data_sets(two_files):
    result, paths = two_files
    for ask in (analysis.best, lambda result, _: analysis.pareto(result), analysis.verdict):
        with pytest.raises(ValueError, match="not comparable between runs with different data_file"):
            ask(result, "test_accuracy")
    assert analysis.best(result, "test_accuracy", per="data_file").sizes["setting"] == 2
    assert analysis.best(result, "elapsed").sizes == {}
    assert [panel.title for panel in arrange(result).panels] == paths


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["max_leakage", "max_leakage_update"])
def test_leakages_of_unlike_mechanisms_are_not_compared(metric):
    small = {"rounds": 2, "seeds": 1, "num_clients": 4, "clients_per_round": 2, "train_samples": 80}
    result = pausejax.simulate(
        "random", mechanism=["laplace", "gaussian"], model="linear", max_steps=1, **small
    )
    with pytest.raises(ValueError, match="not comparable between runs with different mechanism"):
        analysis.best(result, metric)


def test_what_data_sets_read_has_one_order_in_every_process():
    outputs = kinds.parse({"policy": [{"name": "pause"}]}).outputs
    sources = ("data_file", "tfds_name", "tfds_version")
    assert outputs.compare_within[-3:] == sources
    assert outputs.metrics["test_accuracy"].scaled_by[-3:] == sources
    assert not set(sources) & set(outputs.metrics["elapsed"].scaled_by)


@pytest.mark.slow
def test_a_search_says_what_its_policies_fix_unlike():
    policies = [{"name": "pause", "label": f"g{gamma}", "gamma": float(gamma)} for gamma in (1, 25)]
    more = {"seeds": 1, "rounds": 10, "mode": "bandit", "num_clients": 6, "clients_per_round": 2}
    asked = {"trials": 2, "fresh_seeds": 2, "metric": "cumulative_pseudo_regret"}
    assert "cumulative_pseudo_regret is not comparable between settings with different γ" in summary(
        pausejax.search(policies, **asked, **more)
    )
    assert "not comparable" not in summary(
        pausejax.search(policies, **{**asked, "metric": "elapsed"}, **more)
    )


def test_a_sum_or_a_mean_goes_on_after_a_round_without_a_value():
    values = np.array([[1, np.nan, 2, 4, np.nan], [np.nan, 3, 5, np.nan, np.nan], [np.nan] * 5])
    expected = [[1, 1, 3, 7, np.nan], [np.nan, 3, 8, np.nan, np.nan], [np.nan] * 5]
    np.testing.assert_array_equal(RUNNING["total"](values), expected)
    means = [[1, 1, 3 / 2, 7 / 3, np.nan], [np.nan, 3, 4, np.nan, np.nan], [np.nan] * 5]
    np.testing.assert_allclose(RUNNING["mean"](values), means, rtol=1e-15)


@pytest.mark.parametrize("name", ["last", "total", "mean"])
def test_a_curve_ends_at_the_figure(name):
    rng = np.random.default_rng(1)
    values = np.where(rng.random((50, 9)) < 0.4, np.nan, rng.normal(size=(50, 9)))
    running, figures = RUNNING[name](values), REDUCTIONS[name](values)
    for curve, figure in zip(running, figures, strict=True):
        there = curve[~np.isnan(curve)]
        np.testing.assert_allclose(there[-1] if len(there) else np.nan, figure)


def test_the_last_value_of_a_tracker_is_the_figure():
    """Also where the last rounds of a run have none."""
    result, _, last = build(POLICIES, 4, AXES)
    leakage = result["max_leakage"].values.copy()
    for run, end in enumerate(last):
        leakage[run, end - 1 - run % 3 : end] = np.nan
    result["max_leakage"] = (("run", "round"), leakage)
    figures = analysis.finals(result)["max_leakage"].values
    assert np.isfinite(figures).all()
    told = {run.identity: run for run in tracked_runs(result)}
    for identity, figure in zip(result["identity"].values, figures, strict=True):
        points = [point for point in told[identity].points if point.name == "max_leakage"]
        assert points[-1].value == pytest.approx(figure, abs=1e-6)
        assert [point.round for point in points] == sorted({point.round for point in points})


ALPHA, GAMMA = [1.0, 10.0, 100.0], [0.1, 1.0, 5.0, 25.0]
WEIGHTS = {"generalization_weight": "alpha", "privacy_weight": "gamma"}
BOTH = {"generalization_weight": ALPHA, "privacy_weight": GAMMA}


def test_regrets_of_unlike_rewards_are_not_compared():
    swept = build({"pause": BOTH, "uniform": BOTH}, 4, WEIGHTS, "bandit", whole=True)[0].load()
    with pytest.raises(
        ValueError, match=r"not comparable between runs with different α, here 1, 10, 100.*per="
    ):
        analysis.best(swept, "cumulative_pseudo_regret")
    with pytest.raises(ValueError, match="not comparable between runs with different γ"):
        analysis.best(swept, "cumulative_regret", per="alpha")
    many = swept.assign_coords(generalization_weight=("run", np.arange(swept.sizes["run"], dtype=float)))
    with pytest.raises(ValueError, match=r"here 0, 1, 2, 3, 4, … \(\d+ in all\)\."):
        analysis.best(many, "cumulative_pseudo_regret")
    chosen = {"alpha": 1, "gamma": 5}
    one = analysis.best(swept, "cumulative_pseudo_regret", where=chosen)
    means = analysis.mean_ci(analysis.select(swept, chosen), "cumulative_pseudo_regret")
    assert float(one["mean"]) == means["mean"].values.min()
    each = analysis.best(swept, "cumulative_pseudo_regret", per=("alpha", "gamma"))
    assert each.sizes["setting"] == 12
    with pytest.raises(ValueError, match="cumulative_regret: not comparable"):
        analysis.pareto(swept, ["cumulative_regret", "elapsed"])
    assert analysis.best(swept, "elapsed").sizes == {}


def test_rewards_are_unlike_where_the_least_latency_is():
    """A reward is τ_min over a latency, so that the same rounds pay more under a larger τ_min."""
    slow = build({"pause": {"min_latency": [0.01, 0.05]}}, 2, {"min_latency": "tau_min"}, "bandit")[0]
    with pytest.raises(
        ValueError, match=r"not comparable between runs with different τ_min, here 0\.01, 0\.05"
    ):
        analysis.best(slow, "cumulative_pseudo_regret")
    assert analysis.best(slow, "mean_latency").sizes == {}


@pytest.mark.parametrize("metric", ["cumulative_pseudo_regret", "cumulative_regret"])
def test_sums_over_unequally_many_rounds_are_not_compared(metric):
    made, _, last = build({"a": {}, "b": {}}, 6, (), "bandit")
    assert len(set(last)) > 1
    asks = (
        analysis.best,
        lambda made, name: analysis.pareto(made, [name]),
        analysis.verdict,
        lambda made, name: analysis.paired_difference(made, "a", "b", name),
    )
    for ask in asks:
        for one in (made, analysis.finals(made), analysis.finals(made, [metric])):
            with pytest.raises(ValueError, match=f"is a sum over {min(last)} to {max(last)} rounds"):
                ask(one, metric)
        uncounted = (made[[metric.removeprefix("cumulative_")]], analysis.finals(made)[[metric]])
        for one in uncounted:
            with pytest.raises(ValueError, match=r"does not tell how many\. Select elapsed too"):
                ask(one, metric)
        with pytest.raises(ValueError, match=f"elapsed: is a sum over {min(last)} to {max(last)} rounds"):
            ask(made, "elapsed")
        assert ask(made, "mean_latency") is not None
    equal = made.isel(run=np.flatnonzero(last == last.max()))
    whole = analysis.mean_ci(equal, metric)
    assert float(analysis.best(equal, metric)["mean"]) == whole["mean"].values.min()
    table, notes = tables.differences(made)
    place = table.headings.index("pseudo-regret")
    assert [row[place] for row in table.rows] == ["–"]
    assert sum(metric in note and "sums over unequally many rounds" in note for note in notes) == 1
    alone = [analysis.best(made.isel(run=[place]), metric) for place in range(3)]
    assert all(np.isfinite(float(one["mean"])) for one in alone)


@pytest.mark.parametrize("other", [{"policy": "random", "privacy_weight": 25.0}, "random"])
def test_differences_of_regrets_under_unlike_rewards_are_refused(other):
    swept = {"privacy_weight": [1.0, 25.0]}
    made, _, last = build({"pause": swept, "random": swept}, 3, ("privacy_weight",), "bandit")
    made = made.isel(round=slice(int(last.min())))
    name = "cumulative_regret"
    one = {"policy": "pause", "privacy_weight": 1.0}
    with pytest.raises(ValueError, match=f"{name}: not comparable between runs with different γ"):
        analysis.paired_difference(made, one, other, name)
    with pytest.raises(ValueError, match=f"{name}: not comparable between runs with different γ"):
        analysis.paired_difference(made, "pause", "random", name, over=("seed", "privacy_weight"))
    assert analysis.paired_difference(made, "pause", "random", name).sizes["setting"] == 2


@pytest.mark.slow
def test_regrets_under_unlike_clocks_are_not_compared():
    small = {"mode": "bandit", "rounds": 5, "seeds": 1, "num_clients": 4, "clients_per_round": 2}
    result = pausejax.simulate("random", clock=["paper", "reference"], **small)
    with pytest.raises(ValueError, match="not comparable between runs with different clock"):
        analysis.best(result, "cumulative_pseudo_regret")


def test_the_rates_of_ensembles_follow_from_the_number_of_rounds():
    """If the study does not set them. Numbers that users gave must be equal."""
    rows = [{"policy": "p", "seed": seed, "gamma": gamma} for gamma in (1.0, 2.0) for seed in (0, 1)]
    result = runs_of(rows).assign_coords(learning_rate=("run", [0.1, 0.1, 0.2, 0.2]))
    result = result.assign_coords(rounds_played=("run", [100, 100, 25, 25]))
    known = json.loads(result.attrs["parameters"])
    result = result.assign_attrs(parameters=json.dumps({**known, "learning_rate": [[], ""]}), kind="ensemble")
    assert len(settings.runs_table(result)) == 4
    other = result.assign_coords(learning_rate=("run", [0.1, 0.1, 0.2, 0.3]))
    with pytest.raises(ValueError, match=r"'p' differ in learning_rate \(0.1, 0.2, 0.3\), which is no axis"):
        settings.runs_table(other)
    given = result.assign_coords(learning_rate=("run", [0.1, 0.1, 0.9, 0.9]))
    with pytest.raises(ValueError, match=r"'p' differ in learning_rate \(0.1, 0.9\), which is no axis"):
        settings.runs_table(given)
    assert len(settings.runs_table(result.assign_coords(learning_rate=("run", [0.1] * 4)))) == 4
    with pytest.raises(ValueError, match=r"'p' differ in learning_rate \(0.1, 0.2\), which is no axis"):
        settings.runs_table(result.assign_attrs(kind="clients"))


def test_results_of_two_studies_are_not_averaged():
    """Joined by xarray, they have the axes of the first one alone."""
    study = {"mode": "bandit", "rounds": 5, "seeds": 2, "num_clients": 4, "clients_per_round": 2}
    both = xr.concat(
        [pausejax.simulate(["random", "pause"], fast_latency=value, **study) for value in (0.1, 0.2)], "run"
    )
    for asked in (
        lambda: analysis.mean_ci(both, "elapsed"),
        lambda: analysis.paired_difference(both, "random", "pause", "elapsed"),
        lambda: analysis.curves(both, "elapsed"),
        lambda: pausejax.summary(both, ["elapsed"]),
        lambda: pausejax.charts(both),
    ):
        with pytest.raises(ValueError, match=r"differ in fast_latency \(0.1, 0.2\), which is no axis"):
            asked()


def test_values_of_an_axis_from_two_studies_are_not_compared(tmp_path):
    """No two runs have the same values of the axis, and another parameter or file differs."""
    file = tmp_path / "latencies.csv"
    study = {"mode": "bandit", "rounds": 5, "num_clients": 4, "clients_per_round": 2}
    study |= {"latency": "trace", "trace_file": str(file)}
    found = []
    for gamma, alpha, seconds in ([1.0, 5.0], 10.0, 1.0), ([25.0], 0.1, 1.0), ([25.0], 10.0, 3.0):
        np.savetxt(file, np.full((3, 4), seconds), delimiter=",")
        found.append(pausejax.simulate("pause", gamma=gamma, alpha=alpha, **study))
    for other, name in zip(found[1:], ("generalization_weight", "sources"), strict=True):
        with pytest.raises(ValueError, match=f"'pause' differ in {name} .*, which is no axis"):
            pausejax.summary(xr.concat([found[0], other], "run"), ["elapsed"])


def test_results_with_unlike_metrics_are_not_averaged():
    """The first result's table of metrics would describe all runs, and lack the metrics of the others."""
    study = {"mode": "bandit", "rounds": 5, "seeds": 2, "num_clients": 4, "clients_per_round": 2}
    first = pausejax.simulate("random", **study)
    for changed in ({"failure_probability": 0.5}, {"selection_gap": True}):
        other = pausejax.simulate("fastest", **changed, **study)
        with pytest.raises(ValueError, match=r"differ in .* their variables or metrics"):
            pausejax.summary(xr.concat([first, other], "run"), ["elapsed"])
    alike = xr.concat([first, pausejax.simulate("fastest", **study)], "run")
    assert len(pausejax.summary(alike, ["elapsed"])) == 2


def test_a_joined_result_with_other_numbers_of_clients_is_saved(tmp_path):
    study = {"mode": "bandit", "rounds": 5, "seeds": 1, "clients_per_round": 2}
    parts = [pausejax.simulate("random", num_clients=count, **study) for count in (4, 6)]
    both = xr.concat([part.assign_attrs(axes='["num_clients"]') for part in parts], "run", join="outer")
    pausejax.save(both, tmp_path / "both")
    assert pausejax.open(tmp_path / "both").sizes["run"] == 2
    cut = both.isel(slot=slice(1)) if "slot" in both.dims else both.isel(round=slice(3))
    with pytest.raises(ValueError, match="equally many selections"):
        pausejax.save(cut, tmp_path / "cut")


def test_two_policies_with_one_label_are_not_averaged():
    study = {"mode": "bandit", "rounds": 5, "num_clients": 4, "clients_per_round": 2}
    both = xr.concat(
        [
            pausejax.simulate({"name": name, "label": "baseline"}, seeds=seeds, **study)
            for name, seeds in (("random", [0, 1]), ("fastest", [2, 3]))
        ],
        "run",
    )
    with pytest.raises(
        ValueError, match=r"'baseline' differ in algorithm .*Give each policy a label of its own"
    ):
        pausejax.summary(both, ["elapsed"])


def test_results_of_unlike_lengths_are_not_averaged():
    """The rounds and the latency at which runs stop are no parameters, so no coordinate shows them."""
    study = {"mode": "bandit", "num_clients": 4, "clients_per_round": 2}
    first = pausejax.simulate("random", rounds=5, seeds=[0, 1], **study)
    for changed in ({"rounds": 4}, {"rounds": 5, "stop_at_latency": 0.5}):
        other = pausejax.simulate("random", seeds=[2, 3], **changed, **study)
        both = xr.concat([first, other], "run", join="outer")
        for asked in (lambda r: pausejax.summary(r, ["elapsed"]), lambda r: analysis.best(r, "elapsed")):
            with pytest.raises(ValueError, match="studies that differ in mode, rounds, eval_every, stop_at"):
                asked(both)
    more = pausejax.simulate("random", rounds=5, seeds=[2, 3], **study)
    joined = analysis.mean_ci(xr.concat([first, more], "run"), "elapsed")
    whole = analysis.mean_ci(pausejax.simulate("random", rounds=5, seeds=4, **study), "elapsed")
    np.testing.assert_allclose(joined["high"], whole["high"], rtol=1e-6)


def test_a_way_out_by_values_is_named_for_axes_alone():
    figures = analysis.finals(build({"pause": BOTH}, 2, WEIGHTS, "bandit", whole=True)[0].load())
    values = figures["cumulative_regret"].values
    for axes, is_axis in (["generalization_weight"], True), (["privacy_weight"], False):
        with pytest.raises(UnlikeMeaning, match="not comparable between runs with different α") as mistake:
            refuse_unlike(figures.assign_attrs(axes=json.dumps(axes)), "cumulative_regret", values)
        assert mistake.value.is_axis == is_axis == ("per='generalization_weight'" in str(mistake.value))


def test_results_of_changed_files_are_not_averaged(tmp_path):
    """A parameter names a file by its path, which stays the same."""
    file = tmp_path / "latencies.csv"
    study = {"mode": "bandit", "rounds": 5, "num_clients": 4, "clients_per_round": 2}
    traced = {**study, "latency": "trace", "trace_file": str(file)}
    found = []
    for seeds, seconds in ([0, 1], 1.0), ([2, 3], 3.0), ([4, 5], 1.0):
        np.savetxt(file, np.full((3, 4), seconds), delimiter=",")
        found.append(pausejax.simulate("random", seeds=seeds, **traced))
    first, changed, again = found
    with pytest.raises(ValueError, match=r"'random' differ in sources \(\w+, \w+\), which is no axis"):
        pausejax.summary(xr.concat([first, changed], "run"), ["elapsed"])
    assert analysis.mean_ci(xr.concat([first, again], "run"), "elapsed")["mean"].values == 5
    plain = pausejax.simulate("random", seeds=[2, 3], **study)
    assert set(first["sources"].values) != {""} == set(plain["sources"].values)
