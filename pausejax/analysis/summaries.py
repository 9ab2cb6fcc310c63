"""The table of a study: the mean and interval of each metric for each setting, as numbers and as texts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pausejax.analysis import schema
from pausejax.analysis.means import mean_ci
from pausejax.analysis.metrics import metrics_of
from pausejax.analysis.per_run import ROUNDS, finals
from pausejax.analysis.quantities import Metric, format_number
from pausejax.analysis.settings import group_by, seed_counts, seeds_in_words, split_settings

MAX_ROWS = 40
"""Largest number of rows. If there are more settings, the table shows the best ones."""
_SHOWN = 20


class SummaryText(NamedTuple):
    """The table of a study as texts, which the terminal, a notebook and the page show."""

    title: str
    headings: tuple[str, ...]
    """The heading of each column, which may have several lines."""
    rows: list[tuple[str, ...]]
    """The rows; the first cell of a row is the label of the setting."""
    notes: list[str]


def summary(result: xr.Dataset, metrics: Sequence[str] | None = None, *, level: float = 0.95) -> pd.DataFrame:
    """Computes the table of a study as numbers, with a row for each setting and metric.

    Args:
      result: a result.
      metrics: names in `metrics_of(result)`; default: the metric that ranks settings, and then the metrics in
        the study's table.
      level: coverage of the intervals, which are Student's t intervals.

    Returns:
      A table with these columns:

      - `setting` (its label), `policy` and each axis (missing if the policy lacks it)
      - `metric` and `units`
      - `mean`, `low` and `high` (NaN with one seed)
      - `seeds`, the number of averaged seeds
      - `runs`, the number of runs
      - `left_out`, the number of runs without a value, such as diverged runs
      - `infinite`, the number of runs with an infinite value

    Raises:
      ValueError: a metric is unknown, or the level is out of range.
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
    """Returns the table of a study as texts: a row for each setting, with means ± 95 % intervals over seeds.

    If there are more than `MAX_ROWS` settings, the table shows the best ones, and the best of each policy.
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
            notes.append(f"{on_one_line(metric.heading)} may be negative: {metric.if_negative}")
        columns.append([cell(row, metric) for row in shown.to_dict("records")])
    if (sums := [metric for _, metric in headed if metric.is_sum]) and ROUNDS in known:
        rounds = finals(result, [ROUNDS])[ROUNDS]
        if rounds.min() < rounds.max():
            names = " and ".join(on_one_line(metric.heading) for metric in sums)
            notes.append(f"{names}: sums over {rounds.min():g} to {rounds.max():g} rounds, so not comparable")
    seeds, headings = seed_counts(result), [metric.heading for _, metric in headed]
    if seeds.min() < seeds.max():  # some settings lack runs
        columns.insert(1, [str(seeds[place]) for place in places])
        headings.insert(0, "seeds")
    return SummaryText(
        f"mean ± 95 % interval over {seeds_in_words(seeds)}",
        ("policy", *headings),
        list(zip(*columns, strict=True)),
        notes,
    )


def on_one_line(heading: str) -> str:
    """Joins the lines of a heading, and words that are hyphenated at a line's end."""
    return " ".join(heading.split()).replace("- ", "-")


def cell(row: dict[str, Any], metric: Metric) -> str:
    """Formats a mean of a summary and the half-width of its interval in the metric's format.

    If runs have no value, such as diverged runs, the text also says how many runs have a value.
    """
    counted = row["runs"] - row["left_out"]
    if not counted:
        return "–"
    left = f" ({counted}/{row['runs']})" if row["left_out"] else ""
    mean, half_width = metric.scale * row["mean"], metric.scale * (row["high"] - row["mean"])
    around = "" if not np.isfinite(half_width) else f" ± {format_number(half_width, metric.shown)}"
    return f"{format_number(mean, metric.shown)}{around}{left}"


def diverged_runs(result: xr.Dataset, most: int = 5) -> list[str]:
    """Returns a line for each run that diverged.

    After `most` runs, one line counts the other diverged runs.
    """
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
        lines.append(f"… and {more} more runs that diverged: see diverged_round in pausejax export DIR")
    return lines


def _best(rows: pd.DataFrame, metric: Metric, groups: np.ndarray) -> tuple[list[int], str]:
    """Finds the best rows of a summary and the best row of each policy.

    Returns the indices of these rows, the best first, and a note on the choice.

    Settings are ranked first by their share of runs without a value, then by the mean. The mean over the
    remaining runs may be too good, because bad runs have no value. Some metrics can be compared only within
    groups of rows, such as errors on one data set. Then the best rows of each group are returned.
    """
    lost = (rows["left_out"] / rows["runs"]).to_numpy()
    mean = rows["mean"].fillna(0).to_numpy()
    order = np.lexsort((-mean if metric.maximize else mean, lost))
    policies, count, others = rows["policy"].to_list(), int(groups.max()) + 1, 0
    kept: list[int] = []
    for group in range(count):
        ranked = order[groups[order] == group].tolist()
        first_of = {policies[place]: place for place in reversed(ranked)}
        best = ranked[: max(_SHOWN // count, 1)]
        more = [place for place in ranked[len(best) :] if first_of[policies[place]] == place]
        kept, others = [*kept, *best, *more], others + len(more)
    each = ", in groups of comparable settings" if count > 1 else ""
    last = ". Settings with runs that diverged or have no value come last" if lost.any() else ""
    each += ", and the best of each policy that is not among them" if others else ""
    return kept, (
        f"the best {len(kept) - others} of {len(rows)} settings by {metric.meaning}{each}{last}. "
        "All settings: pausejax.summary, or pausejax export DIR"
    )
