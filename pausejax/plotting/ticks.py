"""Sets the scales and the ticks of matplotlib axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import (
    LogFormatterSciNotation,
    LogLocator,
    NullFormatter,
    StrMethodFormatter,
    SymmetricalLogLocator,
)

from pausejax.plotting.data import Axis
from pausejax.plotting.words import cut, plain

_LONGEST_NAME = 16
"""Largest number of letters in the name of a tick."""
_LETTER = 0.055
"""Mean width of a letter in the name of a tick, in inches."""
_DECADES = {"x": 0.45, "y": 0.2}
"""Least distance between ticks of a log or symlog axis, in inches."""


class _Decades(SymmetricalLogLocator):
    """Places ticks at 0 and at powers of ten. If ticks are crowded, the powers next to 0 have no ticks."""

    def __init__(self, linear: float) -> None:
        super().__init__(base=10, linthresh=linear)
        self.linear = linear

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Returns the ticks from `vmin` to `vmax`."""
        places, ends = np.asarray(super().tick_values(vmin, vmax)), (-min(vmin, vmax), max(vmin, vmax))
        decades = sum(1 + np.log10(max(end / self.linear, 1)) for end in ends)
        return places[(np.abs(places) != self.linear) | (decades <= self.numticks)]


def upright_height(axis: Axis, inches: float) -> float:
    """Returns the approximate height of upright names along an x axis of `inches`; 0 if they lie flat."""
    names = _short_names(axis)
    return _LETTER * max(map(len, names)) if names and _crowded(names, inches) else 0.0


def set_ticks(axes: Axes, which: str, axis: Axis, inches: float, *, cells: bool) -> None:
    """Sets the scale and the ticks of the axis `which` ("x" or "y"), which is `inches` long."""
    if axis.names:
        names = _short_names(axis)
        upright = which == "x" and _crowded(names, inches)
        places = np.arange(len(names)) + (0.5 if cells else 0)
        getattr(axes, f"set_{which}ticks")(places, [*map(plain, names)], rotation=90 if upright else 0)
        return
    settings = {"linthresh": axis.linear} if axis.scale == "symlog" else {}
    getattr(axes, f"set_{which}scale")(axis.scale, **settings)
    drawn = getattr(axes, f"{which}axis")
    if axis.scale == "symlog":
        drawn.set_major_locator(ticks := _Decades(axis.linear))
        ticks.set_params(numticks=max(int(inches / _DECADES[which]), 2))
    low, high = sorted(getattr(axes, f"get_{which}lim")())
    if axis.scale == "log" and 0 < 10 * low < high:
        drawn.set_minor_formatter(NullFormatter())
        room = inches / _DECADES[which]
        # Powers of ten alone would be one or two ticks.
        if high < 100 * low and 3 * np.log10(high / low) < room:
            drawn.set_major_locator(LogLocator(subs=(1, 2, 5)))
            short = low >= 1e-3 and high < 1e5
            powers = LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf))
            drawn.set_major_formatter(StrMethodFormatter("{x:g}") if short else powers)


def _short_names(axis: Axis) -> list[str]:
    return [cut(name, _LONGEST_NAME) for name in axis.names]


def _crowded(names: list[str], inches: float) -> bool:
    """Returns whether names along an x axis of `inches` would touch each other side by side."""
    return sum(map(len, names)) + 2 * len(names) > 14 * inches
