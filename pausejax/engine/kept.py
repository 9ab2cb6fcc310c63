"""What was measured on this machine's devices, in the user's cache folder: one small file for each question.

A file that is damaged, or is of another device, version or question, counts as none.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import jax

from pausejax.atomic import replacing
from pausejax.data.cache import cache_dir
from pausejax.devices import local_devices
from pausejax.study.trials import Layout


def asked(key: str) -> dict[str, str]:
    """What an answer holds for: a question on so many devices of a kind, with a version of JAX."""
    return {"devices": local_devices(), "jax": jax.__version__, "question": key}


def read(key: str) -> Layout | None:
    """The kept answer to a question on the local devices; None, with a warning where a file is damaged."""
    path = _path(key)
    try:
        found = json.loads(path.read_text())
        layout = found["layout"]
        if {name: found[name] for name in asked(key)} == asked(key) and _digest(found) == found["sha256"]:
            return dict(layout)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        pass
    warnings.warn(f"{path} is no measurement of this device: it is left aside", stacklevel=2)
    return None


def write(key: str, layout: Layout) -> None:
    """Keeps an answer; a folder that cannot be written costs a warning and the next study's measurement."""
    path, document = _path(key), {**asked(key), "layout": dict(layout)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(json.dumps({**document, "sha256": _digest(document)}, indent=1))
    except OSError as error:
        warnings.warn(f"cannot keep what was measured in {path}: {error}", stacklevel=2)


def _path(key: str) -> Path:
    name = hashlib.sha256(json.dumps(asked(key), sort_keys=True).encode()).hexdigest()[:16]
    return cache_dir() / "placement" / f"{name}.json"


def _digest(document: Mapping[str, object]) -> str:
    covered = {name: value for name, value in document.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()
