"""A study that is read before its end: its runs are those of the final result, its folder does not change."""

import collections
import hashlib
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import kinds
from pausejax.commands import main as cli
from pausejax.results import blocks, contents, planned, study_folder, unfinished
from pausejax.results.folder import Folder
from pausejax.results.labels import Labels

from .studies import arrays_of, expected, finish, make

SMALL, LARGE = make(seeds=2), make(seeds=4)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_RUNS", 3)
    monkeypatch.setattr(unfinished, "_PAUSES", (0.0,) * 5)


def put(folder, plan, rows):
    """Writes some runs of a plan as one part."""
    study_folder.write_part(folder, [plan.identities[row] for row in rows], arrays_of(plan, rows))


def check(found, plan, whole=None):
    """Checks each run of a partial result against the final one, and returns the places of its runs."""
    place = {identity: row for row, identity in enumerate(plan.identities)}
    rows = [place[identity] for identity in found["identity"].values.tolist()]
    assert rows == sorted(set(rows))
    line = f"{len(rows)} of {len(plan.runs)} runs are finished"
    assert found.attrs["partial"].startswith(line)
    final = (expected(plan) if whole is None else whole).isel(run=rows)
    xr.testing.assert_identical(found.assign_attrs(partial=""), final.assign_attrs(partial=""))
    return rows


@pytest.mark.slow
def test_any_finished_runs_are_those_of_the_final_result(folder):
    rng = random.Random(0)
    study_folder.prepare(folder, LARGE)
    left, there = list(range(len(LARGE.runs))), []
    rng.shuffle(left)
    while left:
        rows = [left.pop() for _ in range(min(len(left), rng.randrange(1, 4)))]
        put(folder, LARGE, rows)
        there += rows
        assert check(pausejax.open(folder.location, partial=True), LARGE) == sorted(there)
    study_folder.build_if_complete(folder, LARGE)
    final = pausejax.open(folder.location, partial=True)
    assert "partial" not in final.attrs
    xr.testing.assert_identical(final.load(), expected(LARGE))


def test_a_result_that_is_extended_counts_with_the_new_parts(folder):
    finish(folder, SMALL)
    assert study_folder.prepare(folder, LARGE).in_result == set(SMALL.identities)
    first = check(pausejax.open(folder.location, partial=True), LARGE)
    assert {LARGE.identities[row] for row in first} == set(SMALL.identities)
    new = [row for row in range(len(LARGE.runs)) if row not in first][:3]
    put(folder, LARGE, new)
    assert check(pausejax.open(folder.location, partial=True), LARGE) == sorted(first + new)
    # Who does not ask for it has the old result, as it was.
    with pytest.warns(UserWarning, match="this result has 4 of the 8 runs of a larger study, which is unfin"):
        xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(SMALL))


@pytest.mark.slow
def test_no_step_of_a_writer_takes_a_finished_run_away(folder, monkeypatch):
    """Reads after every change of the folder, while parts are written and the result is put together."""
    monkeypatch.setattr(unfinished, "_PAUSES", (0.0, 0.0))  # nothing changes while it reads
    real = {name: getattr(Folder, name) for name in ("write", "move", "remove")}
    seen, inside, final = [], False, expected(LARGE)

    def looking(name):
        def call(self, *arguments, **more):
            nonlocal inside
            real[name](self, *arguments, **more)
            if inside or self.location != folder.location:
                return
            inside = True
            try:
                found = pausejax.open(folder.location, partial=True)
                if "partial" in found.attrs:
                    seen.append(len(check(found, LARGE, final)))
                else:
                    seen.append(len(LARGE.runs))
                    xr.testing.assert_identical(found.load(), final)
            finally:
                inside = False

        return call

    finish(folder, SMALL)
    study_folder.prepare(folder, LARGE)
    with monkeypatch.context() as patch:
        for name in real:
            patch.setattr(Folder, name, looking(name))
        finish(folder, LARGE, size=3)
    assert seen == sorted(seen) and seen[0] == len(SMALL.runs) and seen[-1] == len(LARGE.runs)
    assert len(set(seen)) > 2


