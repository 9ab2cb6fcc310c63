"""Several processes at work on one folder: nobody takes away what another one has in flight."""

import contextlib
import fcntl
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.data.host import DataCache
from pausejax.execution.batches import Batch
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play, play_batches, report_runs
from pausejax.execution.tracking import TensorBoardTracker
from pausejax.results import blocks, study_folder
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore
from pausejax.study.document import SpecError

from .studies import arrays_of, check, expected, finish, make

NARROW, WIDE = make(seeds=2), make(seeds=4)
CHUNK = "0123456789abcdef"


def no_locks(*_):
    raise OSError(37, "No locks available")


@pytest.fixture(params=["disk", "memory"])
def unlocked(request, tmp_path, monkeypatch):
    """A folder where nobody can lock anything."""
    monkeypatch.setattr(fcntl, "flock", no_locks)
    made = Folder(tmp_path / "out" if request.param == "disk" else f"memory://{tmp_path.name}/out")
    yield made
    made.remove("")


def write_all(folder, plan, size=3):
    """Every run of a study, in parts."""
    identities = plan.identities
    for first in range(0, len(identities), size):
        places = range(first, min(first + size, len(identities)))
        study_folder.write_part(folder, identities[first : first + size], arrays_of(plan, places))


def in_flight(folder):
    """What a process leaves on the disk while it simulates."""
    names = [f"checkpoints/{CHUNK}/state", f"checkpoints/{CHUNK}.lease", f"parts/{CHUNK}.npz.1.partial"]
    for name in names:
        folder.write(name, b"in flight")
    return names


def test_checkpoints_and_half_written_parts_of_whoever_plays_stay(tmp_path):
    folder = Folder(tmp_path)
    with study_folder.playing(Folder(tmp_path)):
        names = in_flight(folder)
        assert finish(folder, NARROW)[0] == 0
        assert all(folder.exists(name) for name in names)
    check(tmp_path, NARROW)
    # Now they are a dead process's.
    assert study_folder.build_if_complete(folder, NARROW) == 0
    assert sorted(os.listdir(tmp_path)) == [".lock", "labels.npz", "results.zarr", "spec.toml"]


def checkpoint(folder, plan):
    """A checkpoint of all runs of a plan, after round 3."""
    folder.write_arrays(f"checkpoints/{CHUNK}/state-3.npz", {"identity": np.array(plan.identities)})
    return f"checkpoints/{CHUNK}/state-3.npz"


@pytest.mark.parametrize("labels", ["whole", "damaged"])
def test_another_spec_is_refused_where_a_killed_study_has_a_checkpoint(tmp_path, labels):
    """No run of the killed study is finished, so its checkpoint is all that it has."""
    folder, other = Folder(tmp_path), make(seeds=4, rounds=9)
    study_folder.prepare(folder, WIDE)
    state = checkpoint(folder, WIDE)
    if labels == "damaged":
        folder.write("labels.npz", b"")
    for plan, line in (other, "+rounds = 9"), (NARROW, "+seeds = 2"):
        with pytest.raises(SpecError) as refused:
            study_folder.prepare(folder, plan)
        first, *_, last = refused.value.problems
        assert "holds unfinished runs of another spec" in first and line in refused.value.problems
        assert f"checkpoints/{CHUNK}: the runs up to round 3. If no process plays, remove this" in last
    assert folder.exists(state)
    study_folder.prepare(folder, make(seeds=5))  # which has all runs of the killed study
    folder.remove("checkpoints")
    study_folder.prepare(folder, other)


def test_a_study_goes_on_after_an_extension_that_never_began(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, NARROW)
    state = checkpoint(folder, NARROW)
    study_folder.prepare(folder, WIDE)  # begun by mistake, and stopped before its first checkpoint
    study_folder.prepare(folder, NARROW)
    assert folder.exists(state)


