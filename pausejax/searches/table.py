"""What a search says in the end: the best on fresh seeds, with intervals and paired differences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from pausejax.searches.confirm import Compared, changed
from pausejax.searches.find import Found


def table(found: Found, compared: Sequence[Compared]) -> Table:
    """The contenders on fresh seeds, with intervals and paired differences."""
    title, headings, rows = confirmed(found, compared)
    shown = Table(
        title=title, title_justify="left", caption=CAPTION, caption_justify="left", box=box.SIMPLE_HEAD
    )
    shown.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        shown.add_column(heading, justify="right")
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


CAPTION = "On its own seeds a search picks the best of many, which flatters it; it has not seen these."


def confirmed(
    found: Found, compared: Sequence[Compared]
) -> tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The same in words: its title, its headings and its rows."""
    known = found.study.kind.metrics(found.study)
    headings, rows = ["setting"], []
    for name in found.goal.figures:
        headings += [name, "lead"]
    for one in compared:
        cells = [f"{one.label}: {describe(one, compared, found)}"]
        for place, name in enumerate(found.goal.figures):
            scale, form = known[name].scale, known[name].shown
            cells.append(_interval(one.mean, one.low, one.high, place, scale, form))
            cells.append(_interval(one.lead, one.lead_low, one.lead_high, place, scale, form))
        rows.append(tuple(cells))
    seeds = len(compared[0].figures)
    title = f"on {seeds} fresh seeds, {_where(found)}: mean [95 % interval], and the first's lead by pairs"
    return title, tuple(headings), tuple(rows)


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
