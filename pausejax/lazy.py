"""Imports a name of a package when the name is used first (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def face(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__`, which imports names from modules of the package.

    Args:
      package: the name of the package.
      homes: for each module of the package, the names to import from it; no name may be that of a module.

    Raises:
      AttributeError: raised by the returned function: the package has no such name.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home[name]), name)

    return find
