"""What a search says in the end: the best on fresh seeds, with intervals and paired differences."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pausejax.searches.confirm import Compared, changed
from pausejax.searches.find import Found


class Searched(NamedTuple):
    """What `pausejax.search` has found; its text is the table of the best on fresh seeds."""

    found: Found
    """The search: every setting with what became of it, `found.result` with all its runs."""
    compared: list[Compared]
    """The best first, the second (or the rest of the front), and the defaults, on fresh seeds."""
    confirmation: xr.Dataset
    """The result of these, as `simulate` returns it; policies are "best", "second", "default"."""

    @property
    def best(self) -> dict[str, Any]:
        """The best setting: its policy's label, and every parameter that was chosen."""
        one = self.compared[0]
        chosen = {name: one.setting.values[name] for name in changed(self.compared[:1], self.found)}
        return {"policy": one.setting.policy, **chosen}

    def draw(self) -> dict[str, Any]:
        """The pictures of the search, by name."""
        from pausejax.searches import pictures  # matplotlib is loaded for whoever draws

        return pictures.draw(self.found)

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), width=120, force_terminal=False)
        console.print(table(self.found, self.compared))
        console.print(summary(self.found), markup=False)
        return console.file.getvalue()  # type: ignore[attr-defined]


def table(found: Found, compared: Sequence[Compared]) -> Table:
    """The contenders on fresh seeds, with intervals and paired differences."""
    seeds = len(compared[0].figures)
    known = found.study.kind.metrics(found.study)
    shown = Table(
        title=f"on {seeds} fresh seeds, {_where(found)}: mean [95 % interval], and the first's lead by pairs",
        title_justify="left",
        caption=(
            "On its own seeds a search picks the best of many, which flatters it; it has not seen these."
        ),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    shown.add_column("setting", overflow="fold")
    for name in found.goal.figures:
        shown.add_column(name, justify="right")
        shown.add_column("lead", justify="right")
    for one in compared:
        cells = []
        for place, name in enumerate(found.goal.figures):
            scale, form = known[name].scale, known[name].shown
            cells.append(_interval(one.mean, one.low, one.high, place, scale, form))
            cells.append(_interval(one.lead, one.lead_low, one.lead_high, place, scale, form))
        shown.add_row(Text(f"{one.label}: {describe(one, compared, found)}"), *cells)
    return shown


def describe(one: Compared, compared: Sequence[Compared], found: Found) -> str:
    """A setting by what the search chose of it."""
    own = one.setting.values
    parameters = found.study.words.parameters
    parts = [
        f"{parameters[name].symbol or name}={own[name]}" for name in changed(compared, found) if name in own
    ]
    return ", ".join([one.setting.policy, *parts])


def summary(found: Found) -> str:
    """One line on what was played, and on constraints that nobody has kept."""
    whys = [one.why for one in found.ended]
    busy = found.spent / found.lane_rounds if found.lane_rounds else 1.0
    best = found.best(1)
    told = [
        f"{len(whys)} settings, {whys.count('finished')} to the end",
        f"{found.spent:,} rounds × runs, {busy:.0%} of the lanes' time",
    ]
    if best and best[0].history[-1][1].violation > 0:
        told.append("none that came so far keeps the constraints")
    if best and np.isnan(best[0].history[-1][1].values).any():
        told.append("none that came so far has a value of every metric")
    early = sum(one.why == "finished" and one.short for one in found.ended)
    if early:
        told.append(f"{early} had played their {found.study.rounds} rounds before {found.goal.rungs[-1]:g} s")
    return "; ".join(told)


def _where(found: Found) -> str:
    at = found.goal.rungs[-1]
    return f"at {at:g} s of simulated time" if found.goal.by_latency else f"after {at:g} rounds"


def _interval(mean: Any, low: Any, high: Any, place: int, scale: float, form: str) -> str:
    if np.isnan(mean[place]):
        return "–"
    return f"{scale * mean[place]:{form}} [{scale * low[place]:{form}}, {scale * high[place]:{form}}]"
