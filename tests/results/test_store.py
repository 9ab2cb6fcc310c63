"""What is on disk is whole or not there: crashes, damage, a full disk, other specs."""

import errno
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.atomic import replacing
from pausejax.results import blocks, study_folder
from pausejax.results.folder import Folder
from pausejax.results.sealed import write_sealed
from pausejax.study.spec import SpecError

from .studies import CLIENTS, ROUNDS, SLOTS, Killed, arrays_of, check, expected, finish, make


def test_parts_become_one_result_in_the_plans_order(tmp_path):
    plan = make()
    assert finish(Folder(tmp_path), plan) == (0, 8)
    check(tmp_path, plan)
    assert sorted(os.listdir(tmp_path)) == [".lock", "labels.npz", "results.zarr", "spec.toml"]


def test_blocks_do_not_change_a_result(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_RUNS", 3)
    plan = make()
    finish(Folder(tmp_path), plan)
    check(tmp_path, plan)
    assert (tmp_path / "results.zarr/reward/c/2/0").exists()


def test_a_result_is_unfinished_until_every_run_is_there(tmp_path):
    plan, folder = make(), Folder(tmp_path)
    study_folder.prepare(folder, plan)
    identities = plan.identities
    study_folder.write_part(folder, identities[:3], arrays_of(plan, range(3)))
    assert study_folder.build_if_complete(folder, plan) == 5
    with pytest.raises(FileNotFoundError, match=r"unfinished study \(1 batches of runs are done\)"):
        pausejax.open(tmp_path)
    assert finish(folder, plan) == (0, 5)
    check(tmp_path, plan)


@pytest.mark.slow
def test_an_extended_spec_adds_only_its_new_runs(tmp_path):
    finish(Folder(tmp_path), make(seeds=4))
    longer = make(seeds=7)
    assert finish(Folder(tmp_path), longer) == (0, 6)
    check(tmp_path, longer)
    wider = make(seeds=7, reward={"gamma": [5.0, 6.0]})
    assert finish(Folder(tmp_path), wider) == (0, 14)
    check(tmp_path, wider)


def test_a_new_name_or_label_changes_the_result_but_no_run(tmp_path):
    finish(Folder(tmp_path), make())
    renamed = make(name="another title")
    assert finish(Folder(tmp_path), renamed) == (0, 0)
    check(tmp_path, renamed)
    assert pausejax.open(tmp_path).attrs["name"] == "another title"


def test_files_that_exchange_their_contents_exchange_their_runs(tmp_path):
    """The runs are the same ones, so none is simulated again."""
    folder = Folder(tmp_path / "out")

    def planned(*names):
        files = [str(tmp_path / name) for name in names]
        network = {"K": CLIENTS, "m": SLOTS, "latency": "trace", "trace_file": files}
        return make(seeds=2, network=network, policy=[{"name": "random"}])

    def write(slow, fast):
        for name, latency in ((slow, 9.5), (fast, 0.5)):
            np.savetxt(tmp_path / name, np.full((2, CLIENTS), latency), delimiter=",")

    write("wifi.csv", "lte.csv")
    finish(folder, before := planned("wifi.csv", "lte.csv"))
    write("lte.csv", "wifi.csv")
    after = planned("wifi.csv", "lte.csv")
    assert finish(folder, after) == (0, 0)
    check(folder.location, after)
    assert pausejax.open(folder.location)["identity"].values.tolist() != before.identities


def test_a_spec_that_takes_runs_away_is_refused(tmp_path):
    finish(Folder(tmp_path), make(seeds=4))
    with pytest.raises(SpecError) as caught:
        study_folder.prepare(Folder(tmp_path), make(seeds=3))
    assert "holds runs of another spec" in caught.value.problems[0]
    assert {"-seeds = 4", "+seeds = 3"} <= set(caught.value.problems)
    check(tmp_path, make(seeds=4))


@pytest.mark.slow
@pytest.mark.parametrize("apart", [9, pytest.param(3, marks=pytest.mark.slow)])
def test_a_kill_between_any_two_steps_loses_nothing(apart, tmp_path, monkeypatch):
    """Ends the process before its 1st, 2nd, ... change of the disk, and then goes on in a new one."""
    small, plan = make(seeds=2), make(seeds=3)
    real = {name: getattr(Folder, name) for name in ("write", "move", "remove")}
    steps, budget = 0, 0

    def dying(name):
        def call(self, *arguments):
            nonlocal steps
            steps += 1
            if steps > budget:
                raise Killed
            return real[name](self, *arguments)

        return call

    for name in real:
        monkeypatch.setattr(Folder, name, dying(name))
    deaths = 0
    for budget in range(1, 40, apart):
        folder = tmp_path / str(budget)
        for study in (small, plan):
            left = True
            while left:
                steps = 0
                try:
                    left = finish(Folder(folder), study, size=2)[0]
                except Killed:
                    deaths += 1
                    budget += 1  # a new process gets a little further, or nothing would ever end
        check(folder, plan)
    assert deaths > 30 // apart


def test_every_damaged_part_is_found_and_made_again(tmp_path):
    plan, folder = make(), Folder(tmp_path)
    study_folder.prepare(folder, plan)
    identities = plan.identities
    study_folder.write_part(folder, identities[:4], arrays_of(plan, range(4)))
    (part,) = (tmp_path / "parts").iterdir()
    whole = part.read_bytes()
    for damage in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], flipped(whole, len(whole) // 2)):
        part.write_bytes(damage)
        found = study_folder.examine(folder, plan)
        assert found.damaged == (f"parts/{part.name}",) and not found.identities
    assert finish(folder, plan) == (0, 8)
    check(tmp_path, plan)


def test_no_flipped_bit_of_a_part_is_believed(tmp_path, pytestconfig):
    """Not in the values, nor in the archive's directory, which may hide or rename what is there.

    A bit of every byte is flipped, a low, a middle and a high one in turn; with --slow all three of each.
    """
    plan, folder = make(), Folder(tmp_path)
    study_folder.prepare(folder, plan)
    study_folder.write_part(folder, plan.identities[:2], arrays_of(plan, range(2)))
    (part,) = (tmp_path / "parts").iterdir()
    whole = part.read_bytes()
    for place in range(len(whole)):
        bits = (1, 8, 128)
        for bit in bits if pytestconfig.getoption("--slow") else bits[place % 3 :][:1]:
            part.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            assert study_folder.examine(folder, plan).damaged == (f"parts/{part.name}",), (place, bit)


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]