def test_a_narrow_study_that_ends_last_keeps_the_checkpoint_of_a_wide_one(tmp_path):
    """The narrow study began while the wide one was being played, so it was not refused."""
    folder = Folder(tmp_path)
    with contextlib.ExitStack() as wide:
        study_folder.prepare(folder, WIDE, begun=wide)
        state = checkpoint(folder, WIDE)
        study_folder.prepare(folder, NARROW)
    write_all(folder, NARROW)
    assert study_folder.build_if_complete(folder, NARROW) == 0 and folder.exists(state)
    write_all(folder, WIDE)
    assert study_folder.build_if_complete(folder, WIDE) == 0 and not folder.exists(state)
    check(tmp_path, WIDE)


def test_a_part_that_is_written_while_another_study_ends_is_there(tmp_path, monkeypatch):
    """Ends the narrow study after each step of writing a part of the wide one."""
    folder, done = Folder(tmp_path), []
    study_folder.prepare(folder, NARROW)
    study_folder.prepare(folder, WIDE)
    write_all(folder, NARROW)
    real = os.fsync

    def ending(descriptor):
        monkeypatch.setattr(os, "fsync", real)
        done.append(study_folder.build_if_complete(folder, NARROW))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", ending)
    study_folder.write_part(folder, WIDE.identities[2:4], arrays_of(WIDE, range(2, 4)))
    assert done == [0]
    with pytest.warns(UserWarning, match="4 of the 8 runs of a larger study"):
        check(tmp_path, NARROW)
    assert finish(folder, WIDE) == (0, 2)
    check(tmp_path, WIDE)


def test_a_file_is_written_though_its_empty_folder_is_removed_meanwhile(tmp_path, monkeypatch):
    folder, removed = Folder(tmp_path), []
    makedirs = os.makedirs

    def removing(path, exist_ok=False):
        makedirs(path, exist_ok=exist_ok)
        if len(removed) < 4 and not os.listdir(path):
            os.rmdir(path)
            removed.append(path)

    monkeypatch.setattr(os, "makedirs", removing)
    folder.write("parts/one", b"content")
    assert folder.read("parts/one") == b"content" and len(removed) == 4
    removed.clear()
    lease = folder.lease("checkpoints/one.lease")
    assert lease is not None and len(removed) == 4
    os.close(lease)


def test_a_folder_that_another_process_fills_meanwhile_is_no_error(tmp_path, monkeypatch):
    folder, left = Folder(tmp_path), [2]
    rmdir = os.rmdir

    def filling(path, **more):
        if left[0] and str(path).endswith("chunk"):
            left[0] -= 1
            folder.write("checkpoints/chunk/late", b"")
        rmdir(path, **more)

    folder.write("checkpoints/chunk/state", b"")
    monkeypatch.setattr(os, "rmdir", filling)
    folder.remove("checkpoints/chunk")
    assert not folder.exists("checkpoints/chunk") and left == [0]
    left[0] = 100
    folder.write("checkpoints/chunk/state", b"")
    folder.remove("checkpoints/chunk")
    assert folder.names("checkpoints/chunk") == ["late"]


def test_a_narrow_study_that_ends_last_keeps_what_a_wide_one_has_finished(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, NARROW)
    finish(folder, WIDE)
    write_all(folder, NARROW)
    assert study_folder.build_if_complete(folder, NARROW) == 0
    check(tmp_path, WIDE)
    assert not folder.names("parts")


def test_a_study_beside_another_one_in_a_folder_does_not_pass_its_result_off_as_its_own(tmp_path):
    """Both found the folder empty; whoever ends last must not end well with the numbers of the other."""
    folder, one, other = Folder(tmp_path), make(seeds=[0, 1]), make(seeds=[1, 2])
    study_folder.prepare(folder, one)
    finish(folder, other)
    write_all(folder, one)
    with pytest.raises(OSError, match="meanwhile another study has written its result here"):
        study_folder.build_if_complete(folder, one)
    check(tmp_path, other)
    both = make(seeds=[0, 1, 2])
    assert finish(folder, both) == (0, 0)
    check(tmp_path, both)


