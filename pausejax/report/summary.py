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
    caption = None
    if len(rows) > MAX_ROWS:
        kept = _best(rows, rank_by, maximize=bool(known[rank_by].maximize))
        caption = (
            f"the best {len(kept)} of {len(rows)} settings by {known[rank_by].meaning}; "
            "for all of them: pausejax export DIR, or pausejax.analysis"
        )
        rows = kept
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("policy", overflow="fold")
    for column in columns.values():
        table.add_column(column.heading, justify="right", no_wrap=True)
    for row in rows:
        learned = [_measured(row.runs[name].values, metric) for name, metric in columns.items()]
        table.add_row(Text(row.label), *learned)
    return table


def _best(rows: list[Line], metric: str, *, maximize: bool) -> list[Line]:
    """The best rows and the best of each policy, the best first; rows without a value come last."""

    def merit(row: Line) -> float:
        values = row.runs[metric].values
        values = values[~np.isnan(values)]
        return -np.inf if not values.size else float(values.mean()) * (1 if maximize else -1)

    ranked = sorted(rows, key=merit, reverse=True)
    first_of = {row.policy: row.label for row in reversed(ranked)}
    return [row for place, row in enumerate(ranked) if place < _SHOWN or first_of[row.policy] == row.label]


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
