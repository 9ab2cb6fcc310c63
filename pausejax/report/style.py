"""One look for every picture: colours, dashes and markers that a grey print and every eye tells apart."""

import contextlib
import functools
import io
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.ticker import FuncFormatter
from matplotlib.typing import LineStyleType

from pausejax.atomic import replacing
from pausejax.report.figure import NO_FORMULAS, Figure, raised

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
# Of a part of a file's name that is a label, in bytes; a file system allows 255 for all of it.
_LONGEST_NAME = 60
_FILE = re.compile(r"\w[\w-]*")
# Of a legend, in points.
LEGEND_SIZE = 7
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8,
    "legend.fontsize": LEGEND_SIZE,
    "pdf.fonttype": 42,
    **NO_FORMULAS,
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
    return f"{digit}×10{raised(exponent)}" if digit in (2, 5) else ""


def wrapped(text: str, width: int) -> str:
    """A label in lines of so many characters."""
    return textwrap.fill(text, width)


def file_names(labels: Sequence[str]) -> list[str]:
    """A part of a file's name for each of some labels, all different where the labels are.

    They have letters, digits and _ alone, and few enough of them. Where nothing is left of a label, or no
    more than of another one, it is numbered; upper and lower case are one to some file systems.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in dict.fromkeys(labels):
        words = re.sub(r"\W+", "_", label).strip("_")
        # A letter may be four bytes.
        plain = words.encode()[:_LONGEST_NAME].decode(errors="ignore")
        name, number = plain, 1
        while not name or name.casefold() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.casefold())
        found[label] = name
    return [found[label] for label in labels]


def save(figures: Mapping[str, Any], directory: Path, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Writes each figure in each format; returns the paths.

    A link in a file's place is replaced, not followed.

    Raises:
      ValueError: a figure's name is no name of a file within the folder; nothing was written.
      OSError: no space left, or the like.
    """
    for name in figures:
        if not _FILE.fullmatch(name):
            raise ValueError(f"{name[:100]!r}: is no name of a picture: letters, digits, _ and - alone")
    paths = []
    for name, figure in figures.items():
        for suffix in formats:
            path, drawn = directory / f"{name}.{suffix}", io.BytesIO()
            undated = {"CreationDate": None} if suffix == "pdf" else None
            # Into memory first: on a full disk matplotlib raises errors of its own.
            figure.savefig(drawn, format=suffix, dpi=300, metadata=undated)
            with replacing(path) as partial:
                partial.write_bytes(drawn.getvalue())
            paths.append(path)
            _settle(figure)
    return paths


def _settle(figure: Figure) -> None:
    """Leaves everything where it lies: looking for places is drawing once more, also for engine "none"."""
    import matplotlib

    # `None` asks the user's own settings for an engine.
    with matplotlib.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
