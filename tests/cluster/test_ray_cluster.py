"""Studies on a real Ray cluster of two nodes: workers, nodes and drivers that die, and what is left then."""

import contextlib
import importlib.util
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pausejax

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 400
SPEC = """
mode = "bandit"
rounds = 1500
seeds = 6
[network]
num_clients = 10
clients_per_round = 3
[[policy]]
name = "sa_pause"
annealing_steps = 400
[[policy]]
name = "pause"
"""
UNITS = 12
LONG = """
mode = "bandit"
rounds = 20000
seeds = 2
[network]
num_clients = 10
clients_per_round = 3
[[policy]]
name = "sa_pause"
annealing_steps = 200
"""
TRAINING = """
rounds = 20
seeds = 3
[network]
num_clients = 6
clients_per_round = 2
latency = "trace"
trace_file = "{trace}"
[data]
train_samples = 240
[training]
model = "linear"
[[policy]]
name = "pause"
"""

SEARCH = """
mode = "bandit"
rounds = 300
seeds = 2
[network]
num_clients = 10
clients_per_round = 3
[reward]
generalization_weight = { log_uniform = [1, 1000] }
[[policy]]
name = "sa_pause"
annealing_steps = 1000
"""


def environment(**more):
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray then keeps to the loopback
        **more,
    }


def processes():
    """Parent and command line of every process, by number."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            found[int(place.name)] = parent, line
    return found


def descendants(ancestor):
    """Processes that some process has started, and those that they have, with their command lines."""
    everyone, found, new = processes(), {}, {ancestor}
    while new:
        new = {number for number, (parent, _) in everyone.items() if parent in new}
        found |= {number: everyone[number][1] for number in new}
    return found


def wait_for(condition, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        assert time.monotonic() < deadline, "it has not happened in time"
        time.sleep(0.05)
    return outcome


class LocalCluster:
    """The one in `local_cluster.py`, in a process of its own."""

    def __init__(self, folder):
        # An fsspec file system that every process can see, and that is no LocalFileSystem.
        plugin = folder / "plugin"
        (plugin / "everywhere-1.dist-info").mkdir(parents=True)
        (plugin / "everywhere.py").write_text(EVERYWHERE)
        (plugin / "everywhere-1.dist-info" / "METADATA").write_text("Name: everywhere\nVersion: 1\n")
        points = "[fsspec.specs]\neverywhere=everywhere.Everywhere\n"
        (plugin / "everywhere-1.dist-info" / "entry_points.txt").write_text(points)
        self.environment = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        self.environment["PYTHONPATH"] += os.pathsep + str(plugin)
        self.log = folder / "cluster.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("local_cluster.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment,
            )
        self.address = self._answer()
        assert self.tell("add") == 1

    def tell(self, command):
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        deadline = time.monotonic() + PATIENCE
        while select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
            if not (line := self.process.stdout.readline()):
                break
            if line[:1] in b'"0123456789':
                return json.loads(line)
        raise AssertionError(self.log.read_text())

    def workers(self):
        """Processes that play runs."""
        started = descendants(self.process.pid)
        return [number for number, line in started.items() if re.search("ray::Worker", line)]

    def close(self):
        started = descendants(self.process.pid)
        try:
            self.process.communicate(b"exit\n", timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + 30
        while left := [n for n, (_, line) in processes().items() if started.get(n, "") == line != ""]:
            if time.monotonic() > deadline:
                for number in left:
                    os.kill(number, signal.SIGKILL)
                raise AssertionError(f"left running: {[started[number] for number in left]}")
            time.sleep(0.1)


EVERYWHERE = """
import os, uuid
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

class Everywhere(AbstractFileSystem):
    protocol = "everywhere"
    root_marker = "/"
    disk = LocalFileSystem(auto_mkdir=True)

    def ls(self, path, detail=True, **_):
        return self.disk.ls(self._strip_protocol(path), detail=detail)

    def info(self, path, **_):
        return self.disk.info(self._strip_protocol(path))

    def _open(self, path, mode="rb", **_):
        return self.disk.open(path, mode)

    def pipe_file(self, path, value, **_):
        path = self._strip_protocol(path)
        partial = f"{path}-{uuid.uuid4()}"
        self.disk.pipe_file(partial, value)
        os.replace(partial, path)

    def makedirs(self, path, exist_ok=False):
        self.disk.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rm(self, path, recursive=False, maxdepth=None):
        self.disk.rm(self._strip_protocol(path), recursive=recursive)

    def cp_file(self, old, new, **_):
        self.disk.cp_file(self._strip_protocol(old), self._strip_protocol(new))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = LocalCluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "spec.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def expected(spec, tmp_path_factory):
    """What one process leaves."""
    out = tmp_path_factory.mktemp("one")
    subprocess.run(command(spec, out), check=True, env=environment(), timeout=PATIENCE)
    return pausejax.open(out).load()


