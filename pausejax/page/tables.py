"""Tables of a page: summary, paired differences, runs, and facts on how the result was made."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import metrics_of, paired_difference
from pausejax.analysis.comparing import Incomparable
from pausejax.analysis.made import Provenance, provenance_of
from pausejax.analysis.means import Side
from pausejax.analysis.per_run import with_divergence
from pausejax.analysis.quantities import Metric, apart_in, format_number
from pausejax.analysis.settings import (
    axes_of,
    records,
    seed_counts,
    seeds_in_words,
    split_settings,
    symbols,
    values_of,
)
from pausejax.analysis.summaries import on_one_line, summary_text

MOST_RUNS = 1000
"""Largest number of runs that a page lists one by one."""
_FEW = 16
_MOST_SIDES = 16


class Table(NamedTuple):
    """A table of texts; the first column names the rows."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    caption: str = ""
    marks: list[tuple[str, ...]] = []  # noqa: RUF012
    """For each row, a word for each cell except the first: "better", "worse" or "". May be empty."""


def summary(result: xr.Dataset) -> Table:
    """Returns the summary table that the commands print."""
    text = summary_text(result)
    caption = "; ".join([text.title, *text.notes])
    return Table("summary", tuple(map(on_one_line, text.headings)), text.rows, caption)


def differences(result: xr.Dataset, baseline: str | None = None) -> tuple[Table | None, list[str]]:
    """Returns a table of each policy minus the baseline, paired by seed, and notes on omitted rows.

    With up to `_FEW` settings, each pair of settings has a row. The two settings agree in all axes of which
    both policies have several values. The row adds other values of the baseline, if they differ from the
    policy's values: `pause, η = 0.2, minus random with η = 0.1`. With more settings, each seed is first
    averaged over all axes except data sets. A study of one policy compares its settings, if there are at most
    `_FEW`. The intervals of a column hold jointly at 95 % (Bonferroni). So if all policies are equal, a
    column has a mark with probability at most 1/20. The table is None if nothing can be compared.

    Args:
      result: the result. The table is None if the result has one seed, or only one policy or setting to
        compare.
      baseline: the name of the policy or setting that is subtracted; default: the first policy or setting.

    Raises:
      ValueError: there is no policy or setting with this name.
    """
    every = sides_of(result)
    check_baseline(result, baseline)
    seeds = len(np.unique(result["seed"].values))
    if seeds < 2:
        return None, ["no paired differences: with one seed, they have no intervals"]
    if len(every) < 2:
        return None, [
            "no paired differences: the study has only one policy. pausejax.analysis.paired_difference "
            "compares settings"
        ]
    metrics = {name: metric for name, metric in metrics_of(result).items() if metric.heading}
    whole = with_divergence(result, list(metrics)).load()
    first = next(iter(every)) if baseline is None else baseline
    sides = dict(list({first: every[first], **every}.items())[:_MOST_SIDES])
    left_out = []
    if len(every) > len(sides):
        kept = f"only of the first {len(sides)} of {len(every)} policies"
        left_out.append(
            f"paired differences {kept}. pausejax.analysis.paired_difference computes those of other policies"
        )
    many = len(split_settings(whole)[1]) > _FEW
    # Data sets are never averaged.
    averaged = [name for name in axes_of(whole) if name not in apart_in(whole)] if many else []
    over = ["seed", *averaged]
    (_, minus), *rivals = sides.items()
    any_values = whole[next(iter(metrics), "seed")]
    pairs = {name: _pairs(whole, side, minus, any_values, over) for name, side in rivals}
    left_out += [f"no paired differences: {why}" for why in pairs.values() if isinstance(why, str)]
    paired = {name: found for name, found in pairs.items() if not isinstance(found, str)}
    left_out += [
        f"paired differences of {name} and {first} leave out {found.attrs['unpaired']} runs without a partner"
        for name, found in paired.items()
        if found.attrs["unpaired"]
    ]
    numbers = [found["seeds"].values for found in paired.values()]
    count = sum(map(len, numbers))
    level = 1 - 0.05 / max(count, 1)
    over_seeds = seeds_in_words(np.concatenate(numbers)) if numbers else "no seed"
    caption = f"mean of the row's value minus the value of {first}, with its interval over {over_seeds}"
    if count > 1:
        caption += (
            f", {100 * level:.4g} % each, so that all {count} intervals of a column hold jointly at 95 %"
        )
    else:
        caption += ", 95 %"
    if averaged:
        caption += f"; values are first averaged over {', '.join(symbols(whole).get(n, n) for n in averaged)}"
    headings = ("policy", *(on_one_line(metric.heading) for metric in metrics.values()))
    rows, marks = [], []
    incomparable: dict[str, dict[str, None]] = {}
    for name, side in rivals:
        cells: list[dict[str, tuple[str, str]]] = []
        for metric in metrics.values():
            column: dict[str, tuple[str, str]] = {}
            try:
                if name in paired:
                    with np.errstate(invalid="ignore"):
                        found = paired_difference(whole, side, minus, metric.name, over=over, level=level)
                    column = _compared(found, name, metric)
            except Incomparable as mistake:
                incomparable.setdefault(mistake.reason, {})[metric.name] = None
            cells.append(column)
        for setting in dict.fromkeys(setting for column in cells for setting in column):
            row = [column.get(setting, ("–", "")) for column in cells]
            rows.append((setting, *(text for text, _ in row)))
            marks.append(tuple(mark for _, mark in row))
    left_out += [
        f"no paired differences of {', '.join(names)}: {reason}" for reason, names in incomparable.items()
    ]
    return (Table(first, headings, rows, caption, marks) if rows else None), left_out


