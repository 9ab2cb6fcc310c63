"""How far a search is: a bar on a terminal, lines in a file, or nothing."""

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pausejax.engine import lines
from pausejax.engine.progress import Form
from pausejax.searches.options import Options
from pausejax.study.study import Study


class State(NamedTuple):
    """Of a search after a step."""

    spent: int
    """Rounds × runs."""
    settings: int
    """That have ended."""
    finished: int
    """That have come to the end."""
    best: float | None
    """The metric of the best that has come to the end, on the search's own seeds; of several metrics none."""


Callback = Callable[[State], None]


@contextlib.contextmanager
def reporting(study: Study, options: Options, form: Form | None, devices: str) -> Iterator[Callback]:
    """Tells on stderr how far a search is, and yields the callback that is to be told.

    Args:
      study: what is searched.
      options: what is asked.
      form: None says nothing.
      devices: what plays it, in words.
    """
    if form is None:
        yield lambda _: None
    elif form == "bar":
        columns = (TextColumn("{task.completed:,.0f} rounds × runs, {task.description}"), BarColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as shown:
            task = shown.add_task("", total=options.budget)
            yield lambda state: shown.update(task, completed=state.spent, description=_settings(state))
    else:
        log = Log(study, options, devices, as_json=form == "json")
        with lines.listening(log):
            yield log


class Log(lines.Lines):
    """A line at the start, every 30 s, after each program, and at the end.

    Args:
      study: what is searched.
      options: what is asked.
      devices: what plays it, in words.
      **options_of_lines: of `Lines`.
    """

    def __init__(self, study: Study, options: Options, devices: str, **options_of_lines: Any) -> None:
        super().__init__(**options_of_lines)
        self._budget, self._state = options.budget, State(0, 0, 0, None)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.say(
            "start",
            f"{now} search for up to {options.budget:,} rounds × runs, {options.sampler}, on {devices}",
            time=now,
            study=study.name,
            budget=options.budget,
            sampler=options.sampler,
            devices=devices,
        )

    def __call__(self, state: State) -> None:
        with self.locked():
            self._state = state

    def tick(self) -> None:
        """Writes how far the search is if the last such line is old enough."""
        with self.locked():
            if (now := self.due()) is None:
                return
            state = self._state
            speed = self.speed(now, state.spent)
            left = (self._budget - state.spent) / speed if speed else None
            words = [f"{state.spent:,} of {self._budget:,} rounds × runs", _settings(state)]
            words += [f"{speed:,.0f} rounds/s"] if speed else []
            words += [f"{lines.duration(left)} left"] if left is not None else []
            self.say(
                "progress",
                ", ".join(words),
                **state._asdict(),
                part=round(state.spent / self._budget, 4),
                rounds_per_second=round(speed, 1),
                seconds_left=left and round(left, 1),
            )

    def end(self, completed: bool) -> None:
        """The last line."""
        with self.locked():
            took, state = self.took(), self._state
            how = "done" if completed else "stopped"
            told = f"{state.spent:,} rounds × runs, {_settings(state)}"
            self.say(
                "end",
                f"{how} after {lines.duration(took)}: {told}",
                completed=completed,
                **state._asdict(),
                rounds_per_second=round(state.spent / took if took else 0.0, 1),
            )


def _settings(state: State) -> str:
    best = "" if state.best is None else f", best so far {state.best:.4g}"
    return f"{state.settings} settings, {state.finished} to the end{best}"