WRITER = """
import random, shutil, sys
from pausejax.results import blocks
from pausejax.results.folder import Folder
from tests.results.studies import finish, make
blocks._BLOCK_RUNS = 3
out, rng = sys.argv[1], random.Random(1)
while True:
    for seeds in (2, 4):
        finish(Folder(out), make(seeds=seeds), size=rng.randrange(1, 4))
        print(seeds, flush=True)
    Folder(out).move("results.zarr", "gone")
    Folder(out).remove("gone")
"""


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_whole_runs(tmp_path):
    results = {len(plan.runs): (plan, expected(plan)) for plan in (SMALL, LARGE)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = collections.Counter()
    try:
        writer.stdout.readline()
        for _ in range(60):
            assert writer.poll() is None
            try:
                found = pausejax.open(tmp_path / "out", partial=True)
                line = found.attrs.get("partial")
                found = found.load()
            except OSError as error:
                said[str(error).partition(": ")[2][:40]] += 1
                continue
            said["read"] += 1
            if line:
                check(found, *results[int(line.split()[2])])
            else:
                xr.testing.assert_identical(found, results[found.sizes["run"]][1])
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    print(dict(said))
    assert said["read"] > 5 and not any("\n" in line for line in said)


def test_a_part_that_is_moved_into_the_result_meanwhile_is_found_there(folder, monkeypatch):
    study_folder.prepare(folder, SMALL)
    put(folder, SMALL, range(4))
    real, calls = contents.read, []

    def slow(*arguments):
        found = real(*arguments)
        calls.append(found)
        if len(calls) == 1:
            assert study_folder.build_if_complete(folder, SMALL) == 0
        return found

    monkeypatch.setattr(contents, "read", slow)
    xr.testing.assert_identical(pausejax.open(folder.location, partial=True).load(), expected(SMALL))
    assert len(calls) > 1


def test_a_folder_that_never_rests_is_given_up_in_one_line(tmp_path, monkeypatch):
    folder, real, count = Folder(tmp_path), contents.read, 0
    study_folder.prepare(folder, SMALL)
    put(folder, SMALL, [0])

    def restless(*arguments):
        nonlocal count
        count += 1
        return real(*arguments)._replace(damaged=(f"parts/{count}.npz",))

    monkeypatch.setattr(contents, "read", restless)
    with pytest.raises(OSError, match="other processes change this folder") as caught:
        pausejax.open(tmp_path, partial=True)
    assert count == 5 and "\n" not in str(caught.value)


def test_a_damaged_part_counts_as_not_finished_and_is_named(tmp_path, capsys):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    put(folder, SMALL, [0, 1])
    (bad,) = (tmp_path / "parts").iterdir()
    put(folder, SMALL, [2])
    content = bad.read_bytes()
    for damage in (b"", content[:-1], bytes([content[0] ^ 1]) + content[1:]):
        bad.write_bytes(damage)
        found = pausejax.open(tmp_path, partial=True)
        assert check(found, SMALL) == [2]
        assert found.attrs["partial"].endswith(f"Damaged files, whose runs do not count: parts/{bad.name}")
    assert cli.main(["best", str(tmp_path), "--partial", "--metric", "elapsed"]) == cli.OK
    assert f"parts/{bad.name}" in capsys.readouterr().out


def state(folder):
    """The digest and the time of the last change of everything in a folder."""
    return {
        path.relative_to(folder): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.slow
def test_reading_changes_nothing(tmp_path, monkeypatch):
    finish(Folder(tmp_path), SMALL)
    study_folder.prepare(Folder(tmp_path), LARGE)
    put(Folder(tmp_path), LARGE, [2, 6])
    before = state(tmp_path)

    def forbidden(*arguments, **more):
        raise PermissionError("the folder can only be read")

    for name in ("write", "remove", "move", "make", "lock", "_opened"):
        monkeypatch.setattr(Folder, name, forbidden)
    check(pausejax.open(tmp_path, partial=True), LARGE)
    assert cli.main(["best", str(tmp_path), "--partial", "--metric", "elapsed"]) == cli.OK
    assert state(tmp_path) == before


@pytest.mark.parametrize("command", ["report", "export", "best"])
def test_an_unfinished_study_is_refused_and_the_way_is_named(command, tmp_path, capsys):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    assert cli.main([command, str(tmp_path), "--partial"]) == cli.FAILED
    error = capsys.readouterr().err
    assert "0 of 4 runs are finished. Nothing can be shown yet" in error and error.count("\n") == 1
    put(folder, SMALL, [1])
    assert cli.main([command, str(tmp_path)]) == cli.FAILED
    error = capsys.readouterr().err
    assert "--partial" in error and "partial=True" in error and error.count("\n") == 1
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".html", ".parquet")]


