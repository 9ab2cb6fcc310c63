"""Chooses the ticks of symlog axes, with enough distance between their numbers."""

import itertools
from typing import Any

import numpy as np
from matplotlib.ticker import Locator

_GAP = {"x": 0.4, "y": 0.15}
"""Smallest distance between the numbers of two ticks, in inches."""


class Decades(Locator):
    """Places ticks at 0 and at powers of ten that have room, none of them between 0 and ±`linear`."""

    def __init__(self, linear: float) -> None:
        self.linear = linear

    def __call__(self) -> Any:
        """Returns the ticks within the current ends of the axis."""
        return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Returns the ticks between two ends."""
        axis: Any = self.axis
        low, high = sorted((vmin, vmax))
        ends = axis.get_transform().transform(np.array([low, high]))
        box = axis.axes.get_window_extent()
        inches = (box.width if axis.axis_name == "x" else box.height) / axis.get_figure(root=True).dpi
        first, last = (np.log10(value) for value in (self.linear, max(-low, high, self.linear)))
        powers = np.arange(np.floor(last), np.ceil(first) - 0.5, -1)
        for stride in itertools.count(1):
            above = 10.0 ** powers[::stride]
            ticks = np.array([*-above, 0.0, *above[::-1]])
            ticks = ticks[(low <= ticks) & (ticks <= high)]
            places = axis.get_transform().transform(ticks) * inches / max(np.ptp(ends), 1e-12)
            if len(ticks) < 2 or np.diff(places).min() >= _GAP[axis.axis_name] or stride > len(powers):
                return ticks
