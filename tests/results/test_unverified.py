"""A result that can't be verified: the study that wrote it makes it again, and any other one is refused."""

import errno
import shutil

import pytest
import xarray as xr

import pausejax
from pausejax.results import blocks, study_folder
from pausejax.results.folder import Folder
from pausejax.study.spec import SpecError

from .studies import arrays_of, check, expected, finish, make

SMALL, LARGE, OTHER = make(seeds=2), make(seeds=4), make(seeds=[5, 6])
REFUSED = "results.zarr that is damaged or incomplete, (with runs that this spec lacks|and it can't be read)"


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def refuses(folder, plan):
    """Whether a plan is refused in one line, and changes no file."""
    before = files_of(folder)
    with pytest.raises(SpecError, match=REFUSED) as refused:
        study_folder.prepare(Folder(folder), plan)
    return len(refused.value.problems) == 1 and files_of(folder) == before


@pytest.mark.parametrize("name", ["seed/c/0", "zarr.json", "manifest.json", "reward/c/0/0"])
@pytest.mark.parametrize("without", [(), ("labels.npz",)])
def test_another_spec_does_not_replace_a_damaged_result(tmp_path, name, without):
    finish(Folder(tmp_path), SMALL)
    flip(tmp_path / "results.zarr" / name)
    for file in without:
        (tmp_path / file).unlink()
    assert refuses(tmp_path, OTHER)
    if without and not name.startswith("reward"):  # nothing tells any more which runs it holds
        assert refuses(tmp_path, SMALL)
        shutil.rmtree(tmp_path / "results.zarr")
    assert finish(Folder(tmp_path), SMALL) == (0, 4)
    check(tmp_path, SMALL)


def test_a_smaller_spec_does_not_replace_a_damaged_result_and_an_extension_does(tmp_path):
    finish(Folder(tmp_path), SMALL)
    flip(tmp_path / "results.zarr/zarr.json")
    assert refuses(tmp_path, make(seeds=1))
    assert finish(Folder(tmp_path), LARGE) == (0, 8)
    check(tmp_path, LARGE)


def test_a_damaged_result_of_other_files_is_not_replaced(tmp_path):
    finish(Folder(tmp_path), SMALL)
    (tmp_path / "labels.npz").unlink()
    study_folder.description.write_sealed(Folder(tmp_path), "files.json", {"mine.py": "another digest"})
    flip(tmp_path / "results.zarr/zarr.json")
    assert refuses(tmp_path, SMALL)


@pytest.mark.parametrize("spec", [True, False])
def test_a_store_of_ones_own_is_not_replaced(tmp_path, spec):
    """Also not where one's own spec lies beside it."""
    xr.Dataset({"mine": ("x", [1.0])}).to_zarr(tmp_path / "results.zarr", consolidated=False, zarr_format=3)
    if spec:
        (tmp_path / "spec.toml").write_text(study_folder.labels.spec_text(SMALL))
    assert refuses(tmp_path, SMALL)


@pytest.mark.parametrize("name", ["elapsed/c/0/0", "reward/c/0/0"])
def test_joined_results_that_are_damaged_are_not_replaced_by_some_of_their_runs(tmp_path, name):
    """Their spec is that of the first result."""
    joined = xr.concat([expected(SMALL), expected(OTHER)], "run", combine_attrs="override")
    pausejax.save(joined, tmp_path)
    flip(tmp_path / "results.zarr" / name)
    assert refuses(tmp_path, SMALL)


def test_a_smaller_spec_repairs_its_result_after_a_larger_one_was_given_up(tmp_path):
    finish(Folder(tmp_path), SMALL)
    study_folder.prepare(Folder(tmp_path), LARGE)
    flip(tmp_path / "results.zarr/reward/c/0/0")
    assert finish(Folder(tmp_path), SMALL)[1] == 4


