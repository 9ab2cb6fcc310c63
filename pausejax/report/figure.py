"""Figures that show themselves in a notebook, one or many, without pyplot and its global state."""

import base64
import html
import io
import re
from typing import Any

import matplotlib
import matplotlib.figure
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Text
from matplotlib.ticker import Formatter, LogFormatter

_DPI = 110
NO_FORMULAS: dict[Any, Any] = {
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
}
"""Settings of matplotlib under which every text is drawn letter by letter."""
_RAISED = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_POWER = re.compile(r"\^\{([^}]*)\}")
_COMMAND = re.compile(r"\\mathdefault|[${}]")


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure that a notebook displays where it is the value of a cell.

    Every text in it is drawn letter by letter: none is a formula, whatever a policy or a unit is called.
    """

    def draw(self, renderer: RendererBase) -> None:
        for axis in self.findobj(Axis):  # those of axes within axes, too
            assert isinstance(axis, Axis)
            if isinstance(formatter := axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter(_Plain(formatter))
            if isinstance(formatter := axis.get_minor_formatter(), LogFormatter):
                axis.set_minor_formatter(_Plain(formatter))
        with matplotlib.rc_context(NO_FORMULAS):  # for the numbers on axes, which are made on the way
            for text in self.findobj(Text):
                assert isinstance(text, Text)
                text.set_parse_math(False)
                text.set_usetex(False)
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        return png(self)


class _Plain(Formatter):
    """Numbers of a logarithmic axis with raised digits, 2×10³, where matplotlib writes a formula."""

    def __init__(self, formatter: LogFormatter) -> None:
        self._formatter = formatter

    def __call__(self, value: float, place: int | None = None) -> str:
        text = _POWER.sub(lambda power: raised(power[1]), self._formatter(value, place))
        return self.fix_minus(_COMMAND.sub("", text.replace(r"\times", "×")))

    def set_locs(self, locs: list[float]) -> None:
        self._formatter.set_locs(locs)


def raised(exponent: object) -> str:
    """An exponent in raised digits."""
    return str(exponent).translate(_RAISED)


class Pictures(dict[str, Any]):
    """Figures by name; a notebook displays all of them."""

    def __repr__(self) -> str:
        return f"{len(self)} pictures: {', '.join(self)}"

    def _repr_html_(self) -> str:
        shown = "".join(
            f'<figure style="display:inline-block;margin:0 1em 1em 0;vertical-align:top">'
            f"{image(figure, name)}<figcaption>{html.escape(name)}</figcaption></figure>"
            for name, figure in self.items()
        )
        return f"<div>{shown}</div>"


def png(figure: matplotlib.figure.Figure) -> bytes:
    """A figure as the bytes of a PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def image(figure: matplotlib.figure.Figure, name: str) -> str:
    """A figure as an HTML image that needs no file; on white, also where the page is dark."""
    data = base64.b64encode(png(figure)).decode()
    described = html.escape(name, quote=True)
    return f'<img alt="{described}" style="max-width:100%" src="data:image/png;base64,{data}">'
