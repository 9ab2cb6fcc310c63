"""What trackers are told of runs, and how each tells it on: against stand-ins for their libraries."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pausejax
from pausejax.execution.tracking import mlflow, runs, tensorboard, wandb

from ..analysis.made_up import EVALUATED, build

STUDY = {"name": "a study", "versions": "1.2"}


@pytest.fixture(scope="module")
def made():
    """Two policies, of which one has the axis; three seeds; the runs' last rounds."""
    found, rows, last = build({"a": {"exploitation_gain": [1.0, 2.0]}, "b": {}}, 3, ("exploitation_gain",))
    return found.assign_attrs(STUDY), rows, last


def test_a_run_is_told_with_what_its_policy_reads_and_its_finite_numbers(made):
    result, rows, last = made
    found = list(runs.tracked_runs(result))
    assert [run.identity for run in found] == result["identity"].values.tolist()
    for place, (run, row) in enumerate(zip(found, rows, strict=True)):
        assert (run.policy, run.algorithm, run.seed) == (row["policy"], row["policy"], row["seed"])
        swept = f", ζ = {row['exploitation_gain']:g}" if "exploitation_gain" in row else ""
        assert run.title == f"{row['policy']}{swept}, seed {row['seed']}"
        assert run.parameters["seed"] == row["seed"] and run.parameters["privacy_weight"] == 1.0
        assert (run.parameters["policy"], run.parameters["rounds"]) == (row["policy"], 12)
        leading = run.leading({runs.VARYING: '["exploitation_gain"]'})
        assert leading == {name: row[name] for name in ("policy", "seed", "exploitation_gain") if name in row}
        assert run.parameters.get("exploitation_gain") == row.get("exploitation_gain")
        points = {(point.name, point.round): point.value for point in run.points}
        assert len(points) == len(run.points) and all(np.isfinite(list(points.values())))
        elapsed = result["elapsed"].values[place]
        assert points["elapsed", last[place]] == pytest.approx(np.nanmax(elapsed))
        assert points["mean_latency", last[place]] == pytest.approx(np.nanmax(elapsed) / last[place])
        accuracy = {r: value for (name, r), value in points.items() if name == "test_accuracy"}
        # The last value of a run that diverged would pass for what it came to.
        diverged = result["diverged_round"].values[place] > 0
        assert list(accuracy) == [r for r in EVALUATED if r <= last[place] and not diverged]
        np.testing.assert_array_equal(
            list(accuracy.values()), result["test_accuracy"].values[place][: len(accuracy)]
        )


def test_runs_that_are_known_are_not_told_again(made):
    result, *_ = made
    first, *others = list(runs.tracked_runs(result))
    assert list(runs.tracked_runs(result, {first.key})) == others


def test_two_labels_with_the_same_settings_are_two_runs(made, monkeypatch, tmp_path):
    one = made[0].isel(run=[0])
    twin = one.assign_coords(policy=("run", ["twin"]))
    assert len({run.key for part in (one, twin) for run in runs.tracked_runs(part)}) == 2
    server, library, board = Mlflow(), Wandb(), Board()
    monkeypatch.setattr(tensorboard, "library", lambda *names: board)
    trackers = [
        mlflow_over(server, monkeypatch),
        wandb_over(library, monkeypatch),
        tensorboard.TensorBoardTracker(tmp_path),
    ]
    for tracker in trackers:
        tracker.start(STUDY)
        for part in (one, twin, one, twin):
            tracker.runs_finished(part)
    assert [run["tags"]["pausejax.policy"] for run in server.runs.values()] == ["a", "twin"]
    assert [run["group"] for run in library.runs] == ["a", "twin"]
    assert len({run["id"] for run in library.runs}) == 2
    assert len(board.scalars) == len(list((tmp_path / "a study").iterdir())) == 2


def test_every_metric_with_a_value_in_many_rounds_has_a_curve(made):
    result, _, last = made
    for place, run in enumerate(runs.tracked_runs(result)):
        steps = [r for r in EVALUATED if r < last[place]] + [last[place]]
        for name in ("elapsed", "max_leakage", "cumulative_pseudo_regret"):
            assert [point.round for point in run.points if point.name == name] == steps, name
        regret = np.nancumsum(result["pseudo_regret"].values[place].astype(float))
        drawn = [point.value for point in run.points if point.name == "cumulative_pseudo_regret"]
        np.testing.assert_allclose(drawn, [regret[r - 1] for r in steps], rtol=1e-6)