@pytest.mark.slow
def test_any_reader_refuses_a_chunk_whose_values_were_altered(tmp_path):
    """Not by the manifest, which only this package reads: by the checksum within each chunk."""
    plan = make()
    finish(Folder(tmp_path), plan)
    chunk = tmp_path / "results.zarr" / "reward" / "c" / "0" / "0"
    whole, refused = chunk.read_bytes(), 0
    for place in range(len(whole)):
        chunk.write_bytes(flipped(whole, place))
        found = xr.open_zarr(tmp_path / "results.zarr", chunks=None)["reward"]
        try:
            values = found.values
        except (RuntimeError, ValueError):
            refused += 1
        else:  # a bit of the frame's header that means nothing
            np.testing.assert_array_equal(values, expected(plan)["reward"])
    assert refused > len(whole) - 5


def test_who_locks_a_name_keeps_others_waiting(tmp_path):
    folder, order = Folder(tmp_path), []

    def second():
        with Folder(tmp_path).lock(".lock"):
            order.append("second")

    other = threading.Thread(target=second)
    with folder.lock(".lock"):
        other.start()
        other.join(0.3)
        order.append("first")
        with Folder(tmp_path).lock("another"):
            pass
    other.join(10)
    assert order == ["first", "second"] and not other.is_alive()


def test_a_lease_is_one_process_alone(tmp_path):
    folder = Folder(tmp_path)
    held = folder.lease("checkpoints/.lease")
    assert held is not None and folder.lease("checkpoints/.lease") is None
    other = folder.lease("checkpoints/.other")
    os.close(held)
    again = folder.lease("checkpoints/.lease")
    assert other is not None and again is not None
    for descriptor in (other, again):
        os.close(descriptor)


def test_a_full_disk_leaves_what_was_finished_and_no_rubbish(tmp_path, monkeypatch):
    plan, folder = make(), Folder(tmp_path)
    study_folder.prepare(folder, plan)
    identities = plan.identities
    study_folder.write_part(folder, identities[:4], arrays_of(plan, range(4)))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            study_folder.write_part(folder, identities[4:], arrays_of(plan, range(4, 8)))
    assert len(os.listdir(tmp_path / "parts")) == 1
    study_folder.write_part(folder, identities[4:], arrays_of(plan, range(4, 8)))
    with monkeypatch.context() as patch:
        patch.setattr(xr.Dataset, "to_zarr", full)
        with pytest.raises(OSError, match="No space left"):
            study_folder.build_if_complete(folder, plan)
    assert sorted(os.listdir(tmp_path)) == [".lock", ".playing", "labels.npz", "parts", "spec.toml"]
    assert study_folder.build_if_complete(folder, plan) == 0
    check(tmp_path, plan)


