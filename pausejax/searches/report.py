"""History, slices, front, and the page of a search: from its record, also years later."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from pausejax import page
from pausejax.analysis import schema
from pausejax.analysis.choice import non_dominated
from pausejax.analysis.quantities import format_number
from pausejax.page.tables import MOST_RUNS, Table
from pausejax.report.figure import Figure, Pictures
from pausejax.report.style import PALETTE, new_figure, styled_context, tidy, wrapped
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.searches.trials import Row

FILE = "search_record.json"


class Metric(NamedTuple):
    """A metric of the search."""

    name: str
    label: str
    scale: float
    """What pictures and tables multiply it by."""
    shown: str
    """How tables write it."""
    maximize: bool


class Dimension(NamedTuple):
    """A parameter that the search chose."""

    name: str
    symbol: str
    log: bool
    """Whether it was searched on a logarithmic scale."""

    @property
    def words(self) -> str:
        """The name as words."""
        return self.name.replace("_", " ")


class Record(NamedTuple):
    """A whole search as plain data."""

    name: str
    asked: str
    """What was sought, in a sentence."""
    summary: str
    """What was played, in a sentence."""
    metrics: tuple[Metric, ...]
    dimensions: tuple[Dimension, ...]
    trials: tuple[Row, ...]
    """By number."""
    headings: tuple[str, ...]
    finalists: tuple[tuple[str, ...], ...]
    """The table of the best on fresh seeds, row by row."""
    title: str
    """Of that table, in sentences."""

    def values(self, trials: Sequence[Row]) -> np.ndarray:
        """Returns the metrics of some trials, float64 [n, metrics]; NaN where one has no value."""
        rows = [[one.figures[metric.name] for metric in self.metrics] for one in trials]
        return np.array(rows, float).reshape(len(trials), len(self.metrics))

    def points(self, trials: Sequence[Row]) -> np.ndarray:
        """Returns the same, turned so that more is better."""
        return self.values(trials) * [1.0 if metric.maximize else -1.0 for metric in self.metrics]

    @property
    def valid(self) -> list[Row]:
        """Those that have a value of every metric and keep the constraints."""
        finite = np.isfinite(self.values(self.trials)).all(axis=1)
        return [one for one, ok in zip(self.trials, finite, strict=True) if ok and not one.broken]

    def write(self, folder: Folder) -> None:
        """Puts it into the folder of the search.

        Raises:
          OSError: no space left, or the like.
        """
        plain = self._asdict()
        for name in ("metrics", "dimensions", "trials"):
            plain[name] = [one._asdict() for one in plain[name]]
        write_sealed(folder, FILE, plain)

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Reads what a search has left in its folder; None: there is no search that has ended.

        Raises:
          ValueError: it is damaged.
        """
        if not folder.exists(FILE):
            return None
        try:
            held = read_sealed(folder, FILE)
            if wrong := schema.search_problem(held):
                raise ValueError(wrong)
            return cls(
                **{key: str(held[key]) for key in ("name", "asked", "summary", "title")},
                metrics=tuple(Metric(**one) for one in held["metrics"]),
                dimensions=tuple(Dimension(**one) for one in held["dimensions"]),
                trials=tuple(Row(**one) for one in held["trials"]),
                headings=tuple(map(str, held["headings"])),
                finalists=tuple(tuple(map(str, row)) for row in held["finalists"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            again = "the same `pausejax search` makes it whole"
            raise ValueError(f"{folder}: {FILE} is damaged ({error}); {again}") from error


def draw(record: Record) -> Pictures:
    """Draws all pictures that a search has the data for, by file name."""
    with styled_context():
        figures = {"search_history": _history(record)}
        if record.dimensions:
            figures["search_slices"] = _slices(record)
        if len(record.metrics) > 1 and record.valid:
            figures["search_front"] = _front(record)
    return Pictures(figures)


def _grid(panels: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels."""
    columns = min(panels, columns)
    rows = -(-panels // columns)
    figure = new_figure(width * max(columns, 1.5), height * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[panels:]:
        axes.remove()
    return figure, grid[:panels]


def _scaled(record: Record, trials: Sequence[Row], place: int) -> np.ndarray:
    return record.metrics[place].scale * record.values(trials)[:, place]


def _history(record: Record) -> Figure:
    """What each setting came to, and the best so far, by number."""
    figure, grid = _grid(len(record.metrics), 2, 3.4, 2.7)
    for place, axes in enumerate(grid):
        for breaks, mark, label in ((False, "o", "settings"), (True, "x", "break a constraint")):
            group = [one for one in record.trials if one.broken == breaks]
            if group:
                numbers, values = [one.number for one in group], _scaled(record, group, place)
                axes.plot(numbers, values, mark, color=PALETTE[breaks], markersize=3, alpha=0.6, label=label)
        if len(record.metrics) == 1 and record.valid:
            so_far = np.maximum if record.metrics[0].maximize else np.minimum
            best = so_far.accumulate(_scaled(record, record.valid, 0))
            numbers = [one.number for one in record.valid]
            axes.step(numbers, best, where="post", color="black", linewidth=1.2, label="best so far")
        axes.set(xlabel="setting", ylabel=wrapped(record.metrics[place].label, 40))
        tidy(axes)
    grid[0].legend(frameon=False, fontsize=6)
    return figure


def _slices(record: Record) -> Figure:
    """What settings came to against each parameter that was chosen."""
    figure, grid = _grid(len(record.dimensions), 3, 2.4, 2.5)
    for place, (axes, dimension) in enumerate(zip(grid, record.dimensions, strict=True)):
        group = [one for one in record.trials if dimension.name in one.values]
        numbers = [one.number for one in group]
        along = [one.values[dimension.name] for one in group]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in along):
            along = [str(value) for value in along]
        axes.scatter(along, _scaled(record, group, 0), c=numbers, s=7, cmap="viridis", alpha=0.8)
        if dimension.log:
            axes.set_xscale("log")
        axes.set_xlabel(f"{dimension.words} {dimension.symbol}".rstrip())
        axes.set_ylabel(wrapped(record.metrics[0].label, 28) if place % 3 == 0 else "")
        tidy(axes)
    figure.suptitle("bright: tried later", fontsize=7)
    return figure


def _front(record: Record) -> Figure:
    """The first two objectives of all settings that keep the constraints, and the front of all objectives."""
    front = non_dominated(record.points(record.valid), [True] * len(record.metrics))
    figure, (axes,) = _grid(1, 1, 2.4, 2.7)
    x, y = (_scaled(record, record.valid, place) for place in (1, 0))
    axes.plot(x[~front], y[~front], "o", markersize=2, color="0.6", label="beaten")
    along = np.flatnonzero(front)[np.argsort(x[front], kind="stable")]
    line = "o-" if len(record.metrics) == 2 else "o"
    axes.plot(x[along], y[along], line, markersize=3, linewidth=0.8, color=PALETTE[0], label="front")
    axes.legend(frameon=False, fontsize=6)
    axes.set(xlabel=wrapped(record.metrics[1].label, 50), ylabel=wrapped(record.metrics[0].label, 40))
    tidy(axes)
    return figure


def build(record: Record, result: xr.Dataset, confirmation: xr.Dataset, figures: Pictures) -> str:
    """Builds the page; the same text for the same search and figures.

    Args:
      record: of the search.
      result: every run that it played.
      confirmation: the best, the second and the defaults on fresh seeds.
      figures: of `draw`.
    """
    caption = f"sought: {record.asked}. Played: {record.summary}. Here: {record.title}"
    best = Table("the best", record.headings, record.finalists, caption)
    notes = []
    if len(record.trials) > MOST_RUNS:
        notes.append(f"settings: the first {MOST_RUNS} of {len(record.trials)}; trials.json has them all")
    settings = [_settings(record)]
    return page.build(result, figures, notes=notes, summary=best, compared=confirmation, folded=settings)


def _settings(record: Record) -> Table:
    """Every setting, the best first."""
    values, points = record.values(record.trials), record.points(record.trials)[:, 0]
    broken = np.array([one.broken for one in record.trials], bool)
    headings = ["setting", *(dim.symbol or dim.words for dim in record.dimensions)]
    headings += (
        [metric.name for metric in record.metrics] + ["rounds"] + ["breaks a constraint"] * bool(broken.any())
    )
    rows = []
    for place in np.lexsort((-points, np.isnan(points), broken))[:MOST_RUNS]:
        one = record.trials[place]
        cells = [_text(one.values.get(dimension.name)) for dimension in record.dimensions]
        for metric, value in zip(record.metrics, values[place], strict=True):
            cells.append(format_number(metric.scale * value, metric.shown) if np.isfinite(value) else "–")
        cells += [str(one.rounds)] + ["yes" if one.broken else "no"] * bool(broken.any())
        rows.append((str(one.number), *cells))
    caption = "every setting, averaged over its seeds, which flatters the first"
    return Table("settings", tuple(headings), rows, caption)


def _text(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