def test_without_evaluations_curves_have_some_hundred_points(made):
    bandit, *_ = build({"a": {}}, 2, {}, "bandit")
    for run in runs.tracked_runs(bandit):
        assert {"elapsed", "participation_imbalance"} <= {point.name for point in run.points}
    long = pausejax.simulate("random", mode="bandit", rounds=1001, num_clients=4, clients_per_round=2)
    (run,) = runs.tracked_runs(long)
    steps = [point.round for point in run.points if point.name == "elapsed"]
    assert len(steps) == 100 and (steps[0], steps[-1]) == (1, 1001) and np.ptp(np.diff(steps)) <= 1
    timeless = bandit.drop_vars(["elapsed", "round_latency"])
    assert all(point.name != "elapsed" for run in runs.tracked_runs(timeless) for point in run.points)
    unmeasured = made[0].drop_vars("test_accuracy")
    assert all(point.name != "test_accuracy" for run in runs.tracked_runs(unmeasured) for point in run.points)


class Mlflow:
    """An experiment of MLflow's, with its library's and its client's methods."""

    class MlflowException(Exception):
        pass

    entities = SimpleNamespace(
        Param=lambda name, value: (name, value),
        Metric=lambda name, value, time, step: (name, value, time, step),
    )

    def __init__(self, there=(), experiment=True):
        self.there, self.found = list(there), SimpleNamespace(experiment_id="7") if experiment else None
        self.asked, self.runs, self.uri, self.failure, self.stuck = [], {}, "", "", None

    def MlflowClient(self, tracking_uri):
        self.uri = tracking_uri
        return self

    def get_tracking_uri(self):
        return "where MLflow likes"

    def get_experiment_by_name(self, name):
        if self.failure:
            raise self.MlflowException(self.failure)
        self.name = name
        return self.found

    def create_experiment(self, name):
        return f"new {name}"

    def search_runs(self, experiments, wanted, max_results, page_token=None):
        if wanted == "tags.`pausejax.kind` = 'study'":
            tagged = [
                number for number, run in self.runs.items() if run["tags"] == {"pausejax.kind": "study"}
            ]
            return [SimpleNamespace(info=SimpleNamespace(run_id=number)) for number in tagged]
        assert wanted == "attributes.status = 'FINISHED'" and max_results <= 1000
        self.asked.append((experiments, page_token))
        place = page_token or 0
        page = [SimpleNamespace(data=SimpleNamespace(tags=tags)) for tags in self.there[place : place + 2]]
        return Page(page, self.stuck or (place + 2 if place + 2 < len(self.there) else None))

    def create_run(self, experiment, tags, run_name):
        number = len(self.runs)
        said = {"experiment": experiment, "tags": tags, "name": run_name, "status": "RUNNING", "batches": []}
        self.runs[number] = said
        return SimpleNamespace(info=SimpleNamespace(start_time=1000 + number, run_id=number))

    def log_batch(self, run_id, metrics, params=()):
        assert len(metrics) + len(params) <= 1000
        self.runs[run_id]["batches"].append((metrics, dict(params)))

    def log_artifact(self, run_id, path):
        self.runs[run_id]["batches"].append(path)

    def set_terminated(self, run_id, status):
        self.runs[run_id]["status"] = status


class Page(list):
    def __init__(self, runs, token):
        super().__init__(runs)
        self.token = token


def mlflow_over(server, monkeypatch, uri="there", study=STUDY):
    asked = []
    monkeypatch.setattr(mlflow, "library", lambda *names: asked.append(names) or server)
    tracker = mlflow.MlflowTracker(uri)
    assert asked == [("mlflow", "mlflow"), ("mlflow", "sqlalchemy")]
    tracker.start(study)
    return tracker


def test_mlflow_has_a_run_for_each_in_the_studys_experiment(made, monkeypatch):
    result, rows, _ = made
    identities = result["identity"].values.tolist()
    # Three runs are there on two pages, one of them not of pausejax.
    there = [{"pausejax.identity": identity, "pausejax.policy": "a"} for identity in identities[:2]]
    server = Mlflow([there[0], {}, there[1]])
    tracker = mlflow_over(server, monkeypatch)
    assert (server.name, server.uri) == ("a study", "there") and server.asked == [(["7"], None), (["7"], 2)]
    monkeypatch.setattr(mlflow, "_BATCH", 5)
    for chunk in ([0, 2], list(range(len(rows)))):
        tracker.runs_finished(result.isel(run=chunk))
    assert [run["tags"]["pausejax.identity"] for run in server.runs.values()] == [
        identities[2],
        *identities[3:],
    ]
    wanted = {run.identity: run for run in runs.tracked_runs(result)}
    for number, run in server.runs.items():
        own = wanted[run["tags"]["pausejax.identity"]]
        assert (run["experiment"], run["name"], run["status"]) == ("7", own.title, "FINISHED")
        assert run["tags"] == {
            "pausejax.identity": own.identity,
            "pausejax.policy": own.policy,
            "pausejax.algorithm": own.algorithm,
            "pausejax.study": "a study",
            "pausejax.versions": "1.2",
        }
        assert [len(metrics) for metrics, _ in run["batches"][:-1]] == [5] * (len(run["batches"]) - 1)
        told_it = [metric for metrics, _ in run["batches"] for metric in metrics]
        assert told_it == [(name, value, 1000 + number, step) for name, value, step in own.points]
        parameters = [params for _, params in run["batches"]]
        assert parameters[0] == {name: str(value) for name, value in own.parameters.items()}
        assert not any(parameters[1:])