def test_a_folder_under_a_url_holds_the_same_result():
    plan, folder = make(), Folder("memory://study/here")
    assert finish(folder, plan) == (0, 8)
    xr.testing.assert_identical(pausejax.open("memory://study/here").load(), expected(plan))
    assert finish(folder, make(seeds=5)) == (0, 2)
    xr.testing.assert_identical(pausejax.open("memory://study/here").load(), expected(make(seeds=5)))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        study_folder.prepare(Folder(tmp_path / "file" / "out"), make())
    assert Path(tmp_path / "file").read_text() == ""


def test_an_extension_leaves_a_result_elsewhere_that_a_link_points_to_alone(tmp_path):
    """The result of one folder, linked into another one and extended there, stays the first one's."""
    finish(Folder(tmp_path / "first"), make(seeds=2))
    (tmp_path / "second").mkdir()
    (tmp_path / "second/results.zarr").symlink_to(tmp_path / "first/results.zarr")
    assert finish(Folder(tmp_path / "second"), make(seeds=4))[0] == 0
    check(tmp_path / "second", make(seeds=4))
    check(tmp_path / "first", make(seeds=2))


def test_a_part_that_a_disk_cannot_read_for_a_moment_is_not_removed(tmp_path, monkeypatch):
    """It may hold runs of a larger study that is being played."""
    folder, plan, read = Folder(tmp_path), make(seeds=1), Folder.read
    study_folder.prepare(folder, plan)
    study_folder.write_part(folder, plan.identities, arrays_of(plan, range(len(plan.runs))))
    others = study_folder.write_part(folder, ["of another study"], {"reward": np.zeros((1, 2))})

    def failing(self, name):
        if name == others:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, name)

    monkeypatch.setattr(Folder, "read", failing)
    assert study_folder.build_if_complete(folder, plan) == 0
    check(tmp_path, plan)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == [others.rpartition("/")[2]]


def test_files_whose_writers_were_killed_go_with_the_parts(tmp_path):
    left = tmp_path / f"layout.json.{'0' * 31}a.partial"
    mark = tmp_path / ".mark-0123"
    mine = tmp_path / "notes.partial"
    tmp_path.joinpath("parts").mkdir()
    for path in (left, mark, mine):
        path.write_text("")
    finish(Folder(tmp_path), make(seeds=1))
    assert not left.exists() and not mark.exists() and mine.exists()


def test_a_file_that_another_process_writes_stays_while_a_study_ends(tmp_path):
    """Someone exports a table of the folder meanwhile."""
    finish(Folder(tmp_path), make(seeds=1))
    with replacing(tmp_path / "runs.csv") as written:
        written.write_text("half")
        finish(Folder(tmp_path), make(seeds=2))
        assert written.read_text() == "half"
        written.write_text("whole")
    assert tmp_path.joinpath("runs.csv").read_text() == "whole"
    assert not list(tmp_path.glob("*.partial"))


def _swapped(folder, plan, name):
    """The arrays of a checkpoint, which have neither identities nor the variables of a result."""
    return {"round_latency": np.ones((2, ROUNDS)), "positions": np.arange(2)}


def _of_others(folder, plan, name):
    return {**arrays_of(plan, (2, 3)), "identity": np.array(plan.identities[2:4])}


def _lacking(folder, plan, name):
    arrays = {**arrays_of(plan, (0, 1)), "identity": np.array(plan.identities[:2])}
    return {key: array for key, array in arrays.items() if key != "round_latency"}


def _flat(folder, plan, name):
    arrays = {**arrays_of(plan, (0, 1)), "identity": np.array(plan.identities[:2])}
    return {**arrays, "elapsed": arrays["elapsed"][:, 0]}


def _of_words(folder, plan, name):
    arrays = {**arrays_of(plan, (0, 1)), "identity": np.array(plan.identities[:2])}
    return {**arrays, "reward": arrays["reward"].astype(str)}


