"""The trackers against local stores, read back through their own libraries."""

import contextlib
import json
import os
import sqlite3
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import pausejax
from pausejax.analysis import finals
from pausejax.commands.main import main
from pausejax.execution import tracking
from pausejax.execution.tracking import mlflow, runs

STUDY = {"name": "tracked", "mode": "training", "spec": "", "versions": "{}", "axes": "[]"}


@pytest.fixture
def address(tmp_path, monkeypatch):
    """A store in a folder; nothing leaves the machine."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    return (tmp_path / "mlruns").as_uri()


@pytest.fixture(scope="module")
def result():
    found = pausejax.simulate(
        "random",
        seeds=4,
        rounds=6,
        eval_every=2,
        num_clients=4,
        clients_per_round=2,
        train_samples=80,
        gamma=[1.0, 5.0],
        name="tracked",
    )
    # As if the run had stopped after its fourth round, and another had diverged.
    for name in (name for name in found if found[name].dims in (("run", "round"), ("run", "eval"))):
        stopped = found[name].values.copy()
        stopped[1, -1 if name.startswith("test") else -2 :] = np.nan
        found[name] = found[name].copy(data=stopped)
    found["diverged_round"] = found["diverged_round"].copy(data=np.arange(8) // 7)
    return found


def learned_by(result, place):
    """The accuracies of a run as trackers have them: none of a run that diverged."""
    return np.where(result["diverged_round"].values[place] > 0, np.nan, result["test_accuracy"].values[place])


def read_back(address):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("tracked")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return client, {run.data.tags["pausejax.identity"]: run for run in runs}, runs


@pytest.mark.slow
def test_every_run_arrives_with_its_values_and_figures(result, address):
    tracker = tracking.make("mlflow")
    tracker.start(STUDY)
    for chunk in (slice(0, 3), slice(3, 8)):
        tracker.runs_finished(result.isel(run=chunk))
    tracker.finish()
    client, found, _ = read_back(address)
    figures = finals(result)
    assert set(found) == set(result["identity"].values.tolist())
    for place in range(8):
        own, logged = figures.isel(run=place), found[str(result["identity"].values[place])]
        assert logged.info.status == "FINISHED"
        assert logged.data.tags["pausejax.policy"] == str(own["policy"].values)
        assert logged.data.tags["pausejax.study"] == "tracked"
        assert int(logged.data.params["seed"]) == int(own["seed"])
        assert float(logged.data.params["privacy_weight"]) == float(own["privacy_weight"])
        assert "gamma" not in logged.data.params and "temperature_divisor" not in logged.data.params
        for name in ("elapsed", "max_leakage", "cumulative_regret", "participation_imbalance"):
            assert logged.data.metrics[name] == pytest.approx(float(own[name]))
        history = client.get_metric_history(logged.info.run_id, "test_accuracy")
        wanted = learned_by(result, place)
        assert [point.step for point in history] == result["eval_round"].values[np.isfinite(wanted)].tolist()
        np.testing.assert_allclose([point.value for point in history], wanted[np.isfinite(wanted)])
        times = client.get_metric_history(logged.info.run_id, "elapsed")
        assert [point.step for point in times] == ([2, 4] if place == 1 else [2, 4, 6])
    assert found[str(result["identity"].values[7])].data.metrics["diverged_round"] == 1


@pytest.mark.slow
def test_a_resumed_study_repeats_no_run(result, address, monkeypatch):
    """Also where the server has more runs than it tells at once."""
    monkeypatch.setattr("pausejax.execution.tracking.mlflow._PAGE", 2)
    for chunk in (slice(0, 3), slice(0, 8)):
        tracker = tracking.MlflowTracker(address)
        tracker.start(STUDY)
        tracker.runs_finished(result.isel(run=chunk))
        tracker.runs_finished(result.isel(run=chunk))
    _, found, runs = read_back(address)
    assert len(runs) == len(found) == 8


@pytest.mark.slow
def test_a_run_that_a_killed_process_had_begun_to_log_is_logged_once(result, address, monkeypatch):
    """Its metrics would count twice in means over the experiment's runs."""
    from mlflow import MlflowClient

    class Killed(BaseException):
        pass

    def die(self, *args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_terminated", die)
        tracker = tracking.MlflowTracker(address)
        tracker.start(STUDY)
        with pytest.raises(Killed):
            tracker.runs_finished(result)
    assert len(read_back(address)[2]) == 1
    tracker = tracking.MlflowTracker(address)
    tracker.start(STUDY)
    tracker.runs_finished(result)
    _, found, runs = read_back(address)
    assert len(runs) == len(found) == 8 and {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.slow
def test_processes_that_began_together_log_a_run_once(result, address):
    trackers = [tracking.MlflowTracker(address) for _ in range(2)]
    for tracker in trackers:
        tracker.start(STUDY)
    twin = result.isel(run=[0]).assign_coords(policy=("run", ["twin"]))  # of the same identity
    for tracker in trackers:
        tracker.runs_finished(result)
        tracker.runs_finished(twin)
    _, found, runs = read_back(address)
    assert len(found) == 8 and len(runs) == 9


@pytest.mark.slow
def test_a_run_that_another_process_is_logging_is_left_to_it(result, address, monkeypatch):
    """The same study is played in two folders, and both report to one experiment of a server."""
    from mlflow import MlflowClient

    monkeypatch.setattr("pausejax.execution.tracking.mlflow._place", lambda uri: None)
    end, one, other = MlflowClient.set_terminated, *(tracking.MlflowTracker(address) for _ in range(2))
    for tracker in (one, other):
        tracker.start(STUDY)

    def meanwhile(self, *args):
        monkeypatch.setattr(MlflowClient, "set_terminated", end)
        other.runs_finished(result.isel(run=[0]))
        return end(self, *args)

    monkeypatch.setattr(MlflowClient, "set_terminated", meanwhile)
    one.runs_finished(result)
    _, found, runs = read_back(address)
    assert len(found) == 8 and len(runs) == 9 and {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.slow
def test_the_command_keeps_spec_page_and_charts_in_one_run(address, tmp_path, capsys):
    """The study has no name, so its experiment has the name of its file."""
    from mlflow import MlflowClient

    (tmp_path / "mine.toml").write_text('mode = "bandit"\nrounds = 20\n[[policy]]\nname = "random"\n')
    typed = ["run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--tracker", "mlflow"]
    for _ in range(2):
        assert main([*typed, "--quiet"]) == 0
    client = MlflowClient(tracking_uri=address)
    runs = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["random, seed 0", "study"]
    (study,) = (run for run in runs if run.info.run_name == "study")
    files = {file.path for file in client.list_artifacts(study.info.run_id)}
    assert {"spec.toml", "report.html", "max_leakage_vs_round.png"} <= files


@pytest.mark.slow
def test_a_tracker_that_takes_no_files_ends_no_study(tmp_path, monkeypatch, capsys):
    class Refusing(tracking.Tracker):
        def attach(self, files):
            raise RuntimeError(f"no room for {len(files)}\nfiles")

    monkeypatch.setitem(tracking.TRACKERS, "refusing", lambda unnamed: Refusing())
    (tmp_path / "mine.toml").write_text('mode = "bandit"\nrounds = 5\n[[policy]]\nname = "random"\n')
    typed = ["run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--tracker", "refusing"]
    with pytest.warns(
        UserWarning, match="the study's files could not be sent to the tracker: no room for 1$"
    ):
        assert main([*typed, "--quiet", "--no-report"]) == 0


@pytest.mark.slow
def test_long_curves_are_sent_in_parts(result, address, monkeypatch):
    monkeypatch.setattr("pausejax.execution.tracking.mlflow._BATCH", 4)
    tracker = tracking.make("mlflow")
    tracker.start(STUDY)
    tracker.runs_finished(result.isel(run=[0]))
    client, _, (run,) = read_back(address)
    assert len(client.get_metric_history(run.info.run_id, "test_accuracy")) == 3
    assert len(run.data.metrics) >= len(finals(result).data_vars) - 1


@pytest.mark.slow
def test_a_store_that_refuses_is_named(tmp_path, monkeypatch):
    tracker = tracking.MlflowTracker("nosuchscheme://somewhere")
    with pytest.raises(ValueError, match="tracker mlflow: nosuchscheme://somewhere: "):
        tracker.start(STUDY)


def test_unknown_tracker_names_the_known_ones():
    with pytest.raises(ValueError, match="tracker = 'neptune': must be one of mlflow, tensorboard, wandb"):
        tracking.make("neptune")
    with pytest.raises(ValueError, match="tracker = 'neptune': must be one of"):
        pausejax.simulate("random", mode="bandit", tracker="neptune")


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("mlflow", "mlflow"),
        ("mlflow", "sqlalchemy"),
        ("tensorboard", "tensorboardX"),
        ("wandb", "wandb"),
    ],
)
def test_a_missing_extra_says_how_to_install_it(name, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError) as caught:
        tracking.make(name)
    assert (
        str(caught.value) == f"tracker {name}: is not installed. Install it: pip install 'pausejax[{name}]'"
    )


@pytest.mark.slow
def test_mlflow_works_as_installed(result, tmp_path, monkeypatch):
    """Where nothing is said it keeps runs in SQLite, in the folder where the command is given."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    code = "import pausejax; from pausejax.execution import tracking; t = tracking.make('mlflow'); "
    code += "r = pausejax.open('study').load(); t.start(r.attrs); t.runs_finished(r); t.finish()"
    pausejax.save(result, tmp_path / "study")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as store:
        (count,) = store.execute("select count(*) from runs where status = 'FINISHED'").fetchone()
    assert count == 8


def test_a_store_that_mlflow_has_given_up_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    tracker = tracking.MlflowTracker((tmp_path / "mlruns").as_uri())
    with pytest.raises(ValueError, match=r"Set MLFLOW_TRACKING_URI=sqlite:///mlflow[.]db, or"):
        tracker.start(STUDY)


@pytest.mark.slow
def test_processes_that_start_together_share_one_new_store(tmp_path):
    """MLflow makes the tables of an SQLite file without a lock."""
    code = "import pathlib, time; from pausejax.execution import tracking; t = tracking.make('mlflow'); "
    code += "pathlib.Path({!r}).touch()\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    code += "t.start({{'name': 'tracked'}})"
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    ready = [tmp_path / str(number) for number in range(4)]
    options = {"cwd": tmp_path, "env": environment, "stderr": subprocess.PIPE, "text": True}
    commands = [[sys.executable, "-c", code.format(path.name)] for path in ready]
    processes = [subprocess.Popen(command, **options) for command in commands]
    while not all(path.exists() for path in ready) and all(one.poll() is None for one in processes):
        time.sleep(0.01)
    (tmp_path / "go").touch()
    errors = [one.communicate(timeout=120)[1] for one in processes]
    assert [one.returncode for one in processes] == [0] * 4, errors
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as store:
        assert store.execute("select count(*) from experiments where name = 'tracked'").fetchone() == (1,)
    assert not list(tmp_path.glob(".*"))


def test_an_experiment_that_another_process_has_just_made_is_used(address, monkeypatch):
    from mlflow import MlflowClient

    find, made = MlflowClient.get_experiment_by_name, []

    def find_before_it_is_made(self, name):
        found = find(self, name)
        if found is None:
            made.append(self.create_experiment(name))
        return found

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", find_before_it_is_made)
    tracker = tracking.MlflowTracker(address)
    tracker.start(STUDY)
    assert [tracker._experiment] == made


@pytest.mark.slow
def test_a_file_that_mlflow_cannot_read_names_the_cure(tmp_path):
    """In a process of its own, because an MLflow that was imported without SQLAlchemy reads no such file."""
    (tmp_path / "mlflow.db").write_text("no database " * 100)
    code = "from pausejax.execution import tracking; "
    code += "tracking.MlflowTracker('sqlite:///mlflow.db').start({'name': 'tracked'})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: tracker mlflow: sqlite:///mlflow.db: ") and "not a database" in last
    assert "If the same command fails again, move the file away" in last
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize(
    ("uri", "local"),
    [
        ("sqlite:///mlflow.db", True),
        ("mlruns", True),
        ("file:///home/me/mlruns", True),
        ("databricks", False),
        ("databricks://lab", False),
        ("https://lab.example", False),
    ],
)
def test_stores_on_a_disk_are_told_from_servers(uri, local):
    assert (mlflow._place(uri) is not None) == local


@pytest.mark.slow
def test_tables_that_a_killed_process_has_left_incomplete_name_the_cure(tmp_path, monkeypatch):
    tracker = tracking.MlflowTracker(f"sqlite:///{tmp_path}/mlflow.db")

    def refuse(*_, **__):
        raise RuntimeError("Detected out-of-date database schema (found version None)")

    monkeypatch.setattr(tracker._mlflow, "MlflowClient", refuse)
    with pytest.raises(ValueError, match=r"out-of-date database schema .*\. If .* move the file away"):
        tracker.start(STUDY)


@pytest.mark.slow
def test_a_store_that_is_lost_while_runs_are_reported_is_named(address, result, monkeypatch):
    from mlflow import MlflowClient

    tracker = tracking.MlflowTracker(address)
    tracker.start(STUDY)

    def refuse(*_, **__):
        raise ConnectionError("the server is gone\nsince a minute")

    monkeypatch.setattr(MlflowClient, "search_runs", refuse)
    with pytest.raises(ValueError, match=r"^tracker mlflow: file:.*: the server is gone$"):
        tracker.runs_finished(result.isel(run=[0]))


def events_in(folder):
    """The scalars of TensorBoard's files in a folder, [(name, round, value)], and their hyper-parameters."""
    from tensorboardX.proto import event_pb2, plugin_hparams_pb2

    scalars, parameters = [], {}
    for path in folder.glob("events*"):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12 : 12 + length])
            content = content[12 + length + 4 :]
            for value in event.summary.value:
                plugin = value.metadata.plugin_data
                if plugin.plugin_name != "hparams":
                    scalars.append((value.tag, event.step, value.simple_value))
                elif value.tag.endswith("session_start_info"):
                    told = plugin_hparams_pb2.HParamsPluginData.FromString(plugin.content)
                    parameters = dict(told.session_start_info.hparams)
    return scalars, parameters


