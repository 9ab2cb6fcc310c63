"""Charts as Vega-Lite 6 specifications, which the page, JupyterLab, altair and vl-convert draw.

A label is never part of an expression or the name of a field. In the scales, the series have the names s0,
s1, …, and the columns have the names x, y, low, …. A table maps the series to their labels. Only the titles
of tooltips are part of expressions, because Vega-Lite writes titles into expressions.
"""

import json
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from pausejax.plotting.data import GREY, ChartData, Panel, Series, color_ends, isolated, look, thinned
from pausejax.plotting.encodings import (
    CONFIG,
    NOTEBOOK,
    SCHEMA,
    channel,
    color_of,
    dashes_of,
    ends_of,
    numbers,
    shade,
    shape_of,
    ticks,
    tip,
)

MOST_POINTS = 300
"""Largest number of points of a line."""
_HEIGHT = 230
_ARRAYS = ("x", "y", "low", "high", "shade", "isolated", "name")
_MOST_NUMBERS = 150
"""Largest number of cells of a heat map that shows their values."""
_PALE = 0.55
"""Position on the colour map viridis, from 0 to 1: values above it are written in black, others in white."""
_MOST_ABREAST = 16
"""Largest number of columns of a heat map that shows its values, and of labels in a row of a legend."""
_JOINED: dict[str, dict[str, Any]] = {
    "line": {"clip": True, "interpolate": "linear", "order": False},
    "step": {"clip": True, "interpolate": "step-after", "order": False},
}
_POINTS: dict[str, dict[str, Any]] = {
    "point": {"filled": True},
    "ring": {"filled": False, "size": 90, "fill": "transparent"},
    "cross": {"filled": False, "shape": "M-1,-1L1,1M-1,1L1,-1"},
}


def spec(chart: ChartData, panel: Panel) -> dict[str, Any]:
    """Returns the complete specification of a panel, with a legend and tooltips."""
    head = {"$schema": SCHEMA, "width": NOTEBOOK, "height": _HEIGHT, "config": CONFIG}
    return {**head, "description": chart.caption, **_titled(panel), **_Writer(chart, panel).written()}


def page_spec(chart: ChartData, panel: Panel, most: int = MOST_POINTS) -> dict[str, Any]:
    """Returns the specification of a panel for the page.

    The page adds legends and the tooltips of lines, and sets the parameters hidden, x_ends and y_ends.

    Args:
      chart: the chart with the panel.
      panel: one of the chart's panels.
      most: largest number of points of a line.
    """
    height = _HEIGHT if panel.cells is None else int(np.clip(34 * len(panel.cells), 140, 400))
    head = {"$schema": SCHEMA, "width": "container", "height": height, "config": CONFIG}
    return {**head, "description": chart.caption, **_Writer(chart, panel, most, page=True).written()}


def combined(chart: ChartData) -> dict[str, Any]:
    """Returns one specification with all panels of a chart, for a notebook."""
    parts, params = [], []
    for place, panel in enumerate(chart.panels):
        written = _Writer(chart, panel, place=place).written()
        params += written.pop("params")
        parts.append({"width": NOTEBOOK, "height": _HEIGHT, **_titled(panel), **written})
    return {
        "$schema": SCHEMA,
        "description": chart.caption,
        "config": CONFIG,
        "params": params,
        "columns": chart.columns,
        "concat": parts,
        "resolve": {"scale": {"fill": "independent"}},
    }


