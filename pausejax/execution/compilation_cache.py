"""Stores compiled programs with checksums in the user's cache folder. A damaged program is compiled again.

JAX itself detects damage only by the compression of its files. With the package `zstandard`, or with Python
3.14, these files have no checksum, so JAX would execute a program with a flipped bit.
"""

import functools
from hashlib import blake2b
from pathlib import Path

from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

_DIGEST_BYTES = 16


class CheckedCache(CacheInterface):
    """JAX's cache of compiled programs, which stores a digest before each program."""

    def __init__(self, cache: CacheInterface) -> None:
        self._cache = cache
        self._path = cache._path

    def get(self, key: str) -> bytes | None:
        """Returns the program, or None if it is missing or damaged; a damaged program is removed."""
        kept = self._cache.get(key)
        if kept is None:
            return None
        program = kept[_DIGEST_BYTES:]
        if kept[:_DIGEST_BYTES] == _digest(key, program):
            return program
        # The cache does not overwrite an existing file, so the damaged file must be removed.
        Path(str(self._path), f"{key}-cache").unlink(missing_ok=True)
        return None

    def put(self, key: str, value: bytes) -> None:
        self._cache.put(key, _digest(key, value) + value)


def check_programs(folder: str) -> None:
    """Makes JAX use a `CheckedCache` when its persistent compilation cache is `folder`."""
    given = compilation_cache.get_file_cache

    @functools.wraps(given)
    def get_file_cache(path: str) -> tuple[CacheInterface, str] | None:
        found = given(path)
        if path != folder or found is None or isinstance(found[0], CheckedCache):
            return found
        return CheckedCache(found[0]), found[1]

    compilation_cache.get_file_cache = get_file_cache


def _digest(key: str, program: bytes) -> bytes:
    """Returns the digest of a program together with its key. So a program under a wrong key is detected."""
    return blake2b(key.encode() + b"\0" + program, digest_size=_DIGEST_BYTES).digest()
