"""What of the Ray executor needs no cluster: where workers go, who takes what, what a worker does."""

import collections
import contextlib
import socket
import sys
import types

import cloudpickle
import jax
import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.clients import build
from pausejax.cluster import connection
from pausejax.cluster import driver as on_ray
from pausejax.cluster import pool as ray_pool
from pausejax.cluster.pool import Loss, find_slots
from pausejax.cluster.worker import Slot, Worker
from pausejax.commands import main as cli
from pausejax.data.host import DataCache
from pausejax.execution import memory
from pausejax.execution.batches import batches
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play
from pausejax.execution.program import GroupProgram
from pausejax.kinds import parse
from pausejax.results import study_folder
from pausejax.results.folder import Folder
from pausejax.results.parts import marked
from pausejax.results.stores import FolderStore, MemoryStore
from pausejax.searches.options import SearchOptions
from pausejax.searches.search import search
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

from ..alike import assert_alike

BANDIT = {
    "mode": "bandit",
    "rounds": 30,
    "seeds": 4,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "pause"}, {"name": "random"}],
}
TRAINING = {
    "rounds": 6,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "data": {"train_samples": 240},
    "training": {"model": "linear"},
    "policy": [{"name": "pause"}],
}
SLOT = Slot("node", 0, 1, 1, 0)


def node(name, alive=True, **resources):
    return {"NodeID": name, "Alive": alive, "Resources": resources}


def places_of(slots):
    return [(slot.node, slot.number, slot.neighbours, slot.cpus, slot.gpus) for slot in slots]


def test_without_gpus_a_worker_takes_some_cores_or_a_whole_node():
    nodes = [node("a", CPU=5.0), node("b", CPU=2.0), node("gone", alive=False, CPU=64.0), node("head")]
    assert places_of(find_slots(nodes, None, gpus=False)) == [("a", 0, 1, 5, 0), ("b", 0, 1, 2, 0)]
    assert places_of(find_slots(nodes, 2, gpus=False)) == [
        ("a", 0, 2, 2, 0),
        ("a", 1, 2, 2, 0),
        ("b", 0, 1, 2, 0),
    ]
    assert find_slots(nodes, 6, gpus=False) == []


def test_with_gpus_a_worker_takes_one_of_them():
    nodes = [
        node("a", CPU=8.0, GPU=2.0),
        node("b", CPU=64.0),
        node("c", CPU=3.0, GPU=2.0),
        node("d", GPU=1.0),
    ]
    assert places_of(find_slots(nodes, None, gpus=True)) == [
        ("a", 0, 2, 1, 1),
        ("a", 1, 2, 1, 1),
        ("c", 0, 2, 1, 1),
        ("c", 1, 2, 1, 1),
        ("d", 0, 1, 0, 1),
    ]
    # Cores may run out before the GPUs do.
    assert places_of(find_slots(nodes, 2, gpus=True)) == [
        ("a", 0, 2, 2, 1),
        ("a", 1, 2, 2, 1),
        ("c", 0, 1, 2, 1),
    ]


def most_of(plan, runs):
    return {group.key: runs for group in plan.groups}


def test_a_worker_stays_with_the_programs_that_it_has():
    plan = make_plan(parse(BANDIT))
    work = batches(plan, (), most_of(plan, 1))
    pause, random = (group.key for group in plan.groups)
    work = [batch.group.key for batch in work]
    assert work == [pause] * 4 + [random] * 4
    assert on_ray.pick(work, {random}, [random, random]) == 4
    assert on_ray.pick(work, set(), [pause]) == 4
    assert on_ray.pick(work, set(), [random]) == 0
    assert on_ray.pick(work[:4], {random}, []) == 0
    # Where most is left and fewest are at it.
    assert on_ray.pick(work[2:], set(), []) == 2


class Hand:
    """A pool of one worker in this process, which dies "before" or "after" its work where a test says so."""

    def __init__(self, worker, deaths):
        self.worker, self.deaths = worker, collections.deque(deaths)
        self.slots, self.calls, self.answers = [SLOT], [], []
        self.member = ray_pool.Member(self, SLOT)

    def __getattr__(self, name):
        method = getattr(self.worker, name)
        return types.SimpleNamespace(remote=lambda *arguments: (name, method, arguments))

    def close(self):
        self.member = None

    def put(self, value):
        return value

    def idle(self):
        return [self.member] if self.member.answer is None else []

    def working(self):
        return [self.member] if self.member.task else []

    def ask(self):
        """Answers what was asked before, and asks again."""
        if not self.member.task:
            return []
        answer, self.member.question = self.member.question, self.worker.status()
        return [(self.member, answer)] if answer else []

    def wait(self, _):
        """Works when it is called first and answers when it is called again; between, it may be asked."""
        if self.answers:
            self.member.answer = None
            return [(self.member, self.answers.pop())]
        if self.member.answer:
            name, method, arguments = self.member.answer
            self.calls.append((name, *arguments))
            death = self.deaths.popleft() if self.deaths and name not in ("begin", "layouts") else ""
            # Arguments come to a worker as copies.
            copies = cloudpickle.loads(cloudpickle.dumps(arguments))
            answer = None if death == "before" else method(*copies)
            self.answers.append(Loss("it was told to die") if death else answer)
        return []