@pytest.mark.slow
def test_tensorboard_gets_every_run_once(result, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path))
    for chunk in (slice(0, 3), slice(0, 8)):
        tracker = tracking.make("tensorboard")
        tracker.start({**STUDY, "name": "a/b: tracked"})
        tracker.runs_finished(result.isel(run=chunk))
        tracker.finish()
    folders = {path.suffix[1:]: path.parent for path in (tmp_path / "a_b_ tracked").glob("*/pausejax-run.*")}
    keys = [run.key for run in runs.tracked_runs(result)]
    assert set(folders) == set(keys)
    figures = finals(result)
    for place in (0, 1, 7):
        own, folder = figures.isel(run=place), folders[keys[place]]
        assert len(list(folder.iterdir())) == 2
        scalars, parameters = events_in(folder)
        assert parameters["seed"].number_value == int(own["seed"])
        assert parameters["policy"].string_value == str(own["policy"].values)
        by_name = {name: (step, value) for name, step, value in scalars}
        assert by_name["elapsed"] == (4 if place == 1 else 6, pytest.approx(float(own["elapsed"])))
        wanted = learned_by(result, place)
        measured = [(step, value) for name, step, value in scalars if name == "test_accuracy"]
        assert [step for step, _ in measured] == result["eval_round"].values[np.isfinite(wanted)].tolist()
        np.testing.assert_allclose([value for _, value in measured], wanted[np.isfinite(wanted)])


