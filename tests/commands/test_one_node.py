"""The batch scripts on a real SLURM of one node: arrays, requeued tasks, time limits, and jobs that wait."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import pausejax

from ..alike import assert_alike
from . import one_node

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "slurm"
PATIENCE = 200
SETTLED = 10
"""Seconds without a process of a task's last start before the next start.

SLURM fails a task ("non-startable") whose next start meets messages that end its last one.
"""
SPEC = """
use = ["slow.py"]
mode = "bandit"
rounds = {rounds}
seeds = {seeds}
quantities = ["slow"]
[network]
num_clients = 10
clients_per_round = 3
[[policy]]
name = "random"
"""
ANOTHER = """
[[policy]]
name = "pause"
"""
SLOW = '''"""A quantity that takes its time in every round, as long as a file is there."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import parts


def _wait(round):
    if os.path.exists(os.environ.get("SLOW", "")):
        time.sleep(0.1)
    return np.zeros(np.shape(round), np.float32)


@parts.quantity()
def slow(seen):
    like = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.pure_callback(_wait, like, seen.round, vmap_method="broadcast_all")
'''


@pytest.fixture(scope="module")
def slurm():
    if reason := one_node.missing():
        pytest.skip(reason)
    # Sockets lie in it, and their paths must be short.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        with one_node.Slurm(folder) as running:
            yield running
        assert not list(running._left())


PLAIN = {}
"""Results of one process, by spec."""


class Study:
    """One study and its folder; what its jobs get, and what they leave."""

    def __init__(self, slurm, folder, rounds, seeds=2, more=""):
        self.slurm, self.folder, self.out = slurm, folder, folder / "out"
        (folder / "slow.py").write_text(SLOW)
        (folder / "spec.toml").write_text(SPEC.format(rounds=rounds, seeds=seeds) + more)
        (folder / "pausejax").write_text(f'#!/usr/bin/env bash\nexec "{sys.executable}" -m pausejax "$@"\n')
        (folder / "pausejax").chmod(0o755)
        # A path with a blank would be fine; a comma would not be in --export, and is none here.
        (folder / "activate").write_text(f'export PATH="{folder}:$PATH" LACKING="$NOBODY_SETS_THIS"\n')
        self.slow = folder / "slow"
        self.given = {
            **slurm.environment,
            "PYTHONPATH": os.pathsep.join([str(SCRIPTS.parents[1]), os.environ.get("PYTHONPATH", "")]),
            "SPEC": str(folder / "spec.toml"),
            "OUT": str(self.out),
            "SLOW": str(self.slow),
            "PAUSEJAX_ENVIRONMENT": str(folder / "activate"),
            "PAUSEJAX_OPTIONS": "--lanes 2 --checkpoint-every 0 --log text",
        }

    def submit(self, script, *options):
        """Gives a script to SLURM as docs/clusters.md says; the job's number."""
        command = ["sbatch", "--parsable", "--gres=none", "--cpus-per-task=1", "--mem=2G", *options]
        command += [f"--output={self.folder}/%x-%j.out", str(SCRIPTS / f"{script}.sbatch")]
        done = subprocess.run(command, env=self.given, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().partition(";")[0]

    def said(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.out")))

    def wait(self, reached):
        """Until something is there; what it is."""
        deadline = time.monotonic() + PATIENCE
        while not (value := reached()):
            assert time.monotonic() < deadline, self.said() + self.slurm.logs()
            time.sleep(0.2)
        return value

    def ends(self, *jobs):
        states = [self.wait(lambda job=job: self.slurm.ended(job)) for job in jobs]
        assert states == [("COMPLETED", "0:0")] * len(jobs), self.said()

    def ends_after_a_requeue(self, job):
        """Starts requeued tasks early, as often as that is: SLURM would let them wait for two minutes."""
        self.wait(lambda: self.slurm.jobs().get(job) == "PENDING")
        self.slow.unlink()
        busy = time.monotonic()

        def ended():
            nonlocal busy
            if self.slurm.jobs().get(job) != "PENDING" or self.slurm.has_steps(job):
                busy = time.monotonic()
            elif time.monotonic() - busy > SETTLED:
                self.slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
            return self.slurm.ended(job)

        assert self.wait(ended) == ("COMPLETED", "0:0"), self.said() + self.slurm.logs()
        assert re.search(r"2 runs resume after round [0-9,]+ of 1,000", self.said()), self.said()

    def is_that_of_a_plain_run(self):
        spec = Path(self.given["SPEC"])
        if (text := spec.read_text()) not in PLAIN:
            command = [
                sys.executable,
                "-m",
                "pausejax",
                "run",
                str(spec),
                "--out",
                str(self.folder / "plain"),
            ]
            subprocess.run([*command, "--lanes", "2", "--no-report", "--quiet"], check=True, env=self.given)
            PLAIN[text] = pausejax.open(self.folder / "plain").load()
        assert_alike(PLAIN[text], pausejax.open(self.out).load())


def test_an_array_leaves_one_result_and_a_job_that_waited_for_it_draws_it(slurm, tmp_path):
    study = Study(slurm, tmp_path, rounds=50, seeds=3, more=ANOTHER)
    array = study.submit("study", "--array=1-3")
    report = study.submit("report", f"--dependency=afterok:{array}", "--kill-on-invalid-dep=yes")
    assert slurm.jobs()[report] == "PENDING"
    study.ends(*(f"{array}_{task}" for task in (1, 2, 3)), report)
    assert "best of 2: " in study.said() and list(study.out.glob("*.png"))
    study.is_that_of_a_plain_run()


def test_a_task_that_is_requeued_in_mid_run_goes_on_from_its_checkpoint(slurm, tmp_path):
    study = Study(slurm, tmp_path, rounds=1000)
    study.slow.touch()
    array = study.submit("study", "--array=1-1")
    study.wait(lambda: list(study.out.glob("checkpoints/*/state-*")))
    slurm.ask("scontrol", "requeue", f"{array}_1")
    study.ends_after_a_requeue(f"{array}_1")
    study.is_that_of_a_plain_run()


def test_a_task_whose_time_is_up_requeues_itself_and_comes_to_its_end(slurm, tmp_path):
    study = Study(slurm, tmp_path, rounds=1000)
    study.slow.touch()
    array = study.submit("study", "--array=1-1", "--time=2", "--signal=B:USR1@60")
    study.wait(lambda: "SIGTERM: stopped" in study.said())
    study.ends_after_a_requeue(f"{array}_1")
    study.is_that_of_a_plain_run()


def test_a_mistake_in_the_spec_fails_the_array_and_ends_the_job_that_waits(slurm, tmp_path):
    study = Study(slurm, tmp_path, rounds=-1)
    array = study.submit("study", "--array=1-1")
    report = study.submit("report", f"--dependency=afterok:{array}", "--kill-on-invalid-dep=yes")
    assert study.wait(lambda: slurm.ended(f"{array}_1")) == ("FAILED", "2:0")
    assert study.wait(lambda: slurm.ended(report))[0] == "CANCELLED"
    assert "rounds = -1" in study.said()