PROGRAM = ("-m", "pausejax")


def command(spec, out, *more, action="run", program=PROGRAM):
    lanes = ["--lanes", "1"] if action == "run" else []
    arguments = [action, str(spec), "--out", str(out), *lanes, "--quiet", "--no-report", *more]
    return [sys.executable, *program, *arguments]


def drive(cluster, spec, out, *more, action="run", program=PROGRAM):
    more = ("--executor", "ray", "--ray-address", cluster.address, *more)
    line = command(spec, out, *more, action=action, program=program)
    return subprocess.Popen(line, env=cluster.environment, stderr=subprocess.PIPE, text=True)


def end(driver):
    _, errors = driver.communicate(timeout=PATIENCE)
    return driver.returncode, errors


def check(expected, found):
    """The same study up to what the number of runs side by side does to float32 rounding."""
    np.testing.assert_array_equal(expected["identity"], found["identity"])
    np.testing.assert_array_equal(expected["selected"], found["selected"])
    np.testing.assert_array_equal(expected["counts"], found["counts"])
    for name in ("reward", "round_latency", "max_leakage"):
        np.testing.assert_allclose(expected[name], found[name], rtol=1e-4, atol=1e-5)


class Watch:
    """Every part file that is ever seen in a folder; a part that is written twice is seen as two files."""

    def __init__(self, out):
        self.seen = set()
        self._parts = Path(out) / "parts"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        while not self._stop.wait(0.01):
            try:
                with os.scandir(self._parts) as entries:
                    self.seen |= {
                        (entry.name, entry.inode()) for entry in entries if entry.name[-4:] == ".npz"
                    }
            except OSError:
                continue

    def end(self):
        self._stop.set()
        self._thread.join()
        return self.seen


def test_a_killed_worker_costs_only_what_it_was_at(cluster, spec, expected, tmp_path):
    watch = Watch(tmp_path / "out")
    driver = drive(cluster, spec, tmp_path / "out")
    wait_for(lambda: len(watch.seen) >= 2 and len(cluster.workers()) == 2)
    victim = cluster.workers()[0]
    finished = set(watch.seen)
    os.kill(victim, signal.SIGKILL)
    assert end(driver)[0] == 0
    seen = watch.end()
    assert len(finished) < UNITS, "the worker was killed too late to show anything"
    # Every unit has left one file: none that was finished has been simulated again.
    assert finished < seen and len(seen) == len({name for name, _ in seen}) == UNITS
    check(expected, pausejax.open(tmp_path / "out").load())
    wait_for(lambda: not cluster.workers())


def test_nodes_may_go_and_come(cluster, spec, expected, tmp_path):
    watch = Watch(tmp_path / "out")
    driver = drive(cluster, spec, tmp_path / "out")
    wait_for(lambda: len(watch.seen) >= 1 and len(cluster.workers()) == 2)
    assert cluster.tell("remove") == 0
    finished = set(watch.seen)
    assert cluster.tell("add") == 1
    assert end(driver)[0] == 0
    seen = watch.end()
    assert finished < seen and len(seen) == len({name for name, _ in seen}) == UNITS
    check(expected, pausejax.open(tmp_path / "out").load())


