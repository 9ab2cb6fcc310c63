"""Makes Vega-Lite encodings for panels and the explorer: positions, colours, tooltips and limits of axes."""

import dataclasses
import textwrap
from typing import Any

import numpy as np

from pausejax.plotting.data import GREY, SHAPES, Axis, ChartData, Panel, Scale, Series, isolated, look

VIRIDIS = "viridis"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
NOTEBOOK = 300
"""Width of a panel in a notebook or in a file, in pixels."""
_TITLE = 42
"""Largest number of letters in a line of an axis' label."""
_MOST_NAMES = 16
"""An axis with at most this number of names shows all of them.

If an axis has more names, overlapping names are hidden.
"""
_FOUR_DIGITS = ".4~g"
"""D3 format of a number with four significant digits."""
_MOST_DECADES = 4
"""If a symlog axis spans fewer decades than this number, it also has ticks at 2 and 5."""
_QUIET = "#8888"
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    # Vega-Lite leaves out points without a colour, even if a condition names one. This draws them in grey.
    "scale": {"invalid": {"fill": {"value": GREY}}},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "tickColor": _QUIET,
        "domainColor": _QUIET,
        "gridColor": "#8883",
        "labelOverlap": True,
    },
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor", "titleFontWeight": "normal"},
    "title": {"color": "currentColor", "subtitleColor": "currentColor", "fontSize": 12, "limit": 300},
}


def numbers(values: Any, digits: int = 5) -> list[float | int | None]:
    """Rounds values to `digits` digits, for short JSON; a value that is not finite becomes None."""
    short = (float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).ravel().tolist())
    return [(int(v) if v == int(v) else v) if np.isfinite(v) else None for v in short]


def ends_of(chart: ChartData, panel: Panel, letter: str, scale: Scale | None = None) -> list[float]:
    """Returns the limits of an axis, [lowest, highest].

    The limits enclose the values of every panel whose axis is equal to this axis of `panel`.

    Args:
      chart: the chart with the panel.
      panel: one of the chart's panels.
      letter: the axis of `panel`, "x" or "y".
      scale: the scale to use in place of the axis' own scale.
    """
    axis: Axis = getattr(panel, letter)
    alike, found = values_along(chart, panel, letter)
    found += [[-0.5, one.cells.shape[letter == "x"] - 0.5] for one in alike if one.cells is not None]
    every = [one for other in alike for one in other.series]
    joined = letter == "x" and all(one.mark in ("line", "step") for one in every)
    joined = joined and not any(isolated(one.y).any() for one in every)  # which would lie on the frame
    axis = dataclasses.replace(axis, scale=scale or axis.scale)
    return within(axis, found, 0.0 if joined or any(other.cells is not None for other in alike) else 0.04)


def values_along(chart: ChartData, panel: Panel, letter: str) -> tuple[list[Panel], list[Any]]:
    """Returns the panels whose axis equals that of `panel`, and all values on this axis.

    The values are those of series and of reference lines, without the cells of heat maps.

    Args:
      chart: the chart with the panel.
      panel: one of the chart's panels.
      letter: the axis of `panel`, "x" or "y".
    """
    alike = [other for other in chart.panels if getattr(other, letter) == getattr(panel, letter)]
    keys = ("x",) if letter == "x" else ("y", "low", "high")
    columns = [getattr(one, key) for other in alike for one in other.series for key in keys]
    levels = [[value for _, value in other.levels] for other in alike if letter == "y"]
    return alike, [values for values in (*columns, *levels) if values is not None]


def within(axis: Axis, found: list[Any], share: float = 0.04) -> list[float]:
    """Returns the limits of an axis for the arrays of values in `found`, with a margin of `share` times their
    range."""
    if axis.names:
        return [-0.5, len(axis.names) - 0.5]
    values = np.concatenate([*(np.asarray(part, np.float64).ravel() for part in found), np.zeros(0)])
    values = values[np.isfinite(values) & ((values > 0) | (axis.scale != "log"))]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.1, 1.0)
    return _padded(axis, low, high, share)


def channel(axis: Axis, field: str, names: str = "names.x") -> dict[str, Any]:
    """Returns the Vega-Lite encoding of the data field `field` as a position on an axis.

    `names` is the Vega expression for the list of the axis' names.
    """
    found: dict[str, Any] = {
        "field": field,
        "type": "quantitative",
        "title": textwrap.wrap(axis.label, _TITLE),
    }
    if not axis.names:
        scale: dict[str, Any] = {"type": axis.scale, "nice": False}
        scale |= {"constant": axis.linear} if axis.scale == "symlog" else {}
        return {**found, "axis": {"tickCount": 6}, "scale": scale}
    ticks = {"values": list(range(len(axis.names))), "labelExpr": f"{names}[datum.value]", "grid": False}
    ticks["labelOverlap"] = len(axis.names) > _MOST_NAMES
    if field[0] != "y" and sum(map(len, axis.names)) > 36:
        ticks |= {"labelAngle": -40, "labelLimit": 140}
    return {**found, "axis": ticks, "scale": {"nice": False, "domain": [-0.5, len(axis.names) - 0.5]}}