@pytest.mark.slow
def test_folders_of_killed_processes_are_removed_from_tensorboard(result, tmp_path):
    """Its pages would list them as further runs."""
    study = tmp_path / "tracked"
    old, new, other = study / f".{'0' * 32}", study / f".{'f' * 32}", study / ".of_the_user"
    for folder in (old, new, other):
        folder.mkdir(parents=True)
        (folder / "events.out.tfevents.1").write_bytes(b"half")
    for folder in (old, other):
        os.utime(folder, (1e9, 1e9))
    tracker = tracking.TensorBoardTracker(tmp_path)
    tracker.start({**STUDY, "name": "tracked"})
    tracker.runs_finished(result.isel(run=[0]))
    assert not old.exists() and new.exists() and other.exists()


@pytest.mark.slow
def test_processes_that_write_into_one_folder_of_tensorboard_log_a_run_once(result, tmp_path, monkeypatch):
    """Folders of another process get their names while this one looks for runs, or just before it."""
    one, other = (tracking.TensorBoardTracker(tmp_path) for _ in range(2))
    for tracker in (one, other):
        tracker.start(STUDY)
    scandir, rename, left = os.scandir, os.rename, iter([1])

    def gone(path="."):
        if not isinstance(path, int) and os.path.basename(path).startswith("."):
            raise FileNotFoundError(path)
        return scandir(path)

    def meanwhile(old, new):
        if next(left, None):
            other.runs_finished(result.isel(run=[0, 1]))
        rename(old, new)

    (tmp_path / "tracked" / f".{'f' * 32}").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", gone)
        patch.setattr(os, "rename", meanwhile)
        one.runs_finished(result)
    twin = result.isel(run=[0]).assign_coords(identity=("run", ["0" * 16]))  # of the same title
    other.runs_finished(twin)
    found = [path.name for path in (tmp_path / "tracked").glob("[!.]*/pausejax-run.*")]
    titles = [path.name for path in (tmp_path / "tracked").glob("[!.]*")]
    assert len(found) == len(set(found)) == len(titles) == 9
    assert [title.endswith("(2)") for title in titles].count(True) == 1


