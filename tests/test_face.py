"""The library's face: results, their charts, and studies in folders, as a user in Python meets them."""

import base64
import inspect
import json
import os

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import analysis, api
from pausejax.commands import main as cli
from pausejax.parts import PartError
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed

from .alike import assert_alike

STUDY = {
    "mode": "bandit",
    "seeds": 2,
    "rounds": 12,
    "num_clients": 6,
    "clients_per_round": 2,
    "gamma": [1.0, 5.0],
    "name": "faces",
}


@pytest.fixture(scope="module")
def result():
    return pausejax.simulate(["pause", "random"], **STUDY)


def test_everything_is_listed_and_loads():
    named = {"simulate", "open", "save", "select", "summary", "charts", "analysis", "plotting"}
    assert named <= set(dir(pausejax))
    assert all(hasattr(pausejax, name) for name in dir(pausejax))


def test_progress_is_told_on_request_alone(result, capsys):
    again = pausejax.simulate(["pause", "random"], **STUDY, progress=True)
    told = capsys.readouterr()
    assert told.out == "" and "8 runs in 2 groups, 12 rounds each, on 2 × cpu" in told.err.splitlines()[0]
    assert "finished 4 runs of pause" in told.err and "8 of 8 runs finished" in told.err.splitlines()[-1]
    xr.testing.assert_identical(again, result)
    steps = []
    pausejax.simulate("pause", **STUDY, progress=steps.append)
    assert sum(steps) == 12 * 4 and capsys.readouterr() == ("", "")


def test_a_study_in_a_folder_keeps_resumes_and_extends(result, tmp_path):
    out = tmp_path / "out"
    assert_alike(pausejax.simulate(["pause", "random"], **STUDY, out=out), result)
    steps = []
    more = pausejax.simulate(["pause", "random"], **{**STUDY, "seeds": 3}, out=out, progress=steps.append)
    assert more.sizes["run"] == 12 and sum(steps) == 4 * 12
    assert_alike(more.isel(run=more.seed < 2).assign_attrs(spec=""), result.assign_attrs(spec=""))
    assert cli.main(["run", str(out / "spec.toml"), "--out", str(out), "--quiet", "--no-report"]) == cli.OK
    with pytest.raises(pausejax.SpecError, match="holds runs of another spec"):
        pausejax.simulate("random", **STUDY, out=out)


def test_a_study_in_a_folder_takes_no_impossible_time_and_stays_where_it_began(tmp_path, monkeypatch):
    for seconds in (-1.0, float("nan")):
        with pytest.raises(pausejax.SpecError, match=r"checkpoint_every = .*: must be >= 0 seconds"):
            pausejax.simulate("random", **STUDY, out=tmp_path / "out", checkpoint_every=seconds)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    found = pausejax.simulate(
        "random", **STUDY, out="out", progress=lambda _: os.chdir(tmp_path / "elsewhere")
    )
    assert found.sizes["run"] == 4 and (tmp_path / "out" / "results.zarr").is_dir()


def test_signatures_show_every_parameter_with_its_default():
    shown = inspect.signature(pausejax.simulate).parameters
    assert {"num_clients", "clients_per_round", "learning_rate", "stop_at_latency", "out"} <= shown.keys()
    assert shown["privacy_budget"].default == 40.0 and "two_speed" in str(shown["latency"].annotation)
    assert {"num_clients", "trials"} <= inspect.signature(pausejax.search).parameters.keys()


def test_a_clash_of_parts_leaves_a_signature_and_is_said_by_the_study(monkeypatch):
    def clash(*_):
        raise PartError("two parts disagree")

    monkeypatch.setattr(api, "words_of", clash)

    def call(first, **parameters):
        pass

    assert list(api._with_parameters(call).parameters) == ["first", "parameters"]


def test_misspelt_symbols_are_compared_too():
    with pytest.raises(pausejax.SpecError, match="gama: unknown key; did you mean 'gamma'"):
        pausejax.simulate(gama=[1, 5])


@pytest.mark.slow
def test_charts_show_themselves(result):
    charts = pausejax.charts(result)
    assert isinstance(charts, dict) and repr(charts).startswith(f"{len(charts)} charts: max_leakage_vs_")
    page = charts._repr_html_()
    assert page.count("<img ") == len(charts) and all(f"<figcaption>{name}<" in page for name in charts)
    shown = next(iter(charts.values()))._repr_mimebundle_()
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    assert shown["text/plain"].startswith("max_leakage_vs_round: ") and len(shown) == 3
    assert charts["participation"].to_vega()[0]["$schema"].endswith(".json")


