"""Shows the progress of a study on stderr: a bar on a terminal or in a notebook, lines in a file."""

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pausejax.execution.events import LOGGER
from pausejax.execution.progress import Clock, Message, Meter, duration

Form = Literal["text", "json", "bar"]

SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BETWEEN_FRAMES = 1.0


class Lines:
    """Display that writes one line per message, with the time since the start.

    Args:
      as_json: whether a line is a JSON object with "event" and "seconds" since the start, in place of a
        sentence.
      clock: the function that returns the time in seconds.
      write: the function that writes a line; by default it writes to stderr and flushes.
    """

    def __init__(
        self, *, as_json: bool, clock: Clock = time.monotonic, write: Callable[[str], None] | None = None
    ) -> None:
        self._as_json, self._clock, self._write = as_json, clock, write or _to_stderr
        self._begun = self._last = clock()
        self._lock = threading.Lock()

    def line(self, message: Message) -> None:
        """Writes the message as one line."""
        seconds = self._clock() - self._begun
        if self._as_json:
            line = json.dumps({"event": message.event, "seconds": round(seconds, 3), **message.fields})
        else:
            line = f"[{duration(seconds)}] {message.sentence}"
        # A failed write (a full disk, a closed pipe) must not end the study.
        with self._lock, contextlib.suppress(OSError):
            self._write(line)

    def status(self, message: Message) -> None:
        """Writes a line if `SECONDS_BETWEEN_LINES` have passed since the last status line."""
        if (now := self._clock()) - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self.line(message)


class Bar:
    """Display that draws a bar on a terminal, with the text of the status beside the bar.

    Args:
      bar: a progress bar of the package rich, which is running.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task = bar, bar.add_task("", total=1.0)

    def line(self, message: Message) -> None:
        """Draws the message of the end, and prints a warning above the bar; ignores all other messages."""
        if message.is_warning:
            self._bar.console.print(message.sentence, markup=False, highlight=False, soft_wrap=True)
        elif message.event == "end":
            self.status(message)

    def status(self, message: Message) -> None:
        """Draws the bar anew, with the finished part and the sentence of the message."""
        part = message.fields.get("part") or 0.0
        self._bar.update(self._task, completed=float(part), description=message.sentence)


class Cell:
    """Display that draws a bar in the output of a notebook's cell.

    The bar of the package rich would need widgets.

    Args:
      clock: the function that returns the time in seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        from IPython.display import HTML, display

        self._html, self._clock, self._begun = HTML, clock, clock()
        self._handle = display(HTML("<div></div>"), display_id=True)

    def line(self, message: Message) -> None:
        """Draws the message of the end, and prints a warning; ignores all other messages."""
        if message.is_warning:
            _to_stderr(message.sentence)
        elif message.event == "end":
            self._draw(message, message.sentence)

    def status(self, message: Message) -> None:
        """Draws the bar anew, with the time since the start."""
        self._draw(message, f"{duration(self._clock() - self._begun)}: {message.sentence}")

    def _draw(self, message: Message, sentence: str) -> None:
        part = float(message.fields.get("part") or 0.0)
        bar = f'<progress value="{part:.3f}" max="1" style="width:20em"></progress>'
        self._handle.update(self._html(f"<div>{bar} {sentence}</div>"))


Display = Lines | Bar | Cell
"""A display. Its `line` shows an event; its `status` is called every second and shows the progress."""


class _Listener(logging.Handler):
    """Logging handler that passes the executor's events to a meter and to a display."""

    def __init__(self, meter: Meter, display: Display) -> None:
        super().__init__(logging.INFO)
        self._meter, self._display = meter, display

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", record.levelname.lower())
        fields = getattr(record, "fields", {})
        if self._meter.hear(event, fields):
            is_warning = record.levelno >= logging.WARNING
            self._display.line(Message(event, record.getMessage(), fields, is_warning))


def default_form() -> Form:
    """Returns "bar" if stderr is a terminal or a notebook, else "text"."""
    console = Console(stderr=True)
    return "bar" if console.is_terminal or console.is_jupyter else "text"


@contextlib.contextmanager
def showing(meter: Meter, form: Form | None) -> Iterator[None]:
    """Shows progress on stderr while the context lasts, and a message at its end; nothing if form is None."""
    if form is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        display, over = _display(form, stack), threading.Event()

        def tick() -> None:
            # The display runs in its own thread, because compiling can block the main thread for minutes.
            while not over.wait(_SECONDS_BETWEEN_FRAMES):
                display.status(meter.status())

        clock = threading.Thread(target=tick, name="pausejax-progress", daemon=True)
        listener, level = _Listener(meter, display), LOGGER.level
        display.line(meter.start())
        display.status(meter.status())
        LOGGER.addHandler(listener)
        LOGGER.setLevel(logging.INFO)
        clock.start()
        completed = False
        try:
            yield
            completed = True
        finally:
            over.set()
            clock.join()
            LOGGER.removeHandler(listener)
            LOGGER.setLevel(level)
            display.line(meter.end(completed))


def _display(form: Form, stack: contextlib.ExitStack) -> Display:
    console = Console(stderr=True)
    if form != "bar":
        return Lines(as_json=form == "json")
    if console.is_jupyter:
        return Cell()
    columns = BarColumn(), TextColumn("{task.description}")
    return Bar(stack.enter_context(Progress(*columns, console=console)))


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
