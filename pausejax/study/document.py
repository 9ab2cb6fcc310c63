"""The text of a spec and what is wrong with one: importable without JAX."""

import os
import tomllib
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def asks_for_traceback() -> bool:
    """Returns whether the user wants to see where an error comes from."""
    return os.environ.get("PAUSEJAX_TRACEBACK", "") not in ("", "0")


class SpecError(ValueError):
    """A spec with mistakes; `problems` has one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        problems = tuple(dict.fromkeys(map(printable, problems)))
        super().__init__("\n".join(problems))
        self.problems = problems

    def _render_traceback_(self) -> list[str]:
        """Returns what IPython shows: the problems alone, as the command does."""
        if asks_for_traceback():
            return traceback.format_exception(self)
        return [f"SpecError: {problem}" for problem in self.problems]

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes it anew of its problems in another process: an error's own arguments are their text."""
        return type(self), (self.problems,), self.__dict__


def printable(text: str) -> str:
    """Text as one line that leaves a terminal as it is; what users' names hold of other signs is escaped."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def read(path: str | Path) -> dict[str, Any]:
    """Reads a spec file as nested tables.

    Raises:
      SpecError: the file can't be read, or is no TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError([f"{path}: can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SpecError([f"{path}: is no valid TOML: {error}"]) from error
    except RecursionError as error:
        raise SpecError([f"{path}: is no valid TOML: brackets are nested too deeply"]) from error
