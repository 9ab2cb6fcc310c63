"""How far a study is: a bar on a terminal or in a notebook, lines in a file, or nothing."""

import contextlib
import time
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
        return Text(f"{speed:,.0f} rounds/s" if speed else "starting")


Form = Literal["text", "json", "bar"]
FORMS: tuple[Form, ...] = get_args(Form)

_SECONDS_BETWEEN_FRAMES = 0.3


def default_form() -> Form:
    """A bar where stderr is a terminal or in a notebook, else lines of text."""
    console = Console(stderr=True)
    return "bar" if console.is_terminal or console.is_jupyter else "text"


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
    elif form == "bar" and Console(stderr=True).is_jupyter:
        with _cell(plan) as advance:
            yield advance
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


@contextlib.contextmanager
def _cell(plan: Plan) -> Iterator[Callback]:
    """A bar in the output of a notebook's cell; rich's own needs widgets there."""
    from IPython.display import HTML, display

    runs, rounds = len(plan.runs), plan.study.rounds or 1
    begun = drawn = time.monotonic()
    done = 0

    def shown() -> HTML:
        took = time.monotonic() - begun
        pace = f"{done / took:,.0f} rounds/s" if done and took else "starting"
        part = min(done / (runs * rounds), 1.0)
        bar = f'<progress value="{part:.3f}" max="1" style="width:20em"></progress>'
        return HTML(f"<div>{done // rounds}/{runs} runs {bar} {part:.0%}, {pace}, {took:.0f} s</div>")

    handle = display(shown(), display_id=True)

    def advance(rounds_times_runs: int) -> None:
        nonlocal done, drawn
        done += rounds_times_runs
        if time.monotonic() - drawn >= _SECONDS_BETWEEN_FRAMES:
            drawn = time.monotonic()
            handle.update(shown())

    try:
        yield advance
    finally:
        handle.update(shown())
