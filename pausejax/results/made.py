"""How a result was made: on which devices, with which versions, by which command.

Whoever simulates runs says so before the first of them is written, in a small file beside the parts; equal
records are one file. When the parts become the result, the records become an attribute, `analysis.made`.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import platform
import re

import xarray as xr

from pausejax.analysis.made import Record, records_in
from pausejax.devices import local_devices
from pausejax.results.folder import Folder
from pausejax.version import __version__

_ENDING = ".made.json"
_PASSWORD = re.compile(r"(?<=://)[^/\s@]*@")


def versions() -> dict[str, str]:
    """Of what numbers depend on."""
    found = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {**found, "pausejax": __version__, "python": platform.python_version()}


def record(command: str = "") -> Record:
    """How this process simulates.

    Args:
      command: as it was typed; user names and passwords in URLs are left out. "": there was none.
    """
    return Record(command=_PASSWORD.sub("…@", command), devices=local_devices(), versions=versions())


def keep(folder: Folder, parts: str, command: str) -> None:
    """Puts this process's record beside the parts.

    Raises:
      OSError: no space left, or the like.
    """
    text = json.dumps(record(command), sort_keys=True).encode()
    name = f"{parts}/{hashlib.sha256(text).hexdigest()[:16]}{_ENDING}"
    if not folder.exists(name):
        folder.write(name, text)


def names(folder: Folder, parts: str) -> list[str]:
    """The files of records."""
    return [f"{parts}/{name}" for name in folder.names(parts) if name.endswith(_ENDING)]


def gathered(folder: Folder, parts: str, result: str | None) -> list[Record]:
    """The records of parts, and of an older result that is sound; damaged ones are left out."""
    found: list[Record] = []
    for name in names(folder, parts):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(folder.read(name)))
    if result is not None:
        with contextlib.suppress(Exception):  # of a store's libraries
            found += records_in(
                xr.open_zarr(folder.path(result), chunks=None, consolidated=True, zarr_format=3)
            )
    return found