def test_a_killed_driver_goes_on_with_the_same_command(cluster, spec, expected, tmp_path):
    watch = Watch(tmp_path / "out")
    driver = drive(cluster, spec, tmp_path / "out")
    wait_for(lambda: len(watch.seen) >= 2)
    driver.kill()
    driver.communicate()
    wait_for(lambda: not cluster.workers())
    assert len(watch.seen) < UNITS
    driver = drive(cluster, spec, tmp_path / "out")
    assert end(driver)[0] == 0
    seen = watch.end()
    assert len(seen) == len({name for name, _ in seen}) == UNITS
    check(expected, pausejax.open(tmp_path / "out").load())


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_driver_that_is_asked_to_stop_has_its_workers_keep_what_is_in_flight(
    cluster, tmp_path, number, code
):
    spec, out = tmp_path / "spec.toml", tmp_path / "out"
    spec.write_text(LONG)

    def kept():
        """The last round of each batch's latest checkpoint."""
        found = {}
        for path in (out / "checkpoints").glob("*/state-*.npz"):
            last = int(path.stem.removeprefix("state-"))
            found[path.parent.name] = max(found.get(path.parent.name, 0), last)
        return found

    # One checkpoint is due while each worker plays its batch; the next one would be too late.
    driver = drive(cluster, spec, out, "--checkpoint-every", "2")
    wait_for(lambda: len(kept()) == 2)
    before = kept()
    driver.send_signal(getattr(signal, number))
    found, errors = end(driver)
    stopped = f"pausejax: {number}: stopped. The same command continues\n"
    assert (found, errors) == (code, stopped)
    after = kept()
    assert after.keys() == before.keys() and all(after[name] > before[name] for name in before)
    wait_for(lambda: not cluster.workers(), 30)
    if number == "SIGINT":
        return  # what goes on afterwards goes on alike
    assert end(drive(cluster, spec, out)) == (0, "")
    subprocess.run(command(spec, tmp_path / "whole"), check=True, env=environment(), timeout=PATIENCE)
    check(pausejax.open(tmp_path / "whole").load(), pausejax.open(out).load())


# What the C library calls when a process is taken apart: here it ends in SIGABRT.
WITNESSED = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.abort, None, None)
from pausejax.commands.main import main
sys.exit(main())
"""


def test_a_folder_under_a_url_and_a_driver_that_is_not_taken_apart(cluster, spec, expected, tmp_path):
    driver = drive(cluster, spec, f"everywhere://{tmp_path}/out", program=("-c", WITNESSED))
    assert end(driver) == (0, "")
    wait_for(lambda: not cluster.workers())
    check(expected, xr.open_zarr(tmp_path / "out" / "results.zarr").load())
    assert sorted(os.listdir(tmp_path / "out")) == ["labels.npz", "layout.json", "results.zarr", "spec.toml"]


def test_a_folder_that_the_workers_do_not_see_is_an_error_of_one_line(cluster, spec):
    code, errors = end(drive(cluster, spec, "memory://out"))
    assert code == 1 and errors.count("\n") == 1
    assert errors.startswith("pausejax: --out memory://") and "does not see this folder" in errors


FAILS_ON_WORKERS = """
import sys
from pausejax import parts
from pausejax.policies.base import Policy
from pausejax.policies.random import random
@parts.policy
def mine(*, num_clients: int, clients_per_round: int) -> Policy:
    if sys.argv[0].endswith("default_worker.py"):
        {}["the cause"]
    return random(num_clients=num_clients, clients_per_round=clients_per_round)
"""


def test_an_error_on_a_worker_keeps_its_traceback(cluster, tmp_path):
    (tmp_path / "mine.py").write_text(FAILS_ON_WORKERS)
    (tmp_path / "spec.toml").write_text(SPEC.replace('"pause"', '"mine"'))
    more = ("--use", str(tmp_path / "mine.py"), "--traceback")
    code, chain = end(drive(cluster, tmp_path / "spec.toml", tmp_path / "out", *more))
    assert code == 2 and "ray::Worker" in chain
    assert chain.splitlines()[-1].endswith("policy mine: can't be built: KeyError: 'the cause' (line 9)")
    assert '{}["the cause"]' in chain and "KeyError: 'the cause'" in chain and "direct cause" in chain


def test_data_come_from_the_driver(cluster, tmp_path):
    latencies = 1 + np.random.default_rng(1).random((20, 6))
    np.savetxt(tmp_path / "trace.csv", latencies, delimiter=",")
    (tmp_path / "spec.toml").write_text(TRAINING.format(trace=tmp_path / "trace.csv"))
    one = command(tmp_path / "spec.toml", tmp_path / "one")
    subprocess.run(one, check=True, env=environment(), timeout=PATIENCE)
    assert end(drive(cluster, tmp_path / "spec.toml", tmp_path / "ray")) == (0, "")
    a, b = (pausejax.open(tmp_path / name).load() for name in ("one", "ray"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
    np.testing.assert_allclose(a["test_loss"], b["test_loss"], rtol=1e-3, atol=1e-4)


def test_a_mistake_is_found_before_any_worker_begins(cluster, tmp_path):
    np.savetxt(tmp_path / "trace.csv", np.ones((20, 5)), delimiter=",")
    (tmp_path / "spec.toml").write_text(TRAINING.format(trace=tmp_path / "trace.csv"))
    one = command(tmp_path / "spec.toml", tmp_path / "one")
    local = subprocess.run(one, env=environment(), stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    code, errors = end(drive(cluster, tmp_path / "spec.toml", tmp_path / "ray"))
    assert local.returncode == code == 2 and errors == local.stderr and errors.count("\n") == 1


def test_a_search_is_the_same_whichever_workers_and_drivers_die(cluster, tmp_path):
    (tmp_path / "spec.toml").write_text(SEARCH)

    def searching(name):
        more = ("--trials", "24", "--fresh-seeds", "2", "--sampler-seed", "3")
        return drive(cluster, tmp_path / "spec.toml", tmp_path / name, *more, action="search")

    def parts():
        return {path.name for path in (tmp_path / "attacked" / "parts").glob("*.npz")}

    assert end(searching("calm")) == (0, "")
    driver = searching("attacked")
    wait_for(lambda: len(parts()) >= 2 and cluster.workers())
    os.kill(cluster.workers()[0], signal.SIGKILL)
    killed = len(parts())
    wait_for(lambda: len(parts()) > killed or driver.poll() is not None)
    driver.kill()
    driver.communicate()
    wait_for(lambda: not cluster.workers())
    assert 2 < len(parts()) < 24, "killed too late to show anything"
    assert end(searching("attacked")) == (0, "")
    calm, attacked = (pausejax.open(tmp_path / name).load() for name in ("calm", "attacked"))
    assert calm.equals(attacked)
    assert len({(tmp_path / name / "trials.json").read_text() for name in ("calm", "attacked")}) == 1


LISTENERS = """
import os
from pausejax.cluster import connection

