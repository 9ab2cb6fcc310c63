"""The text of a spec and what is wrong with one: all that there is before JAX is loaded."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class SpecError(ValueError):
    """A spec with mistakes; `problems` has one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        problems = tuple(dict.fromkeys(map(printable, problems)))
        super().__init__("\n".join(problems))
        self.problems = problems


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
        raise SpecError([f"{path}: can't be read: {error.strerror}"]) from None
    except ValueError as error:
        raise SpecError([f"{path}: is no valid TOML: {error}"]) from None
    except RecursionError:
        raise SpecError([f"{path}: is no valid TOML: brackets are nested too deeply"]) from None
