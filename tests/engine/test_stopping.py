"""Signals: what is in flight is kept, one line is said, and the same command goes on to the same numbers."""

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
rounds = 60000
seeds = 2

[network]
num_clients = 6
clients_per_round = 2

[[policy]]
name = "pause"
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
    subprocess.run(command(folder / "spec.toml", folder / "out"), check=True)
    return folder / "spec.toml", pausejax.open(folder / "out").load()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGUSR1", 143), ("SIGINT", 130)])
def test_a_signal_keeps_what_is_in_flight(whole, tmp_path, number, code):
    spec, expected = whole
    process = subprocess.Popen(
        # A checkpoint is never due: the one that is there was made for the signal.
        command(spec, tmp_path, "--checkpoint-every", "1e8"),
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "spec.toml").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(4)
    process.send_signal(getattr(signal, number))
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == code, errors
    assert errors == (f"pausejax: {number}: stopped; the same command goes on where it was\n")
    subprocess.run(command(spec, tmp_path), check=True)
    assert_alike(pausejax.open(tmp_path).load(), expected)


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