def one_hand(monkeypatch, deaths):
    """Has one `Hand` be the cluster; returns the list that it will be in."""
    hands = []

    def pool(arguments, _):
        hands.append(Hand(Worker(*arguments, SLOT), deaths))
        return hands[0]

    monkeypatch.setattr(on_ray, "Pool", pool)
    monkeypatch.setattr(on_ray, "_SECONDS_BETWEEN_QUESTIONS", 0.0)
    monkeypatch.setattr(connection, "connected", lambda _, to_the_end: contextlib.nullcontext())
    return hands


def hand_out(plan, out, monkeypatch, deaths=(), progress=lambda _: None, tracker=None, **limits):
    """Plays a study whose cluster is one `Hand`, which is returned; None: there was nothing to play."""
    hands = one_hand(monkeypatch, deaths)
    executor = on_ray.RayExecutor(DataCache(), **limits)
    with contextlib.closing(executor):
        outcome = play(plan, executor, FolderStore(Folder(out)), progress=progress, tracker=tracker)
    assert outcome.missing == 0
    return hands[0] if hands else None


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [(), ("", "after", "before", "", "before")], ids=["calm", "deaths"])
def test_a_search_is_that_of_one_process_whoever_dies(tmp_path, monkeypatch, deaths):
    document = {**BANDIT, "seeds": 2, "reward": {"privacy_weight": {"log_uniform": [1, 100]}}}
    study, asked = parse(document, searched=True), SearchOptions(trials=6, metrics=("mean_latency",))
    alone = search(study, asked, LocalExecutor(DataCache()), FolderStore(Folder(tmp_path / "alone")))
    hands, made, make = one_hand(monkeypatch, deaths), [], GroupProgram.compile
    monkeypatch.setattr(
        GroupProgram, "compile", lambda self, threads: made.append(self) or make(self, threads)
    )
    executor = on_ray.RayExecutor(DataCache())
    with contextlib.closing(executor):
        shared = search(study, asked, executor, FolderStore(Folder(tmp_path / "shared")))
    assert [trial.setting for trial in shared.trials] == [trial.setting for trial in alone.trials]
    for one, other in zip(shared.trials, alone.trials, strict=True):
        np.testing.assert_array_equal(one.figures, other.figures)
    assert len({id(program) for program in made}) == 2 and len(hands) == 1, (
        "a program for each of the policies"
    )
    assert_alike(*(pausejax.open(tmp_path / name).load() for name in ("alone", "shared")))


def make_worker(document, out, slot=SLOT, held=None, mark="spec.toml", **limits):
    plan, folder = make_plan(parse(document)), Folder(out)
    study_folder.prepare(folder, plan)
    limits = {"max_width": None, "device_memory": None, "data_placement": None, **limits}
    return plan, Worker(plan.study, held or {}, FolderStore(folder), limits, mark, None, slot)


@pytest.mark.slow
def test_lost_batches_are_handed_out_again_and_progress_ends_at_the_whole(tmp_path, monkeypatch, caplog):
    """A worker may be asked during one batch and answer during the next; the log has its words."""
    caplog.set_level("INFO", "pausejax")
    monkeypatch.setattr(memory, "device_memory", lambda: 1)  # the driver's own does not matter
    told = []
    deaths = ["before", "", "after", "before", "", "", ""]
    plan = make_plan(parse(BANDIT))
    hand = hand_out(plan, tmp_path, monkeypatch, deaths, told.append, max_width=2, device_memory=10**9)
    names = collections.Counter(name for name, *_ in hand.calls)
    assert names == {"begin": 1, "layouts": 1, "execute_batch": 4 + 3}
    assert sum(told) == 8 * 30 and min(told) >= 0
    again = [more[-1] for name, *more in hand.calls if name == "execute_batch"]
    assert again == [False, True, False, True, True, False, False]
    assert pausejax.open(tmp_path).sizes["run"] == 8
    # The worker is in this process, so its own words are here too, without its name.
    said = [record for record in caplog.records if "worker" in record.fields]
    assert {record.event for record in said} == {"group", "compiled"}
    assert all(record.fields["worker"].endswith(", worker 1") for record in said)
    assert any(
        "worker 1: compiled the program of pause for 2 runs side by side" in one.getMessage() for one in said
    )


