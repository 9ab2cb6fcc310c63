"""Checkpoints of unfinished pieces: the state after a round, and the records of all rounds up to it.

    checkpoints/<piece>/records-<first>-<last>.npz  records of consecutive rounds
    checkpoints/<piece>/state-<last>.npz            the state after round <last>, and which records precede it

A piece is a batch, or the part of it that fits in parallel. Its name is a digest of the identities of its
runs. Every file contains these identities, so that a checkpoint of other runs is never used. A file of
records also has its first and last round, and for each row the position of its run in the piece. Every file
is written completely or not at all, and ends with a digest.
"""

import hashlib
import json
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pausejax.results.folder import Folder
from pausejax.results.study_folder import CHECKPOINTS
from pausejax.study.simulation import Arrays, Segment


class Checkpoint:
    """Checkpoint of one piece: a batch, or the part of a batch that fits in parallel.

    If several processes play the piece, only the process that holds the lease writes checkpoints. Under a URL
    there are no locks, so every process writes checkpoints. All of them write the same records.

    Args:
      folder: the folder of the study.
      identities: the identities of the piece's runs, in order.
      seconds: the seconds between two checkpoints.
    """

    def __init__(self, folder: Folder, identities: Sequence[str], seconds: float) -> None:
        self._folder = folder
        self._identities = np.array(identities)
        self.place = f"{CHECKPOINTS}/{hashlib.sha256(' '.join(identities).encode()).hexdigest()[:16]}"
        """The name of the piece's folder."""
        self._seconds = seconds
        self._last_save = time.monotonic()
        lease = folder.lease(f"{self.place}.lease") if folder.is_local else None
        self._writes = lease is not None or not folder.is_local
        """Whether this process writes the piece's checkpoints; if False, another process does."""
        self._release = weakref.finalize(self, os.close, lease) if lease is not None else lambda: None
        self._saved_round = 0
        self.damaged = False
        """Whether `restore` found a damaged file."""

    def due(self) -> bool:
        """Returns whether this process writes checkpoints and the next one is due.

        It is due `seconds` after the last checkpoint, or after this object was made.
        """
        return self._writes and time.monotonic() - self._last_save >= self._seconds

    def save(self, state: Any, segments: Sequence[Segment]) -> None:
        """Writes the state after the last segment; segments that are on disk are not written again.

        Args:
          state: arrays with the played runs along the first axis.
          segments: the records of all rounds so far. Their `positions` are positions in the piece.

        Raises:
          OSError: the files can't be written; the previous checkpoint is kept.
        """
        if not self._writes:
            return
        last = segments[-1].last_round
        try:
            for segment in segments:
                if segment.last_round > self._saved_round:
                    records = {f"records/{name}": array for name, array in segment.records.items()}
                    rounds, positions = np.array(segment[:2]), segment.positions
                    name = _records_name(*segment[:2])
                    self._write(name, {"rounds": rounds, "positions": positions, **records})
            borders = np.array([segment[:2] for segment in segments])
            self._write(_state_name(last), {"segments": borders, **_packed(state)})
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(f"{self.place}: the checkpoint can't be written: {reason}") from error
        for other in self._states():
            if other != last:
                self._folder.remove(f"{self.place}/{_state_name(other)}")
        self._saved_round, self._last_save = last, time.monotonic()

    def restore(self, shapes: Callable[[int], Any]) -> tuple[Any, list[Segment]] | None:
        """Reads the latest intact state, on the host, and all records up to this state.

        Returns None if no state can be used, or if another process writes the checkpoints. Incomplete files
        are removed, and all files if they are damaged and no state is usable. A state of another program has
        arrays of other shapes or types. Such a state is not used, and does not count as damaged.

        Args:
          shapes: the function from a number of rows to the shapes and types of their state.
        """
        if not self._writes:
            return None
        for name in self._folder.names(self.place):
            if name.endswith(".partial"):  # the process that wrote this file was killed
                self._folder.remove(f"{self.place}/{name}")
        for last in reversed(self._states()):
            try:
                found = self._read(last, shapes)
            except (OSError, KeyError, ValueError):
                self.damaged = True
                continue
            if found:
                self._saved_round = last
                return found
        if self.damaged:
            self._folder.remove(self.place)  # a folder with a file's name would block the next write
        return None

    def remove(self) -> None:
        """Removes the checkpoints of a finished piece."""
        if self._writes:
            self._folder.remove(self.place)
            self._folder.remove(f"{self.place}.lease")
        self.close()

    def close(self) -> None:
        """Releases the lease, so that another process may write the piece's checkpoints."""
        self._writes = False
        self._release()

    def _states(self) -> list[int]:
        """Returns the rounds after which a state was written, in order."""
        stems = (
            name.removesuffix(".npz") for name in self._folder.names(self.place) if name.endswith(".npz")
        )
        rounds = (stem.removeprefix("state-") for stem in stems if stem.startswith("state-"))
        return sorted(int(number) for number in rounds if number.isdecimal())

    def _write(self, name: str, arrays: Arrays) -> None:
        self._folder.write_arrays(f"{self.place}/{name}", {"identity": self._identities, **arrays})

    def _read(self, last: int, shapes: Callable[[int], Any]) -> tuple[Any, list[Segment]] | None:
        """Reads a state and the records up to it; returns None if they are of other runs or another program.

        Raises:
          OSError, KeyError, ValueError: a file is missing or damaged.
        """
        arrays = self._folder.read_arrays(f"{self.place}/{_state_name(last)}")
        if arrays["segments"][-1][1] != last:
            raise ValueError(f"{_state_name(last)}: has the state after another round")
        segments = []
        for first, end in arrays["segments"].tolist():
            name = _records_name(first, end)
            records = self._folder.read_arrays(f"{self.place}/{name}")
            if not np.array_equal(records.pop("identity"), self._identities):
                return None
            if records.pop("rounds").tolist() != [first, end]:
                raise ValueError(f"{name}: has the records of other rounds")
            positions = records.pop("positions")
            named = {key.removeprefix("records/"): array for key, array in records.items()}
            segments.append(Segment(first, end, positions, named))
        if not np.array_equal(arrays["identity"], self._identities):
            return None
        target = shapes(len(segments[-1].positions))
        if str(arrays["described"]) != _described(target):
            return None
        return _unpacked(arrays, target), segments