def test_charts_escape_what_they_are_called(result):
    labels = ["<i>&" if name == "random" else "other" for name in result["policy"].values]
    odd = pausejax.charts(result.assign_coords(policy=("run", labels)))
    odd = type(odd)({"<b>": type(odd["participation"])("c", "<u>", odd["participation"].panels)})
    page = odd._repr_html_()
    assert "<b>" not in page and "<u>" not in page and "&lt;b&gt;" in page and "&lt;u&gt;" in page


def run(folder, *more):
    arguments = ["run", str(folder / "spec.toml"), "--out", str(folder), "--quiet", "--no-report", *more]
    return cli.main(arguments)


def test_what_is_saved_opens_exports_and_is_finished(result, tmp_path, monkeypatch):
    pausejax.save(result, tmp_path)
    xr.testing.assert_identical(pausejax.open(tmp_path).load(), result)
    assert (tmp_path / "results.zarr" / "manifest.json").is_file()
    assert cli.main(["export", str(tmp_path), "--format", "csv", "--quiet"]) == cli.OK
    before = (tmp_path / "results.zarr" / "zarr.json").stat().st_mtime_ns
    monkeypatch.setattr("pausejax.execution.rounds.play_rounds", None)  # nothing is left to play
    assert run(tmp_path) == cli.OK
    assert (tmp_path / "results.zarr" / "zarr.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_selection_is_saved_and_completed(result, tmp_path):
    pausejax.save(pausejax.select(result, policy="random"), tmp_path)
    assert pausejax.open(tmp_path).sizes["run"] == 4
    assert run(tmp_path) == cli.OK
    whole = pausejax.open(tmp_path).load()
    assert whole.sizes["run"] == 8
    np.testing.assert_array_equal(whole["selected"], result["selected"])
    # More runs than there were are welcome, and so is the same once more.
    pausejax.save(whole, tmp_path)
    pausejax.save(pausejax.open(tmp_path), tmp_path)
    xr.testing.assert_identical(pausejax.open(tmp_path).load(), whole)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda r: r.drop_vars("regret"), "but lacks regret"),
        (lambda r: r.assign(mine=r.regret), "has mine, which its study does not record"),
        (lambda r: r.drop_attrs(), "must be a study's result with all its attributes"),
        (lambda r: r.isel(run=0), "must be a study's result"),
        (lambda r: r.isel(run=[]), "must have one run or more"),
        (lambda r: r.isel(run=[0, 1, 0]), "holds a run twice"),
        (lambda r: r.drop_vars("identity"), "must have the coordinate identity"),
        (lambda r: r.transpose(), "the first dimension of"),
        (lambda r: r.assign_attrs(format=1), "has format 1"),
    ],
)
def test_what_is_no_whole_result_is_not_saved(result, tmp_path, spoil, said):
    with pytest.raises(ValueError, match=said):
        pausejax.save(spoil(result), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cut", [{"round": slice(0, 5)}, {"client": slice(0, 3)}])
@pytest.mark.parametrize("default", [False, True])
def test_runs_without_some_rounds_or_clients_are_not_saved(result, tmp_path, cut, default):
    """A later command would count them as finished. A spec without `rounds` has 200 rounds."""
    (dim,) = cut
    if default:
        result = result.isel(round=np.arange(200) % 12).assign_coords(round=np.arange(1, 201))
        result = result.assign_attrs(spec=result.attrs["spec"].replace("rounds = 12\n", ""))
    with pytest.raises(ValueError, match=f"the dimension {dim} must have the length"):
        pausejax.save(result.isel(cut), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("rounds", [slice(4), slice(4, 12), slice(3, None, 4), [0, 1, 3], 0, 5])
def test_metrics_of_selected_rounds_are_refused(result, rounds):
    """They are computed from all rounds, and some of them, such as the participation, have no rounds."""
    cut, reward = result.isel(round=rounds), result["reward"].isel(round=np.atleast_1d(np.r_[rounds]))
    for asked in (
        lambda: analysis.finals(cut),
        lambda: pausejax.summary(cut),
        lambda: analysis.curves(cut, "elapsed"),
        lambda: pausejax.charts(cut),
    ):
        with pytest.raises(ValueError, match=r"evaluations were selected|words over run, round"):
            asked()
    mean = analysis.mean_ci(result, reward.sum("round"))["mean"]
    np.testing.assert_allclose(mean[0], reward.sum("round")[:2].mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda r: r.isel(slot=slice(1)), "equally many selections"),
        (lambda r: r.isel(slot=0), "equally many selections"),
        (lambda r: r.isel(client=slice(None, None, -1)), "the coordinate client must begin with 0, 1, 2"),
        (lambda r: r.sortby("round", ascending=False), "round: must be ascending"),
        (lambda r: r.where(r["elapsed"] > r["elapsed"].mean()), "result: "),
    ],
)
def test_what_no_one_could_open_or_extend_does_not_replace_a_result(result, tmp_path, spoil, said):
    pausejax.save(result, tmp_path)
    with pytest.raises(ValueError, match=said):
        pausejax.save(spoil(result), tmp_path)
    xr.testing.assert_identical(pausejax.open(tmp_path).load(), result)