def test_a_batch_that_kills_its_workers_ends_the_study_and_is_named(tmp_path, monkeypatch):
    plan = make_plan(parse(BANDIT))
    with pytest.raises(ChildProcessError) as caught:
        hand_out(plan, tmp_path, monkeypatch, ["", ""] + ["before"] * 5, max_width=2)
    message = str(caught.value)
    named = "policy random (2 runs, from run 5 of the study on)"
    assert message.startswith(f"{named}: 5 workers in a row were lost during this task")
    assert "it was told to die" in message and "\n" not in message
    assert len(study_folder.examine(Folder(tmp_path), plan).identities) == 4
    hand_out(plan, tmp_path, monkeypatch, ["before"] * 4, max_width=2)
    assert pausejax.open(tmp_path).sizes["run"] == 8


class Notes:
    """A tracker that remembers."""

    def __init__(self):
        self.seen, self.open = [], None

    def start(self, study):
        self.open = study["mode"]

    def runs_finished(self, result):
        assert self.open == "bandit"
        self.seen += result["identity"].values.tolist()

    def finish(self):
        self.open = "finished"


def test_a_tracker_is_told_of_every_run_once(tmp_path, monkeypatch):
    plan, notes = make_plan(parse(BANDIT)), Notes()
    hand_out(plan, tmp_path, monkeypatch, ["", "after"], tracker=notes, max_width=2)
    # What a worker finished but could not report comes last, from the result.
    identities = list(plan.identities)
    assert notes.seen == identities[:2] + identities[4:] + identities[2:4] and notes.open == "finished"
    again = Notes()
    assert hand_out(plan, tmp_path, monkeypatch, tracker=again) is None
    assert again.seen == identities and again.open == "finished"


@pytest.mark.slow
def test_a_batch_that_is_begun_again_is_played_only_where_its_first_worker_left_it(tmp_path):
    plan, worker = make_worker(BANDIT, tmp_path, max_width=4)
    worker.begin()
    assert {key: layout.runs for key, layout in worker.layouts(plan.groups).items()} == most_of(plan, 4)
    group = plan.groups[0]
    runs = group.runs
    assert worker.execute_batch(0, group, runs[:2], 4, False).written == (runs[:2],)
    assert worker.execute_batch(1, group, runs, 4, True).written == (runs[2:],)
    assert worker.status()[:2] == (1, 4 * 30)
    # What the driver has found finished already is in its count, so not in the worker's.
    assert worker.execute_batch(2, group, runs[1:], 4, True).written == ()
    assert worker.status()[:2] == (2, 3 * 30)


def test_a_folder_of_the_same_path_on_another_node_is_not_the_drivers(tmp_path, monkeypatch):
    """It holds a spec: another study has been played there."""
    monkeypatch.setattr("pausejax.cluster.worker._SECONDS_TO_SEE_THE_FOLDER", 0)
    with marked(Folder(tmp_path / "drivers")) as mark:
        _, own = make_worker(BANDIT, tmp_path / "drivers", mark=mark)
        _, others = make_worker(BANDIT, tmp_path / "others", mark=mark)
        own.begin()
        with pytest.raises(OSError, match="does not see this folder"):
            others.begin()
    assert not (tmp_path / "drivers" / mark).exists()


def test_workers_of_a_node_share_its_memory(tmp_path):
    """A share of a few bytes holds no run."""
    crowd = SLOT._replace(neighbours=10**9)
    _, worker = make_worker(BANDIT, tmp_path, crowd)
    plan = make_plan(parse(BANDIT))
    with pytest.raises(SpecError, match="does not fit"):
        worker.layouts(plan.groups)
    for slot, limits in [(SLOT, {}), (crowd, {"device_memory": 10**9}), (crowd._replace(gpus=1), {})]:
        _, worker = make_worker(BANDIT, tmp_path, slot, **limits)
        assert len(worker.layouts(plan.groups)) == 2


def frozen(held):
    """As Ray hands it out: arrays can't be written to."""
    for leaf in jax.tree.leaves(list(held.values())):
        if isinstance(leaf, np.ndarray):
            leaf.setflags(write=False)
    return held


