"""The SLURM templates, as far as they go without SLURM: its variables are set and its commands imitated."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import pausejax

from ..alike import assert_alike

ROOT = Path(__file__).resolve().parents[2]
ARRAY, RAY, REPORT = (ROOT / "scripts" / "slurm" / f"{name}.sbatch" for name in ("study", "ray", "report"))
PATIENCE = 240
SPEC = """
mode = "bandit"
rounds = {rounds}
seeds = 6
[network]
num_clients = 10
clients_per_round = 3
[[policy]]
name = "sa_pause"
annealing_steps = 200
[[policy]]
name = "random"
"""


@pytest.fixture
def environment(tmp_path):
    """`pausejax` as a command, and a `scontrol` that writes down what it was asked."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {
        "pausejax": f'exec "{sys.executable}" -m pausejax "$@"',
        "scontrol": f'echo "$@" >> "{tmp_path}/scontrol"',
    }.items():
        (commands / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (commands / name).chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {
        **inherited,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "SPEC": str(tmp_path / "spec.toml"),
        "OUT": str(tmp_path / "out"),
        "PAUSEJAX_OPTIONS": "--quiet --lanes 2 --checkpoint-every 0",
    }


def task(environment, number, count, **more):
    slurm = {
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_COUNT": str(count),
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": str(count),
    }
    return subprocess.Popen(
        ["bash", str(ARRAY)], env={**environment, **slurm, **more}, stderr=subprocess.PIPE, text=True
    )


def end(process):
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


def one_process(environment, out):
    command = ["pausejax", "run", environment["SPEC"], "--out", str(out), "--no-report", "--quiet"]
    subprocess.run([*command, "--lanes", "2"], check=True, env=environment, timeout=PATIENCE)
    return pausejax.open(out).load()


@pytest.mark.parametrize("script", [ARRAY, RAY], ids=lambda path: path.stem)
def test_templates_are_bash(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    lines = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    assert lines and all(line.startswith("#SBATCH --") for line in lines)


def test_arrays_that_would_leave_runs_out_are_refused(environment):
    for more in (
        {"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "3"},
        {"SLURM_ARRAY_TASK_MAX": "8"},
        {"SLURM_ARRAY_TASK_MIN": "2"},
    ):
        code, errors = end(task(environment, 2, 4, **more))
        assert code == 2 and "--array must be 1-N" in errors
    del environment["OUT"]
    code, errors = end(task(environment, 1, 4))
    assert code != 0 and "OUT: the folder for its result" in errors


def test_a_mistake_in_the_spec_ends_the_task_with_its_exit_code(environment):
    Path(environment["SPEC"]).write_text("rounds = -1\n[[policy]]\nname = 'random'\n")
    code, errors = end(task(environment, 1, 1))
    assert code == 2 and "rounds" in errors


@pytest.mark.slow
def test_an_array_leaves_one_result(environment, tmp_path):
    Path(environment["SPEC"]).write_text(SPEC.format(rounds=300))
    tasks = [task(environment, number, 3) for number in (1, 2, 3)]
    assert [end(one) for one in tasks] == [(0, "")] * 3
    assert sorted(os.listdir(environment["OUT"])) == [".lock", "results.zarr", "spec.toml"]
    a, b = one_process(environment, tmp_path / "one"), pausejax.open(environment["OUT"]).load()
    np.testing.assert_array_equal(a["selected"], b["selected"])
    np.testing.assert_allclose(a["reward"], b["reward"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_task_whose_time_is_up_is_requeued_and_goes_on(environment, tmp_path):
    Path(environment["SPEC"]).write_text(SPEC.format(rounds=600))
    first = task(environment, 1, 1)
    deadline = time.monotonic() + PATIENCE
    while not list(Path(environment["OUT"]).glob("parts/*.npz")):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGUSR1)
    code, _ = end(first)
    assert code != 0
    assert (tmp_path / "scontrol").read_text() == "requeue 7_1\n"
    assert not Path(environment["OUT"], "results.zarr").exists()
    assert end(task(environment, 1, 1)) == (0, "")
    expected = one_process(environment, tmp_path / "one")
    assert_alike(expected, pausejax.open(environment["OUT"]).load())


@pytest.mark.parametrize("script", [ARRAY, RAY])
def test_tasks_draw_nothing(script):
    assert "--no-report" in script.read_text()


@pytest.mark.slow
def test_the_last_job_draws_what_the_array_has_left(environment, tmp_path):
    small = {"mode": "bandit", "rounds": 5, "num_clients": 4, "clients_per_round": 2}
    pausejax.save(pausejax.simulate(["pause", "random"], seeds=2, **small), environment["OUT"])
    told = {**environment, "REPORT_OPTIONS": "--quiet"}
    done = subprocess.run(["bash", str(REPORT)], env=told, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert list(Path(environment["OUT"]).glob("*.png"))
    assert "best of 2: " in done.stdout and "difference, paired by 2 seeds" in done.stdout
    del told["OUT"]
    refused = subprocess.run(["bash", str(REPORT)], env=told, capture_output=True, text=True)
    assert refused.returncode != 0 and "OUT: the folder of the study" in refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_ray_cluster_of_one_node_within_a_job(environment, tmp_path):
    """One node, because Ray takes in no other one on the loopback by `ray start`."""
    Path(environment["SPEC"]).write_text(SPEC.format(rounds=100))
    for name, text in {
        "scontrol": "echo first",
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "hostname": "echo 127.0.0.1",
        "ray": f'exec "{sys.executable}" -m ray.scripts.scripts "$@"',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    ray_folder = tempfile.mkdtemp(prefix="ray-")  # sockets lie in it, and their paths must be short
    slurm = {"SLURM_JOB_NODELIST": "first", "SLURM_JOB_ID": str(os.getpid()), "SLURM_CPUS_PER_TASK": "1"}
    more = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_TMPDIR": ray_folder, "JAX_PLATFORMS": "cpu"}
    more["PAUSEJAX_OPTIONS"] = "--quiet --lanes 2"
    log = tmp_path / "log"
    try:
        with open(log, "wb") as file:
            job = ["bash", str(RAY)]
            # The script ends what it has started; what is left would be found below.
            settings = {**environment, **slurm, **more}
            done = subprocess.run(job, env=settings, stdout=file, stderr=file, timeout=PATIENCE, check=False)
        assert done.returncode == 0, log.read_text()
        deadline = time.monotonic() + 60
        while left := mentioning(ray_folder):
            assert time.monotonic() < deadline, left
            time.sleep(0.2)
    finally:
        for number in mentioning(ray_folder):
            os.kill(number, signal.SIGKILL)
        shutil.rmtree(ray_folder, ignore_errors=True)
    a, b = one_process(environment, tmp_path / "one"), pausejax.open(environment["OUT"]).load()
    np.testing.assert_array_equal(a["selected"], b["selected"])


def mentioning(text):
    """Processes that have a text in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found
