"""`layout.json`: how a study lies on devices, by group and kind of devices, for all who work on it.

Whoever plays a study first writes it; all other processes and every resume read it. So the same runs lie side
by side whoever plays them, and the last bits of floats depend on no timing.
"""

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


def read(folder: Folder) -> dict[str, Layout]:
    """Returns the layouts of the file, by name; nothing if it is missing or damaged."""
    return {name: layout for name, entry in _read(folder).items() if (layout := _layout(entry))}


def fits(folder: Folder) -> dict[str, int]:
    """Returns how many runs fit side by side, by name."""
    return {name: entry[_FITS] for name, entry in _read(folder).items() if _is_width(entry)}


def fix(folder: Folder, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """Adds layouts whose names are new; returns what holds for all of these names.

    Raises:
      OSError: no space left, or the like.
    """
    with folder.lock(LOCK):
        entries = _read(folder)
        new = {name: own._asdict() for name, own in layouts.items() if not _layout(entries.get(name))}
        if new:
            write_sealed(folder, NAME, entries | new)
    return dict(layouts) | {name: own for name, own in read(folder).items() if name in layouts}


def keep_fit(folder: Folder, name: str, width: int) -> None:
    """Adds how many runs fit side by side, unless fewer are known to.

    Raises:
      OSError: no space left, or the like.
    """
    with folder.lock(LOCK):
        entries = _read(folder)
        if not _is_width(entries.get(name)) or entries[name][_FITS] > width:
            write_sealed(folder, NAME, entries | {name: {_FITS: width}})


def _read(folder: Folder) -> dict[str, Any]:
    try:
        entries = read_sealed(folder, NAME)
        if isinstance(entries, dict):
            return entries
    except (OSError, ValueError):
        pass
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
