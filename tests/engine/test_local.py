"""Studies into folders: checkpoints, shards, memory, devices, and processes that are killed."""

import os
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.data.host import Sources
from pausejax.engine import chunk, memory, schedule
from pausejax.engine import engine as execute
from pausejax.engine.local import Settings, simulate_into
from pausejax.kinds import parse
from pausejax.results import checkpoint, store
from pausejax.results.folder import Folder
from pausejax.study.plan import make_plan
from pausejax.study.simulation import Segment

from ..alike import assert_alike

pytestmark = pytest.mark.usefixtures("compiled_once")
BANDIT = {
    "mode": "bandit",
    "rounds": 60,
    "seeds": 5,
    "network": {"num_clients": 8, "clients_per_round": 2},
    "reward": {"gamma": [1.0, 5.0]},
    "policy": [{"name": "sa_pause", "annealing_steps": 20}, {"name": "random"}],
}
TRAINING = {
    "rounds": 60,
    "seeds": 3,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "data": {"train_samples": 240},
    "training": {"model": "linear", "optimizer": "momentum", "persist_optimizer": True, "max_steps": 3},
    "policy": [{"name": "oort"}, {"name": "clustered_similarity"}],
}


def simulate(document, directory, progress=lambda _: None, tracker=None, **settings):
    plan, folder = make_plan(parse(document)), Folder(directory)
    found, settings = store.prepare(folder, plan), Settings(**settings)
    return simulate_into(folder, plan, found, Sources(), settings, progress=progress, tracker=tracker)