def test_mlflow_keeps_the_files_of_a_study_in_one_run_however_often_it_is_drawn(monkeypatch, tmp_path):
    server = Mlflow()
    for _ in range(2):
        mlflow_over(server, monkeypatch).attach([tmp_path / "report.html"])
    (study,) = server.runs.values()
    assert (study["name"], study["status"]) == ("study", "FINISHED")
    assert study["batches"] == [str(tmp_path / "report.html")] * 2


def test_mlflow_that_answers_with_one_page_for_ever_is_asked_for_it_twice(monkeypatch):
    server = Mlflow([{"pausejax.identity": "a"}])
    server.stuck = 5
    mlflow_over(server, monkeypatch)
    assert server.asked == [(["7"], None), (["7"], 5)]


def test_mlflow_makes_an_experiment_where_there_is_none(monkeypatch):
    server = Mlflow(experiment=False)
    mlflow_over(server, monkeypatch, study={"name": ""})
    assert server.name == "pausejax" and server.asked == [(["new pausejax"], None)]


@pytest.mark.parametrize(("uri", "where"), [("there", "there"), (None, "where MLflow likes")])
@pytest.mark.parametrize(
    ("failure", "words"),
    [("\nno\nanswer", "no$"), ("give up\nset MLFLOW_ALLOW_FILE_STORE", "this MLflow keeps no runs in plain")],
)
def test_mlflow_that_fails_is_named(monkeypatch, uri, where, failure, words):
    server = Mlflow()
    server.failure = failure
    with pytest.raises(ValueError, match=f"^tracker mlflow: {where}: {words}"):
        mlflow_over(server, monkeypatch, uri)


class Wandb:
    """W&B's library."""

    class Error(Exception):
        pass

    def __init__(self, account=True):
        self.account, self.runs, self.failure, self.over = account, [], "", False

    def login(self):
        if self.account is None:
            raise self.Error("no answer\nat all")
        return self.account

    def Settings(self, **settings):
        return settings

    def init(self, **given):
        if self.failure:
            raise self.Error(self.failure)
        self.runs.append({**given, "logged": [], "finished": 0})
        self.dir = str(
            Path(os.environ.get("WANDB_DIR", ".")) / f"wandb/offline-run-1-{given['id']}" / "files"
        )
        Path(self.dir).mkdir(parents=True, exist_ok=True)
        return self

    def log(self, values, step):
        self.runs[-1]["logged"].append((step, values))

    def finish(self):
        self.runs[-1]["finished"] += 1

    def teardown(self):
        self.over = True


