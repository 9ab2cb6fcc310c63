"""How far a study is: a bar on a terminal, lines in a file, or nothing."""

import contextlib
from collections.abc import Iterator
from typing import Literal, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from pausejax.engine import lines
from pausejax.engine.engine import Progress as Callback
from pausejax.study.study import Plan


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rounds/s" if speed else "compiling")


Form = Literal["text", "json", "bar"]
FORMS: tuple[Form, ...] = get_args(Form)


def default_form() -> Form:
    """A bar where stderr is a terminal, else lines of text."""
    return "bar" if Console(stderr=True).is_terminal else "text"


@contextlib.contextmanager
def reporting(plan: Plan, form: Form | None, devices: str) -> Iterator[Callback]:
    """Tells on stderr how far a study is, and yields the callback that is to be told.

    Args:
      plan: the whole study.
      form: None says nothing.
      devices: what plays it, in words.
    """
    if form is None:
        yield lambda _: None
    elif form == "bar":
        with _bar(plan) as advance:
            yield advance
    else:
        log = lines.Log(plan, devices, as_json=form == "json")
        with lines.listening(log):
            yield log


@contextlib.contextmanager
def _bar(plan: Plan) -> Iterator[Callback]:
    # An ensemble study may leave the rounds to its streams; it then counts runs alone.
    runs, rounds = len(plan.runs), plan.study.rounds or 1
    bar = Progress(
        TextColumn("{task.fields[runs_done]}/{task.fields[runs]} runs"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        _Speed(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("", total=runs * rounds, runs=runs, runs_done=0)

        def advance(rounds_times_runs: int) -> None:
            done = int(bar.tasks[0].completed + rounds_times_runs)
            bar.update(task, advance=rounds_times_runs, runs_done=done // rounds)

        yield advance
