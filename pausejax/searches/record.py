"""What a search has come to, as plain data: what its pictures and its page are made of, also years later."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from pausejax.results.folder import Folder
from pausejax.searches.confirm import Compared
from pausejax.searches.find import Found
from pausejax.searches.table import confirmed, summary
from pausejax.study.axes import Range

FILE = "search_record.json"


class Figure(NamedTuple):
    """A metric of the search."""

    name: str
    label: str
    scale: float
    """What pictures and tables multiply it by."""
    shown: str
    """How tables write it."""
    maximize: bool


class Dimension(NamedTuple):
    """A parameter that the search chose."""

    name: str
    symbol: str
    log: bool
    """Whether it was searched on a logarithmic scale."""

    @property
    def label(self) -> str:
        words = self.name.replace("_", " ")
        return f"{words} {self.symbol}" if self.symbol else words


class Trial(NamedTuple):
    """A setting and what became of it."""

    number: int
    policy: str
    values: dict[str, Any]
    """Of the parameters that the search chose; those of other policies are left out."""
    outcome: str
    """"finished", "stopped" at a rung, or out of "budget"."""
    rounds: int
    """That each of its runs has played."""
    spent: int
    """Rounds × runs of the whole search when it ended."""
    rung: float | None
    """The last one that it came to; None: it came to none."""
    figures: tuple[float, ...]
    """The metrics there, averaged over its seeds; NaN where there is none."""
    broken: bool
    """Whether it broke a constraint there."""


class Record(NamedTuple):
    """A whole search."""

    name: str
    asked: str
    """What was sought, in a sentence."""
    summary: str
    """What was played, in a sentence."""
    metrics: tuple[Figure, ...]
    dimensions: tuple[Dimension, ...]
    rungs: tuple[float, ...]
    trials: tuple[Trial, ...]
    """By number."""
    headings: tuple[str, ...]
    compared: tuple[tuple[str, ...], ...]
    """The table of the best on fresh seeds, row by row."""
    title: str
    """Of that table."""

    def points(self, trials: Sequence[Trial]) -> np.ndarray:
        """The metrics of some trials turned so that more is better, float64 [n, metrics]."""
        ways = np.array([1.0 if metric.maximize else -1.0 for metric in self.metrics])
        return ways * np.array([trial.figures for trial in trials], float).reshape(len(trials), len(ways))

    @property
    def ends(self) -> list[Trial]:
        """Those that came to the end and have a value of every metric, in the order in which they did."""
        there = [one for one in self.trials if one.outcome == "finished" and np.isfinite(one.figures).all()]
        return sorted(there, key=lambda one: (one.spent, one.number))

    def write(self, folder: Folder) -> None:
        """Puts it into the folder of the search.

        Raises:
          OSError: no space left, or the like.
        """
        folder.write(FILE, json.dumps(self._plain(), indent=1).encode())

    def _plain(self) -> dict[str, Any]:
        plain = self._asdict()
        for name in ("metrics", "dimensions", "trials"):
            plain[name] = [one._asdict() for one in plain[name]]
        for trial in plain["trials"]:
            trial["figures"] = [value if np.isfinite(value) else None for value in trial["figures"]]
        return plain

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """What a search has left in its folder; None: there is no search that has ended.

        Raises:
          ValueError: it is damaged.
        """
        if not folder.exists(FILE):
            return None
        try:
            held = json.loads(folder.read(FILE))
            return cls(
                **{key: str(held[key]) for key in ("name", "asked", "summary", "title")},
                metrics=tuple(Figure(**one) for one in held["metrics"]),
                dimensions=tuple(Dimension(**one) for one in held["dimensions"]),
                rungs=tuple(map(float, held["rungs"])),
                trials=tuple(_trial(one) for one in held["trials"]),
                headings=tuple(map(str, held["headings"])),
                compared=tuple(tuple(map(str, row)) for row in held["compared"]),
            )
        except (KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            again = "the same `pausejax search` makes it whole"
            raise ValueError(f"{folder}: {FILE} is damaged ({error}); {again}") from None


def _trial(held: Any) -> Trial:
    trial = Trial(**held)
    figures = tuple(float("nan") if value is None else float(value) for value in trial.figures)
    return trial._replace(figures=figures)


def record_of(found: Found, compared: Sequence[Compared]) -> Record:
    """A search that has ended, with its best on fresh seeds."""
    study, goal = found.study, found.goal
    known, parameters = study.kind.metrics(study), study.words.parameters
    laws: dict[str, bool] = {}
    for dims in found.space.dimensions.values():
        for dim in dims:
            log = isinstance(dim.values, Range) and dim.values.law == "log_uniform"
            laws |= {name: laws.get(name, False) or log for name in dim.names}
    policies = len(study.policies) > 1
    dimensions = [Dimension("policy", "", log=False)] * policies
    dimensions += [Dimension(name, parameters[name].symbol, log) for name, log in laws.items()]
    trials = []
    for one in sorted(found.ended, key=lambda one: one.number):
        values = {name: one.setting.values[name] for name in laws if name in one.setting.values}
        if policies:
            values = {"policy": one.setting.policy, **values}
        means = one.figures.mean(axis=0)[: len(goal.metrics)]
        rung = goal.rungs[one.history[-1][0]] if one.history else None
        broken = bool(one.history and one.history[-1][1].violation > 0)
        trials.append(
            Trial(
                one.number,
                one.setting.policy,
                values,
                one.why,
                one.rounds,
                one.spent,
                rung,
                tuple(means.tolist()),
                broken,
            )
        )
    title, headings, rows = confirmed(found, compared)
    return Record(
        name=study.name,
        asked=_asked(found),
        summary=summary(found),
        metrics=tuple(
            Figure(
                name, known[name].label or name.replace("_", " "), known[name].scale, known[name].shown, up
            )
            for name, up in zip(goal.metrics, goal.maximize, strict=True)
        ),
        dimensions=tuple(dimensions),
        rungs=goal.rungs,
        trials=tuple(trials),
        headings=headings,
        compared=rows,
        title=title,
    )


def _asked(found: Found) -> str:
    goal = found.goal
    ways = [
        f"{'most' if up else 'least'} {name}" for name, up in zip(goal.metrics, goal.maximize, strict=True)
    ]
    where = f"{goal.rungs[-1]:g} {'simulated seconds' if goal.by_latency else 'rounds'}"
    bounds = [f"{one.metric} {one.relation} {one.bound:g}" for one in goal.constraints]
    within = f", with {' and '.join(bounds)}" if bounds else ""
    return f"{' and '.join(ways)} at {where}{within}"
