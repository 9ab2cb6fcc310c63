"""Replaces files atomically, and moves folders."""

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path


class IrregularFile(OSError):
    """A path is not a regular file but, for example, a folder or a pipe."""


def check_regular(path: str) -> None:
    """Raises an `IrregularFile` if a path is no regular file, and an OSError if there is nothing."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise IrregularFile(f"{path}: must be a regular file")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` for its new content, and renames it to `path` when the context ends.

    A reader, or a restart after a crash, sees the whole new file or the old state. If the context fails, the
    new content is removed. The file beside `path` is locked until it is renamed: a process that removes the
    files of killed processes keeps locked ones.

    Raises:
      OSError: the file can't be written.
    """
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as lock:
            with contextlib.suppress(OSError, ImportError):
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield partial
            os.fsync(lock.fileno())
            os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def renamed_or_copied(old: str, new: str, seal: str) -> bool:
    """Renames a folder. Copies it if the file system can't rename it, as in a container's image.

    Args:
      old: the present path of the folder.
      new: the new path of the folder.
      seal: the name of the file that marks the folder as complete. It is copied last.

    Returns:
      True if the folder was renamed; False if it was copied.

    Raises:
      OSError: the folder can't be read or written.
    """
    try:
        os.rename(old, new)
        return True
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    shutil.copytree(old, new, ignore=shutil.ignore_patterns(seal), dirs_exist_ok=True)
    if seal:
        shutil.copy2(os.path.join(old, seal), os.path.join(new, seal))
    return False
