"""The pictures of a page: SVG with its numbers and its description, or pixels if that is too much."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from pausejax.page import svg
from pausejax.page.charts import (
    Panel,
    Trace,
    cells_of,
    is_named,
    is_switchable,
    labels_of,
    names_along,
    panels_of,
    root_of,
    scale_label,
    thinned,
)

MOST_BYTES = 3_500_000
"""Of all pictures of a page."""
_MOST_OF_ONE = 700_000
_POINTS_PER_INCH = 72
_WIDE = 5.0
_TOLD = 8
"""Lines that a description tells the ends of."""


class Picture(NamedTuple):
    """One picture as the page shows it."""

    place: str
    """Its name in the page."""
    name: str
    """Of its files."""
    title: str
    alt: str
    """What it shows, in words."""
    markup: str
    """SVG, or an image."""
    data: dict[str, Any] | None
    """What the page's script draws it anew from; None: it stays as it is."""
    labels: tuple[str, ...]
    """Of its lines."""
    width: int
    """In points; a page never shows it smaller."""
    wide: bool
    paper: bool
    """Whether it needs a white ground in the dark as well."""


def make(figures: Mapping[str, Figure]) -> tuple[list[Picture], list[str]]:
    """All figures as pictures, and what was left out because the page would grow too large.

    Args:
      figures: by file name; their artists get names of the page's.
    """
    pictures, left_out, size = [], [], 0
    for number, (name, figure) in enumerate(figures.items()):
        picture = _drawn(f"p{number}", name, figure)
        if _size(picture) > min(_MOST_OF_ONE, MOST_BYTES - size):
            picture = _pixels(picture, figure)
        if _size(picture) > MOST_BYTES - size:
            left_out.append(f"{name}: no room in this page; the picture is {name}.png beside it")
            continue
        size += _size(picture)
        pictures.append(picture)
    return pictures, left_out


def title_of(name: str) -> str:
    """A file's name in words."""
    words = name.replace("_vs_", " against ").replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _size(picture: Picture) -> int:
    """In bytes, with its numbers."""
    return len(picture.markup.encode()) + (len(json.dumps(picture.data)) if picture.data else 0)


def _drawn(place: str, name: str, figure: Figure) -> Picture:
    panels = panels_of(figure)
    ids = svg.Ids(place)
    labels = labels_of(panels)
    described = [_described(panel, ids) for panel in panels]
    legend = _legend(figure, labels, ids)
    root = svg.render(figure, panels, ids)
    # Where the axes lie is known when the figure has been drawn.
    for panel, found in zip(panels, described, strict=True):
        found["box"] = svg.box_of(panel.axes, figure)
        found["x"] |= _limits(panel.axes.xaxis)
        found["y"] |= _limits(panel.axes.yaxis)
    alt = _alt(panels)
    attributes = {"role": "img", "aria-label": alt, "tabindex": "0", "id": place}
    width = figure.get_size_inches()[0]
    paper = any(len(np.unique(dots.get_facecolor(), axis=0)) > 1 for panel in panels for dots in panel.dots)
    markup = svg.text_of(root, attributes)
    data = {"legend": legend, "panels": described}
    points = round(width * _POINTS_PER_INCH)
    return Picture(
        place, name, title_of(name), alt, markup, data, tuple(labels), points, bool(width > _WIDE), paper
    )


