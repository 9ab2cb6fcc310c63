"""Reads and writes JSON with a digest of its content, so that a damaged file is detected."""

import hashlib
import json
from typing import Any

from pausejax.results.folder import Folder


def write_sealed(folder: Folder, name: str, content: Any) -> None:
    """Writes plain data with a digest into a file, completely or not at all. Keys keep their order.

    Raises:
      OSError: the file can't be written.
    """
    sealed = {"content": content, "sha256": digest_of(content)}
    folder.write(name, json.dumps(sealed, indent=1).encode())


def read_sealed(folder: Folder, name: str) -> Any:
    """Returns the data that `write_sealed` wrote.

    Raises:
      OSError: the file can't be read; a FileNotFoundError if it does not exist.
      ValueError: the file is damaged.
    """
    try:
        sealed = json.loads(folder.read(name))
        content, digest = sealed["content"], sealed["sha256"]
    except (KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name}: is damaged ({error})") from error
    if digest != digest_of(content):
        raise ValueError(f"{name}: is damaged (its content does not match its digest)")
    return content


def digest_of(content: Any) -> str:
    """Returns the SHA-256 of plain data. The order of keys does not change the SHA-256."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
