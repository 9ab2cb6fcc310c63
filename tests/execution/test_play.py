"""Studies into folders: checkpoints, shards, memory, devices, and processes that are killed."""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import pausejax
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.execution import memory, rounds
from pausejax.execution.batches import batches
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play
from pausejax.execution.program import GroupProgram
from pausejax.kinds import parse
from pausejax.results import checkpoint
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

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
    plan, seconds = make_plan(parse(document)), settings.pop("checkpoint_seconds", 300.0)
    store = FolderStore(Folder(directory), checkpoint_seconds=seconds)
    shard = settings.pop("shard", (1, 1))
    executor = LocalExecutor(DataCache(), **settings)
    return play(plan, executor, store, shard=shard, progress=progress, tracker=tracker)


class Interrupted(BaseException):
    pass


def interrupted(document, directory, after, **settings):
    """Simulates until so many segments have been played; a checkpoint is written after every segment."""
    told = []

    def interrupt(rounds_times_runs):
        told.append(rounds_times_runs)
        if len(told) == after:
            raise Interrupted

    with pytest.raises(Interrupted):
        simulate(document, directory, interrupt, checkpoint_seconds=0.0, **settings)


LONG = {**BANDIT, "rounds": 200, "reward": {"gamma": 1.0}, "policy": [{"name": "random"}]}


def test_a_checkpoint_is_played_as_the_very_runs_that_it_is_of(tmp_path, monkeypatch):
    """The study is given a seed before those that it had, so every run has another row of its group."""
    before, after = ({**LONG, "seeds": seeds} for seeds in ([5, 6], [4, 5, 6]))
    restored, restore = [], checkpoint.Checkpoint.restore

    def watch(self, shapes):
        found = restore(self, shapes)
        restored.append(bool(found))
        return found

    monkeypatch.setattr(checkpoint.Checkpoint, "restore", watch)
    interrupted(before, tmp_path / "extended", 3, max_width=1)
    simulate(after, tmp_path / "extended", max_width=1)
    assert restored == [False, False, True, False]
    simulate(after, tmp_path / "whole", max_width=1)
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "extended"))
    assert_alike(a, b)
    assert not np.isnan(b["reward"]).any()


@pytest.mark.slow
def test_a_study_under_a_url_goes_on_from_its_checkpoint_too(tmp_path, monkeypatch):
    restored, restore = [], checkpoint.Checkpoint.restore

    def watch(self, shapes):
        found = restore(self, shapes)
        restored.append(found[1][-1].last_round if found else 0)
        return found

    monkeypatch.setattr(checkpoint.Checkpoint, "restore", watch)
    interrupted(LONG, "memory://local/study", 3)
    simulate(LONG, "memory://local/study")
    assert restored == [0, 50]
    simulate(LONG, tmp_path)
    assert_alike(*(pausejax.open(name).load() for name in (tmp_path, "memory://local/study")))
    assert not Folder("memory://local/study").exists("checkpoints")


KEYED = """
import jax
import jax.numpy as jnp
import pausejax
from pausejax.policies import Policy, cohort

@pausejax.policy
def keyed(*, num_clients: int, clients_per_round: int) -> Policy:
    \"\"\"Draws with a typed key of its own, which it keeps in its state beside half-precision sums.\"\"\"

    def init(key, clients):
        return key, jnp.zeros(num_clients, jnp.bfloat16), clients.data_share

    def select(key, state, view):
        draws = jax.random.uniform(state[0], (num_clients,)) + state[1].astype(jnp.float32)
        return cohort(jnp.argsort(draws)[:clients_per_round].astype(jnp.int32), state[2])

    def update(state, view, feedback):
        sums = state[1].at[feedback.members].add(feedback.reward.astype(jnp.bfloat16))
        return jax.random.fold_in(state[0], view.round), sums, state[2]

    return Policy(init, select, update)
"""


@pytest.mark.slow
def test_a_policy_may_keep_a_typed_key_and_goes_on_from_a_checkpoint(tmp_path):
    (tmp_path / "keyed.py").write_text(KEYED)
    document = {**LONG, "use": [str(tmp_path / "keyed.py")], "policy": [{"name": "keyed"}]}
    interrupted(document, tmp_path / "parts", 3)
    (state,) = (tmp_path / "parts" / "checkpoints").glob("*/state-*.npz")
    outcome = simulate(document, tmp_path / "parts", checkpoint_seconds=0.0)
    assert outcome.missing == 0 and outcome.damaged == () and state.stem == "state-50"
    simulate(document, tmp_path / "whole")
    assert_alike(*(pausejax.open(tmp_path / name).load() for name in ("whole", "parts")))


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