class Interrupted(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("document", [BANDIT, TRAINING], ids=["bandit", "training"])
def test_a_run_goes_on_in_the_middle_to_the_very_same_numbers(document, tmp_path, monkeypatch):
    simulate(document, tmp_path / "whole")
    played = []

    def interrupt(rounds_times_runs):
        played.append(rounds_times_runs)
        if len(played) in (2, 5, 9):
            raise Interrupted

    restored = []
    restore = checkpoint.Checkpoints.restore

    def watch(self, target):
        found = restore(self, target)
        restored.append(found[1][-1].last_round if found else 0)
        return found

    monkeypatch.setattr(checkpoint.Checkpoints, "restore", watch)
    for _ in range(4):
        try:
            outcome = simulate(document, tmp_path / "parts", interrupt, checkpoint_seconds=0.0)
            break
        except Interrupted:
            continue
    assert outcome.missing == 0 and len(played) > 9
    assert max(restored) >= 25, "no run went on in the middle"
    xr.testing.assert_identical(
        pausejax.open(tmp_path / "whole").load(), pausejax.open(tmp_path / "parts").load()
    )
    assert not (tmp_path / "parts" / "checkpoints").exists()


def test_a_damaged_checkpoint_is_left_for_an_older_one_or_none(tmp_path):
    folder, state = Folder(tmp_path), {"x": jax.numpy.arange(3.0)}
    kept = checkpoint.Checkpoints(folder, "c", 0.0)
    shapes = lambda lanes: {"x": jax.ShapeDtypeStruct((lanes + 1,), "float32")}  # noqa: E731
    segments = [Segment(1, 5, np.arange(2), {"round_latency": np.zeros((2, 5))})]
    kept.save(state, segments)
    later = [*segments, Segment(6, 10, np.arange(2), {"round_latency": np.ones((2, 5))})]
    kept.close()
    place = tmp_path / "checkpoints" / "c"
    again = checkpoint.Checkpoints(folder, "c", 0.0)
    state_now, found = again.restore(shapes)
    assert [segment.first_round for segment in found] == [1]
    np.testing.assert_array_equal(state_now["x"], state["x"])
    again.save({"x": jax.numpy.arange(3.0) + 1}, later)
    again.close()
    assert sorted(os.listdir(place)) == ["digest-10.npz", "rounds-1-5.npz", "rounds-6-10.npz", "state-10"]
    content = (place / "rounds-6-10.npz").read_bytes()
    (place / "rounds-6-10.npz").write_bytes(content[:-30])
    assert checkpoint.Checkpoints(folder, "c", 0.0).restore(shapes) is None
    (place / "rounds-6-10.npz").unlink()
    assert checkpoint.Checkpoints(folder, "c", 0.0).restore(shapes) is None
    (place / "rounds-6-10.npz").write_bytes(content)
    (_, found) = checkpoint.Checkpoints(folder, "c", 0.0).restore(shapes)
    assert found[-1].last_round == 10
    # A state of another shape belongs to another program.
    other = {"x": jax.ShapeDtypeStruct((4,), "float32"), "y": jax.ShapeDtypeStruct((), "float32")}
    assert checkpoint.Checkpoints(folder, "c", 0.0).restore(lambda _: other) is None


@pytest.mark.slow
def test_shards_together_are_the_study(tmp_path):
    simulate(BANDIT, tmp_path / "whole")
    outcomes = [simulate(BANDIT, tmp_path / "shards", shard=(number, 3)) for number in (2, 3, 1)]
    assert [outcome.missing > 0 for outcome in outcomes] == [True, True, False]
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "shards"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
    np.testing.assert_array_equal(a["identity"], b["identity"])
    np.testing.assert_allclose(a["reward"], b["reward"], rtol=1e-5)


class Log:
    """A tracker that keeps what it is told."""

    def __init__(self):
        self.calls, self.rewards = [], {}

    def start(self, study):
        self.calls.append(("start", study["mode"]))

    def runs_finished(self, result):
        self.calls.append(("runs", result.sizes["run"]))
        self.rewards |= dict(zip(result["identity"].values.tolist(), result["reward"].values, strict=True))

    def finish(self):
        self.calls.append(("finish",))


def test_a_tracker_is_told_of_every_run_as_it_is_finished(tmp_path):
    first, second, document = Log(), Log(), {**BANDIT, "policy": [{"name": "random"}]}
    simulate(document, tmp_path, tracker=first, most=2, shard=(1, 2))
    simulate(document, tmp_path, tracker=second, most=2, shard=(2, 2))
    assert first.calls[0] == ("start", "bandit") and first.calls[-1] == ("finish",)
    assert max(call[1] for call in first.calls[1:-1]) <= 2 and 0 < len(first.rewards) < 10
    result = pausejax.open(tmp_path).load()
    assert set(second.rewards) == set(result["identity"].values)
    for identity, reward in zip(result["identity"].values, result["reward"].values, strict=True):
        np.testing.assert_array_equal(second.rewards[identity], reward)
        np.testing.assert_array_equal(first.rewards.get(identity, reward), reward)


def test_a_finished_study_computes_nothing(tmp_path, monkeypatch):
    simulate(BANDIT, tmp_path)
    monkeypatch.setattr(chunk, "play", None)
    monkeypatch.setattr(execute.Engine, "lower", None)
    assert simulate(BANDIT, tmp_path) == (20, 0, ())


def test_a_small_memory_cuts_chunks_and_changes_no_selection(tmp_path, monkeypatch):
    annealed = {**BANDIT, "policy": BANDIT["policy"][:1]}
    plan = make_plan(parse(annealed))
    engine = execute.Engine(plan, Sources())
    (unit, *_) = schedule.units(plan, (), most=256)
    engine.prepare([unit])
    whole = engine.compiled(unit.group)
    limit = memory.program_memory(whole.call) * 2 // 3
    simulate(annealed, tmp_path / "whole")
    played, play = [], chunk.play

    def watch(simulation, cut, *more):
        played.append(len(cut.rows))
        return play(simulation, cut, *more)

    monkeypatch.setattr(chunk, "play", watch)
    simulate(annealed, tmp_path / "cut", device_memory=limit)
    small = execute.Engine(plan, Sources(), device_memory=limit)
    small.prepare([unit])
    narrow = small.compiled(unit.group)
    assert 1 < narrow.width < whole.width and memory.program_memory(narrow.call) <= limit
    assert max(played) < whole.width
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "cut"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
    np.testing.assert_allclose(a["pseudo_regret"], b["pseudo_regret"], rtol=1e-4, atol=1e-5)


def test_out_of_memory_halves_the_chunks(tmp_path, monkeypatch):
    """The device's answer is imitated; everything after it is real."""
    simulate(BANDIT, tmp_path / "whole")
    played, play = [], chunk.play

    def short_of_memory(simulation, cut, *more):
        played.append(len(cut.rows))
        if len(cut.rows) > 4:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.")
        return play(simulation, cut, *more)

    monkeypatch.setattr(chunk, "play", short_of_memory)
    assert simulate(BANDIT, tmp_path / "cut").missing == 0
    assert played == [10, 6, 4, 4, 4, 4] * 2
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "cut"))
    np.testing.assert_array_equal(a["selected"], b["selected"])