@pytest.mark.slow
def test_workers_open_no_file_of_the_drivers(tmp_path, monkeypatch):
    np.savetxt(tmp_path / "trace.csv", 1 + np.random.default_rng(2).random((9, 6)), delimiter=",")
    network = {**TRAINING["network"], "latency": "trace", "trace_file": str(tmp_path / "trace.csv")}
    plan, alone = make_plan(parse({**TRAINING, "network": network})), MemoryStore()
    with contextlib.closing(LocalExecutor(DataCache())) as executor:
        play(plan, executor, alone, progress=lambda _: None)
    begin, read = Worker.begin, []

    def begin_without_files(worker):
        """What the driver has read is all that the worker gets."""
        monkeypatch.setattr(build, "read_numbers", lambda *_: pytest.fail("a worker reads a file"))
        read.append(set(frozen(worker._held)))
        return begin(worker)

    monkeypatch.setattr(Worker, "begin", begin_without_files)
    hand = hand_out(plan, tmp_path / "ray", monkeypatch, max_width=2)
    assert len(read[0]) == 2
    assert set(hand.worker._executor.cache.held) == read[0], "a worker has read a file of its own"
    a, b = alone.result(plan), pausejax.open(tmp_path / "ray").load()
    for name in a.variables:
        if a[name].dtype.kind == "f":
            np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(a[name], b[name])


def command(folder, *more):
    (folder / "spec.toml").write_text('mode = "bandit"\nrounds = 5\n[[policy]]\nname = "random"\n')
    return ["run", str(folder / "spec.toml"), "--out", str(folder / "out"), "--quiet", "--no-report", *more]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--ray-address", "a:1"], 2, "--ray-address: allowed only with --executor ray"),
        (["--cpus-per-worker", "2"], 2, "--cpus-per-worker: allowed only with --executor ray"),
        (["--executor", "ray", "--shard", "1/2"], 2, "--shard: not allowed with --executor ray"),
        (["--executor", "ray", "--ray-address", "here"], 1, 'must be HOST:PORT, "auto" or "local"'),
        (["--executor", "ray", "--ray-address", "host:99999"], 1, 'must be HOST:PORT, "auto" or "local"'),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(more, code, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(connection, "installed", lambda: types.SimpleNamespace(is_initialized=lambda: False))
    assert cli.main(command(tmp_path, *more)) == code
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


def test_an_address_where_nothing_is_is_refused_in_one_line(tmp_path, capsys, monkeypatch):
    util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    ray = types.SimpleNamespace(is_initialized=lambda: False, util=util)
    monkeypatch.setattr(connection, "installed", lambda: ray)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"localhost:{free.getsockname()[1]}"
        assert cli.main(command(tmp_path, "--executor", "ray", "--ray-address", address)) == cli.FAILED
    errors = capsys.readouterr().err
    assert (
        f"--ray-address {address}: no Ray cluster answers at this address" in errors
        and errors.count("\n") == 1
    )


def test_without_ray_it_is_said_how_to_install_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(command(tmp_path, "--executor", "ray")) == cli.FAILED
    assert (
        capsys.readouterr().err
        == "pausejax: --executor ray: Ray is not installed. Install it: pip install 'pausejax[ray]'\n"
    )


@pytest.mark.slow
def test_a_finished_study_needs_no_cluster(tmp_path, capsys):
    assert cli.main(command(tmp_path)) == cli.OK
    result = pausejax.open(tmp_path / "out").load()
    assert cli.main(command(tmp_path, "--executor", "ray", "--ray-address", "127.0.0.1:1")) == cli.OK
    xr.testing.assert_identical(result, pausejax.open(tmp_path / "out").load())


@pytest.mark.parametrize("own_process", [True, False])
@pytest.mark.parametrize("action", ["run", "search"])
def test_only_a_process_of_the_commands_own_stays_connected(own_process, action, tmp_path, monkeypatch):
    asked = []

    def connected(address, *, to_the_end):
        asked.append((address, to_the_end))
        raise ConnectionError("nobody is there")

    monkeypatch.setattr(connection, "connected", connected)
    arguments = ["--out", str(tmp_path / "out"), "--executor", "ray", "--ray-address", "a:1", "--quiet"]
    if action == "search":
        arguments += ["--trials", "7", "--set", "reward.privacy_weight={uniform=[1, 2]}"]
    (tmp_path / "spec.toml").write_text('mode = "bandit"\nrounds = 5\n[[policy]]\nname = "pause"\n')
    line = [action, str(tmp_path / "spec.toml"), *arguments]
    assert cli._carry_out(line, own_process=own_process) == cli.FAILED
    assert asked == [("a:1", own_process)]
