"""The progress bar of a study: runs, rounds × runs per second, time left."""

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from pausejax.engine.engine import Progress as Callback
from pausejax.study.study import Plan


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rounds/s" if speed else "compiling")


@contextlib.contextmanager
def progress_bar(plan: Plan, *, quiet: bool) -> Iterator[Callback]:
    """Yields the callback that moves the bar."""
    if quiet:
        yield lambda _: None
        return
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
