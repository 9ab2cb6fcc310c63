"""Studies that are killed at random instants, in every phase and mode: nothing finished is lost or changed.

`--kills N` says how many; none without `--slow`.
"""

import random
import subprocess
import time

import pytest

import pausejax
from pausejax import kinds
from pausejax.results import study_folder
from pausejax.results.folder import Folder
from pausejax.study.plan import make_plan

from ..alike import assert_alike
from . import folders, specs
from .warm import Warm

OFTEN = ("--checkpoint-every", "0", "--lanes", "2")
TWO = {**specs.BANDIT, "rounds": 200, "policy": [{"name": "pause"}, {"name": "random"}]}
MODES = {
    "bandit": (TWO, OFTEN),
    "training": ({**specs.TRAINING, "rounds": 75, "seeds": 3}, OFTEN),
    "stopping": ({**specs.STOPPING, "rounds": 100}, OFTEN),
    "ensemble": ({**specs.ENSEMBLE, "rounds": 1000}, OFTEN),
    "seldom": ({**TWO, "rounds": 1000}, ("--lanes", "1")),
    "ray": (TWO, ("--executor", "ray", "--cpus-per-worker", "1")),
}


def finished(out, plan):
    """The identities of the finished runs of a folder."""
    return study_folder.examine(Folder(out), plan).identities if out.exists() else frozenset()


def whole(folder, mode, start):
    """An undisturbed run: its spec, plan, result, how long it took, and how many lines it said."""
    document, options = MODES[mode]
    spec = folders.write(folder, document)
    for name in ("whole", "again"):  # the second one finds its programs compiled, as all that follow do
        begun = time.monotonic()
        said = len(to_its_end(start(spec, folder / name, *options)))
        took = time.monotonic() - begun
    results = [pausejax.open(folder / name).load() for name in ("whole", "again")]
    assert_alike(*results)
    return spec, make_plan(kinds.load(spec)), results[0], took, said, options


def start_cold(spec, out, *more):
    """Starts a study in a new process."""
    return subprocess.Popen(
        folders.command(spec, out, "--log", "json", *more),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def to_its_end(process):
    """What a study said, and nothing of it is a traceback."""
    said = process.stderr.readlines()
    folders.kill(process)
    assert not any("Traceback" in line for line in said), "".join(said)
    return said


def kill_once(process, rng, took, said):
    """Kills a run of a study, soon after one of the lines that it says or at any time; whether it lived."""
    try:
        if rng.random() < 0.7:
            for _, _line in zip(range(rng.randrange(1, max(said, 2))), process.stderr, strict=False):
                pass
            time.sleep(rng.uniform(0, 0.1) * took)
        else:
            time.sleep(rng.uniform(0, took))
        return process.poll() is None
    finally:
        folders.kill(process)


def attack(folder, mode, kills, rng, start):
    """Kills a study so often while it lives, some times before it may end; how many kills met it alive."""
    spec, plan, expected, took, said, options = whole(folder, mode, start)
    hits = tries = rounds = 0
    while hits < kills and tries < 10 * kills:
        out, known, met = folder / f"out-{rounds}", frozenset(), True
        for again in range(rng.randrange(1, 6)):
            # What goes on has less to do, and less to say.
            met = kill_once(start(spec, out, *options), rng, took / (1 + 0.3 * again), said // (1 + again))
            hits, tries = hits + met, tries + 1
            now = finished(out, plan)
            assert now >= known, f"{len(known - now)} finished runs are lost"
            known = now
            if not met or hits == kills:
                break
        if met:
            to_its_end(start(spec, out, *options))
        assert_alike(pausejax.open(out).load(), expected)
        rounds += 1
        print(f"{mode}: {hits} kills of a living process, {tries - hits} came too late", flush=True)
    return hits


@pytest.mark.slow
def test_what_is_killed_in_mid_round_goes_on_to_the_same_numbers(tmp_path):
    spec = folders.write(tmp_path, folders.gated({**TWO, "rounds": 100, "policy": [{"name": "random"}]}))
    process, gate = folders.start_and_hold(spec, tmp_path / "out", 60, *OFTEN)
    folders.kill(process)
    (gate / "hold").unlink()
    assert list((tmp_path / "out" / "checkpoints").glob("*/state-*.npz"))
    for out, options in (("out", OFTEN), ("whole", OFTEN[2:])):
        folders.play(spec, tmp_path / out, *options)
    assert_alike(pausejax.open(tmp_path / "out").load(), pausejax.open(tmp_path / "whole").load())


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [[4, 5, 6], [6, 5], [6, 4, 5]])
def test_what_is_extended_or_reordered_after_a_kill_has_the_very_numbers(tmp_path, seeds):
    document = folders.gated({**TWO, "rounds": 100, "seeds": [5, 6], "policy": [{"name": "random"}]})
    options = ("--checkpoint-every", "0", "--lanes", "1")
    process, gate = folders.start_and_hold(folders.write(tmp_path, document), tmp_path / "out", 60, *options)
    folders.kill(process)
    (gate / "hold").unlink()
    assert list((tmp_path / "out" / "checkpoints").glob("*/state-*.npz"))
    spec = folders.write(tmp_path, {**document, "seeds": seeds})
    for out in ("out", "whole"):
        folders.play(spec, tmp_path / out, *options)
    assert_alike(pausejax.open(tmp_path / "out").load(), pausejax.open(tmp_path / "whole").load())


# What a few kills are for; the other modes take many to meet a process at work.
_SHORT, _MANY = ("bandit", "training", "seldom"), 60


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_study_ends_as_one_that_was_not(tmp_path, mode, request):
    kills = request.config.getoption("--kills")
    if mode not in _SHORT and kills < _MANY:
        pytest.skip(f"dear: with --kills {_MANY} or more")
    if mode == "ray":
        pytest.importorskip("ray")
    share = -(-kills // len(MODES))
    seed = f"{mode} {request.config.getoption('--first-seed')}"
    with Warm() as warm:

        def start_warm(spec, out, *more):
            return warm.start(folders.command(spec, out, "--log", "json", *more)[3:])

        start = start_cold if mode == "ray" else start_warm  # Ray's processes are not forked
        assert attack(tmp_path, mode, share, random.Random(seed), start) == share
