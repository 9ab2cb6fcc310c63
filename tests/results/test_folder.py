"""Files of arrays: read as they were written, and nothing in them is executed."""

import errno
import hashlib
import io
import os
import stat
import tempfile

import fsspec
import numpy as np
import pytest

from pausejax.results.folder import Folder


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("something was executed",))


def test_objects_in_a_file_of_arrays_are_refused(tmp_path):
    """Whoever writes the file can write its digest too."""
    archive = io.BytesIO()
    np.savez(archive, good=np.arange(3), evil=np.array([Evil()], object))
    content = archive.getvalue()
    (tmp_path / "part").write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(pytest.fail.Exception, match="was executed"):
        np.load(io.BytesIO(content), allow_pickle=True)["evil"]
    with pytest.raises(ValueError, match="allow_pickle"):
        Folder(tmp_path).read_arrays("part")


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    """A folder on the disk, or one under a URL."""
    made = Folder(tmp_path / "study" if request.param == "disk" else f"memory://{tmp_path.name}/study")
    made.make()
    yield made
    made.remove("")


def test_files_are_written_listed_moved_and_removed(folder):
    assert folder.names("") == [] and folder.names("nowhere") == [] and not folder.exists("a")
    folder.write("b/deep/two", b"2")
    folder.write("b/one", b"1")
    folder.write("a", b"first")
    folder.write("a", b"second")
    assert folder.read("a") == b"second" and folder.exists("b/one")
    assert folder.names("") == ["a", "b"] and folder.names("b") == ["deep", "one"]
    assert folder.tree("b") == ["deep/two", "one"] and folder.tree("") == ["a", "b/deep/two", "b/one"]
    folder.move("b", "c")
    assert folder.tree("c") == ["deep/two", "one"] and not folder.exists("b/one")
    folder.remove("c")
    folder.remove("never there")
    assert folder.names("") == ["a"]
    assert str(folder) == folder.location


def test_a_folder_that_the_disk_cant_rename_is_copied(tmp_path, monkeypatch):
    """An overlay refuses to rename a folder of its lower layer, such as one of a container's image."""
    folder, rename = Folder(tmp_path), os.rename
    folder.write("old/deep/two", b"2")
    folder.write("old/seal", b"1")

    def refuse(old, new):
        if os.path.isdir(old):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    folder.move("old", "new", "seal")
    assert folder.names("") == ["new"] and folder.tree("new") == ["deep/two", "seal"]
    assert (folder.read("new/deep/two"), folder.read("new/seal")) == (b"2", b"1")


def test_arrays_are_read_as_they_were_written(folder):
    folder.write_arrays("part", {"rows": np.arange(3), "values": np.array([[np.nan, 1.5]])})
    found = folder.read_arrays("part")
    assert set(found) == {"rows", "values"} and found["rows"].dtype == np.arange(3).dtype
    np.testing.assert_array_equal(found["values"], [[np.nan, 1.5]])
    folder.write("part", folder.read("part")[:-1] + b"?")
    with pytest.raises(ValueError, match="part: is damaged"):
        folder.read_arrays("part")


def test_other_libraries_open_a_folder_by_its_path_or_its_url(tmp_path):
    assert Folder(tmp_path).path("a/b") == f"{tmp_path}/a/b" and Folder(tmp_path).path() == str(tmp_path)
    url = Folder("memory://somewhere/else")
    url.write("a", b"content")
    with fsspec.open(url.path("a")) as file:
        assert url.path("a").startswith("memory://") and file.read() == b"content"
    assert not url.is_local and Folder(tmp_path).is_local


def test_chains_and_unknown_systems_are_no_folders():
    for location in ("simplecache::memory://a", "nothing-known://a"):
        with pytest.raises(ValueError, match=location.partition(":")[0]):
            Folder(location)


def test_a_lock_is_let_go_and_a_lease_when_it_is_closed(tmp_path):
    made = Folder(tmp_path)
    with made.lock("lock"):
        assert made.lease("lock") is None
    held = made.lease("lock")
    assert held is not None and made.lease("lock") is None
    os.close(held)
    again = made.lease("deeper/lock"), made.lease("lock")
    assert None not in again
    for lease in again:
        os.close(lease)
    with Folder("memory://locks").lock("any"), Folder("memory://locks").lock("any"):
        pass


def test_a_read_only_folder_can_be_locked_by_readers(tmp_path, monkeypatch):
    """As on a read-only file system, which `os.access` reports even to root."""
    Folder(tmp_path).write(".lock", b"")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    opened, flags_of = os.open, []
    monkeypatch.setattr(os, "open", lambda path, flags, *mode: flags_of.append(flags) or opened(path, flags))
    with Folder(tmp_path).lock(".lock", shared=True) as held:
        assert held
    assert not any(flags & (os.O_CREAT | os.O_RDWR) for flags in flags_of)


def test_a_folder_that_cannot_be_written_and_has_no_lock_file_is_read_without_a_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with Folder(tmp_path).lock(".lock", shared=True) as held:
        assert not held
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError), Folder(tmp_path / "absent").lock(".lock"):
        pass


def test_a_lock_file_serves_every_user_who_may_write_the_folder():
    """Its permissions are those of other files; one that only its owner may write can be locked too."""
    user, mask = os.geteuid(), os.umask(0o002)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        try:
            os.seteuid(user or 65534)  # root may write every file
            with Folder(place).lock("lock") as held:
                assert held
            path = os.path.join(place, "lock")
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o664
            os.chmod(path, 0o444)
            with Folder(place).lock("lock") as held:
                assert held and Folder(place).lease("lock") is None
        finally:
            os.seteuid(user)
            os.umask(mask)
