"""Stores the layouts of a study in `layout.json`, by group and kind of devices.

The first process that plays a study writes the file. All other processes, and every resumed study, read the
file. So the same runs are always computed together, and the last bits of floats do not depend on timing.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, get_args

from pausejax.federated.placement import ConvVariant
from pausejax.results.description import LAYOUT, LOCK
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.study.simulation import Layout

_FITS = "fits"
"""The key in the file for the number of runs that fit in parallel.

A new number replaces the stored one only if it is smaller.
"""
_MOST = 2**20


class Layouts:
    """Layouts, and numbers of runs that fit in parallel, by name.

    The callers choose the names. A layout is named by its group and kind of device
    (`execution.local.layout_name`), or by its group and the number of shards (`execution.play.share_of`).
    A number of runs that fit is named by group, kind of device and size of the largest batch.

    Args:
      folder: the folder of the file; None: the layouts stay in memory.
      writes: whether new layouts are written to the file; if false, they stay in memory.
    """

    def __init__(self, folder: Folder | None = None, *, writes: bool = True) -> None:
        self._folder = folder if writes else None
        self._memory: dict[str, Any] = _read(folder) if folder and not writes else {}

    def by_name(self) -> dict[str, Layout]:
        """Returns the stored layouts by name; an empty dict if the file is missing or damaged."""
        return {name: layout for name, entry in self._entries().items() if (layout := _layout(entry))}

    def fitted_widths(self) -> dict[str, int]:
        """Returns the stored widths, the numbers of runs that fit in parallel, by name."""
        return {name: entry[_FITS] for name, entry in self._entries().items() if _is_width(entry)}

    def setdefault(self, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
        """Stores each layout whose name is new, and returns the stored layout of every given name.

        A stored layout is never replaced, as with `dict.setdefault`. So all processes use the same layout.

        Raises:
          OSError: the file can't be written.
        """
        with self._locked():
            entries = self._entries()
            new = {name: own._asdict() for name, own in layouts.items() if not _layout(entries.get(name))}
            self._add(entries, new)
        stored = self.by_name()
        return {name: stored.get(name, own) for name, own in layouts.items()}

    def keep_fitted_width(self, name: str, width: int) -> None:
        """Stores that `width` runs fit in parallel, unless a smaller number is stored.

        Raises:
          OSError: the file can't be written.
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
            write_sealed(self._folder, LAYOUT, entries | dict(new))
        else:
            self._memory |= new


def _read(folder: Folder) -> dict[str, Any]:
    try:
        entries = read_sealed(folder, LAYOUT)
        return entries if isinstance(entries, dict) else {}
    except (OSError, ValueError):
        return {}


def _is_width(entry: Any) -> bool:
    return isinstance(entry, dict) and type(entry.get(_FITS)) is int and 0 < entry[_FITS] <= _MOST


def _layout(entry: Any) -> Layout | None:
    """Returns an entry of the file as a layout; None if it is not a valid layout."""
    try:
        layout = Layout(**entry)
    except TypeError:
        return None
    counts = (layout.runs, layout.lanes, layout.eval_lanes, layout.eval_batch)
    are_counts = all(type(count) is int and 0 <= count <= _MOST for count in counts) and layout.runs
    is_sound = are_counts and isinstance(layout.sharded, bool) and layout.conv in ("", *get_args(ConvVariant))
    return layout if is_sound else None
