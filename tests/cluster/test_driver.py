"""What of the Ray executor needs no cluster: where workers go, who takes what, what a worker does."""

import collections
import contextlib
import socket
import sys
import types

import jax
import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.cluster import driver as on_ray
from pausejax.cluster import pool as ray_pool
from pausejax.cluster.pool import Lost, find_slots
from pausejax.cluster.worker import Job, Slot, Worker
from pausejax.commands import main as cli
from pausejax.data.host import Sources
from pausejax.engine import schedule
from pausejax.engine.local import Settings, simulate_into
from pausejax.kinds import parse
from pausejax.results import store
from pausejax.results.folder import Folder
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

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
ENSEMBLE = {
    "mode": "ensemble",
    "rounds": 30,
    "seeds": 2,
    "data": {"dataset": "diabetes"},
    "network": {"num_clients": 5},
    "policy": [{"name": "efl_fg"}],
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


def test_a_worker_stays_with_the_programs_that_it_has():
    work = schedule.units(make_plan(parse(BANDIT)), (), most=1)
    pause, random = (on_ray.group_of(work[place]) for place in (0, -1))
    assert [on_ray.group_of(unit) for unit in work] == [pause] * 4 + [random] * 4
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

    def idle(self):
        return [self.member] if self.member.answer is None else []

    def working(self):
        return [self.member] if self.member.task else []

    def ask(self):
        return [(self.member, self.worker.news())] if self.member.task else []

    def wait(self, _):
        """Works when it is called first and answers when it is called again; between, it may be asked."""
        if self.answers:
            self.member.answer = None
            return [(self.member, self.answers.pop())]
        if self.member.answer:
            name, method, arguments = self.member.answer
            self.calls.append((name, *arguments))
            death = self.deaths.popleft() if self.deaths and name not in ("begin", "settle") else ""
            answer = None if death == "before" else method(*arguments)
            self.answers.append(Lost("it was told to die") if death else answer)
        return []


def work(plan, out, monkeypatch, deaths=(), progress=lambda _: None, tracker=None, **settings):
    """A study whose cluster is one `Hand`, which is returned."""
    hands = []

    def pool(arguments, _):
        plan, held, job = arguments
        hands.append(Hand(Worker(plan, held, job, SLOT), deaths))
        return hands[0]

    monkeypatch.setattr(on_ray, "Pool", pool)
    monkeypatch.setattr(on_ray, "_SECONDS_BETWEEN_QUESTIONS", 0.0)
    monkeypatch.setattr(ray_pool, "connected", lambda _, to_the_end: contextlib.nullcontext())
    found = store.prepare(Folder(out), plan)
    more = {"progress": progress, "tracker": tracker}
    outcome = on_ray.simulate_into(Folder(out), plan, found, Sources(), Settings(**settings), **more)
    assert outcome.missing == 0
    return hands[0]


def make_worker(document, out, **settings):
    plan, folder = make_plan(parse(document)), Folder(out)
    store.prepare(folder, plan)
    return plan, Worker(plan, {}, Job(folder.path(), Settings(**settings), None), SLOT)


@pytest.mark.slow
def test_lost_units_are_handed_out_again_and_progress_ends_at_the_whole(tmp_path, monkeypatch):
    told = []
    deaths = ["before", "", "after", "before", "", "", "", "after"]
    plan = make_plan(parse(BANDIT))
    hand = work(plan, tmp_path, monkeypatch, deaths, told.append, most=2)
    names = collections.Counter(name for name, *_ in hand.calls)
    assert names == {"begin": 1, "settle": 1, "simulate": 4 + 3, "consolidate": 2}
    assert sum(told) == 8 * 30
    again = [more[-1] for name, *more in hand.calls if name == "simulate"]
    assert again == [False, True, False, True, True, False, False]
    assert pausejax.open(tmp_path).sizes["run"] == 8


@pytest.mark.slow
def test_what_the_workers_engines_say_is_in_the_drivers_log(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "pausejax")
    plan = make_plan(parse(BANDIT))
    work(plan, tmp_path, monkeypatch, most=2)
    # The worker is in this process, so its own words are here too, without its name.
    said = [record for record in caplog.records if "worker" in record.fields]
    assert [record.event for record in said] == ["group", "compiled"] * 2
    assert all(record.fields["worker"].endswith(", worker 1") for record in said)
    assert "worker 1: compiled pause for 2 runs side by side" in said[1].getMessage()
    assert said[1].fields["took"] > 0
    finished = [record for record in caplog.records if record.event == "chunk"]
    assert sum(record.fields["runs"] for record in finished) == 2 * 8  # twice: by worker and driver


def test_a_unit_that_kills_its_workers_ends_the_study_and_is_named(tmp_path, monkeypatch):
    plan = make_plan(parse(BANDIT))
    with pytest.raises(ChildProcessError) as caught:
        work(plan, tmp_path, monkeypatch, ["", ""] + ["before"] * 5, most=2)
    message = str(caught.value)
    assert message.startswith("policy random (runs 5 to 6 of the study): 5 workers in a row were lost at it")
    assert "it was told to die" in message and "\n" not in message
    assert len(store.examine(Folder(tmp_path), plan).identities) == 4
    work(plan, tmp_path, monkeypatch, ["before"] * 4, most=2)
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
    work(plan, tmp_path, monkeypatch, ["", "after"], tracker=notes, most=2)
    # What a worker finished but could not report comes last, from the result.
    identities = list(plan.identities)
    assert notes.seen == identities[:2] + identities[4:] + identities[2:4] and notes.open == "finished"
    again = Notes()
    found = store.prepare(Folder(tmp_path), plan)
    more = {"progress": lambda _: None, "tracker": again}
    on_ray.simulate_into(Folder(tmp_path), plan, found, Sources(), Settings(), **more)
    assert again.seen == identities and again.open == "finished"


def test_a_unit_that_is_begun_again_plays_only_what_its_first_worker_left(tmp_path, monkeypatch):
    plan, worker = make_worker(BANDIT, tmp_path, most=4)
    (unit, _) = schedule.units(plan, (), most=4)
    half = schedule.Unit(unit.group, unit.rows[:2], 2)
    assert worker.begin() is None and worker.settle() == {0: 4, 1: 4}
    assert worker.simulate(half, False).told == ()
    played = []
    write = store.write_part
    monkeypatch.setattr(store, "write_part", lambda *more: (played.append(more[1]), write(*more)))
    assert worker.simulate(unit, True).told == ()
    assert played == [schedule.identities_of(plan, unit.group, unit.rows[2:])]
    assert worker.news().played == 4 * 30
    # What the driver has found finished already is in its count, so not in the worker's.
    known = schedule.identities_of(plan, unit.group, unit.rows[:1])
    assert worker.simulate(schedule.unfinished(plan, [unit], known)[0], True).told == ()
    assert worker.news().played == 3 * 30 and len(played) == 1


def test_mistakes_come_back_as_values_and_failures_as_exceptions(tmp_path, monkeypatch):
    plan, worker = make_worker(BANDIT, tmp_path)
    (unit, _) = schedule.units(plan, (), most=4)

    def raising(error):
        def play(*_, **__):
            raise error

        return play

    for error in (SpecError(["one", "two"]), ValueError("x"), OSError(28, "full")):
        monkeypatch.setattr("pausejax.cluster.worker.play_into", raising(error))
        answer = worker.simulate(unit, False)
        assert type(answer) is type(error) and str(answer) == str(error)
        with pytest.raises(type(error)):
            on_ray._value(answer)
    assert worker.simulate(unit, False).args == ("[Errno 28] full",)
    monkeypatch.setattr("pausejax.cluster.worker.play_into", raising(RuntimeError("the device is gone")))
    with pytest.raises(RuntimeError, match="the device is gone"):
        worker.simulate(unit, False)


def test_a_worker_that_sees_another_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("pausejax.cluster.worker._SECONDS_TO_SEE_THE_FOLDER", 0.1)
    job = Job(str(tmp_path / "elsewhere"), Settings(), None)
    answer = Worker(make_plan(parse(BANDIT)), {}, job, SLOT).begin()
    assert isinstance(answer, OSError) and "does not see this folder" in str(answer)


def test_workers_of_a_node_share_its_memory(tmp_path):
    def limit(slot, **settings):
        return Worker(None, None, Job(str(tmp_path), Settings(**settings), None), slot)._memory()

    whole = limit(SLOT)
    assert limit(SLOT._replace(neighbours=4)) == whole // 4
    assert limit(SLOT._replace(neighbours=4), device_memory=1000) == 1000
    assert limit(SLOT._replace(neighbours=4, gpus=1)) is None


def frozen(held):
    """As Ray hands it out: arrays can't be written to."""
    for leaf in jax.tree.leaves(list(held.values())):
        if isinstance(leaf, np.ndarray):
            leaf.setflags(write=False)
    return held


@pytest.mark.slow
@pytest.mark.parametrize("document", [TRAINING, ENSEMBLE], ids=["training", "ensemble"])
def test_workers_open_no_file_of_the_drivers(document, tmp_path, monkeypatch):
    if document is TRAINING:
        np.savetxt(tmp_path / "trace.csv", 1 + np.random.default_rng(2).random((9, 6)), delimiter=",")
        network = {**TRAINING["network"], "latency": "trace", "trace_file": str(tmp_path / "trace.csv")}
        document = {**TRAINING, "network": network}
    plan = make_plan(parse(document))
    one = Folder(tmp_path / "one")
    simulate_into(one, plan, store.prepare(one, plan), Sources(), Settings(), progress=lambda _: None)
    read = Sources()
    on_ray.check(plan, plan.groups, read)
    assert len(read.held) == (
        2 if "data" in document and "network" in document and document is not ENSEMBLE else 1
    )
    held = frozen(read.held)
    # The driver reads them; what the worker gets is all that it has.
    folder = Folder(tmp_path / "ray")
    store.prepare(folder, plan)
    (tmp_path / "trace.csv").unlink(missing_ok=True)
    worker = Worker(plan, held, Job(folder.path(), Settings(), None), SLOT)
    before = dict(worker._sources.held)
    for unit in schedule.units(plan, (), most=2):
        answer = worker.simulate(unit, False)
        assert not isinstance(answer, Exception), answer
    assert worker.consolidate() == 0
    assert worker._sources.held.keys() == before.keys(), "a worker has read a file of its own"
    a, b = (pausejax.open(tmp_path / name).load() for name in ("one", "ray"))
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
        (["--ray-address", "a:1"], 2, "--ray-address: only with --executor ray"),
        (["--cpus-per-worker", "2"], 2, "--cpus-per-worker: only with --executor ray"),
        (["--executor", "ray", "--shard", "1/2"], 2, "--shard: not with --executor ray"),
        (["--executor", "ray", "--ray-address", "here"], 1, 'must be HOST:PORT, "auto" or "local"'),
        (["--executor", "ray", "--ray-address", "host:99999"], 1, 'must be HOST:PORT, "auto" or "local"'),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(more, code, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ray_pool, "installed", lambda: types.SimpleNamespace(is_initialized=lambda: False))
    assert cli.main(command(tmp_path, *more)) == code
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


def test_an_address_where_nothing_is_is_refused_in_one_line(tmp_path, capsys, monkeypatch):
    util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    ray = types.SimpleNamespace(is_initialized=lambda: False, util=util)
    monkeypatch.setattr(ray_pool, "installed", lambda: ray)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"localhost:{free.getsockname()[1]}"
        assert cli.main(command(tmp_path, "--executor", "ray", "--ray-address", address)) == cli.FAILED
    errors = capsys.readouterr().err
    assert (
        f"--ray-address {address}: no Ray cluster can be reached there" in errors and errors.count("\n") == 1
    )


def test_without_ray_it_is_said_how_to_install_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(command(tmp_path, "--executor", "ray")) == cli.FAILED
    assert capsys.readouterr().err == "pausejax: --executor ray: needs Ray: pip install 'pausejax[ray]'\n"


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

    monkeypatch.setattr(ray_pool, "connected", connected)
    arguments = ["--out", str(tmp_path / "out"), "--executor", "ray", "--ray-address", "a:1", "--quiet"]
    if action == "search":
        arguments += ["--budget", "1000", "--set", "reward.privacy_weight={uniform=[1, 2]}"]
    (tmp_path / "spec.toml").write_text('mode = "bandit"\nrounds = 5\n[[policy]]\nname = "pause"\n')
    line = [action, str(tmp_path / "spec.toml"), *arguments]
    assert cli._carry_out(line, own_process=own_process) == cli.FAILED
    assert asked == [("a:1", own_process)]