def as_json(document: Any) -> str:
    """Returns a document as compact JSON.

    Raises:
      ValueError: the document contains NaN or an infinity.
    """
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Writer:
    """Writes the specification of one panel.

    The layers of the specification read a table with a row for each series. Vega flattens the rows to points.
    """

    def __init__(
        self, chart: ChartData, panel: Panel, most: int = MOST_POINTS, place: int = 0, page: bool = False
    ) -> None:
        self.chart, self.panel, self.most, self.page = chart, panel, most, page
        # Names of parameters must differ, because all panels of a notebook share one set.
        self.names = f"names{place or ''}"
        self.zoom = f"zoom{place or ''}"
        self.ends: dict[str, Any] = {letter: numbers(ends_of(chart, panel, letter)) for letter in "xy"}
        self.legend = not page and (chart.color is None or panel is chart.panels[-1])

    def written(self) -> dict[str, Any]:
        panel = self.panel
        found = {"x": list(panel.x.names), "y": list(panel.y.names)}
        found |= {f"s{i}": one.label for i, one in enumerate(panel.series)}  # type: ignore[misc]
        params: list[dict[str, Any]] = [{"name": self.names, "value": found}]
        if self.page:
            params.append({"name": "hidden", "value": []})
            params += [{"name": f"{letter}_ends", "value": ends} for letter, ends in self.ends.items()]
        layers = self._cells() if panel.cells is not None else []
        layers += self._series()
        layers += self._levels() if panel.levels else []
        # The first layer has the zoom, because the marks of this layer lie below all other marks.
        bound = {"translate": True, "zoom": "wheel![event.shiftKey]"}
        select = {"type": "interval", **({"translate": False, "zoom": False} if self.page else bound)}
        bind = {} if self.page else {"bind": "scales"}
        layers[0]["params"] = [{"name": self.zoom, "select": select, **bind}]
        rows = [self._row(f"s{i}", one) for i, one in enumerate(panel.series)]
        hidden = [{"filter": "indexof(hidden, datum.series) < 0"}] if self.page else []
        steps = [{"flatten": list(_ARRAYS)}, *hidden, *self._texts()]
        # One legend for all kinds of marks would show points as lines.
        own = {"scale": dict.fromkeys(("color", "strokeDash", "strokeWidth", "shape"), "independent")}
        data = {"values": rows}
        return {"params": params, "data": data, "transform": steps, "layer": layers, "resolve": own}

    def _row(self, key: str, one: Series) -> dict[str, Any]:
        """Returns the row of a series. A line is thinned; a column that the series lacks is an empty list."""
        some = thinned(one.y, self.most) if one.mark == "line" else np.arange(len(one.x))
        columns = {"x": one.x, "y": one.y, "low": one.low, "high": one.high, "shade": one.color}
        found = {k: [] if v is None else numbers(np.asarray(v)[some]) for k, v in columns.items()}
        lone = isolated(one.y[some]) if one.mark in _JOINED else np.zeros(0, bool)
        found["isolated"] = lone.astype(int).tolist() if lone.any() else []
        name = [one.names[place] for place in some] if one.names else []
        known = {"ink": color_of(one)} if self.page else {}
        return {"key": key, "series": one.label, "mark": _kind(one), **known, **found, "name": name}

    def _places(self, **fields: str) -> dict[str, Any]:
        """Returns the encodings of both axes. The data fields are x and y, or the fields that `fields` names
        instead."""
        found = {}
        for letter, axis in (("x", self.panel.x), ("y", self.panel.y)):
            found[letter] = channel(axis, letter, f"{self.names}.{letter}")
            found[letter]["field"] = fields.get(letter, letter)
            if axis.scale == "symlog" and not axis.names:
                found[letter]["axis"] = {"values": ticks(axis, *self.ends[letter]), "format": ",.6~g"}
            found[letter]["scale"]["domain"] = {"expr": f"{letter}_ends"} if self.page else self.ends[letter]
        return found

    def _cells(self) -> list[dict[str, Any]]:
        cells = self.panel.cells
        assert cells is not None
        row, column = (place.ravel().tolist() for place in np.indices(cells.shape))
        data = {"values": [{"x": column, "y": row, "shade": numbers(cells)}]}
        steps: list[Any] = [{"flatten": ["x", "y", "shade"]}, {"filter": "isValid(datum.shade)"}]
        steps += self._texts()
        for letter in "xy":
            for end, shift in ((f"{letter}1", "-"), (f"{letter}2", "+")):
                steps.append({"calculate": f"datum.{letter} {shift} 0.5", "as": end})
        ends = list(color_ends(self.chart))
        told = tip("shade", self.chart.color.label if self.chart.color else "value")
        corner = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
        tint = {"fill": shade(self.chart.color, ends, self.legend), "tooltip": [*self._tooltip()[1:3], told]}
        common, mark = {"data": data, "transform": steps}, {"type": "rect", "clip": True}
        layers = [{**common, "mark": mark, "encoding": self._places(x="x1", y="y1") | corner | tint}]
        if cells.size <= _MOST_NUMBERS and cells.shape[1] <= _MOST_ABREAST:
            log = self.chart.color is not None and self.chart.color.scale == "log" and ends[0] > 0
            low, high = np.log(ends) if log else ends
            pale = low + _PALE * (high - low)
            test = f"datum.shade > {float(np.exp(pale) if log else pale):.6g}"
            color = {"condition": {"test": test, "value": "#000"}, "value": "#fff"}
            text = {"field": "shade", "type": "quantitative", "format": ".3~g"}
            written = {"type": "text", "fontSize": 10, "clip": True, "tooltip": None}
            encoding = {**self._places(), "text": text, "color": color}
            layers.append({**common, "mark": written, "encoding": encoding})
        return layers

    def _series(self) -> list[dict[str, Any]]:
        series, tooltip = self.panel.series, self._tooltip()
        # Rings come last, so that they are drawn over the points.
        kinds = sorted(dict.fromkeys(map(_kind, series)), key=lambda kind: kind.endswith("ring"))
        bands = {_kind(one) for one in series if one.low is not None}
        layers: list[dict[str, Any]] = []
        color = {kind: self._scale(color_of, kind) for kind in kinds}
        ends = self._places(y="low") | {"y2": {"field": "high"}}
        between = {kind: {**ends, "color": color[kind]} for kind in bands}
        for kind in (kind for kind in _JOINED if kind in bands):
            layers.append(_layer(kind, {"type": "area", "opacity": 0.2, **_JOINED[kind]}, between[kind]))
        for kind in (kind for kind in _JOINED if kind in kinds):
            width = self._scale(lambda one: 1.3 * look(one.style).width, kind)
            dash = {"strokeDash": lambda one: dashes_of(one) or [1, 0]}  # Vega needs a value for each line
            looks = {"strokeWidth": width, **self._looks(kind, color=color_of, **dash)}
            layers.append(_layer(kind, {"type": "line", **_JOINED[kind]}, self._places() | looks))
            if any(isolated(one.y).any() for one in series if _kind(one) == kind):
                dot = {"type": "point", "filled": True, "size": 20}
                dots = [(dot, {**self._places(), "color": color[kind]})]
                dots += [({"type": "rule"}, between[kind])] if kind in bands else []
                layers += [_layer(kind, {**one, "clip": True}, at, "datum.isolated") for one, at in dots]
            if not self.page:
                near = {"type": "point", "opacity": 0, "size": 60, "clip": True}
                layers.append(_layer(kind, near, {**self._places(), "tooltip": tooltip}))
        for kind in (kind for kind in kinds if kind not in _JOINED):
            if kind in bands:
                layers.append(_layer(kind, {"type": "rule", "clip": True}, between[kind]))
            tinted = kind == "tinted point"
            point = {"type": "point", "size": 48, "clip": True, **_POINTS["point" if tinted else kind]}
            drawn = {"shape": shape_of} if kind.endswith("point") else {}
            looks = self._looks(kind, **drawn, **({} if tinted else {"color": color_of}))
            if tinted:
                looks["fill"] = shade(self.chart.color, list(color_ends(self.chart)), self.legend)
            layers.append(_layer(kind, point, {**self._places(), **looks, "tooltip": tooltip}))
        return layers or [{"mark": "point", "encoding": self._places()}]

    def _scale(self, value_of: Callable[[Series], Any], kind: str) -> dict[str, Any]:
        """Returns an encoding that maps each series of a kind to `value_of(series)`."""
        known = {f"s{i}": value_of(one) for i, one in enumerate(self.panel.series) if _kind(one) == kind}
        # Without this type Vega-Lite would interpolate widths between the first and the last one.
        scale = {"type": "ordinal", "domain": [*known], "range": [*known.values()]}
        return {"field": "key", "type": "nominal", "scale": scale, "legend": None}

    def _looks(self, kind: str, **values: Callable[[Series], Any]) -> dict[str, Any]:
        """Returns encodings of a kind of series by channel, with a legend that has each label once."""
        series = [(f"s{i}", one) for i, one in enumerate(self.panel.series) if one.label]
        joined = {one.label for _, one in series if one.mark in _JOINED and kind not in _JOINED}
        first = {one.label: key for key, one in reversed(series) if _kind(one) == kind}
        keys = [key for label, key in first.items() if label not in joined][::-1]
        legend: dict[str, Any] = {"title": None, "values": keys, "symbolOpacity": 1, "labelLimit": 200}
        legend["labelExpr"] = f"{self.names}[datum.value]"
        if kind in _JOINED:
            legend |= {"symbolType": "stroke", "symbolStrokeWidth": 2}
        elif kind.startswith("tinted"):
            legend |= {"symbolFillColor": GREY, "symbolStrokeWidth": 0}
        fits = self.chart.least_named <= len({one.label for _, one in series}) <= _MOST_ABREAST
        shown = legend if keys and fits and not self.page else None
        return {name: self._scale(value_of, kind) | {"legend": shown} for name, value_of in values.items()}

    def _levels(self) -> list[dict[str, Any]]:
        data = {"values": [{"text": text, "at": numbers(at)[0]} for text, at in self.panel.levels]}
        y = self._places(y="at")["y"]
        told = {"field": "text", "type": "nominal", "title": "level"}
        rule = {"type": "rule", "color": GREY, "strokeDash": [2, 2], "clip": True}
        text: dict[str, Any] = {"type": "text", "align": "right", "dy": -5, "fontSize": 10}
        text |= {"color": "currentColor", "limit": 160}
        beside = {"x": {"value": "width"}, "y": y, "text": {"field": "text", "type": "nominal"}}
        return [
            {"data": data, "mark": rule, "encoding": {"y": y, "tooltip": [told]}},
            {"data": data, "mark": text, "encoding": beside},
        ]

    def _texts(self) -> list[dict[str, str]]:
        """Returns transforms that compute texts of tooltips, and raise interval ends below a log axis to its
        lower limit."""
        both = "format(datum.low, '.4~g') + ' to ' + format(datum.high, '.4~g')"
        steps = {"interval": f"isValid(datum.low) ? {both} : ''"}
        steps["value"] = "isValid(datum.shade) ? format(datum.shade, '.4~g') : 'not finite'"
        for letter, axis in (("x", self.panel.x), ("y", self.panel.y)):
            named = f"{self.names}.{letter}[round(datum.{letter})]"
            steps["at_" + letter] = named if axis.names else f"format(datum.{letter}, '.5~g')"
        if self.panel.y.scale == "log":
            steps["low"] = f"isValid(datum.low) ? max(datum.low, {self.ends['y'][0]}) : null"
        return [{"calculate": text, "as": key} for key, text in steps.items()]

    def _tooltip(self) -> list[dict[str, Any]]:
        named = any(one.names for one in self.panel.series)
        found = [tip("series", "series"), tip("at_x", self.panel.x.label), tip("at_y", self.panel.y.label)]
        found += [tip("interval", "95 %")] if any(one.low is not None for one in self.panel.series) else []
        found += [tip("name", "setting")] if named else []
        if self.chart.color and any(one.color is not None for one in self.panel.series):
            found.append(tip("value", self.chart.color.label))
        return found


def _layer(kind: str, mark: dict[str, Any], encoding: dict[str, Any], *also: str) -> dict[str, Any]:
    steps: list[Any] = [{"filter": {"field": "mark", "equal": kind}}, *({"filter": test} for test in also)]
    return {"transform": steps, "mark": mark, "encoding": encoding}


def _kind(one: Series) -> str:
    """Returns the mark of a series, with "tinted " before it if its colours show values."""
    return f"tinted {one.mark}" if one.tinted else one.mark


def _titled(panel: Panel) -> dict[str, Any]:
    title = {"text": panel.title, **({"subtitle": textwrap.wrap(panel.note, 60)} if panel.note else {})}
    return {"title": title} if panel.title or panel.note else {}