def listening():
    found = set()
    for table in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.add((fields[1].split(":")[0], fields[9]))
    return found

def mine():
    found = set()
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.environ["WITNESS"].encode() not in open(f"/proc/{process}/environ", "rb").read():
                continue
            for opened in os.listdir(f"/proc/{process}/fd"):
                link = os.readlink(f"/proc/{process}/fd/{opened}")
                found |= {link[8:-1]} if link.startswith("socket:[") else set()
        except OSError:
            pass
    return found

with connection.connected(None):
    import ray
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    own = mine()
    print(*{address for address, inode in listening() if inode in own})
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="lists sockets as Linux does")
def test_a_ray_of_ones_own_listens_to_this_machine_alone(tmp_path):
    environment = {**os.environ, "WITNESS": f"witness-{os.getpid()}-{tmp_path.name}"}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run([sys.executable, "-c", LISTENERS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert done.stdout.split() and set(done.stdout.split()) <= loopback


def with_witness(witness):
    """The command lines of the processes that have got some variable of the environment."""
    found = []
    for number, (_, line) in processes().items():
        with contextlib.suppress(OSError):
            if witness.encode() in Path(f"/proc/{number}/environ").read_bytes():
                found.append(line)
    return found


def test_a_ray_of_ones_own_ends_with_the_command(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC.replace("seeds = 6", "seeds = 1"))
    witness = f"witness-{os.getpid()}-{tmp_path.name}"
    there = {**environment(), "WITNESS": witness}
    there.pop("RAY_ADDRESS", None)
    line = command(tmp_path / "spec.toml", tmp_path / "out", "--executor", "ray")
    with subprocess.Popen(line, env=there, stderr=subprocess.PIPE, text=True) as driver:
        wait_for(lambda: any("raylet" in line for line in with_witness(witness)))
        assert end(driver) == (0, "")
    # Two agents, which wait, notice a minute later that they are alone.
    agents = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
    wait_for(lambda: agents.issuperset(with_witness(witness)), 30)


@pytest.mark.parametrize("started", ["gcs_server", "raylet"])
def test_a_stop_while_ray_is_starting_is_a_stop(tmp_path, started):
    """Meanwhile Ray has signal handlers of its own, one of Python and one of C++."""
    (tmp_path / "spec.toml").write_text(SPEC)
    there = environment()
    there.pop("RAY_ADDRESS", None)
    line = command(tmp_path / "spec.toml", tmp_path / "out", "--executor", "ray")
    with subprocess.Popen(line, env=there, stderr=subprocess.PIPE, text=True) as driver:
        wait_for(lambda: any(started in line for line in descendants(driver.pid).values()))
        driver.terminate()
        code, errors = end(driver)
    assert code == 143, errors
    assert errors.endswith("pausejax: SIGTERM: stopped. The same command continues\n")
