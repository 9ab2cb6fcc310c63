"""A study's folder, on this machine's disk or under an fsspec URL: whole files, written atomically."""

import contextlib
import hashlib
import io
import os
import posixpath
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from pausejax.atomic import replacing

_DIGEST_SIZE = hashlib.sha256().digest_size


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
            raise ValueError(f"{self.location}: {error}") from None
        self.is_local = isinstance(self._files, LocalFileSystem)

    def __str__(self) -> str:
        return self.location

    def path(self, name: str = "") -> str:
        """What other libraries open a file or folder by: a path, or a URL."""
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
        except NotImplementedError:
            raise OSError(f"{self.location}: nothing can be written there") from None
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
        """The files at any depth within a folder, by their path in it, sorted.

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
        self._files.makedirs(posixpath.dirname(path), exist_ok=True)
        if not self.is_local:
            # An object store shows an object when all of it is there.
            self._files.pipe_file(path, content)
            return
        with replacing(Path(path)) as partial:
            partial.write_bytes(content)

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

    def remove(self, name: str) -> None:
        """Removes a file or a folder with all that is in it; nothing happens if it isn't there."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self._inside(name), recursive=True)

    def move(self, old: str, new: str) -> None:
        """Renames a file or a folder; at once on a disk, object by object under a URL."""
        if self.is_local:
            os.rename(self._inside(old), self._inside(new))
        else:
            self._files.mv(self._inside(old), self._inside(new), recursive=True)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keeps other processes that lock the same name waiting; only on a disk whose system can.

        The system lets go of the lock when its process ends, however it ends.
        """
        if not self.is_local:
            yield
            return
        file = self._opened(name)
        try:
            with contextlib.suppress(OSError, ImportError):
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def lease(self, name: str) -> int | None:
        """A lock that is held until the descriptor is closed; None if somebody else holds it.

        Where there are no locks everybody gets one.
        """
        os.makedirs(posixpath.dirname(self._inside(name)), exist_ok=True)
        file = self._opened(name)
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except (OSError, ImportError):
            pass
        return file

    def _opened(self, name: str) -> int:
        """A file to lock; never one elsewhere that a link points to, and never emptied."""
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
        return os.open(self._inside(name), flags, 0o644)

    def _inside(self, name: str) -> str:
        return posixpath.join(self._root, name)


def _check_regular(path: str) -> None:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path}: is no regular file")