def test_a_folder_without_labels_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FileNotFoundError, match=r"no study with labels\.npz"):
            pausejax.open(place, partial=True)
    # A search does not know its runs in advance.
    study_folder.prepare(Folder(tmp_path), SMALL, grows=True)
    put(Folder(tmp_path), SMALL, [0])
    with pytest.raises(FileNotFoundError, match=r"A search can be read only after its end"):
        pausejax.open(tmp_path, partial=True)


def forge(folder, **changes):
    """Writes labels with another value of some of their fields."""
    arrays = folder.read_arrays("labels.npz")
    rest = json.loads(str(arrays["rest"]))
    for path, value in changes.items():
        *tables, key = path.split("__")
        table = rest
        for name in tables:
            table = table[name]
        table[key] = value
    folder.write_arrays("labels.npz", {**arrays, "rest": np.array(json.dumps(rest))})


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "os"},
        {"kind": 3},
        {"rounds": 7},
        {"rounds": "many"},
        {"attributes": 5},
        {"attributes__format": 2},
        {"attributes__metrics": "{"},
        {"variables__reward": {"dims": "round"}},
        {"variables__reward__dtype": "O8"},
        {"variables__reward__fill": "a"},
        {"variables": {}},
        {"meanings": 7},
        {"meanings__seed": {"long_name": "\x1b[31m"}},
    ],
)
def test_forged_labels_are_one_line(change, tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    put(folder, SMALL, [0])
    forge(folder, **change)
    with pytest.raises((ValueError, OSError)) as caught:
        kinds.charts(pausejax.open(tmp_path, partial=True))
    assert "\n" not in str(caught.value)


def test_no_flipped_bit_of_the_labels_is_believed(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    put(folder, SMALL, [0])
    whole = (tmp_path / "labels.npz").read_bytes()
    for place in range(0, len(whole), 97):
        (tmp_path / "labels.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"labels\.npz: is damaged"):
            pausejax.open(tmp_path, partial=True)
    finish(folder, SMALL)
    xr.testing.assert_identical(pausejax.open(tmp_path).load(), expected(SMALL))


def test_labels_are_read_as_they_were_written(tmp_path):
    labels = Labels.of(LARGE)
    planned.write(Folder(tmp_path), labels)
    read = planned.read(Folder(tmp_path), kinds.KINDS)
    for name, column in labels.columns.items():
        np.testing.assert_array_equal(read.columns[name], column)
        assert read.columns[name].dtype == column.dtype
    assert repr(read._replace(columns={})) == repr(labels._replace(columns={}))


@pytest.mark.slow
def test_a_saved_partial_result_is_a_result_that_still_says_so(tmp_path):
    folder = Folder(tmp_path / "out")
    study_folder.prepare(folder, SMALL)
    put(folder, SMALL, [0, 3])
    found = pausejax.open(tmp_path / "out", partial=True)
    pausejax.save(found, tmp_path / "saved")
    xr.testing.assert_identical(pausejax.open(tmp_path / "saved").load(), found)
    assert finish(Folder(tmp_path / "saved"), SMALL) == (0, 2)
    xr.testing.assert_identical(pausejax.open(tmp_path / "saved").load(), expected(SMALL))
