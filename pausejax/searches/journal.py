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

    def __init__(self, folder: Folder | None, command: str = "") -> None:
        """`command` is what the result says of how it was made."""
        self._folder, self._command = folder, command

    @property
    def keeps(self) -> bool:
        """Whether runs that have ended are on disk."""
        return self._folder is not None

    def agree(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Puts down what the search was asked for, or reads what it has settled since.

        Raises:
          SpecError: the folder holds something else.
          OSError: it can't be written to.
        """
        asked = json.loads(json.dumps(dict(wanted)))
        if self._folder is None:
            return asked
        self._folder.make()
        if self._folder.exists(SEARCH):
            try:
                held = _unsealed(self._folder.read(SEARCH))
            except ValueError:
                raise SpecError(
                    [f"--out {self._folder}: {SEARCH} is damaged; choose another folder"]
                ) from None
            changed = [key for key in asked if held.get(key) != asked[key]]
            if changed:
                raise SpecError(
                    [
                        f"--out {self._folder}: holds another search; it differs in {', '.join(changed)}; "
                        "choose another folder"
                    ]
                )
            return held
        if self._folder.exists(store.SPEC) or self._folder.exists(store.RESULT):
            raise SpecError([f"--out {self._folder}: holds a study that is no search; choose another folder"])
        self._folder.write(SEARCH, _sealed(asked))
        return asked

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
        if not all(self._folder.exists(part) for part in held["parts"]):
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
