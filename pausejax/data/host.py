"""Data of a study on the host: each file is read once, and each object made from data is made once."""

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class DataCache:
    """Cache of one study's data: the contents of files, and objects that are made from these contents.

    The data stay in memory as long as this object exists.

    Args:
      data_dir: the folder of prepared data sets.
      held: data that another process has read already; their files are not opened.
    """

    def __init__(
        self, data_dir: str | Path | None = None, held: Mapping[Hashable, Any] | None = None
    ) -> None:
        self.data_dir = data_dir
        self.held: dict[Hashable, Any] = dict(held or {})
        """Data that were read from files, by key. Workers of a cluster receive a copy."""
        self._made: dict[Hashable, Any] = {}
        self._latest: dict[Hashable, tuple[Hashable, Any]] = {}

    def read(self, key: Hashable, load: Callable[[], T]) -> T:
        """Returns the data of a key. The first call for the key reads them from files by `load`."""
        if key not in self.held:
            self.held[key] = load()
        return self.held[key]

    def make(self, key: Hashable, build: Callable[[], T]) -> T:
        """Returns the object of a key. The first call for the key in this process makes it by `build`."""
        if key not in self._made:
            self._made[key] = build()
        return self._made[key]

    def make_one(self, key: Hashable, kind: Hashable, build: Callable[[], T]) -> T:
        """Returns the object of a key and a kind. If it is not held, `build` makes it.

        Only the latest kind of each key is held. The object of the key with another kind is freed before
        `build` is called.
        """
        if self._latest.get(key, (None, None))[0] != kind:
            self._latest.pop(key, None)
            self._latest[key] = kind, build()
        return self._latest[key][1]
