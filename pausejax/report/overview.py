"""A result at a glance: its table with a curve for each row, as text and as HTML."""

import functools
import html
import io
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from pausejax.analysis import metrics_of, schema
from pausejax.analysis.metrics import RUNNING
from pausejax.analysis.quantities import Metric
from pausejax.analysis.summaries import SummaryText, diverged_runs, on_one_line, summary_text
from pausejax.report.curves import Curve, draw_series, figure
from pausejax.report.figure import Figure, image
from pausejax.report.grid import Grid, Panel
from pausejax.report.series import Samples, summarized
from pausejax.report.statistics import Line, lines, without_diverged
from pausejax.report.style import wrapped
from pausejax.report.summary import printed

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 16
_COLUMNS = 140
# More lines than this in one picture, and a glance tells nothing.
_LINES = 8


class Shown(NamedTuple):
    """What the curves show: a metric as it comes about."""

    metric: Metric
    dim: str
    label: str


class Overview:
    """What a result says, as a table with curves. `result` is the data set itself.

    Printed it is text; as the value of a notebook's cell a table and a picture. Nothing is read before that.
    """

    def __init__(self, result: xr.Dataset) -> None:
        self.result = result
        self._shown = _shown_in(result)

    @functools.cached_property
    def summary(self) -> SummaryText:
        """Per policy and axis value the means ± 95 % intervals over the seeds."""
        return summary_text(self.result)

    @functools.cached_property
    def picture(self) -> Figure | None:
        """The table's first rows as curves, seed means with 95 % bands; None where nothing is a curve."""
        if self._shown is None:
            return None
        shown = self._shown
        chosen = tuple(line._replace(runs=line.runs.load()) for line in self._rows[:_LINES])
        return figure(lambda axes, curves: _draw(axes, curves, shown), Grid((Panel("", chosen),), 1))

    def __repr__(self) -> str:
        written = io.StringIO()
        # In a notebook rich would show it at once.
        console = Console(
            file=written,
            width=_COLUMNS,
            color_system=None,
            highlight=False,
            emoji=False,
            force_jupyter=False,
        )
        console.print(self._title, markup=False)
        console.print(self._with_curves())
        for line in diverged_runs(self.result):
            console.print(line, markup=False)
        return "\n".join(line.rstrip() for line in written.getvalue().splitlines()).rstrip()

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{_escaped(on_one_line(heading))}</th>" for heading in self.summary.headings)
        body = "".join(
            f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in self.summary.rows
        )
        below = [*self.summary.notes, *diverged_runs(self.result)]
        if self._shown and len(self._rows) > _LINES:
            below.append(f"drawn: the first {_LINES} of these {len(self._rows)} rows")
        told = "".join(f"<p>{_escaped(line)}</p>" for line in below)
        drawn = image(self.picture, self._shown.label) if self.picture and self._shown else ""
        return (
            f"<div><p><b>{_escaped(self._title)}</b>, {_escaped(self.summary.title)}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{told}{drawn}</div>"
        )

    @property
    def _title(self) -> str:
        runs, name = self.result.sizes["run"], schema.read(self.result, "name") or ""
        count = f"{runs:,} run{'' if runs == 1 else 's'}"
        return f"{name}: {count}" if name else count

    @functools.cached_property
    def _rows(self) -> list[Line]:
        """The rows of the table."""
        found = {line.label: line for line in lines(self.result)}
        return [found[row[0]] for row in self.summary.rows]

    def _with_curves(self) -> Table:
        """The table with a column of curves in characters, all on one scale."""
        if self._shown is None:
            return printed(self.summary)
        means = [_mean(row.runs, self._shown) for row in self._rows]
        there = np.concatenate(means)
        if not there.size:
            return printed(self.summary)
        low, high = there.min(), there.max()
        heading = f"{self._shown.label}\nfrom {low:.3g} to {high:.3g}"
        return printed(self.summary, (heading, [_in_characters(mean, low, high) for mean in means]))


def _shown_in(result: xr.Dataset) -> Shown | None:
    """The metric that ranks the settings where it ends a curve, else a sum that should be small."""
    known = metrics_of(result)
    ranked = known.get(schema.read(result, "ranking"))
    sums = [m for m in known.values() if m.reduce == "total" and m.maximize is False]
    for metric in (ranked, *sums, *known.values()):
        if metric is None or metric.variable not in result or metric.reduce not in ("last", "total"):
            continue
        dims = result[metric.variable].dims
        if dims in (("run", "eval"), ("run", "round")) and (metric.label or metric.heading):
            return Shown(metric, str(dims[1]), metric.label or metric.heading.replace("\n", " "))
    return None


def _samples(runs: xr.Dataset, shown: Shown) -> Samples:
    """The curves of what is shown, up to where every run has them."""
    metric = shown.metric
    runs = without_diverged(runs) if metric.learned else runs
    values = RUNNING[metric.reduce](runs[metric.variable].values) * metric.scale
    rounds = runs["eval_round" if shown.dim == "eval" else "round"].values
    there = np.isfinite(values).all(axis=0)
    return Samples(rounds[there], values[:, there], runs["seed"].values)


def _draw(axes: Axes, curves: list[Curve], shown: Shown) -> None:
    for curve in curves:
        draw_series(axes, summarized(curve.label, _samples(curve.runs, shown)), curve.look)
    axes.set(xlabel="round", ylabel=wrapped(shown.label, 40))
    axes.set_xlim(left=0)


def _mean(runs: xr.Dataset, shown: Shown) -> np.ndarray:
    values = _samples(runs, shown).values
    return values.mean(axis=0) if values.size else np.zeros(0)


def _in_characters(values: np.ndarray, low: float, high: float) -> str:
    """A curve as blocks of eight heights."""
    if not values.size:
        return "–"
    places = np.linspace(0, values.size - 1, min(_WIDTH, values.size)).round().astype(int)
    share = (values[places] - low) / max(high - low, np.finfo(float).tiny)
    return "".join(_BARS[int(level)] for level in np.clip(share * len(_BARS), 0, len(_BARS) - 1))


def _escaped(text: object) -> str:
    return html.escape(str(text))