@pytest.mark.slow
def test_a_full_disk_of_tensorboard_is_one_line(tmp_path):
    """No file may be larger than 5 kB, and the run has more. `SummaryWriter` would wait for ever."""
    code = "import resource as r; from pausejax.execution.tracking import TensorBoardTracker, runs; "
    code += "points = tuple(runs.Point('reward', 1.0, place) for place in range(1000)); "
    code += "run = runs.TrackedRun('a', 'random', 'random', 0, 'random, seed 0', {}, points); "
    code += "tracker = TensorBoardTracker('runs'); tracker.start({'name': 'tracked'}); "
    code += "r.setrlimit(r.RLIMIT_FSIZE, (5000,) * 2); tracker._log(run)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    line = "ValueError: tracker tensorboard: runs/tracked can't be written: File too large"
    assert done.stderr.strip().splitlines()[-1] == line
    assert not any((tmp_path / "runs" / "tracked").iterdir())


def test_a_folder_that_tensorboard_cannot_have_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"tracker tensorboard: .*/file/tracked can't be written: "):
        tracking.TensorBoardTracker(tmp_path / "file").start(STUDY)


def leveldb_records(content):
    """The records of a log in LevelDB's format: blocks of 32 kB, records cut where a block ends."""
    place, parts = 7, []
    while place + 7 <= len(content):
        if (left := -place % 2**15) < 7 and left:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield b"".join(parts)
            parts = []