def ticks(axis: Axis, low: float, high: float) -> list[float | int | None]:
    """Returns the ticks of a "symlog" axis from `low` to `high`: 0, and ±1, ±2 and ±5 times powers of ten.

    An axis with many decades has ticks only at powers of ten. Vega's default ticks are evenly spaced.
    """
    far = max(abs(low), abs(high))
    first, last = (int(np.floor(np.log10(value))) for value in (axis.linear, max(far, axis.linear)))
    digits = (1, 2, 5) if last - first < _MOST_DECADES else (1,)
    above = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return numbers([at for at in (*(-one for one in above[::-1]), 0.0, *above) if low <= at <= high])


def shade(color: Axis | None, ends: list[float], legend: bool) -> dict[str, Any]:
    """Returns the encoding of the data field "shade" as a colour, on a scale from `ends[0]` to `ends[1]`.

    Missing values are grey. `color` is the axis that gives the scale and its label.
    """
    axis = color or Axis("")
    kind = "linear" if axis.scale == "log" and ends[0] <= 0 else axis.scale
    scale: dict[str, Any] = {"type": kind, "scheme": VIRIDIS, "domain": numbers(ends)}
    scale |= {"constant": axis.linear} if kind == "symlog" else {}
    scale |= {"zero": False} if kind == "linear" else {}
    shown: dict[str, Any] = {"title": textwrap.wrap(axis.label, 24), "gradientLength": 120}
    # Vega rounds the two ends of a scale to the digits of its ticks unless a format is given.
    shown |= {} if axis.names else {"format": _FOUR_DIGITS}
    condition = {
        "field": "shade",
        "type": "quantitative",
        "scale": scale,
        "legend": shown if legend else None,
    }
    return {"condition": {"test": "isValid(datum.shade)", **condition}, "value": GREY}


def color_of(one: Series) -> str:
    """Returns the colour of a series, or grey if its points have the colours of the chart's scale.

    Black becomes the text's colour, which depends on light or dark mode.
    """
    color = GREY if one.tinted else look(one.style).color
    return "currentColor" if color == "#000000" else color


def dashes_of(one: Series) -> list[float]:
    """Returns the lengths of dashes and gaps of a series' line; [] for a solid line."""
    return [1.5 * length for length in look(one.style).dash]


def shape_of(one: Series) -> str:
    """Returns the SVG path of a series' points, with coordinates from -1 to 1."""
    return SHAPES[look(one.style).marker]


def tip(field: str, title: str) -> dict[str, Any]:
    """Returns the encoding of one line of a tooltip, which shows the title and the value of `field`.

    Vega-Lite writes the title into an expression, and escapes only quotes. So this function escapes
    backslashes.
    """
    words = " ".join(title.split())[:80].replace("\\", "\\\\")
    shown = {"type": "quantitative", "format": _FOUR_DIGITS} if field == "shade" else {"type": "nominal"}
    return {"field": field, **shown, "title": words or field}


def _padded(axis: Axis, low: float, high: float, share: float) -> list[float]:
    """Adds a margin of `share` times the range to both limits of an axis.

    If the axis begins at 0 (`axis.zero`), its lower limit is 0. A log scale never begins at 0.
    """
    if axis.scale == "log":
        room = max(np.log(high / low) * share, 0.0) or (0.0 if high > low else 0.1)
        return [low * float(np.exp(-room)), high * float(np.exp(room))]
    if axis.scale == "symlog":
        # The margin is a share of the range after the transformation of the scale. A share of the values
        # could span decades near 0.
        bent = [float(np.sign(end) * np.log1p(abs(end) / axis.linear)) for end in (low, high)]
        room = (bent[1] - bent[0]) * share or 0.1
        bent = [0.0 if axis.zero else bent[0] - room, bent[1] + room]
        return [float(np.sign(end) * np.expm1(abs(end)) * axis.linear) for end in bent]
    if axis.zero and high > 0:
        return [0.0, high * (1 + share)]
    room = (high - low) * share or (0.0 if high > low else 0.05 * abs(low) or 0.5)
    return [low - room, high + room]
