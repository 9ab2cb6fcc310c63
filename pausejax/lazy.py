"""The names of a package that are imported when they are asked for first: PEP 562."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def face(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A package's `__getattr__`.

    Args:
      package: its name.
      homes: for each module, which of its names the package has too; none may be a module of the package.

    Raises:
      AttributeError: (by what is returned) the package has no such name.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home[name]), name)

    return find
