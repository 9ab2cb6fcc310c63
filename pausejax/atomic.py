"""Replaces files atomically: a file is stored completely or not at all."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` for its new content, and renames it to `path` when the context ends.

    A reader, or a restart after a crash, sees the whole new file or the old state. If the context fails, the
    new content is removed.

    Raises:
      OSError: the file can't be written.
    """
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
