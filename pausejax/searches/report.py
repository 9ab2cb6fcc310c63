"""Draws the charts of a search (history, slices, front) and builds its page.

Charts and page are made only from the record of the search, so they can be made again at any later time.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import xarray as xr

from pausejax import page
from pausejax.analysis import schema
from pausejax.analysis.choice import non_dominated
from pausejax.analysis.quantities import format_number
from pausejax.page.tables import MOST_RUNS, Table
from pausejax.plotting.chart import Chart, Charts
from pausejax.plotting.data import Axis, Panel, Series
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.searches.goal import Row
from pausejax.searches.search_file import RECORD


class Metric(NamedTuple):
    """A metric that a search optimizes."""

    name: str
    label: str
    scale: float
    """Factor by which charts and tables multiply the metric."""
    shown: str
    """Number format of the metric in tables, such as ".3g"."""
    maximize: bool


class Dimension(NamedTuple):
    """A parameter that the search chose."""

    name: str
    symbol: str
    log: bool
    """Whether the parameter was searched on a logarithmic scale."""

    @property
    def words(self) -> str:
        """Name of the parameter with spaces in place of underscores."""
        return self.name.replace("_", " ")


class Record(NamedTuple):
    """A whole search as plain data."""

    name: str
    asked: str
    """The goal of the search, in words."""
    summary: str
    """The number of settings and rounds that were simulated, in words."""
    metrics: tuple[Metric, ...]
    dimensions: tuple[Dimension, ...]
    trials: tuple[Row, ...]
    """Every setting that was tried, sorted by number."""
    headings: tuple[str, ...]
    """The headings of the table `finalists`."""
    finalists: tuple[tuple[str, ...], ...]
    """The table that compares the best settings on fresh seeds, row by row."""
    title: str
    """Title and caption of the table `finalists`."""
    runs: tuple[str, ...]
    """The identities of the search's runs."""

    def values(self, trials: Sequence[Row]) -> np.ndarray:
        """Returns the metrics of some trials, float64 [n, metrics]; NaN where a trial has no finite value."""
        rows = [[one.figures[metric.name] for metric in self.metrics] for one in trials]
        return np.array(rows, float).reshape(len(trials), len(self.metrics))

    def points(self, trials: Sequence[Row]) -> np.ndarray:
        """Returns the metrics of some trials with signs such that more is better, float64 [n, metrics]."""
        return self.values(trials) * [1.0 if metric.maximize else -1.0 for metric in self.metrics]

    @property
    def valid(self) -> list[Row]:
        """The trials that have a value of every metric and keep the constraints."""
        finite = np.isfinite(self.values(self.trials)).all(axis=1)
        return [one for one, ok in zip(self.trials, finite, strict=True) if ok and not one.broken]

    def write(self, folder: Folder) -> None:
        """Writes this record of the search into the folder of the search.

        Raises:
          OSError: the file can't be written, for example because no space is left.
        """
        plain = self._asdict()
        for name in ("metrics", "dimensions", "trials"):
            plain[name] = [one._asdict() for one in plain[name]]
        write_sealed(folder, RECORD, plain)

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """Reads the record of a search from its folder; returns None if the folder has no finished search.

        Raises:
          ValueError: the record is damaged.
        """
        if not folder.exists(RECORD):
            return None
        try:
            held = read_sealed(folder, RECORD)
            if wrong := schema.search_problem(held):
                raise ValueError(wrong)
            return cls(
                **{key: str(held[key]) for key in ("name", "asked", "summary", "title")},
                metrics=tuple(Metric(**one) for one in held["metrics"]),
                dimensions=tuple(Dimension(**one) for one in held["dimensions"]),
                trials=tuple(Row(**one) for one in held["trials"]),
                headings=tuple(map(str, held["headings"])),
                runs=tuple(map(str, held["runs"])),
                finalists=tuple(tuple(map(str, row)) for row in held["finalists"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            again = "The same `pausejax search` repairs it"
            raise ValueError(f"{folder}: {RECORD} is damaged ({error}). {again}") from error


def charts(record: Record) -> Charts:
    """Returns all charts that a search has the data for."""
    found = [_history(record)]
    if record.dimensions:
        found.append(_slices(record))
    if len(record.metrics) > 1 and record.valid:
        found.append(_front(record))
    return Charts({chart.name: chart for chart in found})


def _scaled(record: Record, trials: Sequence[Row], place: int) -> np.ndarray:
    return record.metrics[place].scale * record.values(trials)[:, place]


def _names(record: Record, trials: Sequence[Row]) -> tuple[str, ...]:
    """Returns a name for each setting, which the chart shows when the reader points at it."""
    symbols = {dimension.name: dimension.symbol or dimension.words for dimension in record.dimensions}
    return tuple(
        f"{one.number}: "
        + ", ".join([one.policy, *(f"{symbols.get(k, k)} = {_text(v)}" for k, v in one.values.items())])
        for one in trials
    )


def _points(
    record: Record, label: str, trials: Sequence[Row], x: np.ndarray, y: np.ndarray, **more: Any
) -> Series:
    return Series(
        label, np.asarray(x, np.float64), y, names=_names(record, trials), **{"mark": "point", **more}
    )


def _without(record: Record, trials: Sequence[Row], places: Sequence[int], why: str) -> str:
    """Returns a note on how many of the trials have no finite value and are not drawn; "" if none.

    Args:
      record: the record of the search.
      trials: the trials of the chart.
      places: the indices of the metrics that must be finite.
      why: words that follow "no finite value" in the note.
    """
    lost = int((~np.isfinite(record.values(trials)[:, list(places)]).all(axis=1)).sum()) if trials else 0
    return (
        f"{lost} of {len(trials)} settings have no finite value{why}, so they are not drawn" if lost else ""
    )


def _history(record: Record) -> Chart:
    """Returns the chart of each setting's metrics, and of the best so far, against the setting's number."""
    panels = []
    for place, metric in enumerate(record.metrics):
        drawn = []
        for breaks, mark, label in ((False, "point", "settings"), (True, "cross", "break a constraint")):
            group = [one for one in record.trials if one.broken == breaks]
            if group:
                numbers = np.array([one.number for one in group])
                values = _scaled(record, group, place)
                drawn.append(_points(record, label, group, numbers, values, mark=mark, style=int(breaks)))
        if len(record.metrics) == 1 and record.valid:
            so_far = np.maximum if metric.maximize else np.minimum
            best = so_far.accumulate(_scaled(record, record.valid, 0))
            numbers = np.array([float(one.number) for one in record.valid])
            drawn.append(Series("best so far", numbers, best, mark="step", style=6))
        note = _without(record, record.trials, [place], "")
        panels.append(Panel(Axis("number of the setting"), Axis(metric.label), tuple(drawn), note=note))
    caption = "Every setting that was tried, in the order of the proposals. Values are means over the seeds."
    return Chart("search_history", caption, tuple(panels), min(len(panels), 2))


def _slices(record: Record) -> Chart:
    """Returns the chart of the first metric against each parameter that the search chose."""
    panels = []
    for dimension in record.dimensions:
        group = [one for one in record.trials if dimension.name in one.values]
        along = [one.values[dimension.name] for one in group]
        label = f"{dimension.words} {dimension.symbol}".rstrip()
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in along):
            places = np.array(along, np.float64)
            # Another policy may have a fixed value of 0.
            low = places[places > 0].min(initial=np.inf)
            scale: Literal["linear", "log", "symlog"]
            scale = "linear" if not dimension.log else "log" if (places > 0).all() else "symlog"
            x = Axis(label, scale, linear=low if scale == "symlog" else 1.0)
        else:
            names = sorted(set(map(str, along)))
            x, places = Axis(label, names=tuple(names)), np.array([names.index(str(one)) for one in along])
        numbers = np.array([float(one.number) for one in group])
        values = _scaled(record, group, 0)
        drawn = _points(record, "settings", group, places, values, color=numbers)
        note = _without(record, group, [0], "")
        panels.append(Panel(x, Axis(record.metrics[0].label), (drawn,), note=note))
    caption = "Every setting against each searched parameter. The colour is the number of the setting."
    color = Axis("number of the setting")
    return Chart("search_slices", caption, tuple(panels), min(len(panels), 3), color)


def _front(record: Record) -> Chart:
    """Returns the chart of the first two metrics of all valid settings, with the front of all metrics."""
    ways = [metric.maximize for metric in record.metrics]
    front = non_dominated(record.points(record.valid), [True] * len(record.metrics))
    across, up = (_scaled(record, record.valid, place) for place in (1, 0))
    order = np.flatnonzero(front)[np.argsort(across[front], kind="stable")]
    order = order[::-1] if ways[1] else order
    front_settings = [one for one, on in zip(record.valid, front, strict=True) if on]
    beaten_settings = [one for one, on in zip(record.valid, front, strict=True) if not on]
    drawn = [
        _points(record, "beaten", beaten_settings, across[~front], up[~front], style=-1),
        _points(record, "front", front_settings, across[front], up[front]),
    ]
    if len(record.metrics) == 2:
        # The border is drawn as steps, because no setting has reached the points in between.
        drawn.append(Series("border of the front", across[order], up[order], mark="step", style=-1))
    caption = "Every setting that keeps the constraints. No setting beats one of the front in all metrics."
    kept = [one for one in record.trials if not one.broken]
    note = _without(record, kept, range(len(record.metrics)), " of every metric")
    panel = Panel(Axis(record.metrics[1].label), Axis(record.metrics[0].label), tuple(drawn), note=note)
    return Chart("search_front", caption, (panel,))


def build(record: Record, result: xr.Dataset, drawn: Charts) -> str:
    """Builds the page of a search. Equal arguments give the same text.

    Args:
      record: the record of the search.
      result: every run that the search simulated.
      drawn: the charts of the record, as `charts` returns them.
    """
    caption = f"goal: {record.asked}. Simulated: {record.summary}. This table: {record.title}"
    best = Table("the best", record.headings, record.finalists, caption)
    notes = []
    if len(record.trials) > MOST_RUNS:
        notes.append(f"settings: the first {MOST_RUNS} of {len(record.trials)}. trials.json has all of them")
    return page.build(result, drawn, notes=notes, summary=best, folded=[_settings(record)])


def _settings(record: Record) -> Table:
    """Returns the table of all settings that were tried, the best first, with at most `MOST_RUNS` rows."""
    values, points = record.values(record.trials), record.points(record.trials)[:, 0]
    broken = np.array([one.broken for one in record.trials], bool)
    headings = ["setting", *(dim.symbol or dim.words for dim in record.dimensions)]
    headings += (
        [metric.label for metric in record.metrics]
        + ["rounds"]
        + ["breaks a constraint"] * bool(broken.any())
    )
    rows = []
    for place in np.lexsort((-points, np.isnan(points), broken))[:MOST_RUNS]:
        one = record.trials[place]
        cells = [_text(one.values.get(dimension.name)) for dimension in record.dimensions]
        for metric, value in zip(record.metrics, values[place], strict=True):
            cells.append(format_number(metric.scale * value, metric.shown) if np.isfinite(value) else "–")
        cells += [str(one.rounds)] + ["yes" if one.broken else "no"] * bool(broken.any())
        rows.append((str(one.number), *cells))
    caption = "every setting, means over the seeds of the search. The means of the best settings are too good"
    return Table("settings", tuple(headings), rows, caption)


def _text(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
