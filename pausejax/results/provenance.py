"""How a result was made: on which devices, with which versions, by which command.

Whoever simulates runs says so in every part. When the parts become the result, the records become an
attribute, `analysis.made`.
"""

import importlib.metadata
import platform
import re

from pausejax.analysis.made import Record
from pausejax.devices import local_devices
from pausejax.version import __version__

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
