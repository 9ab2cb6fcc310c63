"""What the runs of a study read on the host: each file once, each thing made of it once."""

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Sources:
    """The data of one study; they go when it goes.

    Args:
      data_dir: where prepared data sets are.
      held: what another process has read already; no file is opened for it.
    """

    def __init__(
        self, data_dir: str | Path | None = None, held: Mapping[Hashable, Any] | None = None
    ) -> None:
        self.data_dir = data_dir
        self.held: dict[Hashable, Any] = dict(held or {})
        """What was read from files, by key: this travels to other processes."""
        self._made: dict[Hashable, Any] = {}
        self._latest: dict[Hashable, tuple[Hashable, Any]] = {}

    def read(self, key: Hashable, load: Callable[[], T]) -> T:
        """Something read from files, once."""
        if key not in self.held:
            self.held[key] = load()
        return self.held[key]

    def make(self, key: Hashable, build: Callable[[], T]) -> T:
        """Something made of what was read, once in each process."""
        if key not in self._made:
            self._made[key] = build()
        return self._made[key]

    def make_one(self, key: Hashable, kind: Hashable, build: Callable[[], T]) -> T:
        """The same, but of one kind at a time: that of another kind goes first, to make room."""
        if self._latest.get(key, (None, None))[0] != kind:
            self._latest.pop(key, None)
            self._latest[key] = kind, build()
        return self._latest[key][1]
