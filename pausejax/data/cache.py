"""Caches arrays on disk. A checksum verifies the arrays when they are read."""

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs

from pausejax.atomic import replacing

_DIGEST = "sha256"


def cache_dir() -> Path:
    """Returns the cache folder: `$PAUSEJAX_CACHE_DIR`, or the user's cache folder."""
    return Path(os.environ.get("PAUSEJAX_CACHE_DIR") or platformdirs.user_cache_dir("pausejax"))


def read(path: Path) -> dict[str, np.ndarray] | None:
    """Returns the arrays that `write` stored; None without a file, and with a warning if the file is
    damaged."""
    try:
        # Opened here, because NumPy does not close a file that it can't read.
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop(_DIGEST)) == _digest(path.name, arrays):
            return arrays
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception:  # a damaged archive can raise many types of errors
        pass
    warnings.warn(f"the cached file {path} is damaged. It is built again", stacklevel=2)
    return None


def cached(name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the arrays that the cache has under a name; makes and stores them if it has none."""
    path = cache_dir() / "data" / f"{name}.npz"
    arrays = read(path)
    if arrays is None:
        arrays = make()
        write(path, arrays)
    return arrays


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Stores named arrays with their checksum; a reader sees the old or the new file, never a partial file.

    If the folder can't be written, the function only warns; the next start is then slower.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, **arrays, **{_DIGEST: np.array(_digest(path.name, arrays))})  # type: ignore[arg-type]
    except OSError as error:
        warnings.warn(f"the file {path} of the cache can't be written: {error}", stacklevel=2)


def _digest(file: str, arrays: dict[str, np.ndarray]) -> str:
    """Returns the SHA-256 over a file's name and the arrays' names, types, shapes and contents."""
    digest = hashlib.sha256(f"{file};".encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.data)
    return digest.hexdigest()
