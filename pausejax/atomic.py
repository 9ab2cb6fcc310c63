"""Files that are there whole or not at all."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside a file for its new content, which then takes the file's place.

    A reader, or a restart after a crash, sees all of it or nothing new. What is written where something
    fails is removed.

    Raises:
      OSError: no space left, or the like.
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