def _pixels(picture: Picture, figure: Figure) -> Picture:
    """The picture as an image: it cannot be pointed at, but it is there."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=150)
    encoded = base64.b64encode(written.getvalue()).decode()
    markup = f'<img src="data:image/png;base64,{encoded}" alt="">'
    return picture._replace(markup=markup, data=None, labels=(), paper=True)


def _described(panel: Panel, ids: svg.Ids) -> dict[str, Any]:
    """What the script knows of a panel, but where it lies."""
    axes = panel.axes
    whole = root_of(axes)
    found: dict[str, Any] = {
        "title": axes.get_title(),
        "x": {"label": axes.get_xlabel() or whole.get_supxlabel(), "id": ids.give(axes.xaxis)},
        "y": {"label": axes.get_ylabel() or whole.get_supylabel(), "id": ids.give(axes.yaxis)},
        "traces": [_trace(trace, ids) for trace in panel.traces],
    }
    if panel.whole:
        found["whole"] = 1
    for letter, siblings, axis in (
        ("x", axes.get_shared_x_axes(), axes.xaxis),
        ("y", axes.get_shared_y_axes(), axes.yaxis),
    ):
        found[letter]["shared"] = min(
            ids.give(getattr(one, f"{letter}axis")) for one in siblings.get_siblings(axes)
        )
        if panel.whole and is_switchable(axis):
            found[letter]["free"] = 1
    if panel.cells is not None:
        cells = cells_of(panel.axes, panel.cells)
        found["cells"] = {
            "x": _numbers(cells.x),
            "y": _numbers(cells.y),
            "names": [names_along(axes, "x"), names_along(axes, "y")],
            "values": [_numbers(row) for row in cells.values],
            "label": scale_label(axes),
        }
    if panel.dots:
        found["dots"] = [_numbers(column) for column in _dots(panel).T]
    return found


def _dots(panel: Panel) -> np.ndarray:
    """The places of all dots that stand for data, [n, 2]."""
    places = [np.asarray(dots.get_offsets(), np.float64).reshape(-1, 2) for dots in panel.dots]
    return np.concatenate(places)


def _trace(trace: Trace, ids: svg.Ids) -> dict[str, Any]:
    x, y, low, high = thinned(trace.values)
    found: dict[str, Any] = {"label": trace.label, "ids": [ids.give(artist) for artist in trace.artists]}
    found |= {"x": _numbers(x), "y": _numbers(y)}
    if trace.is_level:
        found["level"] = 1
    if trace.band is not None:
        found["band"] = ids.give(trace.band)
    if np.isfinite(low + high).any():
        found |= {"low": _numbers(low), "high": _numbers(high)}
    return found


def _limits(axis: Axis) -> dict[str, Any]:
    transform = axis.get_transform()
    low, high = (float(f"{limit:.8g}") for limit in axis.get_view_interval())
    found = {"scale": axis.get_scale(), "from": low, "to": high}
    if hasattr(transform, "linthresh"):
        found["linear"] = float(transform.linthresh)
    return found


def _legend(figure: Figure, labels: Sequence[str], ids: svg.Ids) -> list[list[str]]:
    """Label, and the ids of what a legend shows of it."""
    legends = [*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes))]
    found = []
    for legend in legends:
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
            if text.get_text() in labels:
                marks = [handle] if hasattr(handle, "set_gid") else []
                found.append([text.get_text(), *(ids.give(artist) for artist in (text, *marks))])
    return found


def _numbers(values: np.ndarray) -> list[float | None]:
    """Five digits each; null where there is none."""
    return [_number(value) for value in np.asarray(values, np.float64).tolist()]


def _number(value: float) -> float | None:
    if not np.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _alt(panels: Sequence[Panel]) -> str:
    """A figure in words: what stands against what, and where each line ends."""
    said: list[str] = []
    for panel in panels:
        whole = root_of(panel.axes)
        across = panel.axes.get_xlabel() or whole.get_supxlabel()
        up = panel.axes.get_ylabel() or whole.get_supylabel()
        named = list(filter(is_named, panel.traces))
        if panel.cells is not None:
            values = cells_of(panel.axes, panel.cells).values
            if not said and np.isfinite(values).any():
                reach = f"from {np.nanmin(values):.3g} to {np.nanmax(values):.3g}"
                said.append(f"Heat map of {scale_label(panel.axes)}: {reach} in the first panel")
        elif panel.dots:
            said.append(f"{len(_dots(panel))} points: {up} against {across}")
        elif named and (up or across):
            ends = [_end(trace) for trace in named[:_TOLD]]
            more = f"; and {len(named) - _TOLD} more" if len(named) > _TOLD else ""
            what = " against ".join(filter(None, (up, across)))
            said.append(f"{what}. At the right: {'; '.join(ends)}{more}")
    return ". ".join(" ".join(text.split()) for text in dict.fromkeys(said)) or "A picture of the result"


def _end(trace: Trace) -> str:
    x, y, low, high = trace.values
    there = np.flatnonzero(np.isfinite(y))
    if not there.size:
        return f"{trace.label}: nothing"
    last = there[np.argmax(x[there])]
    around = f" ({low[last]:.3g} to {high[last]:.3g})" if np.isfinite(low[last] + high[last]) else ""
    return f"{trace.label} {y[last]:.3g}{around}"
