"""Writes texts on paper: wrapped, cut off where they are long, and never a formula."""

import textwrap

LETTERS = 15
"""Of a label in an inch."""
_LINES = 4
"""Of a title or a label."""


def filled(text: str, inches: float) -> str:
    """Returns a text in lines of some inches, cut off if it is long."""
    lines = textwrap.fill(text, max(int(LETTERS * inches), 12), max_lines=_LINES, placeholder=" …")
    return plain(lines)


def cut(text: str, most: int) -> str:
    """Returns a text of so many letters: what labels differ in is mostly at their ends."""
    text = " ".join(text.split())
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def plain(text: str) -> str:
    """Returns a text letter by letter: none is a formula, whatever a policy or a unit is called."""
    return text.replace("$", r"\$")
