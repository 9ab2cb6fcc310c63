"""The explorer of a large study, in Vega-Lite: all settings on axes that the reader chooses."""

from typing import Any

import numpy as np

from pausejax.plotting.data import GREY, PALETTE, Axis, Sweep
from pausejax.plotting.encodings import CONFIG, NOTEBOOK, SCHEMA, channel, numbers, shade, tip, within

_BRUSH = {"fill": PALETTE[0], "fillOpacity": 0.25, "stroke": PALETTE[0]}
_MOST_NAMES = 5
"""Approximate largest number of names in the legend of a colour scale."""


def explorer(sweep: Sweep) -> dict[str, Any]:
    """Returns the specification of a scatter plot of all settings, above a strip to select an interval of
    values.

    `usermeta` contains the encodings of every column. The page inserts the encodings of the columns that the
    reader chooses.
    """
    columns = range(len(sweep.axes))
    names = {f"c{i}": list(axis.names) for i, axis in enumerate(sweep.axes) if axis.names}
    meta: dict[str, list[Any]] = {"x": [], "y": [], "fill": [], "strip": []}
    for i, axis in enumerate(sweep.axes):
        encoded = _encoded(axis, f"c{i}", sweep.values[:, i])
        for key, one in encoded.items():
            meta[key].append(one)
    across, upwards, color = sweep.start
    told = [{"field": "label", "title": "setting"}]
    for i, axis in enumerate(sweep.axes):
        title = tip("", axis.label)["title"]
        told.append({"field": f"t{i}", "title": title, "type": "nominal"})
    texts = [f"names.c{i}[datum.c{i}]" if axis.names else f"datum.c{i}" for i, axis in enumerate(sweep.axes)]
    lacking = ["–" if i < sweep.parameters else "not finite" for i in columns]
    looked_up = [
        {"calculate": f"isValid(datum.c{i}) ? {texts[i]} : '{lacking[i]}'", "as": f"t{i}"} for i in columns
    ]
    faint = {"condition": {"param": "brush", "value": 0.85}, "value": 0.07}
    # A parameter is shown with almost all digits, so that a reader can use the value in a spec.
    digits = [12 if i < sweep.parameters else 5 for i in columns]
    data = {f"c{i}": numbers(sweep.values[:, i], own) for i, own in zip(columns, digits, strict=True)}
    row = {**data, "label": list(sweep.labels), "front": np.asarray(sweep.front, int).tolist()}
    ring = {"type": "point", "filled": False, "size": 90, "stroke": "currentColor", "fill": "transparent"}
    select = {"type": "interval", "encodings": ["x"], "zoom": False, "mark": _BRUSH}
    point = {"type": "point", "filled": True, "size": 36, "clip": True}
    top = {
        "width": NOTEBOOK,
        "height": 300,
        "encoding": {"x": meta["x"][across], "y": meta["y"][upwards], "opacity": faint},
        "layer": [
            {"mark": point, "encoding": {"fill": meta["fill"][color], "tooltip": told}},
            {"transform": [{"filter": "datum.front"}], "mark": {**ring, "clip": True}},
        ],
    }
    strip = {
        "width": NOTEBOOK,
        "height": 34,
        "params": [{"name": "brush", "select": select}],
        "mark": {"type": "tick", "thickness": 1, "color": "currentColor", "opacity": 0.4},
        "encoding": {"x": meta["strip"][upwards]},
    }
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        "description": "every setting of the study",
        "data": {"values": [row]},
        "transform": [{"flatten": list(row)}, *looked_up],
        "params": [{"name": "names", "value": names}],
        "vconcat": [top, strip],
        "usermeta": {**meta, "start": [across, upwards, color, upwards]},
    }


def _encoded(axis: Axis, field: str, values: np.ndarray) -> dict[str, Any]:
    """Returns the encodings of one column of a sweep: as x axis, as y axis, as colour and as axis of the
    strip."""
    place = channel(axis, field, f"names.{field}")
    place["scale"].setdefault("domain", numbers(within(axis, [values])))
    ticks = place["axis"]
    # The extent of the axis is fixed, so that the page can compute the width of the plot.
    beside = {"minExtent": 55, "maxExtent": 55, "labelLimit": 55, "labelAngle": 0}
    tint = shade(axis, within(axis, [values], 0.0), legend=True)["condition"]
    legend = {**tint["legend"], "orient": "top", "direction": "horizontal"}
    if axis.names:
        some = [*range(0, len(axis.names), -(-len(axis.names) // _MOST_NAMES))]
        legend |= {"labelExpr": f"names.{field}[datum.value]", "values": some}
    tint |= {"field": field, "test": f"isValid(datum.{field})", "legend": legend}
    return {
        "x": place,
        "y": {**place, "axis": {**ticks, **beside}},
        "fill": {"condition": tint, "value": GREY},
        "strip": {**place, "axis": {**ticks, "grid": False}},
    }
