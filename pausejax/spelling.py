"""What somebody meant who wrote something unknown."""

import difflib
from collections.abc import Iterable


def closest(wrong: str, known: Iterable[str]) -> str | None:
    """The known name that is written most alike, if one is alike."""
    return next(iter(difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)), None)


def nearest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a message, or nothing."""
    match = closest(wrong, known)
    return "" if match is None else f"; did you mean {match!r}?"