def test_memory_is_extrapolated_through_two_sizes():
    # 100 bytes and 10 for each of 64 runs: 740; of 16: 260.
    assert memory.parts_that_fit(740, 260, 0.25, 420) == 2
    assert memory.parts_that_fit(740, 260, 0.25, 419) == 3
    assert memory.parts_that_fit(740, 260, 0.25, 50) > 1000


def test_stopping_at_a_simulated_time_cuts_the_very_same_run_short(tmp_path):
    stop = 6.5
    whole = pausejax.simulate(
        "random",
        rounds=60,
        seeds=3,
        num_clients=6,
        clients_per_round=2,
        train_samples=240,
        model="linear",
        eval_every=7,
    )
    simulate(
        {
            "rounds": 60,
            "seeds": 3,
            "eval_every": 7,
            "stop_at_latency": stop,
            "network": {"num_clients": 6, "clients_per_round": 2},
            "data": {"train_samples": 240},
            "training": {"model": "linear"},
            "policy": [{"name": "random"}],
        },
        tmp_path,
    )
    short = pausejax.open(tmp_path).load()
    lengths = set()
    for run in range(3):
        last = int((whole["elapsed"][run] < stop).sum()) + 1
        lengths.add(last)
        for name in ("reward", "elapsed", "selected", "train_loss"):
            np.testing.assert_array_equal(short[name][run, :last], whole[name][run, :last])
        assert np.isnan(short["reward"][run, last:]).all() and (short["selected"][run, last:] == -1).all()
        evaluated = whole["eval_round"].values <= last
        np.testing.assert_array_equal(
            short["test_accuracy"][run].values[evaluated], whole["test_accuracy"][run].values[evaluated]
        )
        assert np.isnan(short["test_accuracy"][run].values[~evaluated]).all()
        counts = np.bincount(whole["selected"][run, :last].values.reshape(-1), minlength=6)
        np.testing.assert_array_equal(short["counts"][run], counts)
    assert len(lengths) > 1 and max(lengths) < 61


FAST_AND_SLOW = {
    "mode": "bandit",
    "rounds": 4000,
    "seeds": 2,
    "stop_at_latency": 30.0,
    "network": {
        "num_clients": 6,
        "clients_per_round": 2,
        "fast_latency": [1.0, 0.06, 1.4, 0.1],
        "slow_latency": 1.5,
    },
    "policy": [{"name": "fastest"}],
}


def test_rows_are_found_among_those_that_are_played():
    rows = np.array([5, 2, 9, 2, 7, 9])
    places = chunk.places_of(np.array([9, 2, 7]), rows)
    assert rows[places].tolist() == [9, 2, 7] and places.tolist() == [2, 1, 4]


@pytest.mark.slow
def test_runs_that_have_stopped_make_room(tmp_path, monkeypatch):
    """Runs of 30 simulated seconds that take 40 to 500 rounds: the chunk shrinks, and no number changes."""
    whole = pausejax.simulate("fastest", **FAST_AND_SLOW["network"], mode="bandit", rounds=600, seeds=2)
    widths, lower = [], execute.Engine.lower

    def watch(self, group, width):
        widths.append(width)
        return lower(self, group, width)

    monkeypatch.setattr(execute.Engine, "lower", watch)
    played = []
    simulate(FAST_AND_SLOW, tmp_path / "short", played.append)
    # Twice, and the second time those who go on are not the first ones: rows 2, 3, 6 and 7, then 2 and 3.
    assert widths == [8, 4, 2]
    assert sum(played) == 8 * 4000 and played[-1] >= 8 * 3000
    short = pausejax.open(tmp_path / "short").load()
    last = (whole["elapsed"] < 30.0).sum("round").values + 1
    assert last.min() < 100 < 300 < last.max() < 600
    for run in range(8):
        np.testing.assert_array_equal(
            short["selected"][run, : last[run]], whole["selected"][run, : last[run]]
        )
        np.testing.assert_allclose(
            short["elapsed"][run, : last[run]], whole["elapsed"][run, : last[run]], rtol=1e-6
        )
        assert np.isnan(short["elapsed"][run, last[run] :]).all()
        counts = np.bincount(whole["selected"][run, : last[run]].values.reshape(-1), minlength=6)
        np.testing.assert_array_equal(short["counts"][run], counts)

    # The same with a restart from a checkpoint at every border.
    def interrupt(_):
        raise Interrupted

    monkeypatch.setattr(execute.Engine, "lower", lower)
    for _ in range(60):
        try:
            found = simulate(FAST_AND_SLOW, tmp_path / "restarted", twice(interrupt), checkpoint_seconds=0.0)
            break
        except Interrupted:
            continue
    assert found.missing == 0
    assert_alike(short, pausejax.open(tmp_path / "restarted").load())


