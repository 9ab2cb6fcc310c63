"""The result of a search (every setting that was tried, the best on fresh seeds) and its table."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pausejax.analysis.quantities import format_number
from pausejax.searches.goal import Goal, Row, Trial
from pausejax.searches.ranking import leading, order
from pausejax.searches.space import Setting, Space
from pausejax.study.axes import Range
from pausejax.study.study import Plan, Study

if TYPE_CHECKING:
    from pausejax.plotting.chart import Charts
    from pausejax.searches.report import Record


class Finalist(NamedTuple):
    """A setting that was simulated again, with the metrics that `Goal.figures` names on fresh seeds."""

    label: str
    setting: Setting
    figures: np.ndarray
    """The metrics of each seed, float64 [seeds, metrics]."""
    mean: np.ndarray
    """Mean of the metrics over seeds, [metrics]."""
    low: np.ndarray
    """Lower end of the 95 % interval of `mean`, [metrics]."""
    high: np.ndarray
    """Upper end of the 95 % interval of `mean`, [metrics]."""
    difference: np.ndarray
    """Mean of the first finalist's metrics minus this finalist's metrics, paired by seed, [metrics].

    NaN for the first finalist itself.
    """
    difference_low: np.ndarray
    """Lower end of the 95 % interval of `difference`, [metrics]."""
    difference_high: np.ndarray
    """Upper end of the 95 % interval of `difference`, [metrics]."""


class SearchResult(NamedTuple):
    """The result of a search. Its text is the table that compares the best settings on fresh seeds."""

    study: Study
    """The study that was searched, with rounds up to the horizon."""
    space: Space
    goal: Goal
    trials: tuple[Trial, ...]
    """Every setting that was tried, sorted by number."""
    plan: Plan
    """Every run that was simulated, trial by trial."""
    result: xr.Dataset | None
    """The data set of all runs; None if they were written to a folder."""
    damaged: tuple[str, ...] = ()
    """One line for each damaged file of the folder, whose runs were simulated again."""
    finalists: tuple[Finalist, ...] = ()
    """The best setting, the second best (or the rest of the front) and the defaults, on fresh seeds."""
    confirmation: xr.Dataset | None = None
    """The result of the runs on fresh seeds, as `simulate` returns it.

    Its policies are the labels of the finalists: "best", "second", "default", or "front 1", "front 2", …
    """
    asked: int = 0
    """The number of settings that were asked for."""

    def ranked(self, count: int) -> list[Trial]:
        """Returns the best `count` trials, the best first; for several metrics, the front comes first."""
        return [self.trials[place] for place in order([trial.score for trial in self.trials])[:count]]

    def leading(self, count: int) -> list[Trial]:
        """Returns at most `count` trials of the first front, the best first."""
        return [self.trials[place] for place in leading([t.score for t in self.trials])[:count]]

    @property
    def open_parameters(self) -> tuple[str, ...]:
        """The names of the parameters whose values the search chooses, in the order of the study's
        parameters."""
        names = {name for dims in self.space.dimensions.values() for d in dims for name in d.names}
        return tuple(name for name in self.study.words.parameters if name in names)

    @property
    def best(self) -> dict[str, Any]:
        """The best setting: the label of its policy, and the values that the search chose."""
        setting = self.finalists[0].setting if self.finalists else self.ranked(1)[0].setting
        values = {name: setting.values[name] for name in self.open_parameters if name in setting.values}
        return {"policy": setting.policy, **values}

    @property
    def rows(self) -> list[Row]:
        """Every trial as plain data, sorted by number."""
        rows, several = [], len(self.study.policies) > 1
        for trial in self.trials:
            setting = trial.setting
            values = {"policy": setting.policy} if several else {}
            values |= {name: setting.values[name] for name in self.open_parameters if name in setting.values}
            means = zip(self.goal.figures, trial.figures.mean(axis=0).tolist(), strict=True)
            figures = {name: mean if np.isfinite(mean) else None for name, mean in means}
            broken = trial.score.violation > 0
            rows.append(Row(trial.number, setting.policy, values, trial.rounds, figures, broken))
        return rows

    def charts(self) -> "Charts":
        """Returns the charts of the search, by name."""
        from pausejax.searches.report import charts  # imported late, because it loads the drawing code

        return charts(record_of(self))

    def __repr__(self) -> str:
        return self._printed().export_text()

    def _repr_html_(self) -> str:
        """Returns what a notebook's cell shows: the table as HTML, with colours."""
        return self._printed().export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _printed(self) -> Console:
        # A console that detects a notebook would print its text there instead of recording it.
        options: dict[str, Any] = {"force_terminal": False, "force_jupyter": False}
        console = Console(file=io.StringIO(), width=120, record=True, **options)
        if self.finalists:
            whole = table(self)
            wide = console.options.update(width=10_000)
            console.width = max(120, console.measure(whole, options=wide).maximum)
            console.print(whole)
        console.print(summary(self), markup=False, highlight=False)
        return console


def record_of(result: SearchResult) -> "Record":
    """Makes the record of a finished search, with its finalists on fresh seeds."""
    from pausejax.searches.report import Dimension, Metric, Record

    study, goal = result.study, result.goal
    known, parameters = study.outputs.metrics, study.words.parameters
    laws: dict[str, bool] = {}
    for dims in result.space.dimensions.values():
        for dim in dims:
            log = isinstance(dim.values, Range) and dim.values.law == "log_uniform"
            laws |= {name: laws.get(name, False) or log for name in dim.names}
    dimensions = [Dimension("policy", "", log=False)] * (len(study.policies) > 1)
    dimensions += [Dimension(name, parameters[name].symbol, log) for name, log in laws.items()]
    metrics = [
        Metric(name, known[name].short_label, known[name].scale, known[name].shown, up)
        for name, up in zip(goal.metrics, goal.maximize, strict=True)
    ]
    title, headings, rows = table_text(result)
    return Record(
        study.name,
        _asked(result),
        summary(result),
        tuple(metrics),
        tuple(dimensions),
        tuple(result.rows),
        headings,
        rows,
        f"{title}. {caption(result)}",
        tuple(dict.fromkeys(result.plan.identities)),
    )


