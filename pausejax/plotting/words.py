"""Prepares texts for matplotlib: wrapped, shortened, and never read as formulas."""

import textwrap

LETTERS = 15
"""Letters of a label in an inch."""
_LINES = 4
"""Most lines of a title or a label."""


def filled(text: str, inches: float) -> str:
    """Wraps a text to lines of some inches, and cuts off the lines after the fourth."""
    lines = textwrap.fill(text, max(int(LETTERS * inches), 12), max_lines=_LINES, placeholder=" …")
    return plain(lines)


def cut(text: str, most: int) -> str:
    """Shortens a text to `most` letters by cutting its middle, because labels differ at their ends."""
    text = " ".join(text.split())
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def plain(text: str) -> str:
    """Escapes dollar signs, so that matplotlib does not read a name or a unit as a formula."""
    return text.replace("$", r"\$")
