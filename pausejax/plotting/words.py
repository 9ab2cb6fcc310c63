"""Prepares texts for matplotlib: wraps and shortens them, and escapes formulas."""

import textwrap

LETTERS = 15
"""Approximate number of letters of a label per inch."""


def filled(text: str, inches: float) -> str:
    """Wraps a text to lines of `inches` inches, and cuts off the lines after the fourth."""
    # An equation stays on one line.
    whole, width = text.replace(" = ", "\u00a0=\u00a0"), max(int(LETTERS * inches), 12)
    return plain(textwrap.fill(whole, width, max_lines=4, placeholder=" …"))


def cut(text: str, most: int) -> str:
    """Shortens a text to `most` letters by cutting its middle, because labels differ at their ends."""
    text = " ".join(text.split())
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def plain(text: str) -> str:
    """Escapes dollar signs, so that matplotlib does not read a name or a unit as a formula."""
    return text.replace("$", r"\$")
