"""Reads spec files, and defines the error for invalid specs. The module does not import JAX."""

import os
import tomllib
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def asks_for_traceback() -> bool:
    """Returns whether the user asks for tracebacks, by `PAUSEJAX_TRACEBACK`."""
    return os.environ.get("PAUSEJAX_TRACEBACK", "") not in ("", "0")


class SpecError(ValueError):
    """Error for a spec with mistakes; `problems` has one line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        problems = tuple(dict.fromkeys(map(printable, problems)))
        super().__init__("\n".join(problems))
        self.problems = problems

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython shows: the problems without a traceback, as on the command line."""
        if asks_for_traceback():
            return traceback.format_exception(self)
        return [f"SpecError: {problem}" for problem in self.problems]

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuilds the error from its problems in another process, because `args` holds only their text."""
        return type(self), (self.problems,), self.__dict__


def printable(text: str) -> str:
    """Escapes all unprintable characters of a text, such as line breaks."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def read(path: str | Path) -> dict[str, Any]:
    """Reads a spec file as nested tables.

    Raises:
      SpecError: the file can't be read, or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # editors may add a mark
    except OSError as error:
        raise SpecError([f"{path}: can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SpecError([f"{path}: must be valid TOML: {error}"]) from error
    except RecursionError as error:
        raise SpecError([f"{path}: must be valid TOML: brackets are nested too deeply"]) from error
