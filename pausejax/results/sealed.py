"""JSON with a digest of its content: what was altered on the disk is not read."""

import hashlib
import json
from typing import Any

from pausejax.results.folder import Folder


def write_sealed(folder: Folder, name: str, content: Any) -> None:
    """Writes plain data into a file, whole or not at all, with a digest of them. Keys keep their order.

    Raises:
      OSError: no space left, or the like.
    """
    sealed = {"content": content, "sha256": digest_of(content)}
    folder.write(name, json.dumps(sealed, indent=1).encode())


def read_sealed(folder: Folder, name: str) -> Any:
    """Reads what `write_sealed` wrote.

    Raises:
      OSError: the file can't be read; FileNotFoundError: there is none.
      ValueError: it is damaged.
    """
    try:
        sealed = json.loads(folder.read(name))
        content, digest = sealed["content"], sealed["sha256"]
    except (KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name}: is damaged ({error})") from error
    if digest != digest_of(content):
        raise ValueError(f"{name}: is damaged (its content does not have its digest)")
    return content


def digest_of(content: Any) -> str:
    """Returns SHA-256 of plain data, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
