"""A study's folder, on this machine's disk or under an fsspec URL: whole files, written atomically."""

import contextlib
import errno
import hashlib
import io
import os
import posixpath
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from pausejax.atomic import replacing

_DIGEST_SIZE = hashlib.sha256().digest_size
_ATTEMPTS = 5
MARK = ".mark-"
"""How names of files begin by which a folder is known; those of killed processes go when nobody plays."""
_T = TypeVar("_T")


class IrregularFile(OSError):
    """A folder, a pipe or the like lies in the place of a file."""


class Folder:
    """Files by name, `/` between levels. A file is there whole or not at all."""

    def __init__(self, location: str | Path) -> None:
        """Takes a path or a URL.

        Raises:
          ValueError: a URL of a file system that is not known or not installed, or a chain of several.
        """
        self.location = str(location)
        if "::" in self.location:
            # Such a name makes fsspec go through caches, archives or servers that it lists.
            raise ValueError(f"{self.location}: must be a folder or one URL, without ::")
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.location)
        except ImportError as error:
            raise ValueError(f"{self.location}: {error}") from error
        self.is_local = isinstance(self._files, LocalFileSystem)

    def __str__(self) -> str:
        return self.location

    def path(self, name: str = "") -> str:
        """Returns what other libraries open a file or folder by: a path, or a URL."""
        inside = posixpath.join(self._root, name) if name else self._root
        return inside if self.is_local else self._files.unstrip_protocol(inside)

    def make(self) -> None:
        """Makes the folder, and shows that files can be written into it.

        Raises:
          OSError: they can't.
        """
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self._files.makedirs(self._root, exist_ok=True)
            self.write(probe, b"")
        except NotImplementedError as error:
            raise OSError(f"{self.location}: nothing can be written there") from error
        self.remove(probe)

    def exists(self, name: str) -> bool:
        return self._files.exists(self._inside(name))

    def names(self, folder: str) -> list[str]:
        """Names within a folder, sorted; none if it isn't there."""
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._inside(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(posixpath.basename(path.rstrip("/")) for path in found)

    def tree(self, folder: str) -> list[str]:
        """Returns the files at any depth within a folder, by their path in it, sorted.

        Raises:
          OSError: something is there that is neither file nor folder: whoever opened it might wait for ever.
        """
        self._files.invalidate_cache()
        root = self._inside(folder)
        found = self._files.find(root)
        for path in found if self.is_local else ():
            _check_regular(path)
        return sorted(posixpath.relpath(path, root) for path in found)

    def read(self, name: str) -> bytes:
        path = self._inside(name)
        if self.is_local:
            _check_regular(path)
        return self._files.cat_file(path)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file so that a reader, or a restart after a crash, sees all of it or nothing new."""
        path = self._inside(name)
        if not self.is_local:
            # An object store shows an object when all of it is there.
            self._files.makedirs(posixpath.dirname(path), exist_ok=True)
            self._files.pipe_file(path, content)
            return

        def put() -> None:
            with replacing(Path(path)) as partial:
                partial.write_bytes(content)

        self._inside_its_folder(path, put)

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Reads what `write_arrays` wrote.

        Raises:
          OSError: the file can't be read.
          ValueError: it is damaged.
        """
        content = self.read(name)
        archive, digest = content[:-_DIGEST_SIZE], content[-_DIGEST_SIZE:]
        if hashlib.sha256(archive).digest() != digest:
            raise ValueError(f"{name}: is damaged")
        with np.load(io.BytesIO(archive), allow_pickle=False) as file:
            return dict(file)

    def write_arrays(self, name: str, **arrays: np.ndarray) -> None:
        """Writes arrays by name into one file, as `write`.

        A digest of the whole comes last: the checksums of an archive's members do not cover its directory.
        """
        archive = io.BytesIO()
        named: dict[str, Any] = dict(arrays)
        np.savez(archive, **named)
        content = archive.getvalue()
        self.write(name, content + hashlib.sha256(content).digest())

    def remove(self, name: str, seal: str = "") -> None:
        """Removes a file or a folder with all that is in it; nothing happens if it isn't there.

        Of a link the link alone goes: what it points to may be somebody else's.

        Args:
          name: of the file or folder.
          seal: the file in it that declares it whole; it goes first.
        """
        if self.is_local and os.path.islink(self._inside(name)):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.unlink(self._inside(name))
            return
        if seal:
            self.remove(f"{name}/{seal}")
        for _ in range(_ATTEMPTS):
            try:
                self._files.rm(self._inside(name), recursive=True)
                return
            except FileNotFoundError:
                if not self.exists(name):
                    return
            except OSError as error:
                # Another process writes into it: what it has added last may stay.
                if error.errno != errno.ENOTEMPTY:
                    raise

    @contextlib.contextmanager
    def marked(self) -> Iterator[str]:
        """Keeps a file in the folder by which a process on another node can tell that it sees this one."""
        name = f"{MARK}{uuid.uuid4().hex}"
        self.write(name, b"")
        try:
            yield name
        finally:
            with contextlib.suppress(OSError):
                self.remove(name)

    def remove_if_empty(self, name: str) -> None:
        """Removes a folder without content; one with content stays."""
        if self.is_local:
            with contextlib.suppress(OSError):
                os.rmdir(self._inside(name))
        elif not self.names(name):  # some file systems under URLs keep empty folders
            self.remove(name)

    def move(self, old: str, new: str, seal: str = "") -> None:
        """Renames a folder: in one step on a disk, file by file under a URL.

        Args:
          old: the name.
          new: the new name, which nothing may have yet.
          seal: the file that marks the folder as complete. Under a URL it is copied last and removed first.
        """
        if self.is_local:
            os.rename(self._inside(old), self._inside(new))
            return
        try:
            for names in ([name for name in self.tree(old) if name != seal], [seal] if seal else []):
                pairs = [(self._inside(f"{old}/{name}"), self._inside(f"{new}/{name}")) for name in names]
                self._files.copy([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        except NotImplementedError:  # it renames, then
            self._files.mv(self._inside(old), self._inside(new), recursive=True)
        self.remove(old, seal)

    @contextlib.contextmanager
    def lock(self, name: str, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
        """Keeps other processes that lock the same name waiting; only on a disk whose system can.

        The system releases the lock when its process ends, however it ends.

        Args:
          name: of the file that is locked.
          shared: whether others may hold the lock as well, if they share it too.
          wait: whether to wait for those who hold it.

        Yields:
          Whether the lock is held; not where the system has none, nor, without waiting, if others hold it.
        """
        if not self.is_local:
            yield False
            return
        file, held = self._locked(name, shared=shared, wait=wait)
        try:
            yield bool(held)
        finally:
            os.close(file)

    def lease(self, name: str) -> int | None:
        """Returns a lock that is held until the descriptor is closed; None if another process holds it.

        Where the system has no locks every process gets one.
        """
        file, held = self._inside_its_folder(
            self._inside(name), lambda: self._locked(name, shared=False, wait=False)
        )
        if held is False:
            os.close(file)
            return None
        return file

    def _locked(self, name: str, *, shared: bool, wait: bool) -> tuple[int, bool | None]:
        """Returns a file's descriptor, and whether it is locked; None: the system has no locks."""
        while True:
            file = self._opened(name)
            try:
                import fcntl

                how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
            except BlockingIOError:
                return file, False
            except (OSError, ImportError):
                return file, None
            # Whoever held it may have removed the file: a lock on what has no name any more excludes nobody.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(self._inside(name))):
                    return file, True
            os.close(file)

    def _inside_its_folder(self, path: str, act: Callable[[], _T]) -> _T:
        """Makes the folder of a path and acts in it; again if another process removes the empty folder."""
        for _ in range(_ATTEMPTS):
            os.makedirs(posixpath.dirname(path), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                return act()
        return act()

    def _opened(self, name: str) -> int:
        """Returns a file to lock; never one elsewhere that a link points to, and never emptied."""
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
        return os.open(self._inside(name), flags, 0o644)

    def _inside(self, name: str) -> str:
        return posixpath.join(self._root, name)


def _check_regular(path: str) -> None:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise IrregularFile(f"{path}: is no regular file")
