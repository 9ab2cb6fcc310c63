"""Signals: what is in flight is kept, one line is said, and the same command goes on to the same numbers."""

import signal
import time

import numpy as np
import pytest

import pausejax
from pausejax.clients import expected_regret
from pausejax.commands import main as cli
from pausejax.execution.stopping import NO_STOP, StopRequested, StopSignal, stop_on_signals

from ..alike import assert_alike
from ..faults import folders

STUDY = {
    "mode": "bandit",
    "rounds": 400,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "pause"}],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    spec = folders.write(folder, folders.gated(STUDY))
    folders.play(spec, folder / "out")
    return spec, pausejax.open(folder / "out").load()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGUSR1", 143), ("SIGINT", 130)])
def test_a_signal_keeps_what_is_in_flight(whole, tmp_path, number, code):
    spec, expected = whole
    # A checkpoint is never due: the one that is there was made for the signal.
    process, gate = folders.start_and_hold(spec, tmp_path / "out", 60, "--checkpoint-every", "1e8")
    process.send_signal(getattr(signal, number))
    (gate / "hold").unlink()
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == code, errors
    assert errors == (f"pausejax: {number}: stopped. The same command continues\n")
    assert list((tmp_path / "out" / "checkpoints").glob("*/state-*"))
    folders.play(spec, tmp_path / "out")
    assert_alike(pausejax.open(tmp_path / "out").load(), expected)


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        (["SIGTERM"], 143),
        (["SIGINT"], 130),
        (["SIGTERM", "SIGTERM", "SIGTERM"], 143),
        (["SIGUSR1", "SIGTERM", "SIGINT"], 143),
        (["SIGINT", "SIGTERM", "SIGTERM"], 130),
    ],
)
def test_signals_that_come_again_are_noted_like_the_first_one(numbers, code):
    stopping = StopSignal()
    try:
        for number in numbers:
            stopping.note(getattr(signal, number), None)
    except KeyboardInterrupt:  # it would end the tests too
        pytest.fail("taken for an interrupt")
    assert stopping()
    with pytest.raises(StopRequested, match=numbers[0]) as caught:
        stopping.check()
    assert caught.value.exit_code == code


@pytest.mark.parametrize("numbers", [["SIGINT"], ["SIGTERM", "SIGINT"], ["SIGINT", "SIGTERM"]])
def test_a_second_interrupt_ends_at_once(numbers):
    stopping = StopSignal()
    for number in numbers:
        stopping.note(getattr(signal, number), None)
    with pytest.raises(KeyboardInterrupt):
        stopping.note(signal.SIGINT, None)


@pytest.mark.slow
def test_sigterm_twice_within_fifty_milliseconds_keeps_what_is_in_flight(whole, tmp_path):
    """As a batch system sends it: to the step, and to the job."""
    spec, expected = whole
    process, gate = folders.start_and_hold(spec, tmp_path / "out", 60, "--checkpoint-every", "1e8")
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    (gate / "hold").unlink()
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 143, errors
    assert list((tmp_path / "out" / "checkpoints").glob("*/state-*.npz"))
    folders.play(spec, tmp_path / "out")
    assert_alike(pausejax.open(tmp_path / "out").load(), expected)


def test_a_signal_after_the_last_round_keeps_all_rounds(tmp_path, monkeypatch, capsys):
    """While the expected regret is computed, which may take minutes."""
    spec, out = folders.write(tmp_path, {**STUDY, "rounds": 40, "expected_regret": True}), tmp_path / "out"
    computed, found = expected_regret.regrets, []

    def interrupted(*arguments, **options):
        found.append(computed(*arguments, **options))
        signal.raise_signal(signal.SIGTERM)
        return found[-1]

    run = ["run", str(spec), "--out", str(out), "--checkpoint-every", "1e8", "--no-report"]
    monkeypatch.setattr(expected_regret, "regrets", interrupted)
    assert cli.main(run) == 143 and len(found) == 1
    assert "stopped. The same command continues" in capsys.readouterr().err
    monkeypatch.setattr(expected_regret, "regrets", computed)
    assert cli.main(run) == 0 and "2 runs resume after round 40 of 40" in capsys.readouterr().err
    options = {**STUDY["network"], "mode": "bandit", "rounds": 40, "seeds": 2}
    whole = pausejax.simulate("pause", **options, expected_regret=True)
    np.testing.assert_array_equal(
        pausejax.open(out)["expected_regret"].values, whole["expected_regret"].values
    )


def test_handlers_are_put_back_and_nobody_asks_by_default():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert not NO_STOP()
