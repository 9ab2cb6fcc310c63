"""One look for every picture: colours, dashes and markers that a grey print and every eye tells apart."""

import contextlib
import functools
import math
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.ticker import FuncFormatter
from matplotlib.typing import LineStyleType

from pausejax.report.figure import Figure

# Okabe and Ito's colours, told apart under every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
# As many dashes as have no divisor in common with colours and markers: a pair comes back after 56 lines.
DASHES: tuple[LineStyleType, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.2)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (2.5, 1)),
    (0, (8, 1.5, 1, 1.2, 1, 1.5)),
    (0, (2, 3)),
)
MARKERS = "osD^vP*X"

# One column of a two-column paper, in inches.
SIZE = (3.5, 2.7)
# Both columns, with the legend beside the picture: for more lines than a column has room for.
WIDE = (7.0, 3.2)
# Up to so much between the ends of a logarithmic axis its decades are not enough.
_FEW_DECADES = 50.0
# Of a legend, in points.
LEGEND_SIZE = 7
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8,
    "legend.fontsize": LEGEND_SIZE,
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """How a line is told from the others."""

    colour: str
    dash: LineStyleType
    marker: str
    place: int = 0
    """Among the lines: the markers of two lines do not lie on one another."""

    def on_line(self) -> dict[str, Any]:
        """For `Axes.plot` of many points: a marker here and there."""
        start = 0.02 + 0.035 * (self.place % 5)
        marks = {"marker": self.marker, "markevery": (start, 0.18), "markersize": 3, "markeredgewidth": 0}
        return {"color": self.colour, "linestyle": self.dash, "linewidth": 1.2, **marks}


def look(place: int) -> Look:
    """The look of the line at a place, from 0."""
    return Look(
        PALETTE[place % len(PALETTE)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)], place
    )


def styled_context() -> contextlib.AbstractContextManager[None]:
    """The fonts of every picture."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches; to be made within `styled_context`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes) -> None:
    """A light grid, no frame above and at the right, and few numbers within a decade."""
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_minor_formatter(FuncFormatter(functools.partial(_within_a_decade, axis)))


def _within_a_decade(axis: Axis, value: float, _: int | None = None) -> str:
    """2 and 5 between the powers of ten where an axis has few of these; all digits would touch each other."""
    low, high = sorted(axis.get_view_interval())
    if not 0 < low < high <= _FEW_DECADES * low:
        return ""
    exponent = math.floor(math.log10(value) + 1e-9)
    digit = round(value / 10.0**exponent)
    return f"${digit}\\times10^{{{exponent}}}$" if digit in (2, 5) else ""


def wrapped(text: str, width: int) -> str:
    """A label in lines of so many characters."""
    return textwrap.fill(text, width)


def save(figures: Mapping[str, Any], directory: Path, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Writes each figure in each format; returns the paths."""
    paths = []
    for name, figure in figures.items():
        for suffix in formats:
            path = directory / f"{name}.{suffix}"
            figure.savefig(path, dpi=300, metadata={"CreationDate": None} if suffix == "pdf" else None)
            paths.append(path)
            _settle(figure)
    return paths


def _settle(figure: Figure) -> None:
    """Leaves everything where it lies: looking for places is drawing once more, also for engine "none"."""
    import matplotlib

    # `None` asks the user's own settings for an engine.
    with matplotlib.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
