"""Folders under a URL: names that are patterns, errors of the URL's library, results in mid-move."""

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import pausejax
from pausejax.commands import main as cli
from pausejax.results import manifest, study_folder
from pausejax.results.folder import Folder

from .studies import finish, make

SPEC = 'mode = "bandit"\nrounds = 5\n[[policy]]\nname = "random"\n'


class LibraryError(Exception):
    """As botocore's errors: none of Python's own."""


class Unreachable(MemoryFileSystem):
    protocol = "unreachable"

    def _fail(self, *_, **__):
        raise LibraryError("no credentials\nor so")

    ls = find = info = exists = cat_file = makedirs = pipe_file = rm = _fail


@pytest.fixture
def unreachable():
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    return "unreachable://study"


@pytest.mark.parametrize("name", ["run[1]", "?", "run*", "a[lr=0.1]/b"])
def test_a_url_that_is_a_pattern_is_refused(tmp_path, name, capsys):
    """Removing a file by such a name would remove others."""
    finish(Folder("memory://lab/run1"), make(seeds=1))
    with pytest.raises(ValueError, match=r"must have none of \* \? \["):
        Folder(f"memory://lab/{name}")
    (tmp_path / "spec.toml").write_text(SPEC)
    assert cli.main(["run", str(tmp_path / "spec.toml"), "--out", f"memory://lab/{name}"]) == cli.FAILED
    assert capsys.readouterr().err.count("\n") == 1
    assert pausejax.open("memory://lab/run1").sizes["run"] == 2


def test_on_a_disk_such_a_name_is_a_name(tmp_path):
    for name, seeds in (("run1", 1), ("run[1]", 2), ("run?", 3)):
        finish(Folder(tmp_path / name), make(seeds=seeds))
    assert [pausejax.open(tmp_path / name).sizes["run"] for name in ("run1", "run[1]", "run?")] == [2, 4, 6]


def test_an_error_of_the_library_is_one_line(tmp_path, unreachable, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    spec = str(tmp_path / "spec.toml")
    for typed in (["run", spec, "--out"], ["plan", spec, "--out"], ["best"], ["report"], ["export"]):
        assert cli.main([*typed, unreachable]) == cli.FAILED
        assert capsys.readouterr().err == f"pausejax: {unreachable}: no credentials\n"


def test_an_error_of_the_library_while_the_result_is_written_is_an_oserror(monkeypatch, tmp_path):
    """There, other libraries write files."""
    folder, plan = Folder(f"memory://{tmp_path.name}/out"), make(seeds=1)

    def fail(*_, **__):
        raise LibraryError

    with monkeypatch.context() as patch:
        patch.setattr("xarray.Dataset.to_zarr", fail)
        patch.setattr(study_folder.random, "uniform", lambda *_: 0.0)
        with pytest.raises(OSError, match="LibraryError"):
            finish(folder, plan)
    assert finish(folder, plan) == (0, 0)


def test_an_error_on_a_disk_stays_what_it_is(tmp_path):
    with pytest.raises(LibraryError), Folder(tmp_path).errors():
        raise LibraryError


def test_a_result_that_is_being_moved_is_not_called_damaged(tmp_path, monkeypatch):
    """Its manifest is the last of its files."""
    monkeypatch.setattr("pausejax.results.snapshot.PAUSES", (0.0,))
    folder = Folder(f"memory://{tmp_path.name}/out")
    finish(folder, make(seeds=1))
    sealed = folder.read(f"results.zarr/{manifest.NAME}")
    folder.remove(f"results.zarr/{manifest.NAME}")
    with pytest.raises(OSError, match=r"is incomplete\. Another process is writing it, or was killed then"):
        pausejax.open(folder.location)
    folder.write(f"results.zarr/{manifest.NAME}", sealed[1:])
    with pytest.raises(ValueError, match=r"results\.zarr is damaged"):
        pausejax.open(folder.location)
