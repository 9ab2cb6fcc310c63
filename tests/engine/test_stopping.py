"""Signals: what is in flight is kept, one line is said, and the same command goes on to the same numbers."""

import os
import signal
import subprocess
import sys
import time

import pytest

import pausejax
from pausejax.engine.stopping import NEVER, Stopped, Stopping, listening

from ..alike import assert_alike

SPEC = """
mode = "bandit"
rounds = 300
seeds = 2
use = ["held.py"]
quantities = ["held"]

[network]
num_clients = 6
clients_per_round = 2

[[policy]]
name = "pause"
"""

# A round that says that it is being played, and waits to be let go: whatever the machine's speed, the signal
# comes in the middle of the study, while the main thread waits for a callback.
HELD = """
import os
import time
from pathlib import Path

import jax
import numpy as np

import pausejax


def wait(counts):
    if folder := os.environ.get("HELD_IN"):
        Path(folder, "playing").touch()
        for _ in range(1200):
            if Path(folder, "go").exists():
                break
            time.sleep(0.1)
    return np.float32(counts.sum())


@pausejax.quantity
def held(seen):
    number = jax.ShapeDtypeStruct((), np.float32)
    return jax.pure_callback(wait, number, seen.counts, vmap_method="sequential")
"""


def command(spec, out, *more):
    return [
        sys.executable,
        "-m",
        "pausejax",
        "run",
        str(spec),
        "--out",
        str(out),
        "--quiet",
        "--no-report",
        *more,
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "spec.toml").write_text(SPEC)
    (folder / "held.py").write_text(HELD)
    subprocess.run(command(folder / "spec.toml", folder / "out"), check=True)
    return folder / "spec.toml", pausejax.open(folder / "out").load()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGUSR1", 143), ("SIGINT", 130)])
def test_a_signal_keeps_what_is_in_flight(whole, tmp_path, number, code):
    spec, expected = whole
    out = tmp_path / "out"
    process = subprocess.Popen(
        # A checkpoint is never due: the one that is there was made for the signal.
        command(spec, out, "--checkpoint-every", "1e8"),
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HELD_IN": str(tmp_path)},
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "playing").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(getattr(signal, number))
    (tmp_path / "go").touch()
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == code, errors
    assert errors == f"pausejax: {number}: stopped; the same command goes on where it was\n"
    assert any((out / "checkpoints").rglob("rounds-*.npz"))
    subprocess.run(command(spec, out), check=True)
    assert_alike(pausejax.open(out).load(), expected)


def test_a_second_signal_ends_at_once():
    stopping = Stopping()
    stopping.note(signal.SIGTERM, None)
    assert stopping()
    with pytest.raises(Stopped) as caught:
        stopping.check()
    assert caught.value.exit_code == 143
    with pytest.raises(KeyboardInterrupt):
        stopping.note(signal.SIGTERM, None)


def test_handlers_are_put_back_and_nobody_asks_by_default():
    before = signal.getsignal(signal.SIGTERM)
    with listening() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert not NEVER()
