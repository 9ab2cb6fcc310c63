"""Figures that show themselves in a notebook, one or many, without pyplot and its global state."""

import base64
import html
import io
from typing import Any

import matplotlib.figure

_DPI = 110


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure that a notebook displays where it is the value of a cell."""

    def _repr_png_(self) -> bytes:
        return png(self)


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
