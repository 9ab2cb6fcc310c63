"""What stands in a page beside its pictures: the table of the study, differences, runs, how it was made."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from rich.table import Table as Printed
from rich.text import Text

from pausejax.analysis import finals, metrics_of, paired_difference
from pausejax.analysis.made import Record, records_in
from pausejax.analysis.means import Side
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import applies, axes_of, group, label, runs_table, symbols
from pausejax.report import summary_table
from pausejax.report.statistics import lines

MOST_RUNS = 1000
"""That a page lists one by one."""
_FEW = 16
_MOST_SIDES = 8


class Table(NamedTuple):
    """A table of texts; the first column names the rows."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    caption: str = ""
    marks: list[tuple[str, ...]] = []  # noqa: RUF012
    """A word for each cell but the first, if given: "better", "worse" or ""."""


def summary(result: xr.Dataset) -> Table:
    """The table that the commands print, cell by cell."""
    printed: Printed = summary_table(result)
    headings = tuple(_on_one_line(_plain(column.header)) for column in printed.columns)
    columns = [[_plain(cell) for cell in column.cells] for column in printed.columns]
    caption = "; ".join(filter(None, (_plain(printed.title), _plain(printed.caption))))
    return Table("summary", headings, list(zip(*columns, strict=True)), caption)


def _on_one_line(heading: str) -> str:
    """A heading of several lines; a word that is broken at its hyphen is whole again."""
    return " ".join(heading.split()).replace("- ", "-")


def _plain(cell: Any) -> str:
    """What a cell looks like when it is printed."""
    if isinstance(cell, Text):
        return cell.plain
    return Text.from_markup(cell).plain if cell else ""


def differences(result: xr.Dataset) -> tuple[list[Table], list[str]]:
    """Every policy minus every other one, paired by seed, a table for each subtracted; what is not there.

    Of few settings each pair that agrees in the axes which two policies share has a row; of many, axes are
    averaged seed by seed. Of one policy, settings are compared.
    """
    seeds = len(np.unique(result["seed"].values))
    if seeds < 2:
        return [], ["paired differences: there is one seed, so there are no intervals"]
    metrics = {name: metric for name, metric in metrics_of(result).items() if metric.heading}
    whole = finals(result, list(metrics)).load()
    every = _sides(whole)
    if len(every) < 2:
        return [], [
            "paired differences: there is one policy; pausejax.analysis.paired_difference pairs settings"
        ]
    sides = dict(list(every.items())[:_MOST_SIDES])
    left_out = []
    if len(every) > len(sides):
        first = f"of the first {len(sides)} of {len(every)}"
        left_out.append(f"paired differences: {first}; of all with pausejax.analysis.paired_difference")
    many = _count(whole) > _FEW
    over = ["seed", *axes_of(whole)] if many else ["seed"]
    caption = f"mean of the row's minus this one's, with its 95 % interval over {seeds} seeds"
    if many:
        caption += f"; {', '.join(symbols(whole).get(name, name) for name in axes_of(whole))} averaged first"
    headings = ("policy", *(_on_one_line(metric.heading) for metric in metrics.values()))
    tables = []
    for other, minus in sides.items():
        rows, marks = [], []
        for name, side in sides.items():
            if name == other:
                continue
            cells = [_compared(whole, name, side, minus, *metric, over) for metric in metrics.items()]
            for setting in dict.fromkeys(setting for column in cells for setting in column):
                row = [column.get(setting, ("–", "")) for column in cells]
                rows.append((setting, *(text for text, _ in row)))
                marks.append(tuple(mark for _, mark in row))
        if rows:
            tables.append(Table(other, headings, rows, caption, marks))
    return tables, left_out


def _count(whole: xr.Dataset) -> int:
    """How many settings there are."""
    table = runs_table(whole).drop(columns="seed")
    return len(group(table, list(table.columns))[1])


def _sides(whole: xr.Dataset) -> dict[str, Side]:
    """What is compared, by name: the policies; of one alone its settings, if they are few."""
    policies = list(dict.fromkeys(whole["policy"].values.tolist()))
    if len(policies) > 1 or _count(whole) > _FEW:
        return {policy: policy for policy in policies}
    found: dict[str, Side] = {}
    for setting in lines(whole):
        first = setting.runs.isel(run=0)
        fixed = {axis: first[axis].values.item() for axis in axes_of(whole)}
        found[setting.label] = {
            "policy": setting.policy,
            **{axis: value for axis, value in fixed.items() if applies(value)},
        }
    return found


