"""Suggests known names for an unknown name."""

import difflib
from collections.abc import Iterable


def closest(wrong: str, known: Iterable[str]) -> str | None:
    """Returns the known name with the most similar spelling; None if no name is similar."""
    return next(iter(difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)), None)


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Returns the end of a message with the closest known name, such as `; did you mean 'x'?`, or ""."""
    match = closest(wrong, known)
    return "" if match is None else f"; did you mean {match!r}?"
