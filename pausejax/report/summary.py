"""The table at the end of a run: one row per policy and axis value, mean ± 95 % interval over seeds."""

import numpy as np
import xarray as xr
from rich import box
from rich.table import Table
from rich.text import Text

from pausejax.analysis import finals, metrics_of
from pausejax.analysis.quantities import Metric
from pausejax.report.statistics import Line, band, lines

# A study with more settings than this shows the best ones.
MAX_ROWS = 40
_SHOWN = 20


def summary_table(result: xr.Dataset) -> Table:
    """Per policy and axis value: the figures of the last round over the seeds.

    Of more than `MAX_ROWS` settings the best are shown, and the best of each policy in any case.
    """
    known = metrics_of(result)
    columns = {name: metric for name, metric in known.items() if metric.heading}
    rank_by = result.attrs["ranking"]
    whole = finals(result, list(dict.fromkeys([rank_by, *columns]))).load()
    rows = lines(whole)
    seeds = len(np.unique(result["seed"].values))
    title = f"mean ± 95 % interval over {seeds} {'seed' if seeds == 1 else 'seeds'}"
    notes = []
    if len(rows) > MAX_ROWS:
        kept = _best(rows, known[rank_by], rank_by)
        each = (
            " within each group that can be compared"
            if len({_scale(row, known[rank_by]) for row in rows}) > 1
            else ""
        )
        notes.append(
            f"the best {len(kept)} of {len(rows)} settings by {known[rank_by].meaning}{each}; "
            "for all of them: pausejax export DIR, or pausejax.analysis"
        )
        rows = kept
    for name, metric in columns.items():
        if metric.if_negative and any(
            np.nanmean(row.runs[name].values) < 0 for row in rows if _seen(row, name)
        ):
            notes.append(f"{metric.heading.replace(chr(10), ' ')} may be negative: {metric.if_negative}")
    table = Table(
        title=title,
        title_justify="left",
        caption="\n".join(notes) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("policy", overflow="fold")
    for column in columns.values():
        table.add_column(column.heading, justify="right", no_wrap=True)
    for row in rows:
        learned = [_measured(row.runs[name].values, metric) for name, metric in columns.items()]
        table.add_row(Text(row.label), *learned)
    return table


def _seen(row: Line, name: str) -> bool:
    return bool(np.isfinite(row.runs[name].values).any())


def _scale(row: Line, metric: Metric) -> tuple[str, ...]:
    """What of a setting the metric's scale depends on: only settings that agree in it are ranked."""
    return tuple(str(row.runs[name].values[0]) for name in metric.scaled_by if name in row.runs.coords)


def _best(rows: list[Line], metric: Metric, name: str) -> list[Line]:
    """The best rows and the best of each policy, the best first; rows without a value come last.

    Where the metric compares some rows alone (errors on one data set), these are the best of each such group.
    """

    def merit(row: Line) -> float:
        values = row.runs[name].values
        values = values[~np.isnan(values)]
        return -np.inf if not values.size else float(values.mean()) * (1 if metric.maximize else -1)

    groups: dict[tuple[str, ...], list[Line]] = {}
    for row in rows:
        groups.setdefault(_scale(row, metric), []).append(row)
    kept = []
    for group in groups.values():
        ranked = sorted(group, key=merit, reverse=True)
        first_of = {row.policy: row.label for row in reversed(ranked)}
        shown = max(_SHOWN // len(groups), 1)
        kept += [
            row for place, row in enumerate(ranked) if place < shown or first_of[row.policy] == row.label
        ]
    return kept


def _measured(values: np.ndarray, metric: Metric) -> str:
    """One cell; what a diverged model learned does not count, and the cell says how many runs are left."""
    kept = values[~np.isnan(values)]
    if not kept.size:
        return "–"
    left = f" ({kept.size}/{values.size})" if metric.learned and kept.size < values.size else ""
    return cell(metric.scale * kept, metric.shown) + left


def diverged_runs(result: xr.Dataset) -> list[str]:
    """One line per run whose model ceased to be finite."""
    if "diverged_round" not in result:
        return []
    rounds = result["diverged_round"].values
    return [
        f"diverged in round {int(rounds[i])}: {result['policy'].values[i]}, "
        f"seed {int(result['seed'].values[i])}, run {result['identity'].values[i]}"
        for i in np.flatnonzero(rounds)
    ]


def cell(samples: np.ndarray, shown: str) -> str:
    """Mean ± half-width of the 95 % interval, in a number format."""
    if np.isinf(samples).all():
        return "∞"
    mean, half_width = (float(number) for number in band(samples))
    return f"{mean:{shown}}" if np.isnan(half_width) else f"{mean:{shown}} ± {half_width:{shown}}"