def wandb_over(library, monkeypatch, study=STUDY, **environment):
    for name in ("WANDB_PROJECT", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(f"WANDB_{name}", str(value))
    monkeypatch.setattr(wandb, "library", lambda *names: library)
    tracker = wandb.WandbTracker()
    tracker.start(study)
    return tracker


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_wandb_has_a_run_for_each_with_its_numbers_by_round(made, monkeypatch, tmp_path, mode):
    result, *_ = made
    keys = [run.key for run in runs.tracked_runs(result)]
    # One was killed while it was written, and one belongs to another project: both are written again.
    for place, (name, project) in enumerate(
        (("wandb", "a study"), (".wandb", "a study"), ("wandb", None), ("wandb", "another"))
    ):
        folder = tmp_path / name / f"offline-run-20260101-{keys[place]}"
        folder.mkdir(parents=True)
        if project:
            (folder / "pausejax-project").write_text(project)
    library = Wandb()
    tracker = wandb_over(library, monkeypatch, MODE=mode, DIR=tmp_path)
    for _ in range(2):
        tracker.runs_finished(result)
    tracker.finish()
    wanted = list(runs.tracked_runs(result))[2 if mode == "offline" else 0 :]
    assert [run["id"] for run in library.runs] == [run.key for run in wanted] and library.over
    if mode == "offline":
        again = wandb_over(library, monkeypatch, MODE=mode, DIR=tmp_path)
        again.runs_finished(result)
        assert len(library.runs) == len(wanted), "what has ended is not written again"
    for run, own in zip(library.runs, wanted, strict=True):
        assert (run["project"], run["name"], run["group"]) == ("a study", own.title, own.policy)
        assert run["config"] == {**own.parameters, "algorithm": own.algorithm, "identity": own.identity}
        assert (run["notes"], run["finished"]) == ("1.2", 1)
        assert run["resume"] == ("allow" if mode == "online" else None)
        steps = [step for step, _ in run["logged"]]
        assert steps == sorted(set(steps))
        logged = {(name, step, value) for step, values in run["logged"] for name, value in values.items()}
        assert logged == {(name, step, value) for name, value, step in own.points}


@pytest.mark.parametrize(
    ("study", "environment", "project"),
    [
        ({"name": r"a/b\c#d?e%f:g"}, {}, "a-b-c-d-e-f-g"),
        ({"name": "x" * 200}, {}, "x" * 128),
        ({"name": ""}, {}, "pausejax"),
        ({"name": "a"}, {"PROJECT": "mine"}, "mine"),
    ],
)
def test_a_project_of_wandbs_has_a_name_that_it_takes(
    made, monkeypatch, tmp_path, study, environment, project
):
    library = Wandb()
    wandb_over(library, monkeypatch, study, DIR=tmp_path, **environment).runs_finished(made[0].isel(run=[0]))
    assert library.runs[0]["project"] == project


@pytest.mark.parametrize(("account", "words"), [(None, "no answer; set"), (False, "no account; set")])
def test_wandb_without_an_account_says_so(monkeypatch, account, words):
    with pytest.raises(ValueError, match=f"^tracker wandb: {words} WANDB_API_KEY"):
        wandb_over(Wandb(account), monkeypatch)


def test_a_run_that_wandb_refuses_ends_the_study_in_one_line(made, monkeypatch):
    library = Wandb()
    tracker = wandb_over(library, monkeypatch)
    library.failure = "refused\nin many words"
    with pytest.raises(ValueError, match=r"^tracker wandb: refused$"):
        tracker.runs_finished(made[0])


class Board:
    """tensorboardX: writers that remember."""

    def __init__(self):
        self.scalars, self.described = {}, []
        self.summary = SimpleNamespace(hparams=lambda described, last: [(described, last)])

    def SummaryWriter(self, folder):
        self.folder = folder
        (tensorboard.Path(folder)).mkdir()
        self.scalars[folder] = []
        self.file_writer = SimpleNamespace(add_summary=self.described.append)
        return self

    def add_scalar(self, name, value, step):
        if name == "fails":
            raise RuntimeError
        self.scalars[self.folder].append((name, value, step))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(("name", "folder"), [("a/b: c", "a_b_ c"), ("", "pausejax"), ("...", "study")])
def test_tensorboard_has_a_folder_for_each_run_whole_or_not_at_all(made, monkeypatch, tmp_path, name, folder):
    result, *_ = made
    board = Board()
    monkeypatch.setattr(tensorboard, "library", lambda *names: board)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENSORBOARD_DIR", raising=False)
    tracker = tensorboard.TensorBoardTracker()
    for _ in range(2):
        tracker.start({"name": name})
        tracker.runs_finished(result)
    wanted = list(runs.tracked_runs(result))
    assert list(board.scalars.values()) == [list(run.points) for run in wanted]
    assert {path.name for path in (tmp_path / "runs" / folder).iterdir()} == {run.title for run in wanted}
    for (described, last), run in zip(board.described, wanted, strict=True):
        assert described == {"policy": run.policy, "seed": run.seed}
        assert last == {name: value for name, value, _ in run.points}
    # A process that was killed has left a folder that is not whole.
    shutil.rmtree(tmp_path / "runs" / folder)
    (tmp_path / "runs" / folder / ".partial").mkdir(parents=True)
    (tmp_path / "runs" / folder / ".partial" / f"pausejax-run.{wanted[0].key}").touch()
    tracker.runs_finished(result.isel(run=[0]))
    assert (tmp_path / "runs" / folder / wanted[0].title).is_dir()
    tracker._log(wanted[0]._replace(title="γ = 1, " * 100))
    shutil.rmtree(tmp_path / "runs" / folder / ".partial")
    with pytest.raises(RuntimeError):
        tracker._log(wanted[0]._replace(points=(runs.Point("fails", 1.0, 1),)))
    assert not list((tmp_path / "runs" / folder).glob(".*"))


def test_an_ensemble_s_rounds_are_those_that_it_played():
    """Not the places of those that are recorded: every seventh."""
    result = pausejax.simulate("efl_fg", mode="ensemble", seeds=1, rounds=49, eval_every=7, num_clients=20)
    (run,) = runs.tracked_runs(result)
    curve = {point.round: point.value for point in run.points if point.name == "mse"}
    assert list(curve) == result["round"].values.tolist() == [7, 14, 21, 28, 35, 42, 49]
    np.testing.assert_allclose(list(curve.values()), result["mse"].values[0])
    assert run.parameters["rounds"] == 49
