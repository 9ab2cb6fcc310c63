"""The page of a search, from its record, its runs and its best on fresh seeds."""

import xarray as xr

from pausejax import page
from pausejax.page.tables import MOST_RUNS, Table
from pausejax.report.figure import Pictures
from pausejax.searches.importance import LEAST
from pausejax.searches.record import Record
from pausejax.searches.table import CAPTION


def build(record: Record, result: xr.Dataset, confirmation: xr.Dataset, figures: Pictures) -> str:
    """The page; the same text for the same search and figures.

    Args:
      record: of the search.
      result: every run that it played.
      confirmation: the best, the second and the defaults on fresh seeds.
      figures: of `pictures.draw`.
    """
    caption = f"sought: {record.asked}. Played: {record.summary}. Here: {record.title}. {CAPTION}"
    summary = Table("the best", record.headings, record.compared, caption)
    notes = []
    if "search_importance" not in figures:
        notes.append(f"importance of the parameters: fewer than {LEAST} settings came to the end")
    if len(record.trials) > MOST_RUNS:
        notes.append(f"settings: the first {MOST_RUNS} of {len(record.trials)}; trials.json has them all")
    return page.build(
        result, figures, notes=notes, summary=summary, compared=confirmation, folded=[_settings(record)]
    )


def _settings(record: Record) -> Table:
    """Every setting, the farthest and best first."""
    points = record.points(record.trials)

    def worth(place: int) -> tuple[float, bool, float, int]:
        one, value = record.trials[place], points[place, 0]
        return -(one.rung or 0.0), one.broken, -value if value == value else float("inf"), one.number

    headings = ["setting", *(dim.symbol or dim.name.replace("_", " ") for dim in record.dimensions)]
    headings += [metric.name for metric in record.metrics] + ["last rung", "outcome", "rounds"]
    rows = []
    for place in sorted(range(len(record.trials)), key=worth)[:MOST_RUNS]:
        one = record.trials[place]
        values = [_text(one.values.get(dimension.name)) for dimension in record.dimensions]
        shown = [
            f"{metric.scale * value:{metric.shown}}" if value == value else "–"
            for metric, value in zip(record.metrics, one.figures, strict=True)
        ]
        outcome = {"finished": "to the end", "budget": "budget ended"}.get(one.outcome, one.outcome)
        outcome += ", breaks a constraint" * one.broken
        rung = "–" if one.rung is None else f"{one.rung:g}"
        rows.append((str(one.number), *values, *shown, rung, outcome, str(one.rounds)))
    return Table(
        "settings",
        tuple(headings),
        rows,
        "every setting where it came to last, averaged over its seeds, which flatters the first",
    )


def _text(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