def _compared(
    whole: xr.Dataset,
    title: str,
    side: Side,
    minus: Side,
    name: str,
    metric: Metric,
    over: Sequence[str],
) -> dict[str, tuple[str, str]]:
    """By setting, a difference in words and what it means; none where the two can't be compared."""
    try:
        with np.errstate(invalid="ignore"):
            found = paired_difference(whole, side, minus, name, over=over)
    except ValueError:
        return {}
    compared = {}
    axes = [axis for axis in axes_of(whole) if axis in found.coords]
    for place in range(found.sizes["setting"]):
        one = found.isel(setting=place)
        values = {"policy": title, **{axis: one[axis].values.item() for axis in axes}}
        mean, low, high = (metric.scale * float(one[key]) for key in ("mean", "low", "high"))
        compared[label(values, symbols(whole))] = _difference(mean, low, high, metric)
    return compared


def _difference(mean: float, low: float, high: float, metric: Metric) -> tuple[str, str]:
    if not np.isfinite(mean):
        return ("∞" if mean > 0 else "−∞") if np.isinf(mean) else "–", ""
    if not np.isfinite(low + high):
        return f"{mean:+{metric.shown}}", ""
    text = f"{mean:+{metric.shown}}\n{low:+{metric.shown}} to {high:+{metric.shown}}"
    apart = low > 0 or high < 0
    if not apart or metric.maximize is None:
        return text, ""
    return text, "better" if (mean > 0) == metric.maximize else "worse"


def runs(result: xr.Dataset) -> Table | None:
    """Every run with its seed and identity; None where they are too many for a page."""
    if result.sizes["run"] > MOST_RUNS:
        return None
    table = runs_table(result).drop(columns="seed").to_dict("records")
    written = symbols(result)
    columns = [label(row, written) for row in table], result["seed"].values, result["identity"].values
    rows = [(setting, str(seed), str(identity)) for setting, seed, identity in zip(*columns, strict=True)]
    return Table(
        "runs", ("setting", "seed", "identity"), rows, "an identity covers all that a run's numbers depend on"
    )


def facts(result: xr.Dataset) -> list[tuple[str, list[str]]]:
    """What the study is and how it was made: a word and what belongs to it."""
    records = records_in(result)
    seeds = sorted(set(result["seed"].values.tolist()))
    axes = [f"{symbols(result).get(name, name)}: {_values(result[name].values)}" for name in axes_of(result)]
    count = result.sizes["run"]
    identities = hashlib.sha256("".join(sorted(map(str, result["identity"].values))).encode()).hexdigest()
    return [
        (
            "runs",
            [f"{count}, of {_counted(len(set(result['policy'].values.tolist())), 'policy', 'policies')}"],
        ),
        ("seeds", [f"{len(seeds)}: {_briefly(seeds)}"]),
        *([("axes", axes)] if axes else []),
        ("identity", [f"{identities[:16]}, a digest of the identities of all runs"]),
        ("devices", _each(records, lambda found: found["devices"]) or ["not recorded"]),
        ("versions", _each(records, _versions) or ["not recorded"]),
        (
            "command",
            [text for text in _each(records, lambda found: found["command"]) if text] or ["not recorded"],
        ),
    ]


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _each(records: Sequence[Record], of: Any) -> list[str]:
    return list(dict.fromkeys(of(found) for found in records))


def _versions(found: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(found["versions"].items()))


def _briefly(seeds: Sequence[int]) -> str:
    """Seeds without gaps as a span."""
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    shown = ", ".join(map(str, seeds[:20]))
    return f"{shown} … {seeds[-1]}" if len(seeds) > 20 else shown


def _values(column: np.ndarray) -> str:
    """The values of an axis, or how far they reach."""
    if column.dtype.kind == "f":
        column = column[np.isfinite(column)]
    found = np.unique(column).tolist()
    texts = [
        f"{value:g}" if isinstance(value, float) else str(value) for value in found if value not in ("", -1)
    ]
    return ", ".join(texts) if len(texts) <= 8 else f"{len(texts)} values from {texts[0]} to {texts[-1]}"