def wandb_records(path):
    """What lies in an offline run's file: its configuration, and its history."""
    from wandb.proto import wandb_internal_pb2

    config, history = {}, []
    for data in leveldb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
        if record.HasField("history"):
            items = record.history.item
            history.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
    return config, history


@pytest.mark.slow
def test_wandb_offline_gets_every_run_once(result, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for chunk in ([0], [0, 1]):
        tracker = tracking.make("wandb")
        tracker.start(STUDY)
        tracker.runs_finished(result.isel(run=chunk))
        tracker.finish()
    kept = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(kept) == 2, "what the folder has is told again"
    (tmp_path / "report.html").write_text("a page")
    tracker.attach([tmp_path / "report.html"])
    (study,) = set(tmp_path.glob("wandb/offline-run-*/*.wandb")) - set(kept)
    assert b"report.html" in study.read_bytes()
    files = {path.parent.name.rpartition("-")[2]: path for path in kept}
    keys = [run.key for run in runs.tracked_runs(result)]
    assert set(files) == set(keys[:2])
    figures = finals(result)
    for place in (0, 1):
        own = figures.isel(run=place)
        config, history = wandb_records(files[keys[place]])
        assert (config["policy"], config["seed"]) == (str(own["policy"].values), int(own["seed"]))
        assert config["privacy_weight"] == float(own["privacy_weight"]) and "gamma" not in config
        wanted = learned_by(result, place)
        measured = [(row["_step"], row["test_accuracy"]) for row in history if "test_accuracy" in row]
        assert [step for step, _ in measured] == result["eval_round"].values[np.isfinite(wanted)].tolist()
        np.testing.assert_allclose([value for _, value in measured], wanted[np.isfinite(wanted)])
        assert history[-1]["elapsed"] == pytest.approx(float(own["elapsed"]))


@pytest.mark.slow
def test_a_folder_that_wandb_cannot_fill_is_named(result, tmp_path, monkeypatch):
    """Without the folder's name, the user would look at the study's disk."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setattr("pausejax.execution.tracking.wandb._WHOLE", "no/such/file")
    tracker = tracking.make("wandb")
    tracker.start(STUDY)
    with pytest.raises(
        ValueError, match=f"^tracker wandb: {tmp_path}/wandb/offline-run.* can't be written: No"
    ):
        tracker.runs_finished(result.isel(run=[0]))
    tracker.finish()


@pytest.mark.slow
def test_wandb_without_an_account_names_the_cure(tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    code = "from pausejax.execution import tracking; tracking.make('wandb').start({'name': 'x'})"
    environment = {**os.environ, "HOME": str(tmp_path), "NETRC": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: tracker wandb: ") and "Set WANDB_API_KEY or run `wandb login`" in last
