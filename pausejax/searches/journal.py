"""What a search has seen, on disk, step by step: a killed search makes the same choices again.

search.json          what the search was asked for, and how many settings lie side by side
journal/000012.json  who came to a rung in step 12, and what each seed showed
parts/*.npz          the runs of settings that have ended, as in any study
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pausejax.results import store
from pausejax.results.folder import Folder
from pausejax.study.simulation import Arrays
from pausejax.study.spec import SpecError

SEARCH = "search.json"
_JOURNAL = "journal"

Reports = Mapping[int, np.ndarray]
"""By number of the setting: at each rung that it has passed, its seeds' figures and simulated seconds so
far, float64 [rungs, seeds, figures + 1]."""


class Journal:
    """The steps of one search in its folder; a search in memory has none."""

    def __init__(self, folder: Folder | None, command: str = "", *, parts_are_kept: bool = True) -> None:
        """Of a folder.

        Args:
          folder: None keeps nothing.
          command: what the result says of how it was made.
          parts_are_kept: whether runs that have ended count only with their part; else the result has them.
        """
        self._folder, self._command, self._parts_are_kept = folder, command, parts_are_kept

    @property
    def keeps(self) -> bool:
        """Whether runs that have ended are on disk."""
        return self._folder is not None

    def settled(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the search of this folder goes by; None: nobody has begun one.

        Args:
          wanted: what is asked for now, as it is put down.

        Raises:
          SpecError: the folder holds something else.
          OSError: it can't be made or read.
        """
        if self._folder is None:
            return None
        self._folder.make()
        if not self._folder.exists(SEARCH):
            if self._folder.exists(store.SPEC) or self._folder.exists(store.RESULT):
                what = "holds a study that is no search; choose another folder"
                raise SpecError([f"--out {self._folder}: {what}"])
            return None
        try:
            held: dict[str, Any] = dict(_unsealed(self._folder.read(SEARCH)))
        except (TypeError, ValueError):
            raise SpecError([f"--out {self._folder}: {SEARCH} is damaged; choose another folder"]) from None
        asked = json.loads(json.dumps(dict(wanted)))
        changed = [line for key in asked for line in _changes(key, held.get(key), asked[key])]
        if changed:
            what = f"holds another search; it differs in {', '.join(changed)}; choose another folder"
            raise SpecError([f"--out {self._folder}: {what}"])
        return held

    def settle(self, settled: Mapping[str, Any]) -> None:
        """Puts down what the search goes by from now on."""
        if self._folder:
            self._folder.write(SEARCH, _sealed(dict(settled)))

    def read(self, step: int) -> Reports | None:
        """What was seen in a step; None if nobody has finished it, or nobody can say."""
        if self._folder is None:
            return None
        try:
            held = _unsealed(self._folder.read(_name(step)))
        except (OSError, ValueError):
            return None
        if self._parts_are_kept and not all(self._folder.exists(part) for part in held["parts"]):
            return None
        return {int(number): np.array(figures, np.float64) for number, figures in held["reports"].items()}

    def write(self, step: int, reports: Reports, ended: Mapping[tuple[str, ...], Arrays]) -> None:
        """Keeps the runs that have ended in a step, by identities, and then what was seen in it.

        Raises:
          OSError: no space left, or the like.
        """
        if self._folder is None:
            return
        if ended:
            store.record(self._folder, self._command)
        parts = [store.write_part(self._folder, identities, arrays) for identities, arrays in ended.items()]
        seen = {str(number): figures.tolist() for number, figures in reports.items()}
        self._folder.write(_name(step), _sealed({"reports": seen, "parts": parts}))


def _changes(key: str, held: Any, asked: Any) -> list[str]:
    """In which fields two values differ, and how."""
    if isinstance(held, dict) and isinstance(asked, dict):
        names = [name for name in {**held, **asked} if held.get(name) != asked.get(name)]
        return [f"{name} ({held.get(name)}, now {asked.get(name)})" for name in names]
    return [] if held == asked else [f"the {key}"]


def _name(step: int) -> str:
    return f"{_JOURNAL}/{step:06d}.json"


def _sealed(content: Any) -> bytes:
    text = json.dumps(content)
    return json.dumps({"content": content, "digest": hashlib.sha256(text.encode()).hexdigest()}).encode()


def _unsealed(text: bytes) -> Any:
    """Raises ValueError if it is not what was written."""
    try:
        held = json.loads(text)
        content, digest = held["content"], held["digest"]
    except (KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(error) from None
    if hashlib.sha256(json.dumps(content).encode()).hexdigest() != digest:
        raise ValueError("is damaged")
    return content
