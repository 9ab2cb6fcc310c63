"""The table of a study: per setting the mean of each metric with its interval, as numbers and as texts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.means import mean_ci
from pausejax.analysis.metrics import metrics_of
from pausejax.analysis.per_run import finals
from pausejax.analysis.quantities import Metric, format_number
from pausejax.analysis.settings import group_by, split_settings

MAX_ROWS = 40
"""A study with more settings than this shows the best ones."""
_SHOWN = 20


class SummaryText(NamedTuple):
    """The table of a study in words, as the terminal, a notebook and the page show it."""

    title: str
    headings: tuple[str, ...]
    """Of several lines."""
    rows: list[tuple[str, ...]]
    """The first cell is the setting's label."""
    notes: list[str]


def summary(result: xr.Dataset, metrics: Sequence[str] | None = None, *, level: float = 0.95) -> pd.DataFrame:
    """Makes the table of a study as numbers: a row for each setting and metric.

    Args:
      result: a result.
      metrics: names out of `metrics_of(result)`; by default those of the study's table, and first the one
        that ranks settings.
      level: coverage of the intervals, Student's t.

    Returns:
      Columns `setting` (its label), `policy`, the axes (missing where the policy lacks one), `metric`,
      `units`, `mean`, `low` and `high` (NaN with one seed), `seeds` (that the mean is over), `runs`,
      `left_out` (runs without a value, such as diverged ones) and `infinite` (runs with an infinite one).

    Raises:
      ValueError: an unknown metric, or a level out of range.
    """
    known = metrics_of(result)
    if metrics is None:
        metrics = [schema.read(result, "ranking"), *(name for name in known if known[name].heading)]
    metrics = list(dict.fromkeys(metrics))
    whole = finals(result, metrics).load()
    owner, table, _ = split_settings(whole)
    settings = table.reset_index(drop=True)
    parts = []
    for name in metrics:
        means = mean_ci(whole, name, level=level)
        infinite = np.bincount(owner, np.isinf(whole[name].values), len(table))
        columns = {
            "metric": name,
            "units": known[name].units,
            **{key: means[key].values for key in ("mean", "low", "high")},
            "seeds": means["count"].values,
            "runs": means["runs"].values,
            "left_out": means["left_out"].values,
            "infinite": infinite.astype(int),
        }
        parts.append(settings.assign(**columns).assign(setting=means["label"].values))
    frame = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    return frame[["setting", *(name for name in frame.columns if name != "setting")]]


def summary_text(result: xr.Dataset) -> SummaryText:
    """Writes the table of a study: one row per policy and axis value, mean ± 95 % interval over seeds.

    Of more than `MAX_ROWS` settings the best are shown, and the best of each policy in any case.
    """
    known, ranking = metrics_of(result), schema.read(result, "ranking")
    by_metric = {str(name): part for name, part in summary(result).groupby("metric", sort=False)}
    headed = [(by_metric[name], metric) for name, metric in known.items() if metric.heading]
    labels, notes = by_metric[ranking]["setting"].to_list(), []
    places: Sequence[int] = range(len(labels))
    if len(labels) > MAX_ROWS:
        first = result.isel(run=split_settings(result)[1].index)
        scales = [name for name in known[ranking].scaled_by if name in result.coords]
        places, note = _best(by_metric[ranking], known[ranking], group_by(first, scales)[0])
        notes.append(note)
    columns = [[labels[place] for place in places]]
    for part, metric in headed:
        shown = part.iloc[list(places)]
        finite = shown["infinite"] < shown["runs"] - shown["left_out"]
        if metric.if_negative and (finite & (shown["mean"] < 0)).any():
            notes.append(f"{metric.heading.replace(chr(10), ' ')} may be negative: {metric.if_negative}")
        columns.append([cell(row, metric) for row in shown.to_dict("records")])
    seeds = len(np.unique(result["seed"].values))
    return SummaryText(
        f"mean ± 95 % interval over {seeds} {'seed' if seeds == 1 else 'seeds'}",
        ("policy", *(metric.heading for _, metric in headed)),
        list(zip(*columns, strict=True)),
        notes,
    )


def on_one_line(heading: str) -> str:
    """Joins the lines of a heading; a word that is broken at its hyphen is whole again."""
    return " ".join(heading.split()).replace("- ", "-")


def cell(row: dict[str, Any], metric: Metric) -> str:
    """Writes one mean of a summary with the half-width of its interval, as the metric is written.

    What a diverged model learned does not count, and the cell says how many runs are left.
    """
    counted = row["runs"] - row["left_out"]
    if not counted:
        return "–"
    left = f" ({counted}/{row['runs']})" if row["left_out"] else ""
    if row["infinite"] == counted:
        return f"∞{left}"
    mean, half_width = metric.scale * row["mean"], metric.scale * (row["high"] - row["mean"])
    around = "" if np.isnan(half_width) else f" ± {format_number(half_width, metric.shown)}"
    return f"{format_number(mean, metric.shown)}{around}{left}"


def diverged_runs(result: xr.Dataset, most: int = 5) -> list[str]:
    """Writes one line per run whose model ceased to be finite; of more than `most` their number."""
    if "diverged_round" not in result:
        return []
    rounds = result["diverged_round"].values
    diverged = np.flatnonzero(rounds)
    lines = [
        f"diverged in round {int(rounds[i])}: {result['policy'].values[i]}, "
        f"seed {int(result['seed'].values[i])}, run {result['identity'].values[i]}"
        for i in diverged[:most]
    ]
    if len(diverged) > most:
        more = len(diverged) - most
        lines.append(f"… and {more} more: pausejax export DIR lists them by diverged_round")
    return lines


def _best(rows: pd.DataFrame, metric: Metric, groups: np.ndarray) -> tuple[list[int], str]:
    """Finds the best rows and the best of each policy, the best first; returns their places and a note.

    The more of its runs have no value, the later a setting comes: what is left of them may be the lucky ones.
    Where the metric compares some rows alone (errors on one data set), these are the best of each such group.
    """
    lost = (rows["left_out"] / rows["runs"]).to_numpy()
    mean = rows["mean"].fillna(0).to_numpy()
    order = np.lexsort((-mean if metric.maximize else mean, lost))
    policies, kept, count = rows["policy"].to_list(), [], int(groups.max()) + 1
    for group in range(count):
        ranked = order[groups[order] == group].tolist()
        first_of = {policies[place]: place for place in reversed(ranked)}
        best = ranked[: max(_SHOWN // count, 1)]
        kept += [*best, *(place for place in ranked[len(best) :] if first_of[policies[place]] == place)]
    each = " within each group that can be compared" if count > 1 else ""
    last = ", those with runs that diverged or have no value last" if lost.any() else ""
    return kept, (
        f"the best {len(kept)} of {len(rows)} settings by {metric.meaning}{each}{last}; "
        "for all of them: pausejax.summary, or pausejax export DIR"
    )