def test_a_search_replaces_its_result_when_its_path_has_changed(tmp_path):
    """After a damage the sampler may suggest other settings. The result then has the runs of the new path."""
    folder, one, other, both = Folder(tmp_path), make(seeds=[0, 1]), make(seeds=[1, 2]), make(seeds=[0, 1, 2])
    finish(folder, other)
    (tmp_path / "spec.toml").unlink()
    store = FolderStore(folder)
    store.prepare(both, grows=True)
    write_all(folder, one)
    assert store.build_if_complete(one) == 0
    check(tmp_path, one)
    assert not folder.names("parts")


def test_a_lock_excludes_others_though_its_file_was_removed(tmp_path):
    """Who waits for it holds the file that had the name before, and somebody else the new one."""
    folder, held = Folder(tmp_path), []

    def wait():
        with Folder(tmp_path).lock("name"):
            held.append("waited")
            time.sleep(0.2)
            held.append("ends")

    with folder.lock("name"):
        other = threading.Thread(target=wait)
        other.start()
        time.sleep(0.2)
        folder.remove("name")
    while not held:
        time.sleep(0.01)
    lease = folder.lease("name")
    assert lease is None or held[-1] == "ends"
    other.join()


def test_readers_share_a_lock_and_a_writer_waits(tmp_path):
    folder = Folder(tmp_path)
    with folder.lock("name", shared=True) as one, folder.lock("name", shared=True, wait=False) as two:
        assert one and two
        with folder.lock("name", wait=False) as writes:
            assert not writes
    with folder.lock("name") as writes, folder.lock("name", shared=True, wait=False) as reads:
        assert writes and not reads


def test_without_locks_nobody_says_that_one_is_held(unlocked):
    unlocked.make()
    with unlocked.lock("name") as held:
        assert not held


@pytest.mark.slow
def test_two_that_put_a_result_together_without_locks_leave_a_whole_one(unlocked, monkeypatch):
    """The second one begins and ends while the first one is half-way through writing."""
    monkeypatch.setattr(blocks, "_BLOCK_RUNS", 3)
    finish(unlocked, NARROW)
    study_folder.prepare(unlocked, WIDE)
    write_all(unlocked, WIDE)
    real, begun = blocks.put, []

    def put(*arguments):
        real(*arguments)
        begun.append(arguments)
        if len(begun) == 2:
            assert study_folder.build_if_complete(unlocked, WIDE) == 0

    monkeypatch.setattr(blocks, "put", put)
    assert study_folder.build_if_complete(unlocked, WIDE) == 0
    xr.testing.assert_identical(pausejax.open(unlocked.location).load(), expected(WIDE))
    assert study_folder.examine(unlocked, WIDE).current and len(begun) > 3
    assert unlocked.names("parts") == []


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2])
def test_two_that_exchange_a_result_without_locks_leave_a_whole_one(unlocked, monkeypatch, step):
    """The second one begins and ends while the first one is between two renames."""
    finish(unlocked, NARROW)
    study_folder.prepare(unlocked, WIDE)
    write_all(unlocked, WIDE)
    real, moves = Folder.move, []

    def move(self, *arguments):
        real(self, *arguments)
        moves.append(arguments)
        if len(moves) == step:
            assert study_folder.build_if_complete(Folder(unlocked.location), WIDE) == 0

    monkeypatch.setattr(Folder, "move", move)
    assert study_folder.build_if_complete(unlocked, WIDE) == 0
    xr.testing.assert_identical(pausejax.open(unlocked.location).load(), expected(WIDE))


def test_runs_are_not_lost_while_another_process_exchanges_the_result(tmp_path):
    folder = Folder(tmp_path)
    finish(folder, NARROW)
    away = threading.Event()

    def exchange():
        with Folder(tmp_path).lock(study_folder.LOCK):
            os.rename(tmp_path / "results.zarr", tmp_path / "elsewhere")
            away.set()
            time.sleep(0.3)
            os.rename(tmp_path / "elsewhere", tmp_path / "results.zarr")

    other = threading.Thread(target=exchange)
    other.start()
    away.wait()
    assert study_folder.lost(folder, NARROW, NARROW.identities) == frozenset()
    other.join()
    assert study_folder.lost(folder, NARROW, ["another"]) == {"another"}


