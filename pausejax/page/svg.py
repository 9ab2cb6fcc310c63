"""A figure as SVG within a page: no ids but its own, colours that follow the page's, short paths."""

import io
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from pausejax.page.charts import Panel, cells_of, root_of, thinned

_LONG = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"(url\(#|^#)([\w.-]+)")
# What is as dark as text is drawn in the page's colour of text.
_DARK = 0.42
_PAPER = "paper"
_CELL = "cell"
_OWN_BLACK = "rgb(0,0,0)"
"""Of a number within a coloured cell, whatever the page's colour of text."""
_MANY_CELLS, _MANY_DOTS = 2000, 600


class Ids:
    """The names of a picture's elements, all with the picture's own first."""

    def __init__(self, picture: str) -> None:
        self.picture = picture
        self._count = 0

    def give(self, artist: Any) -> str:
        """Names an artist; the same name if it has one of these already."""
        name = artist.get_gid() if hasattr(artist, "get_gid") else None
        if not (name and name.startswith(f"{self.picture}-")):
            self._count += 1
            name = f"{self.picture}-{self._count}"
            artist.set_gid(name)
        return name


def render(figure: Figure, panels: list[Panel], ids: Ids) -> Element:
    """The figure as an `svg` element without namespaces; what has an id of `ids` keeps it."""
    _mark_paper(figure, panels)
    for panel in panels:
        if panel.cells is not None:
            for place, number in enumerate(panel.axes.texts):
                number.set_gid(f"{_CELL}{place}")
            panel.cells.set_rasterized(cells_of(panel.axes, panel.cells).values.size > _MANY_CELLS)
        for dots in panel.dots:
            dots.set_rasterized(np.shape(dots.get_offsets())[0] > _MANY_DOTS)
    written = io.BytesIO()
    # Text stays text; the salt makes the names of marks and clips the same in every process.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": ids.picture}):
        figure.savefig(written, format="svg", dpi=150, metadata={"Date": None, "Creator": None})
    root = ET.fromstring(written.getvalue())
    _without_namespaces(root)
    for metadata in root.findall("metadata"):
        root.remove(metadata)
    parents = {child: parent for parent in root.iter() for child in parent}
    for element in list(root.iter()):
        name = element.get("id", "")
        if element.tag == "style" or name.startswith(_PAPER):
            parents[element].remove(element)
        elif name.startswith(_CELL):
            for text in element.iter("text"):
                text.set("style", f"fill: {_OWN_BLACK}; {text.get('style', '')}")
    for panel in panels:
        _rewrite_paths(root, panel)
    _tidy(root, ids.picture)
    return root


def box_of(axes: Axes, figure: Figure) -> list[float]:
    """Where axes lie in the SVG: left, top, right, bottom."""
    width, height = figure.get_size_inches() * 72
    place = axes.get_window_extent().transformed(figure.transFigure.inverted())
    corners = [place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height]
    return [round(float(corner), 2) for corner in corners]


def _mark_paper(figure: Figure, panels: list[Panel]) -> None:
    """White grounds are left to the page."""
    for place, patch in enumerate([figure.patch, *(panel.axes.patch for panel in panels)]):
        if to_rgb(patch.get_facecolor()) == (1, 1, 1):
            patch.set_gid(f"{_PAPER}{place}")


def _without_namespaces(root: Element) -> None:
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in list(element.attrib):
            if "}" in key:
                element.set(key.rpartition("}")[2], element.attrib.pop(key))