@pytest.mark.parametrize("forge", [_swapped, _of_others, _lacking, _flat, _of_words])
def test_an_intact_file_that_is_not_the_part_is_damage(forge, tmp_path):
    folder, plan = Folder(tmp_path), make(seeds=2)
    study_folder.prepare(folder, plan)
    name = study_folder.write_part(folder, plan.identities[:2], arrays_of(plan, (0, 1)))
    assert study_folder.examine(folder, plan).identities == set(plan.identities[:2])
    folder.write_arrays(name, forge(folder, plan, name))
    found = study_folder.prepare(folder, plan)
    assert found.damaged == (name,) and not found.identities
    assert finish(folder, plan) == (0, 4)
    check(tmp_path, plan)


def test_a_part_of_a_larger_study_serves_a_smaller_one(tmp_path):
    """A larger study was killed before it had played anything that the smaller one lacks."""
    larger = make(seeds=1, network={"K": CLIENTS, "m": SLOTS, "failure_probability": [0.0, 0.5]})
    plan, folder = make(seeds=1), Folder(tmp_path)
    places = [place for place, one in enumerate(larger.identities) if one in plan.known]
    study_folder.prepare(folder, larger)
    study_folder.write_part(folder, [larger.identities[place] for place in places], arrays_of(larger, places))
    assert finish(folder, plan) == (0, 0)
    assert "failed_count" not in pausejax.open(tmp_path)


@pytest.mark.parametrize("name", ["spec.toml", "labels.npz", "files.json", "layout.json"])
def test_a_users_own_files_are_not_replaced(tmp_path, name):
    """Neither after the first refusal."""
    (tmp_path / name).write_text('name = "a study for tomorrow"')
    result = pausejax.simulate("random", mode="bandit", rounds=2, num_clients=3, clients_per_round=1)
    for _ in range(2):
        for begin in (study_folder.prepare, study_folder.checked_contents):
            with pytest.raises(SpecError, match=f"no study has begun here, and this one .* {name}\\."):
                begin(Folder(tmp_path), make(seeds=1))
        with pytest.raises(ValueError, match=f"no study has begun here, and `save` .* {name}\\."):
            pausejax.save(result, tmp_path)
    assert (tmp_path / name).read_text() == 'name = "a study for tomorrow"'
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("damaged", ["spec.toml", "labels.npz", "files.json", "layout.json"])
def test_a_study_that_was_killed_early_does_not_take_its_files_for_the_users(tmp_path, damaged):
    study_folder.prepare(Folder(tmp_path), make(seeds=1))
    (tmp_path / damaged).write_text("damaged")
    study_folder.prepare(Folder(tmp_path), make(seeds=2))
    assert "seeds = 2" in (tmp_path / "spec.toml").read_text()


@pytest.mark.parametrize("mark", [".lock", "labels.npz", "layout.json"])
def test_one_file_of_a_study_shows_that_it_has_begun(tmp_path, mark):
    """Under a URL there is no lock, and a search has no labels."""
    folder = Folder(tmp_path)
    study_folder.prepare(folder, make(seeds=1))
    write_sealed(folder, "layout.json", {})
    for name in {".lock", "labels.npz", "layout.json"} - {mark}:
        (tmp_path / name).unlink()
    study_folder.prepare(folder, make(seeds=2))
    assert "seeds = 2" in (tmp_path / "spec.toml").read_text()


def test_another_study_may_take_the_place_of_a_removed_result(tmp_path):
    """As messages advise, also where `save` has written the folder."""
    result = pausejax.simulate("random", mode="bandit", rounds=2, num_clients=3, clients_per_round=1)
    pausejax.save(result, tmp_path)
    shutil.rmtree(tmp_path / "results.zarr")
    pausejax.save(result, tmp_path)
    shutil.rmtree(tmp_path / "results.zarr")
    finish(Folder(tmp_path), make(seeds=2))
    check(tmp_path, make(seeds=2))


def test_an_equal_spec_with_comments_is_kept(tmp_path):
    plan, folder = make(seeds=2), Folder(tmp_path)
    text = f"# mine\n{study_folder.labels.spec_text(plan)}"
    (tmp_path / "spec.toml").write_text(text)
    finish(folder, plan)
    assert (tmp_path / "spec.toml").read_text() == text
    with pytest.raises(SpecError) as refused:
        study_folder.prepare(folder, make(seeds=1))
    assert refused.value.problems[1:] == ("-seeds = 2", "+seeds = 1")
    check(tmp_path, plan)
    finish(folder, make(seeds=3))
    assert (tmp_path / "spec.toml").read_text() == study_folder.labels.spec_text(make(seeds=3))