def _state_name(last: int) -> str:
    return f"state-{last}.npz"


def _records_name(first: int, last: int) -> str:
    return f"records-{first}-{last}.npz"


def _described(state: Any) -> str:
    """Returns the names, types and shapes of a state's arrays, or of their `ShapeDtypeStruct`s, as JSON."""
    leaves, _ = jax.tree.flatten_with_path(state)
    return json.dumps(
        [[jax.tree_util.keystr(path), str(leaf.dtype), list(leaf.shape)] for path, leaf in leaves]
    )


def _packed(state: Any) -> Arrays:
    """Returns a state's arrays as bytes, because `.npz` does not support all types of JAX."""
    packed = {"described": np.array(_described(state))}
    for number, leaf in enumerate(jax.tree.leaves(state)):
        if _is_key(leaf):
            packed[f"key/{number}"] = np.array(str(jax.random.key_impl(leaf)))
            leaf = jax.random.key_data(leaf)
        packed[f"leaf/{number}"] = np.frombuffer(np.asarray(leaf).tobytes(), np.uint8)
    return packed


def _unpacked(arrays: Arrays, target: Any) -> Any:
    """Returns the state that `_packed` packed: JAX arrays for typed keys, NumPy arrays for all other leaves.

    Raises:
      KeyError, ValueError: an array is missing, or its number of bytes does not fit the target.
    """

    def unpacked(number: int, leaf: Any) -> Any:
        content = arrays[f"leaf/{number}"]
        if not _is_key(leaf):
            return content.view(leaf.dtype).reshape(leaf.shape)
        words = jax.eval_shape(jax.random.key_data, leaf)
        data = content.view(words.dtype).reshape(words.shape)
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=str(arrays[f"key/{number}"]))

    leaves, structure = jax.tree.flatten(target)
    return jax.tree.unflatten(structure, [unpacked(number, leaf) for number, leaf in enumerate(leaves)])


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))