def _rewrite_paths(root: Element, panel: Panel) -> None:
    """Lines with the points alone that an eye can tell; each band as one path, which a script can move."""
    groups = {element.get("id"): element for element in root.iter("g")}
    for trace in panel.traces:
        values = thinned(trace.values)
        x, y, low, high = values
        line = groups.get(trace.artists[0].get_gid())
        path = line.find("path") if line is not None else None
        if path is not None and values.shape[1] < trace.values.shape[1]:
            path.set("d", _path(panel.axes, x, y))
        band = groups.get(trace.band.get_gid()) if trace.band is not None else None
        if band is not None:
            # Of bands without an outline the path is a definition, and what shows it has the colours.
            style = next(e.get("style", "") for e in band.iter() if "fill" in e.get("style", ""))
            clip = next((e.get("clip-path", "") for e in band.iter() if e.get("clip-path")), "")
            there = np.isfinite(low + high)
            edge = np.concatenate([x[there], x[there][::-1]]), np.concatenate([low[there], high[there][::-1]])
            for child in list(band):
                band.remove(child)
            attributes = {"d": f"{_path(panel.axes, *edge)}Z", "style": style, "clip-path": clip}
            ET.SubElement(band, "path", {key: value for key, value in attributes.items() if value})


def _path(axes: Axes, x: np.ndarray, y: np.ndarray) -> str:
    """A path through points; it ends and begins anew where there is none."""
    figure = root_of(axes)
    with np.errstate(invalid="ignore", divide="ignore"):
        points = axes.transData.transform(np.stack([x, y], axis=1)) * 72 / figure.dpi
    points[:, 1] = figure.get_size_inches()[1] * 72 - points[:, 1]
    written, pen_down = [], False
    for across, down in points:
        there = bool(np.isfinite(across + down))
        if there:
            # Far outside the axes a logarithm of nearly nothing would be a number of many digits.
            written.append(f"{'L' if pen_down else 'M'}{across:.2f} {np.clip(down, -1e4, 1e4):.2f}")
        pen_down = there
    return "".join(written)


def _tidy(root: Element, picture: str) -> None:
    """Short numbers, no blanks between elements, no id that nothing refers to, the page's colours."""
    used = {name for e in root.iter() for value in e.attrib.values() for _, name in _REFERENCE.findall(value)}
    for element in root.iter():
        if element.tag not in ("text", "tspan"):
            element.text = None
        element.tail = None
        name = element.attrib.pop("id", "")
        if name.startswith(f"{picture}-"):
            element.set("id", name)
        elif name in used:
            element.set("id", f"{picture}-{name}")
        elif name.startswith(("xtick_", "ytick_")):
            element.set("class", "tick")
        for key, value in element.attrib.items():
            if key in ("d", "x", "y", "transform", "width", "height"):
                value = _LONG.sub(lambda found: f"{float(found[0]):.2f}", " ".join(value.split()))
            elif key == "style":
                value = _style(value)
            if key == "href" or "url(#" in value:
                value = _REFERENCE.sub(rf"\1{picture}-\2", value)
            element.set(key, value)


def _style(text: str) -> str:
    kept: dict[str, str] = {}
    for declaration in filter(None, (part.strip() for part in text.split(";"))):
        key, _, value = declaration.partition(":")
        key, value = key.strip(), value.strip()
        if key in ("font-family", "stroke-linejoin"):
            continue
        if key == "font":  # of a formula: style, size and family
            look, _, size = value.partition("px")[0].rpartition(" ")
            kept["font-style"] = "italic" if {"italic", "oblique"} & set(look.split()) else "normal"
            key, value = "font-size", f"{size}px"
        if key in ("fill", "stroke") and _is_dark(value):
            value = "currentColor"
        kept[key] = value
    return ";".join(f"{key}:{value}" for key, value in kept.items())


def _is_dark(colour: str) -> bool:
    """Whether a colour is black or a dark grey."""
    if not re.fullmatch(r"#[0-9a-f]{6}", colour):
        return False
    rgb = to_rgb(colour)
    return max(rgb) <= _DARK and max(rgb) - min(rgb) < 0.02


def text_of(root: Element, attributes: Mapping[str, str]) -> str:
    """The element as it stands in a page."""
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    for key, value in attributes.items():
        root.set(key, value)
    return ET.tostring(root, encoding="unicode")