def _asked(result: SearchResult) -> str:
    goal = result.goal
    pairs = zip(goal.metrics, goal.maximize, strict=True)
    ways = " and ".join(f"{'most' if up else 'least'} {name}" for name, up in pairs)
    bounds = " and ".join(f"{one.metric} {one.relation} {one.bound:g}" for one in goal.constraints)
    return f"{ways} at {goal.where}" + f", with {bounds}" * bool(bounds)


def table(result: SearchResult) -> Table:
    """Returns the table of the finalists on fresh seeds, with intervals and paired differences."""
    title, headings, rows = table_text(result)
    printed = Table(
        title=title,
        title_justify="left",
        caption=caption(result),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    printed.add_column(headings[0], overflow="fold", min_width=12)
    for place, heading in enumerate(headings[1:], 1):
        words = " ".join([heading, *(row[place] for row in rows)]).split()
        printed.add_column(heading, justify="right", min_width=max(map(len, words)))  # no number is cut
    for row in rows:
        printed.add_row(*map(Text, row))
    return printed


def caption(result: SearchResult) -> str:
    """Returns the caption of the table of finalists."""
    goal = result.goal
    late = f" Rounds that end after {goal.where} are not counted." if goal.by_latency else ""
    return (
        "The search did not use these seeds. On the search's seeds, the best settings look better than they "
        f"are.{late}"
    )


def table_text(result: SearchResult) -> tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Returns the title, the headings and the rows of the table of finalists as texts."""
    known, first = result.study.outputs.metrics, result.finalists[0].figures
    headings, rows = ["setting"], []
    for name in result.goal.figures:
        headings += [known[name].with_unit(name), "first row minus this"]
    for one in result.finalists:
        cells = [f"{one.label}: {_in_words(one.setting, result)}"]
        for place, name in enumerate(result.goal.figures):
            scale, form = known[name].scale, known[name].shown
            figures = one.figures[:, place]
            with np.errstate(invalid="ignore"):  # infinite figures
                lost = np.isnan(figures), np.isnan(figures - first[:, place])
            cells.append(_interval(one.mean, one.low, one.high, place, scale, form, lost[0]))
            ends = one.difference_low, one.difference_high
            cells.append(_interval(one.difference, *ends, place, scale, form, lost[1]))
        rows.append(tuple(cells))
    where = f"on {len(first)} fresh seeds, at {result.goal.where}"
    return (
        f"{where}: mean [95 % interval], and the first row minus each other row, paired by seed",
        tuple(headings),
        tuple(rows),
    )


def _in_words(setting: Setting, result: SearchResult) -> str:
    """Returns a setting in words: its policy, and the values that the search chose."""
    parameters, values = result.study.words.parameters, setting.values
    names: Sequence[str] = [name for name in result.open_parameters if name in values]
    return ", ".join([setting.policy, *(f"{parameters[n].symbol or n}={values[n]}" for n in names)])


def summary(result: SearchResult) -> str:
    """Returns one line that says what was simulated, with warnings such as broken constraints or NaN."""
    rounds = sum(trial.rounds for trial in result.trials)
    words = [f"{len(result.trials)} settings", f"{rounds:,} rounds over all runs"]
    if len(result.trials) < result.asked:
        words[0] = f"{len(result.trials)} of {result.asked} settings, because the sampler found no others"
    words += [
        f"{metric} is not comparable between settings with different {names}"
        for metric, names in _rescaled(result).items()
    ]
    best = result.ranked(1)[0].score
    words += ["no setting keeps the constraints"] if best.violation > 0 else []
    words += ["no setting has a value for every metric"] if np.isnan(best.values).any() else []
    if result.finalists and result.space.defaults().key not in {one.setting.key for one in result.finalists}:
        words.append(
            "the defaults are not compared, because they can't be simulated with the rest of the spec"
        )
    if early := sum(trial.short for trial in result.trials):
        words.append(
            f"{early} settings: the last of {result.study.rounds} rounds ended before "
            f"{result.goal.horizon:g} simulated seconds"
        )
    return "; ".join(words)


def _rescaled(result: SearchResult) -> dict[str, str]:
    """Returns for each metric the parameters that change its meaning and differ between runs, in words.

    Metrics without such parameters are left out.
    """
    known, parameters = result.study.outputs.metrics, result.study.words.parameters
    found = {}
    for metric in result.goal.metrics:
        seen = {
            name: {run.values[name] for run in result.plan.runs if name in run.values}
            for name in known[metric].scaled_by
        }
        if own := [name for name, values in seen.items() if len(values) > 1]:
            found[metric] = ", ".join(parameters[name].symbol or name for name in own)
    return found


def _interval(mean: Any, low: Any, high: Any, place: int, scale: float, form: str, lost: np.ndarray) -> str:
    """Returns the text of the mean with index `place`, with its interval, in the unit that `scale` gives.

    `form` is a number format. If some seeds have no value (`lost`), the text says how many seeds have one.
    """
    if np.isnan(mean[place]):
        return "–"
    text = format_number(scale * mean[place], form)
    if np.isfinite(low[place] + high[place]):
        ends = (format_number(scale * end[place], form) for end in (low, high))
        text += f" [{', '.join(ends)}]"
    return text + (f" ({(~lost).sum()}/{lost.size})" if lost.any() else "")