def test_a_spec_that_is_edited_while_its_runs_are_simulated_is_kept(tmp_path):
    study_folder.prepare(Folder(tmp_path), SMALL)
    (tmp_path / "spec.toml").write_text("# why\nseeds = 30")
    study_folder.write_part(Folder(tmp_path), SMALL.identities, arrays_of(SMALL, range(4)))
    assert study_folder.build_if_complete(Folder(tmp_path), SMALL) == 0
    assert (tmp_path / "spec.toml").read_text() == "# why\nseeds = 30"


def test_a_saved_result_that_is_damaged_is_made_again(tmp_path):
    pausejax.save(expected(SMALL), tmp_path)
    flip(tmp_path / "results.zarr/reward/c/0/0")
    assert refuses(tmp_path, OTHER)
    assert finish(Folder(tmp_path), SMALL) == (0, 4)
    check(tmp_path, SMALL)


@pytest.mark.parametrize("plan", [SMALL, OTHER], ids=["same", "other"])
@pytest.mark.parametrize("name", ["manifest.json", "seed/c/0", "reward/c/0/0"])
def test_a_read_error_is_no_damage(tmp_path, monkeypatch, plan, name):
    finish(Folder(tmp_path), SMALL)
    read, before = Folder.read, files_of(tmp_path)

    def failing(self, path):
        if path == f"results.zarr/{name}":
            raise OSError(errno.EIO, "Input/output error", path)
        return read(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "read", failing)
        with pytest.raises(OSError, match="Input/output error"):
            study_folder.prepare(Folder(tmp_path), plan)
        with pytest.raises(OSError, match="Input/output error"):
            study_folder.build_if_complete(Folder(tmp_path), plan)
    assert files_of(tmp_path) == before
    check(tmp_path, SMALL)


def test_files_in_a_folder_that_may_not_be_read_are_not_missing(tmp_path, monkeypatch):
    """A listing leaves them out."""
    finish(Folder(tmp_path), SMALL)
    read, tree = Folder.read, Folder.tree

    def refusing(self, path):
        if path.startswith("results.zarr/reward/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return read(self, path)

    monkeypatch.setattr(Folder, "read", refusing)
    monkeypatch.setattr(
        Folder, "tree", lambda *where: [name for name in tree(*where) if not name.startswith("reward/")]
    )
    with pytest.raises(PermissionError):
        study_folder.prepare(Folder(tmp_path), SMALL)


def test_a_smaller_study_does_not_replace_a_larger_result_that_was_damaged_while_it_played(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    finish(folder, LARGE)
    flip(tmp_path / "results.zarr/zarr.json")
    study_folder.write_part(folder, SMALL.identities, arrays_of(SMALL, range(len(SMALL.runs))))
    before = files_of(tmp_path)
    with pytest.raises(SpecError, match=REFUSED):
        study_folder.build_if_complete(folder, SMALL)
    assert files_of(tmp_path) == before
    assert finish(folder, LARGE)[0] == 0
    check(tmp_path, LARGE)


@pytest.mark.parametrize("larger", [True, False])
def test_without_locks_a_result_that_another_process_has_just_written_is_examined(
    tmp_path, monkeypatch, larger
):
    """The other process ends between the examination of the folder and the exchange."""
    folder, real, begun = Folder(f"memory://{tmp_path.name}/out"), blocks.write, []
    other = LARGE if larger else OTHER
    study_folder.prepare(folder, SMALL)
    study_folder.write_part(folder, SMALL.identities, arrays_of(SMALL, range(len(SMALL.runs))))

    def write(*arguments):
        real(*arguments)
        if not begun:
            begun.append(arguments)
            study_folder.write_part(folder, other.identities, arrays_of(other, range(len(other.runs))))
            assert study_folder.build_if_complete(folder, other) == 0

    monkeypatch.setattr(blocks, "write", write)
    monkeypatch.setattr(study_folder.random, "uniform", lambda *_: 0.0)
    if larger:
        assert study_folder.build_if_complete(folder, SMALL) == 0
    else:
        with pytest.raises(OSError, match="meanwhile another study has written its result here"):
            study_folder.build_if_complete(folder, SMALL)
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(other))
    assert bool(folder.names("parts")) is not larger
