"""A study's folder, on this machine's disk or under an fsspec URL: whole files, written atomically."""

import contextlib
import errno
import hashlib
import io
import os
import posixpath
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from pausejax.atomic import check_regular, renamed_or_copied, replacing

_DIGEST_SIZE = hashlib.sha256().digest_size
_ATTEMPTS = 5
_T = TypeVar("_T")


class Folder:
    """Folder of files by name, with `/` between levels. A file is stored completely or not at all."""

    def __init__(self, location: str | Path) -> None:
        """Opens a folder at a path or a URL.

        Raises:
          ValueError: the URL's file system is unknown or not installed, or the location is a chain of URLs or
            a pattern.
          OSError: the URL's file system can't be reached.
        """
        self.location = str(location)
        if "::" in self.location:
            # fsspec treats :: as a chain, and would read through the caches, archives or servers that the
            # chain names.
            raise ValueError(f"{self.location}: must be a folder or one URL, without ::")
        self.is_local = False
        try:
            with self.errors():
                self._files, self._root = fsspec.core.url_to_fs(self.location)
        except ImportError as error:
            raise ValueError(f"{self.location}: {error}") from error
        self.is_local = isinstance(self._files, LocalFileSystem)
        if not self.is_local and any(sign in self._root for sign in "*?["):
            raise ValueError(f"{self.location}: a URL must have none of * ? [, which stand for other names")

    def __str__(self) -> str:
        return self.location

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the errors of a URL's library that are none of Python's into OSErrors of one line."""
        try:
            yield
        except (ImportError, MemoryError, NotImplementedError, OSError, ValueError):
            raise
        except Exception as error:
            if self.is_local:
                raise
            line = str(error).partition("\n")[0] or type(error).__name__
            raise OSError(f"{self.location}: {line}") from error

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the file system."""
        with self.errors():
            return getattr(self._files, method)(*arguments, **options)

    def path(self, name: str = "") -> str:
        """Returns the path or URL by which other libraries open a file or folder."""
        inside = posixpath.join(self._root, name) if name else self._root
        return inside if self.is_local else self._files.unstrip_protocol(inside)

    def make(self) -> None:
        """Makes the folder, and checks that files can be written into it.

        Raises:
          OSError: the folder can't be made, or files can't be written into it.
        """
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self._call("makedirs", self._root, exist_ok=True)
            self.write(probe, b"")
        except NotImplementedError as error:
            raise OSError(f"{self.location}: nothing can be written there") from error
        self.remove(probe)

    def exists(self, name: str) -> bool:
        return bool(self._call("exists", self._inside(name)))

    def names(self, folder: str) -> list[str]:
        """Returns the sorted names of what `folder` contains; an empty list if it does not exist."""
        self._call("invalidate_cache")
        try:
            found = self._call("ls", self._inside(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(posixpath.basename(path.rstrip("/")) for path in found)

    def tree(self, folder: str) -> list[str]:
        """Returns the sorted paths, relative to a folder, of all files in it and its subfolders.

        Raises:
          OSError: a path is neither a file nor a folder; opening it, such as a pipe, might never return.
        """
        self._call("invalidate_cache")
        root = self._inside(folder)
        found = self._call("find", root)
        for path in found if self.is_local else ():
            check_regular(path)
        return sorted(posixpath.relpath(path, root) for path in found)

    def read(self, name: str) -> bytes:
        path = self._inside(name)
        if self.is_local:
            check_regular(path)
        content: bytes = self._call("cat_file", path)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes a file. A reader, or a restart after a crash, sees the whole new file or the old state."""
        path = self._inside(name)
        if not self.is_local:
            # An object store shows an object only after it has been written completely.
            self._call("makedirs", posixpath.dirname(path), exist_ok=True)
            self._call("pipe_file", path, content)
            return

        def put() -> None:
            with replacing(Path(path)) as partial:
                partial.write_bytes(content)

        self._inside_its_folder(path, put)

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Returns the named arrays of a file that `write_arrays` wrote.

        Raises:
          OSError: the file can't be read.
          ValueError: the file is damaged.
        """
        content = self.read(name)
        archive, digest = content[:-_DIGEST_SIZE], content[-_DIGEST_SIZE:]
        if hashlib.sha256(archive).digest() != digest:
            raise ValueError(f"{name}: is damaged")
        with np.load(io.BytesIO(archive), allow_pickle=False) as file:
            return dict(file)

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray], *, compressed: bool = False) -> None:
        """Writes named arrays into one file, as `write` does.

        The file ends with a digest of the archive, because the checksums of an archive's members do not cover
        the archive's directory.
        """
        archive = io.BytesIO()
        named: dict[str, Any] = dict(arrays)
        (np.savez_compressed if compressed else np.savez)(archive, **named)
        content = archive.getvalue()
        self.write(name, content + hashlib.sha256(content).digest())

    def remove(self, name: str, seal: str = "") -> None:
        """Removes a file, or a folder with its content, if it exists.

        If the name is a link, only the link is removed, because the target may belong to another user.

        Args:
          name: the name of the file or folder.
          seal: the name of the file in the folder that marks the folder as complete; it is removed first.
        """
        if self.is_local and os.path.islink(self._inside(name)):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.unlink(self._inside(name))
            return
        if seal:
            self.remove(f"{name}/{seal}")
        for _ in range(_ATTEMPTS):
            try:
                self._call("rm", self._inside(name), recursive=True)
                return
            except FileNotFoundError:
                if not self.exists(name):
                    return
            except OSError as error:
                # Another process writes into the folder. Files that it added last may remain.
                if error.errno != errno.ENOTEMPTY:
                    raise

    def remove_if_empty(self, name: str) -> None:
        """Removes a folder if it is empty."""
        if self.is_local:
            with contextlib.suppress(OSError):
                os.rmdir(self._inside(name))
        elif not self.names(name):  # some remote file systems keep empty folders
            self.remove(name)

    def move(self, old: str, new: str, seal: str = "") -> None:
        """Renames a folder: in one step on a disk, file by file under a URL or if the disk can't rename it.

        Args:
          old: the present name of the folder.
          new: the new name of the folder, which must not exist.
          seal: the file that marks the folder as complete. In a copied folder it is written last.
        """
        if self.is_local:
            if not renamed_or_copied(self._inside(old), self._inside(new), seal):
                self.remove(old, seal)
            return
        try:
            for names in ([name for name in self.tree(old) if name != seal], [seal] if seal else []):
                pairs = [(self._inside(f"{old}/{name}"), self._inside(f"{new}/{name}")) for name in names]
                self._call("copy", [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        except NotImplementedError:  # the file system can't copy, so it renames
            self._call("mv", self._inside(old), self._inside(new), recursive=True)
        self.remove(old, seal)

    @contextlib.contextmanager
    def lock(self, name: str, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
        """Locks a file during the context, if the folder is on a disk whose system supports locks.

        The system releases the lock when its process ends for any reason.

        Args:
          name: the name of the file to lock.
          shared: whether other processes may hold the lock at the same time, if they share it too.
          wait: whether to wait until other processes release the lock.

        Yields:
          Whether this process holds the lock. The value is False if the system has no locks, if the folder is
          read-only and lacks the file, or if another process holds the lock and `wait` is false.
        """
        fixed = self.is_local and os.path.isdir(self._root) and not os.access(self._root, os.W_OK)
        if not self.is_local or (fixed and not self.exists(name)):
            yield False
            return
        file, held = self._locked(name, shared=shared, wait=wait)
        try:
            yield bool(held)
        finally:
            os.close(file)

    def lease(self, name: str) -> int | None:
        """Returns the descriptor of a locked file; None if another process holds the lock.

        The lock is held until the descriptor is closed. If the system has no locks, every process gets a
        descriptor.
        """
        file, held = self._inside_its_folder(
            self._inside(name), lambda: self._locked(name, shared=False, wait=False)
        )
        if held is False:
            os.close(file)
            return None
        return file

    def _locked(self, name: str, *, shared: bool, wait: bool) -> tuple[int, bool | None]:
        """Returns a file's descriptor and whether the file is locked, or None if the system has no locks."""
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
            # The previous holder may have removed the file. A lock on a removed file excludes no process.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(self._inside(name))):
                    return file, True
            os.close(file)

    def _inside_its_folder(self, path: str, act: Callable[[], _T]) -> _T:
        """Makes the folder of a path and calls `act`.

        Repeats both steps if another process removes the folder.
        """
        for _ in range(_ATTEMPTS):
            os.makedirs(posixpath.dirname(path), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                return act()
        return act()

    def _opened(self, name: str) -> int:
        """Opens a file to lock, which must be no link, without truncating it; returns its descriptor."""
        path, follow_no_link = self._inside(name), getattr(os, "O_NOFOLLOW", 0)
        if os.access(posixpath.dirname(path), os.W_OK):
            with contextlib.suppress(PermissionError):  # the file belongs to another user
                return os.open(path, os.O_CREAT | os.O_RDWR | follow_no_link, 0o666)
        return os.open(path, os.O_RDONLY | follow_no_link)  # this suffices to lock a file

    def _inside(self, name: str) -> str:
        return posixpath.join(self._root, name)