def twice(call):
    """Calls on the third time: what was finished before, the first segment, and then the next."""
    calls = []

    def count(argument):
        calls.append(argument)
        if len(calls) == 4:
            call(argument)

    return count


SPEC = """
mode = "bandit"
rounds = 600
seeds = 6
[network]
num_clients = 10
clients_per_round = 3
[[policy]]
name = "sa_pause"
annealing_steps = 200
[[policy]]
name = "pause"
[[policy]]
name = "random"
"""


def command(spec, out, *more):
    arguments = ["run", str(spec), "--out", str(out), "--lanes", "2", "--checkpoint-every", "0", "--quiet"]
    return [sys.executable, "-m", "pausejax", *arguments, "--no-report", *more]


@pytest.mark.slow
def test_killed_twenty_times_in_a_row_a_study_ends_as_if_nothing_had_happened(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    begun = time.monotonic()
    subprocess.run(command(tmp_path / "spec.toml", tmp_path / "whole"), check=True)
    whole = time.monotonic() - begun
    draw = random.Random(7)
    kept = []
    for _ in range(20):
        process = subprocess.Popen(command(tmp_path / "spec.toml", tmp_path / "killed"))
        time.sleep(draw.uniform(0.2, 1.0) * whole)
        process.send_signal(signal.SIGKILL)
        process.wait()
        parts = tmp_path / "killed" / "parts"
        done = (tmp_path / "killed" / "results.zarr").exists()
        kept.append(999 if done else len(list(parts.glob("*.npz"))) if parts.exists() else 0)
        assert kept == sorted(kept), "a finished chunk was lost"
        if done and draw.random() < 0.5:
            # Start over, so that all twenty kills hit a study in flight.
            kept.clear()
            (tmp_path / "killed").rename(tmp_path / f"done-{time.monotonic_ns()}")
    subprocess.run(command(tmp_path / "spec.toml", tmp_path / "killed"), check=True)
    expected = pausejax.open(tmp_path / "whole").load()
    for folder in [tmp_path / "killed", *tmp_path.glob("done-*")]:
        assert_alike(expected, pausejax.open(folder).load())


@pytest.mark.slow
def test_shards_at_once_leave_one_result(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    subprocess.run(command(tmp_path / "spec.toml", tmp_path / "whole"), check=True)
    processes = [
        subprocess.Popen(command(tmp_path / "spec.toml", tmp_path / "shards", "--shard", f"{number}/4"))
        for number in range(1, 5)
    ]
    assert [process.wait() for process in processes] == [0] * 4
    assert sorted(os.listdir(tmp_path / "shards")) == [".lock", "results.zarr", "spec.toml"]
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "shards"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
    np.testing.assert_allclose(a["pseudo_regret"], b["pseudo_regret"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_eight_devices_give_what_one_gives(tmp_path):
    # A loss without kinks and an optimizer without normalization: rounding stays rounding.
    training = SPEC.replace('mode = "bandit"\nrounds = 600', "rounds = 60")
    model = 'model = "linear"\noptimizer = "sgd"\nlearning_rate = 0.05'
    (tmp_path / "spec.toml").write_text(f"{training}\n[data]\ntrain_samples = 300\n[training]\n{model}\n")
    for devices in (1, 8):
        flags = f"--xla_force_host_platform_device_count={devices}"
        arguments = command(tmp_path / "spec.toml", tmp_path / str(devices))
        arguments[arguments.index("--lanes") + 1] = "64"
        subprocess.run(arguments, check=True, env={**os.environ, "XLA_FLAGS": flags})
    one, eight = (pausejax.open(tmp_path / str(devices)).load() for devices in (1, 8))
    np.testing.assert_array_equal(one["selected"], eight["selected"])
    for name in ("reward", "test_loss", "train_loss"):
        np.testing.assert_allclose(one[name], eight[name], rtol=1e-4, atol=1e-5)