class Listener:
    """A tracker that keeps what it is told."""

    def __init__(self):
        self.told = []

    def runs_finished(self, result):
        self.told.append(result)


def test_a_tracker_is_told_of_its_own_runs_in_a_result_that_was_extended(tmp_path):
    finish(Folder(tmp_path), WIDE)
    listener = Listener()
    report_runs(listener, FolderStore(Folder(tmp_path)), NARROW, NARROW.runs[1:3])
    (told,) = listener.told
    assert told["identity"].values.tolist() == list(NARROW.identities[1:3])
    xr.testing.assert_identical(told["reward"].variable, expected(NARROW)["reward"][1:3].variable)


class SlowTensorBoard(TensorBoardTracker):
    """It takes so long to write a run that all processes would find that the run is missing."""

    def _log(self, run):
        time.sleep(0.02)
        super()._log(run)


def test_processes_that_find_a_finished_study_at_the_same_time_report_its_runs_once(tmp_path):
    finish(Folder(tmp_path / "out"), NARROW)
    trackers = [SlowTensorBoard(tmp_path / "runs") for _ in range(3)]

    def run(tracker):
        store = FolderStore(Folder(tmp_path / "out"))
        play(NARROW, LocalExecutor(DataCache()), store, progress=lambda _: None, tracker=tracker)

    with ThreadPoolExecutor() as threads:
        list(threads.map(run, trackers))
    assert len(list((tmp_path / "runs").glob("*/*/pausejax-run.*"))) == len(NARROW.runs)
    assert not (tmp_path / "out/.reporting").exists()


class Written:
    """An executor whose batches have all been written."""

    def execute(self, plan, work, *_):
        yield from work


def test_processes_that_play_the_same_runs_report_them_once(tmp_path):
    """As two searches in one folder do."""
    folder = Folder(tmp_path / "out")
    study_folder.prepare(folder, NARROW)
    work = [Batch(group, group.runs, len(group.runs)) for group in NARROW.groups]
    for batch in work:
        places = [NARROW.identities.index(identity) for identity in batch.identities]
        study_folder.write_part(folder, batch.identities, arrays_of(NARROW, places))

    def run(tracker):
        store = FolderStore(folder)
        store.prepare(NARROW)
        return play_batches(NARROW, Written(), store, work, progress=lambda _: None, tracker=tracker)

    trackers = [SlowTensorBoard(tmp_path / "runs") for _ in range(3)]
    for tracker in trackers:
        tracker.start({"name": "study"})
    with ThreadPoolExecutor() as threads:
        told = list(threads.map(run, trackers))
    assert told == [{(run.policy, run.identity) for run in NARROW.runs}] * 3
    assert len(list((tmp_path / "runs").glob("*/*/pausejax-run.*"))) == len(NARROW.runs)


def test_runs_are_reported_alone_only_when_nobody_else_reports(tmp_path):
    stores = [FolderStore(Folder(tmp_path)) for _ in range(3)]
    told = []

    def alone():
        with stores[2].reporting(alone=True):
            told.append("alone")

    other = threading.Thread(target=alone)
    with stores[0].reporting(), stores[1].reporting():
        other.start()
        other.join(0.1)
        assert not told
    other.join()
    assert told == ["alone"]


@pytest.mark.slow
def test_a_narrow_study_does_not_replace_a_damaged_wide_result(tmp_path, monkeypatch):
    """What is sound of it is finished, and the wide study makes the rest again."""
    monkeypatch.setattr(blocks, "_BLOCK_RUNS", 3)
    folder = Folder(tmp_path)
    study_folder.prepare(folder, NARROW)
    finish(folder, WIDE)
    (tmp_path / "results.zarr/reward/c/2/0").unlink()
    write_all(folder, NARROW)
    assert study_folder.build_if_complete(folder, NARROW) == 0
    sound = set(WIDE.identities[:6])
    assert study_folder.examine(folder, WIDE).identities == sound | set(NARROW.identities)
    assert finish(folder, WIDE)[0] == 0
    check(tmp_path, WIDE)
