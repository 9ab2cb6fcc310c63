"""`layout.json`: how a study lies on devices, by group and kind of devices, for all who work on it.

Whoever plays a study first writes it; all other processes and every resume read it. So the same runs lie side
by side whoever plays them, and the last bits of floats depend on no timing.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, get_args

from pausejax.federated.placement import ConvVariant
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.results.store import LOCK
from pausejax.study.simulation import Layout

NAME = "layout.json"
_FITS = "fits"
"""The value that says how many runs of a batch fit side by side; of two the smaller one counts."""
_MOST = 2**20


class Layouts:
    """Layouts by name, and how many runs fit side by side.

    Args:
      folder: whose file holds them; None: they stay in memory.
      writes: whether what is added goes into the file; else it stays in memory.
    """

    def __init__(self, folder: Folder | None = None, *, writes: bool = True) -> None:
        self._folder = folder if writes else None
        self._memory: dict[str, Any] = _read(folder) if folder and not writes else {}

    def by_name(self) -> dict[str, Layout]:
        """Returns the layouts that were fixed; nothing if the file is missing or damaged."""
        return {name: layout for name, entry in self._entries().items() if (layout := _layout(entry))}

    def fits(self) -> dict[str, int]:
        """Returns how many runs fit side by side, by name."""
        return {name: entry[_FITS] for name, entry in self._entries().items() if _is_width(entry)}

    def fix(self, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
        """Adds layouts whose names are new; returns what holds for all of these names.

        Raises:
          OSError: no space left, or the like.
        """
        with self._locked():
            entries = self._entries()
            new = {name: own._asdict() for name, own in layouts.items() if not _layout(entries.get(name))}
            self._add(entries, new)
        fixed = self.by_name()
        return {name: fixed.get(name, own) for name, own in layouts.items()}

    def keep_fit(self, name: str, width: int) -> None:
        """Adds how many runs fit side by side, unless fewer are known to.

        Raises:
          OSError: no space left, or the like.
        """
        with self._locked():
            entries = self._entries()
            if not _is_width(entries.get(name)) or entries[name][_FITS] > width:
                self._add(entries, {name: {_FITS: width}})

    def _locked(self) -> contextlib.AbstractContextManager[Any]:
        return self._folder.lock(LOCK) if self._folder else contextlib.nullcontext()

    def _entries(self) -> dict[str, Any]:
        return _read(self._folder) if self._folder else self._memory

    def _add(self, entries: dict[str, Any], new: Mapping[str, Any]) -> None:
        if self._folder and new:
            write_sealed(self._folder, NAME, entries | dict(new))
        else:
            self._memory |= new


def _read(folder: Folder) -> dict[str, Any]:
    try:
        entries = read_sealed(folder, NAME)
        return entries if isinstance(entries, dict) else {}
    except (OSError, ValueError):
        return {}


def _is_width(entry: Any) -> bool:
    return isinstance(entry, dict) and type(entry.get(_FITS)) is int and 0 < entry[_FITS] <= _MOST


def _layout(entry: Any) -> Layout | None:
    """Returns a layout of the file; None if it is none."""
    try:
        layout = Layout(**entry)
    except TypeError:
        return None
    counts = (layout.runs, layout.lanes, layout.eval_lanes, layout.eval_batch)
    are_counts = all(type(count) is int and 0 <= count <= _MOST for count in counts) and layout.runs
    is_sound = are_counts and isinstance(layout.sharded, bool) and layout.conv in ("", *get_args(ConvVariant))
    return layout if is_sound else None