def check_baseline(result: xr.Dataset, baseline: str | None) -> None:
    """Checks that a result, or its outline before the simulation, has the policy or setting `baseline`,
    unless it is None.

    Raises:
      ValueError: there is no policy or setting with this name.
    """
    known = sides_of(result)
    if baseline is not None and baseline not in known:
        raise ValueError(f"baseline = {baseline!r}: must be one of {', '.join(map(repr, known))}")


def _pairs(
    whole: xr.Dataset, side: Side, minus: Side, values: xr.DataArray, over: Sequence[str]
) -> xr.Dataset | str:
    """Returns the paired differences of the runs' `values`: `side` minus `minus`.

    If no two runs make a pair, the function returns a line that says why.
    """
    try:
        with np.errstate(invalid="ignore"):
            return paired_difference(whole, side, minus, values, over=over)
    except ValueError as error:
        return str(error)


def sides_of(whole: xr.Dataset) -> dict[str, Side]:
    """Returns by name what can be compared: the policies, or the settings of a single policy.

    Settings are returned if there are at most `_FEW` of them.
    """
    policies = list(dict.fromkeys(whole["policy"].values.tolist()))
    _, table, labels = split_settings(whole)
    if len(policies) > 1 or len(table) > _FEW:
        return {policy: policy for policy in policies}
    return dict(zip(labels, records(table), strict=True))


def _compared(found: xr.Dataset, title: str, metric: Metric) -> dict[str, tuple[str, str]]:
    """Returns the text of each setting's difference and its mark ("better", "worse" or ""), by setting."""
    told = {}
    columns = (found[key].values.tolist() for key in ("label", "mean", "low", "high", "left_out", "runs"))
    for label, mean, low, high, lost, count in zip(*columns, strict=True):
        text, mark = _difference(metric.scale * mean, metric.scale * low, metric.scale * high, metric)
        if lost and np.isfinite(mean):
            text += f"\n({count - lost}/{count})"
        told[title if label == "all runs" else f"{title}, {label}"] = text, mark
    return told


def _difference(mean: float, low: float, high: float, metric: Metric) -> tuple[str, str]:
    if not np.isfinite(mean):
        return format_number(mean, metric.shown), ""
    if not np.isfinite(low + high):
        return f"{mean:+{metric.shown}}", ""
    text = f"{mean:+{metric.shown}}\n{low:+{metric.shown}} to {high:+{metric.shown}}"
    apart = low > 0 or high < 0
    if not apart or metric.maximize is None:
        return text, ""
    return text, "better" if (mean > 0) == metric.maximize else "worse"


def runs(result: xr.Dataset) -> Table | None:
    """Returns every run with its seed and identity; None if there are more than `MOST_RUNS`."""
    if result.sizes["run"] > MOST_RUNS:
        return None
    codes, _, labels = split_settings(result)
    columns = np.array(labels)[codes], result["seed"].values, result["identity"].values
    rows = [tuple(map(str, row)) for row in zip(*columns, strict=True)]
    caption = "an identity is a hash of everything that a run's numbers depend on"
    return Table("runs", ("setting", "seed", "identity"), rows, caption)


def facts(result: xr.Dataset) -> list[tuple[str, list[str]]]:
    """Returns facts on the study and on how its result was made, as pairs (word, lines)."""
    made = provenance_of(result)
    seeds = sorted(set(result["seed"].values.tolist()))
    axes = [
        f"{symbols(result).get(name, name)}: {_values(values_of(result, name))}" for name in axes_of(result)
    ]
    count = result.sizes["run"]
    each = seed_counts(result)
    uneven = [f"settings have different numbers of seeds: {seeds_in_words(each)}"] * bool(np.ptp(each))
    identities = hashlib.sha256("".join(sorted(map(str, result["identity"].values))).encode()).hexdigest()
    return [
        (
            "runs",
            [f"{count}, of {_counted(len(set(result['policy'].values.tolist())), 'policy', 'policies')}"],
        ),
        ("seeds", [f"{len(seeds)}: {_briefly(seeds)}", *uneven]),
        *([("axes", axes)] if axes else []),
        ("identity", [f"{identities[:16]}, a hash of the identities of all runs"]),
        ("devices", _each(made, lambda found: found["devices"]) or ["not recorded"]),
        ("versions", _each(made, _versions) or ["not recorded"]),
        (
            "command",
            [text for text in _each(made, lambda found: found["command"]) if text] or ["not recorded"],
        ),
    ]


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _each(made: Sequence[Provenance], of: Any) -> list[str]:
    return list(dict.fromkeys(of(found) for found in made))


def _versions(found: Provenance) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(found["versions"].items()))


def _briefly(seeds: Sequence[int]) -> str:
    """Returns a text for sorted seeds: a range if there are no gaps, else a list of at most 21 seeds."""
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    shown = ", ".join(map(str, seeds[:20]))
    return f"{shown} … {seeds[-1]}" if len(seeds) > 20 else shown


def _values(values: Sequence[Any]) -> str:
    """Returns a text for the values of an axis; for more than 8 values, their number and range."""
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(values)]
    return ", ".join(texts) if len(texts) <= 8 else f"{len(texts)} values from {texts[0]} to {texts[-1]}"