def test_the_runs_of_a_few_clients_are_saved_from_a_study_of_many(tmp_path):
    both = pausejax.simulate("random", **{**STUDY, "num_clients": [4, 6]})
    few = pausejax.select(both, num_clients=4)
    pausejax.save(few, tmp_path)
    assert pausejax.open(tmp_path).sizes["run"] == few.sizes["run"]


def test_saving_one_label_does_not_remove_the_other(tmp_path):
    labelled = [{"name": "random", "label": label} for label in ("one", "other")]
    both = pausejax.simulate(labelled, **STUDY)
    pausejax.save(both, tmp_path)
    with pytest.raises(ValueError, match="runs that this result lacks"):
        pausejax.save(pausejax.select(both, policy="one"), tmp_path)
    assert pausejax.open(tmp_path).sizes["run"] == both.sizes["run"]


@pytest.mark.slow
@pytest.mark.parametrize("twice", ["labels", "files"])
def test_runs_that_act_alike_are_all_there_and_saved(twice, tmp_path):
    """Their identities are equal: they differ in a label, or in the name of a file."""
    more = {"mode": "bandit", "rounds": 5, "seeds": 2, "num_clients": 4, "clients_per_round": 2}
    policies = [{"name": "random", "label": label} for label in "xy"] if twice == "labels" else "random"
    if twice == "files":
        for name in "ab":
            np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).uniform(0.1, 1, (8, 4)))
        more |= {"latency": "trace", "trace_file": [str(tmp_path / f"{name}.npy") for name in "ab"]}
    result = pausejax.simulate(policies, **more)
    identities = result["identity"].values.tolist()
    assert identities[:2] == identities[2:] and np.isfinite(result["elapsed"]).all()
    np.testing.assert_array_equal(result["selected"][:2], result["selected"][2:])
    pausejax.save(result, tmp_path / "saved")
    xr.testing.assert_identical(pausejax.open(tmp_path / "saved").load(), result)
    kept = pausejax.simulate(policies, **more, out=tmp_path / "out")
    for name in result.variables:
        np.testing.assert_array_equal(kept[name], result[name])


def test_a_folder_with_other_runs_is_left_alone(result, tmp_path):
    pausejax.save(result, tmp_path)
    with pytest.raises(ValueError, match="holds 4 runs that this result lacks"):
        pausejax.save(pausejax.select(result, policy="pause"), tmp_path)
    xr.testing.assert_identical(pausejax.open(tmp_path).load(), result)
    (tmp_path / "other" / "parts").mkdir(parents=True)
    (tmp_path / "other" / "parts" / "0123456789abcdef.npz").write_bytes(b"")
    killed = tmp_path / "killed" / "checkpoints" / "0123456789abcdef"
    killed.mkdir(parents=True)
    Folder(killed).write_arrays("state-25.npz", {"identity": np.array(["of another study"])})
    for folder in ("other", "killed"):
        with pytest.raises(ValueError, match="holds an unfinished study"):
            pausejax.save(result, tmp_path / folder)


def test_joined_studies_are_not_saved_under_the_spec_of_the_first(result, tmp_path):
    other = result.assign_coords(
        study=("run", ["of other rounds"] * result.sizes["run"]), seed=result["seed"] + 9
    )
    with pytest.raises(
        ValueError, match=r"differ in mode, rounds, .*Simulate all runs in one study\. Nothing was saved"
    ):
        pausejax.save(xr.concat([result, other], "run"), tmp_path)


def test_files_that_a_result_depends_on_are_kept_by_digest(result, tmp_path):
    told = result.assign_attrs(used_files=json.dumps({"own.py": "0" * 64}))
    pausejax.save(told, tmp_path / "out")
    assert read_sealed(Folder(tmp_path / "out"), "files.json") == {"own.py": "0" * 64}
