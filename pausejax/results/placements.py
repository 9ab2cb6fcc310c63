"""How a study's work lies on its devices, kept in its folder: whoever goes on with it does it the same way.

The first process that decides something for a kind and number of devices decides it for all.
"""

import hashlib
import json
from collections.abc import Mapping

from pausejax.results.folder import Folder
from pausejax.study.trials import Layout

NAME = "placement.json"


def read(folder: Folder) -> dict[str, Layout]:
    """What was decided, by question; nothing if the file is missing or damaged."""
    try:
        found = json.loads(folder.read(NAME))
        answers = found["answers"]
        if found["sha256"] == _digest(answers) and all(isinstance(own, dict) for own in answers.values()):
            return answers
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        pass
    return {}


def settle(folder: Folder, lock: str, new: Mapping[str, Layout]) -> dict[str, Layout]:
    """Adds decisions where nobody has decided yet; returns what holds.

    Raises:
      OSError: no space left, or the like.
    """
    with folder.lock(lock):
        before = read(folder)
        answers = {**{key: dict(own) for key, own in new.items()}, **before}
        if answers != before:
            text = json.dumps({"answers": answers, "sha256": _digest(answers)}, indent=1, sort_keys=True)
            folder.write(NAME, text.encode())
    return read(folder) or answers


def _digest(answers: object) -> str:
    return hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest()