@pytest.mark.slow
def test_a_tracker_is_told_of_every_run_as_it_is_finished(tmp_path):
    first, second, document = Log(), Log(), {**BANDIT, "policy": [{"name": "random"}]}
    simulate(document, tmp_path, tracker=first, max_width=2, shard=(1, 2))
    simulate(document, tmp_path, tracker=second, max_width=2, shard=(2, 2))
    assert first.calls[0] == ("start", "bandit") and first.calls[-1] == ("finish",)
    assert max(call[1] for call in first.calls[1:-1]) <= 2 and 0 < len(first.rewards) < 10
    result = pausejax.open(tmp_path).load()
    assert set(second.rewards) == set(result["identity"].values)
    for identity, reward in zip(result["identity"].values, result["reward"].values, strict=True):
        np.testing.assert_array_equal(second.rewards[identity], reward)
        np.testing.assert_array_equal(first.rewards.get(identity, reward), reward)


def test_a_finished_study_computes_nothing(tmp_path, monkeypatch):
    simulate(BANDIT, tmp_path)
    monkeypatch.setattr(rounds, "play_rounds", None)
    monkeypatch.setattr(GroupProgram, "lower", None)
    assert simulate(BANDIT, tmp_path) == (20, 0, ())


ANNEALED = {**BANDIT, "policy": BANDIT["policy"][:1]}


@pytest.fixture
def played(monkeypatch):
    """How many runs with padding are played side by side, batch by batch."""
    widths, play = [], rounds.play_rounds

    def watch(program, *more):
        widths.append(program.simulation.padded(program.executable().width))
        return play(program, *more)

    monkeypatch.setattr(rounds, "play_rounds", watch)
    return widths


def compiled(document, **settings):
    """The compiled program of a study's only group."""
    plan, executor = make_plan(parse(document)), LocalExecutor(DataCache(), **settings)
    work = batches(plan, (), {group.key: 256 for group in plan.groups})
    executor.prepare(plan.study, work)
    return executor.program(plan.study, work[0].group).executable()


def needed(document, share=1.0):
    """Bytes that a share of the program of a study's only group takes."""
    return int(memory.program_memory(compiled(document).compiled) * share)


