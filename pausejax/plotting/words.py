"""Prepares texts for matplotlib: wraps and shortens them, and escapes formulas."""

import re
import textwrap

LETTERS = 15
"""Approximate number of letters of a label per inch."""


def filled(text: str, inches: float) -> str:
    """Wraps a text to lines of `inches` inches, and cuts off the lines after the fourth."""
    # An equation stays on one line.
    whole, width = text.replace(" = ", "\u00a0=\u00a0"), max(int(LETTERS * inches), 12)
    lines = textwrap.TextWrapper(width, max_lines=4, placeholder=" …")
    if any(len(word) > width for word in whole.split()):
        lines.wordsep_re = re.compile(r"(\s+)|(?<=_)(?=\w)")  # a long name ends its line at an underscore
    return plain(lines.fill(whole))


def note(text: str, inches: float) -> str:
    """Wraps a note of a panel to lines of `inches` inches. Its letters are smaller than those of labels."""
    return filled(text, 1.25 * inches)


def note_lines(text: str, inches: float) -> int:
    """Returns the number of lines of a note, or 0 if it is empty."""
    return note(text, inches).count("\n") + 1 if text else 0


def cut(text: str, most: int) -> str:
    """Shortens a text to `most` letters by cutting its middle, because labels differ at their ends."""
    text = " ".join(text.split())
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def plain(text: str) -> str:
    """Escapes dollar signs, so that matplotlib does not read a name or a unit as a formula."""
    return text.replace("$", r"\$")
