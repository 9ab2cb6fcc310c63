"""Reads a result as it was when it was opened. If the result has changed since, reading raises an error.

When a study is extended, a new store replaces the old store. A chunk of the new store may hold other runs.
Values are read when they are used. So each file is compared with the manifest that was read when the result
was opened.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import xarray as xr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from pausejax.results import manifest
from pausejax.results.folder import Folder
from pausejax.results.manifest import Manifest

PAUSES = (0.2, 1.0, 5.0)
"""Seconds between two checks of whether a store under a URL is being replaced."""


class Replaced(OSError):
    """A store has been replaced or removed since it was opened."""


class Snapshot(Store):
    """Read-only Zarr store of the files of one manifest."""

    def __init__(self, folder: Folder, name: str, sealed: Manifest) -> None:
        super().__init__(read_only=True)
        self._folder, self._name, self._sealed = folder, name, sealed

    def read(self, key: str) -> bytes:
        """Returns a file's content.

        Raises:
          OSError: the store has been replaced or removed since it was opened, or the file can't be read.
          ValueError: the file is damaged.
        """
        try:
            content = self._folder.read(f"{self._name}/{key}")
        except manifest.GONE:
            content = None
        if content is None or manifest.digest(content) != self._sealed.files[key]:
            raise self._error(key)
        return content

    def _error(self, key: str) -> Exception:
        """Returns the error for a file that does not match the manifest."""
        where = f"{self._folder}: {self._name}"
        # Under a URL a store is replaced file by file.
        for pause in (0.0, *(() if self._folder.is_local else PAUSES)):
            time.sleep(pause)
            if not is_sealed(self._folder, self._name, self._sealed):
                what = "has been extended or removed since it was opened. Open it again"
                return Replaced(f"{where} {what}")
        return ValueError(f"{where} is damaged ({key}). The same `pausejax run` or `search` repairs it")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Snapshot({self._folder.path(self._name)!r})"

    @property
    def _identity(self) -> tuple[str, str]:
        return self._folder.path(self._name), self._sealed.sha256

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if key not in self._sealed.files:
            return None
        if byte_range is not None:  # only sharded arrays need it, and results have none
            raise NotImplementedError("parts of files")
        content = await asyncio.to_thread(self.read, key)
        return (prototype or default_buffer_prototype()).buffer.from_bytes(content)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self._sealed.files

    async def list(self) -> AsyncIterator[str]:
        for key in self._sealed.files:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self._sealed.files:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        inside = f"{prefix.rstrip('/')}/" if prefix else ""
        names = {key[len(inside) :].partition("/")[0] for key in self._sealed.files if key.startswith(inside)}
        for name in sorted(names):
            yield name

    supports_writes = supports_deletes = supports_partial_writes = False
    supports_listing = True

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()


def is_sealed(folder: Folder, name: str, sealed: Manifest) -> bool:
    """Returns whether a store still has the manifest `sealed`."""
    try:
        return manifest.read(folder, name).sha256 == sealed.sha256
    except (OSError, ValueError):
        return False


def opened(folder: Folder, name: str, sealed: Manifest, **options: Any) -> xr.Dataset:
    """Opens a store. A file of values is read and compared with the manifest when the values are used.

    Args:
      folder: the folder of the study.
      name: the name of the store in the folder.
      sealed: the manifest of the store.
      **options: further arguments of `xarray.open_zarr`.
    """
    return xr.open_zarr(Snapshot(folder, name, sealed), consolidated=True, zarr_format=3, **options)


def described(folder: Folder, name: str, sealed: Manifest, **options: Any) -> xr.Dataset:
    """Checks the files that describe a store's values, then opens the store like the function `opened`.

    Raises:
      KeyError, TypeError, ValueError: one of these files is damaged; no value has been decoded.
      OSError: one of these files can't be read.
    """
    broken = manifest.damaged(folder, name, sealed, sealed.described)
    if broken:
        raise ValueError(f"{broken[0]} and {len(broken) - 1} other files" if broken[1:] else broken[0])
    manifest.check_chunks(folder, name, sealed)
    return opened(folder, name, sealed, **options)
