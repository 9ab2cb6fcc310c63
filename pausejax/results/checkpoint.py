"""Chunks in flight, kept on disk: the state after some round, and what all rounds up to it have recorded.

    checkpoints/<chunk>/rounds-<first>-<last>.npz   records of the rounds since the checkpoint before
    checkpoints/<chunk>/state-<last>/               the state after round <last>, written by Orbax
    checkpoints/<chunk>/digest-<last>.npz           what the values of that state hash to

A state counts when all records up to it are there and its values have the digest; Orbax makes a state's
folder appear when it is whole.
"""

import contextlib
import functools
import hashlib
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from pausejax.results.folder import Folder
from pausejax.results.store import CHECKPOINTS
from pausejax.study.simulation import Segment


class Checkpoints:
    """The checkpoints of one chunk; of several processes that play it, the first one keeps it."""

    def __init__(self, folder: Folder, chunk: str, seconds: float) -> None:
        self._folder = folder
        self._place = f"{CHECKPOINTS}/{chunk}"
        self._seconds = seconds
        self._last_save = time.monotonic()
        lease = folder.lease(f"{self._place}.lease")
        self._keeps = lease is not None
        """Otherwise another process keeps this chunk; this one plays it without keeping it."""
        self._release = weakref.finalize(self, os.close, lease) if lease is not None else lambda: None
        self._saved_round = 0
        self.damaged = False
        """Whether a state was found that can't be trusted."""

    def due(self) -> bool:
        """Whether the interval has passed since the last one, or since the chunk began."""
        return self._keeps and time.monotonic() - self._last_save >= self._seconds

    def save(self, state: Any, segments: list[Segment]) -> None:
        """Keeps the state after the last segment; segments that are on disk are not written again.

        Raises:
          OSError: no space left, or the like.
        """
        if not self._keeps:
            return
        import orbax.checkpoint as ocp

        last = segments[-1].last_round
        for segment in segments:
            if segment.last_round > self._saved_round:
                name = f"rounds-{segment.first_round}-{segment.last_round}.npz"
                self._folder.write_arrays(f"{self._place}/{name}", rows=segment.rows, **segment.records)
        try:
            with _quiet(), ocp.StandardCheckpointer() as writer:
                writer.save(self._folder.path(f"{self._place}/state-{last}"), state, force=True)
        except ValueError as error:  # what the library makes of a full disk
            reason = str(error).partition(" [")[0].strip().rpartition(": ")[2]
            raise OSError(f"{self._place}: the checkpoint can't be written: {reason}") from None
        self._folder.write_arrays(f"{self._place}/digest-{last}.npz", sha256=np.array(digest_of(state)))
        for older in self._states():
            if older < last:
                self._folder.remove(f"{self._place}/state-{older}")
                self._folder.remove(f"{self._place}/digest-{older}.npz")
        self._saved_round, self._last_save = last, time.monotonic()

    def restore(self, target: Callable[[int], Any]) -> tuple[Any, list[Segment]] | None:
        """The latest state and all records up to it; None if there is none that is whole.

        Args:
          target: shapes, types and shardings of the state of so many rows.
        """
        if not self._keeps:
            return None
        for name in self._folder.names(self._place):
            if name.startswith("state-") and not name.removeprefix("state-").isdecimal():
                self._folder.remove(f"{self._place}/{name}")  # half written when its process was killed
        if not (states := self._states()):
            return None
        import orbax.checkpoint as ocp

        for last in reversed(states):
            # What a damaged checkpoint raises is its library's affair; the chunk then begins anew.
            try:
                segments = self._segments(last)
                with _quiet(), ocp.StandardCheckpointer() as reader:
                    place = self._folder.path(f"{self._place}/state-{last}")
                    state = reader.restore(place, target(len(segments[-1].rows)))
                kept = self._folder.read_arrays(f"{self._place}/digest-{last}.npz")["sha256"]
                if digest_of(state) != str(kept):
                    raise ValueError("damaged")
            except Exception:
                self.damaged = True
                continue
            self._saved_round = last
            return state, segments
        return None

    def remove(self) -> None:
        """Forgets the chunk: its runs are finished."""
        if self._keeps:
            self._folder.remove(self._place)
            self._folder.remove(f"{self._place}.lease")
        self.close()

    def close(self) -> None:
        """Lets another process keep the chunk."""
        self._keeps = False
        self._release()

    def _states(self) -> list[int]:
        names = (name.partition("-") for name in self._folder.names(self._place))
        return sorted(int(last) for kind, _, last in names if kind == "state" and last.isdecimal())

    def _segments(self, last: int) -> list[Segment]:
        """All records up to a round.

        Raises:
          ValueError: some are missing or damaged.
        """
        spans = []
        for name in self._folder.names(self._place):
            kind, _, span = name.removesuffix(".npz").partition("-")
            if kind == "rounds" and name.endswith(".npz"):
                first, _, end = span.partition("-")
                spans.append((int(first), int(end), name))
        found: list[Segment] = []
        for begin, finish, name in sorted(spans):
            if begin == (found[-1].last_round + 1 if found else 1) and finish <= last:
                records = self._folder.read_arrays(f"{self._place}/{name}")
                found.append(Segment(begin, finish, records.pop("rows"), records))
        if not found or found[-1].last_round != last:
            raise ValueError(f"records up to round {last} are missing")
        return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Orbax logs a traceback for each of its threads that fails, besides raising the error."""
    _ignore_stragglers()
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@functools.cache
def _ignore_stragglers() -> None:
    """Lets writes that end after one has failed, at any later time, find no event loop and not say so."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook


def digest_of(state: Any) -> str:
    """SHA-256 over the types, shapes and values of a state's arrays."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(state)):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype.str} {array.shape};".encode())
        found.update(array.tobytes())
    return found.hexdigest()
