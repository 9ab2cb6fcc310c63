"""Compiled programs in the user's cache folder, each with a checksum: a damaged one is compiled anew.

JAX leaves it to the compression to notice damage, and Zstandard's frames carry no checksum: with the package
`zstandard`, or with Python 3.14, a flipped bit would be executed.
"""

import functools
from hashlib import blake2b
from pathlib import Path

from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

_DIGEST_BYTES = 16


class CheckedCache(CacheInterface):
    """JAX's cache of compiled programs, with a digest before each."""

    def __init__(self, cache: CacheInterface) -> None:
        self._cache = cache
        self._path = cache._path

    def get(self, key: str) -> bytes | None:
        """Returns the program, or None if it is not there or not as it was put; a damaged one is removed."""
        kept = self._cache.get(key)
        if kept is None:
            return None
        program = kept[_DIGEST_BYTES:]
        if kept[:_DIGEST_BYTES] == _digest(key, program):
            return program
        # What lies there would otherwise keep its place: a cache puts nothing over what it has.
        Path(str(self._path), f"{key}-cache").unlink(missing_ok=True)
        return None

    def put(self, key: str, value: bytes) -> None:
        self._cache.put(key, _digest(key, value) + value)


def check_programs(folder: str) -> None:
    """Lets JAX use a `CheckedCache` wherever its persistent compilation cache is this folder."""
    given = compilation_cache.get_file_cache

    @functools.wraps(given)
    def get_file_cache(path: str) -> tuple[CacheInterface, str] | None:
        found = given(path)
        if path != folder or found is None or isinstance(found[0], CheckedCache):
            return found
        return CheckedCache(found[0]), found[1]

    compilation_cache.get_file_cache = get_file_cache


def _digest(key: str, program: bytes) -> bytes:
    """Of the name too: a file under another's name holds another program."""
    return blake2b(key.encode() + b"\0" + program, digest_size=_DIGEST_BYTES).digest()
