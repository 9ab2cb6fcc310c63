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
        "PAUSEJAX_OPTIONS": "\n--quiet --lanes 2\n  --checkpoint-every 0",
        "ENVIRONMENT": "BATCH",  # as SLURM sets it in every batch job
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


@pytest.mark.parametrize("script", [ARRAY, RAY, REPORT], ids=lambda path: path.stem)
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
    assert code != 0 and "OUT: set it to the folder for its result" in errors


@pytest.mark.slow
def test_a_mistake_in_the_spec_ends_the_task_with_its_exit_code(environment):
    Path(environment["SPEC"]).write_text("rounds = -1\n[[policy]]\nname = 'random'\n")
    code, errors = end(task(environment, 1, 1))
    assert code == 2 and "rounds" in errors


def stand_in(tmp_path, text, name="pausejax"):
    """Puts another command in the place of one that the scripts call."""
    (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")


def test_an_environment_that_reads_what_is_not_set_is_sourced(environment, tmp_path):
    """Those of conda and of modules do."""
    stand_in(tmp_path, 'echo "$FROM_THE_FILE $@" >&2')
    (tmp_path / "activate").write_text('export FROM_THE_FILE="sourced $NOT_SET_ANYWHERE"\n')
    sourced = {**environment, "PAUSEJAX_ENVIRONMENT": str(tmp_path / "activate")}
    code, errors = end(task(sourced, 1, 1))
    assert code == 0 and errors.startswith("sourced  run "), errors
    report = subprocess.run(["bash", str(REPORT)], env=sourced, capture_output=True, text=True)
    assert report.returncode == 0 and report.stderr.startswith("sourced  report "), report.stderr
    assert "set -u" in RAY.read_text() and "set +u" in RAY.read_text()


LONG = 'trap "exit ${ENDS:-143}" TERM; touch "$OUT.plays"; while :; do sleep 0.05; done'


def out_of_time(environment, tmp_path, **more):
    """A task that is told that its time is up while it plays: its exit code, and what it says."""
    stand_in(tmp_path, LONG)
    playing = task(environment, 1, 1, **more)
    deadline = time.monotonic() + PATIENCE
    while not Path(f"{environment['OUT']}.plays").exists():
        assert time.monotonic() < deadline and playing.poll() is None
        time.sleep(0.02)
    playing.send_signal(signal.SIGUSR1)
    return end(playing)


def test_a_task_that_cannot_be_requeued_says_what_to_do(environment, tmp_path):
    stand_in(tmp_path, 'echo "$2: Requested operation is presently disabled" >&2; exit 1', "scontrol")
    code, errors = out_of_time(environment, tmp_path)
    assert code == 143
    assert "out of time, and scontrol could not requeue the task. The same sbatch command continues" in errors


def test_a_warning_in_the_moment_in_which_the_study_starts_ends_it_too(environment, tmp_path):
    stand_in(tmp_path, LONG)
    (tmp_path / "early").write_text("""early() {
  [[ -n ${!:-} && -z ${warned:-} ]] || return 0
  warned=yes
  until [[ -e $OUT.plays ]]; do sleep 0.02; done
  kill -USR1 $$
}
[[ $0 != *study.sbatch ]] || trap early DEBUG
""")
    code, errors = end(task(environment, 1, 1, BASH_ENV=str(tmp_path / "early")))
    assert code == 143 and errors == ""
    assert (tmp_path / "scontrol").read_text() == "requeue 7_1\n"


def test_a_task_whose_time_is_always_up_at_once_is_not_requeued_for_ever(environment, tmp_path):
    code, errors = out_of_time(environment, tmp_path, SLURM_RESTART_COUNT="5")
    assert code == 143 and "ask for --time=15 or more" in errors
    assert not (tmp_path / "scontrol").exists()


def test_a_study_that_ends_by_itself_as_its_time_is_up_is_not_requeued(environment, tmp_path):
    assert out_of_time(environment, tmp_path, ENDS="0") == (0, "")
    assert not (tmp_path / "scontrol").exists()


@pytest.mark.parametrize("script", [ARRAY, RAY])
def test_tasks_draw_nothing(script):
    assert "--no-report" in script.read_text()


@pytest.mark.slow
def test_the_last_job_draws_what_the_array_has_left(environment, tmp_path):
    small = {"mode": "bandit", "rounds": 5, "num_clients": 4, "clients_per_round": 2}
    pausejax.save(pausejax.simulate(["pause", "random"], seeds=2, **small), environment["OUT"])
    told = dict(environment)
    done = subprocess.run(["bash", str(REPORT)], env=told, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert list(Path(environment["OUT"]).glob("*.png"))
    assert "best of 2: " in done.stdout and "difference, paired by 2 seeds" in done.stdout
    del told["OUT"]
    refused = subprocess.run(["bash", str(REPORT)], env=told, capture_output=True, text=True)
    assert refused.returncode != 0 and "OUT: set it to the folder of the study" in refused.stderr


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
