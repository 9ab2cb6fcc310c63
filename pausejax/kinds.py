"""The kinds of study: the only list of them, and what needs to know it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from pausejax.clients.kind import KIND as CLIENTS
from pausejax.ensemble.kind import KIND as ENSEMBLE
from pausejax.study import spec
from pausejax.study.study import Kind, Study

if TYPE_CHECKING:
    from pausejax.report.figure import Pictures

KINDS: tuple[Kind, ...] = (CLIENTS, ENSEMBLE)
"""A spec without a `mode` is of the first."""


def load(path: str | Path, overrides: Iterable[str] = (), use: Sequence[str] = ()) -> Study:
    """Reads and checks a spec file; executes the files that it uses.

    Args:
      path: a TOML file.
      overrides: `section.key=value` strings that replace or add keys; the value is TOML, or else a string.
      use: more files and modules with parts, beside those of the spec; relative to the spec's folder.

    Raises:
      SpecError: the file can't be read, is no TOML, or has mistakes.
    """
    document = spec.read(path)
    return spec.parse(
        document, KINDS, source=str(path), overrides=overrides, use=use, folder=Path(path).parent
    )


def parse(document: Mapping[str, Any], **options: Any) -> Study:
    """Checks a spec given as nested tables; options as in `spec.parse`.

    Raises:
      SpecError: with one line per mistake.
    """
    return spec.parse(document, KINDS, **options)


def draw(result: xr.Dataset, *, smoothing: int = 1) -> "Pictures":
    """All pictures that a result has the data for, by file name; a notebook displays them.

    Args:
      result: as `pausejax run` writes it.
      smoothing: window of the trailing mean over evaluations, in evaluations.
    """
    from pausejax.report import many  # matplotlib is loaded for whoever draws
    from pausejax.report.figure import Pictures

    if many.is_many(result):
        return Pictures(many.draw(result))
    kind = next((kind for kind in KINDS if kind.name == result.attrs["kind"]), CLIENTS)
    return Pictures(kind.draw(result, smoothing=smoothing))