def narrowed(caplog):
    """The warnings that fewer runs fit; another test may have left Python's logging at the level INFO."""
    return [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.slow
def test_a_small_memory_cuts_chunks_and_changes_no_selection(tmp_path, played):
    limit = needed(ANNEALED, 2 / 3)
    simulate(ANNEALED, tmp_path / "whole")
    (whole,) = played
    simulate(ANNEALED, tmp_path / "cut", device_memory=limit)
    narrow = compiled(ANNEALED, device_memory=limit)
    assert 1 < narrow.width < whole and memory.program_memory(narrow.compiled) <= limit
    assert max(played[1:]) < whole
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "cut"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
    np.testing.assert_allclose(a["pseudo_regret"], b["pseudo_regret"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_resume_with_more_memory_cuts_its_runs_as_before(tmp_path, played, caplog):
    limit = needed(ANNEALED, 2 / 3)
    simulate(ANNEALED, tmp_path / "whole", device_memory=limit)
    as_begun = played.copy()
    assert len(as_begun) > 1
    played.clear()
    interrupted(ANNEALED, tmp_path / "more", 1, device_memory=limit)
    simulate(ANNEALED, tmp_path / "more", device_memory=100 * limit)
    assert played == [as_begun[0], *as_begun] and not narrowed(caplog)
    assert_alike(*(pausejax.open(tmp_path / name).load() for name in ("whole", "more")))


@pytest.mark.slow
def test_a_resume_with_less_memory_says_that_it_cuts_its_runs_otherwise(tmp_path, played, caplog):
    interrupted(ANNEALED, tmp_path / "less", 1)
    limit = needed(ANNEALED, 2 / 3)
    simulate(ANNEALED, tmp_path / "less", device_memory=limit)
    assert played[0] == 10 and max(played[1:]) < 10
    (line,) = (record.getMessage() for record in narrowed(caplog))
    assert re.fullmatch(r"sa_pause: only \d runs fit side by side, not 10. Floats .* last bits", line)
    simulate({**ANNEALED, "rounds": 59}, tmp_path / "other", device_memory=limit)
    assert len(narrowed(caplog)) == 1  # nothing was there before


@pytest.mark.slow
def test_out_of_memory_halves_the_chunks(tmp_path, monkeypatch, caplog):
    """The device's answer is imitated; everything after it is real."""
    simulate(BANDIT, tmp_path / "whole")
    played, play, told = [], rounds.play_rounds, []
    room = 4

    def short_of_memory(program, runs, progress, *more):
        played.append(program.simulation.padded(program.executable().width))
        if played[-1] > room:
            progress(7 * len(runs))
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.")
        return play(program, runs, progress, *more)

    monkeypatch.setattr(rounds, "play_rounds", short_of_memory)
    assert simulate(BANDIT, tmp_path / "cut", told.append).missing == 0
    assert played == [10, 6, 4, 4, 4, 4] * 2
    assert sum(told) == 20 * 60 and min(told) >= 0
    assert [record.fields["width"] for record in narrowed(caplog)] == [5, 3] * 2
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "cut"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
    # A resume knows what fits.
    simulate(ANNEALED, tmp_path / "short")
    interrupted(ANNEALED, tmp_path / "killed", 8)
    played.clear()
    room = 100
    simulate(ANNEALED, tmp_path / "killed")
    assert played and set(played) == {4}
    assert_alike(*(pausejax.open(tmp_path / name).load() for name in ("short", "killed")))


@pytest.mark.slow
def test_a_checkpoint_of_a_batch_that_did_not_fit_is_removed(monkeypatch):
    """Under a URL, where nobody can tell whose it is."""
    play = rounds.play_rounds

    def short_of_memory(program, runs, *more):
        arrays = play(program, runs, *more)
        if program.executable().width > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.")
        return arrays

    monkeypatch.setattr(rounds, "play_rounds", short_of_memory)
    assert simulate(LONG, "memory://narrowed/study", checkpoint_seconds=0.0).missing == 0
    assert not Folder("memory://narrowed/study").names("checkpoints")


@pytest.mark.slow
def test_progress_of_a_study_without_rounds_adds_up_to_its_runs(tmp_path):
    told = []
    document = {
        "mode": "ensemble",
        "seeds": 2,
        "eval_every": 2,
        "network": {"num_clients": 1},
        "data": {"dataset": "diabetes"},
        "policy": [{"name": "exp3"}],
    }
    simulate(document, tmp_path, told.append)
    assert sum(told) == pytest.approx(2) and len(told) > 3


@pytest.mark.slow
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
    places = rounds.places_of(np.array([9, 2, 7]), rows)
    assert rows[places].tolist() == [9, 2, 7] and places.tolist() == [2, 1, 4]


@pytest.mark.slow
def test_runs_that_have_stopped_make_room(tmp_path, monkeypatch):
    """Runs of 30 simulated seconds that take 40 to 500 rounds: the chunk shrinks, and no number changes."""
    whole = pausejax.simulate("fastest", **FAST_AND_SLOW["network"], mode="bandit", rounds=600, seeds=2)
    rows_of_programs, lower = [], ClientSimulation.lower

    def watch(self, rows):
        rows_of_programs.append(rows)
        return lower(self, rows)

    monkeypatch.setattr(ClientSimulation, "lower", watch)
    played = []
    simulate(FAST_AND_SLOW, tmp_path / "short", played.append)
    # Twice, and the second time those who go on are not the first ones: rows 2, 3, 6 and 7, then 2 and 3.
    assert rows_of_programs == [8, 4, 2]
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

    monkeypatch.setattr(ClientSimulation, "lower", lower)
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
def test_shards_at_once_leave_one_result(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    subprocess.run(command(tmp_path / "spec.toml", tmp_path / "whole"), check=True)
    processes = [
        subprocess.Popen(command(tmp_path / "spec.toml", tmp_path / "shards", "--shard", f"{number}/4"))
        for number in range(1, 5)
    ]
    assert [process.wait() for process in processes] == [0] * 4
    assert sorted(os.listdir(tmp_path / "shards")) == [
        ".lock",
        "labels.npz",
        "layout.json",
        "results.zarr",
        "spec.toml",
    ]
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


@pytest.mark.slow
def test_shards_on_unlike_devices_play_every_run_once(tmp_path, monkeypatch):
    """The first one's devices are good for two runs side by side, the second one's for many."""
    document = {**BANDIT, "seeds": 7, "reward": {"gamma": 1.0}, "policy": [{"name": "random"}]}
    one = simulate(document, tmp_path, max_width=2, shard=(1, 2))
    monkeypatch.setattr("pausejax.execution.local.local_devices", lambda: "1 × another card")
    other = simulate(document, tmp_path, shard=(2, 2))
    assert (one.missing, other.missing) == (4, 0)
    simulate(document, tmp_path / "whole")
    a, b = (pausejax.open(name).load() for name in (tmp_path, tmp_path / "whole"))
    np.testing.assert_array_equal(a["selected"], b["selected"])


@pytest.mark.slow
def test_a_shard_that_was_killed_while_it_reported_tells_its_runs_when_it_resumes(tmp_path):
    """The other shard has begun before these runs were finished, and ends the study."""
    killed, resumed, other = Log(), Log(), Log()
    document = {**BANDIT, "policy": [{"name": "random"}]}

    def die(result):
        raise Interrupted

    def while_the_other_plays(_):
        if killed.calls:
            return
        killed.runs_finished = die
        with pytest.raises(Interrupted):
            simulate(document, tmp_path, tracker=killed, max_width=2, shard=(1, 2))
        simulate(document, tmp_path, tracker=resumed, max_width=2, shard=(1, 2))

    simulate(document, tmp_path, while_the_other_plays, tracker=other, max_width=2, shard=(2, 2))
    result = pausejax.open(tmp_path).load()
    told = [*resumed.rewards, *other.rewards]
    assert sorted(told) == sorted(result["identity"].values) and len(set(told)) == len(told)
    rewards = {**resumed.rewards, **other.rewards}
    for identity, reward in zip(result["identity"].values, result["reward"].values, strict=True):
        np.testing.assert_array_equal(rewards[identity], reward)


@pytest.mark.slow
def test_a_tracker_is_told_of_policies_that_play_alike_under_both_labels(tmp_path):
    log = Log()
    document = {**BANDIT, "policy": [{"name": "random", "label": label} for label in ("one", "other")]}
    log.runs_finished = lambda result: log.calls.append(result["policy"].values.tolist())
    simulate(document, tmp_path, tracker=log, max_width=3)
    labels = [label for call in log.calls for label in call if call is not log.calls[0]]
    assert labels.count("one") == labels.count("other") == 10
    assert log.calls[-1] == ("finish",)


def test_a_tracker_is_finished_where_a_study_is_interrupted(tmp_path):
    log = Log()
    with pytest.raises(Interrupted):
        simulate(BANDIT, tmp_path, twice(lambda _: (_ for _ in ()).throw(Interrupted)), tracker=log)
    assert log.calls[-1] == ("finish",)


@pytest.mark.parametrize("later", ["9,9,9,9,9,9,9,9", None])
def test_a_file_that_changes_while_a_study_starts_is_refused(tmp_path, later):
    file, out = tmp_path / "latencies.csv", tmp_path / "out"
    file.write_text("0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5")
    network = {**BANDIT["network"], "latency": "trace", "trace_file": str(file)}
    plan = make_plan(parse({**BANDIT, "network": network, "policy": [{"name": "random"}]}))

    class Slow(LocalExecutor):
        def layouts(self, *given):
            found = super().layouts(*given)
            file.write_text(later) if later else file.unlink()
            return found

    with pytest.raises(SpecError, match=r"latencies\.csv: changed after the command had read it"):
        play(plan, Slow(DataCache()), FolderStore(Folder(out)), progress=lambda _: None)
    assert not list(out.rglob("parts/*"))


@pytest.mark.slow
def test_shards_make_one_cut_though_a_smaller_study_ends_between_their_starts(tmp_path):
    small, large = ({**LONG, "seeds": seeds} for seeds in (4, 6))
    begun = []

    def begin(_):
        if not begun:
            begun.append(simulate(large, tmp_path / "shards", shard=(1, 2)))

    assert simulate(small, tmp_path / "shards", begin).missing == 0
    assert begun[0].missing > 0
    assert simulate(large, tmp_path / "shards", shard=(2, 2)).missing == 0
    simulate(large, tmp_path / "whole")
    assert_alike(*(pausejax.open(tmp_path / name).load() for name in ("whole", "shards")))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_threefry_partitionable", False),
        ("jax_default_prng_impl", "rbg"),
        ("jax_random_seed_offset", 5),
        ("jax_enable_x64", True),
        ("jax_debug_nans", True),
        ("jax_disable_jit", True),
    ],
)
def test_settings_of_jax_that_change_all_numbers_or_end_studies_are_refused(name, value):
    """Equal runs must have equal numbers, also in one folder."""
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        with pytest.raises(SpecError, match=rf"^{name} = {value!r}: must be {before!r}, because"):
            pausejax.simulate("random", mode="bandit", rounds=3, num_clients=4, clients_per_round=2)
    finally:
        jax.config.update(name, before)
