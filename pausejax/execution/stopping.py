"""Handles the signals that ask a study to stop. The study ends after its unfinished runs are checkpointed."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""The signals that stop a study.

Ctrl-C sends SIGINT. Batch systems send SIGTERM at the end of a job, and some send SIGUSR1 as an earlier
warning.
"""


class StopRequested(Exception):
    """The study was asked to stop, and its unfinished runs have been checkpointed."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 130 if number == signal.SIGINT else 143


class StopSignal:
    """Notes the signals that ask a study to stop. A call returns whether a signal has arrived."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The number of the first signal that arrived; None before."""
        self._interrupted = False

    def __call__(self) -> bool:
        return self.number is not None

    def check(self) -> None:
        """Raises an exception if the study was asked to stop.

        Raises:
          StopRequested: the study was asked to stop.
        """
        if self.number is not None:
            raise StopRequested(self.number)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal by noting its number.

        The handler raises no exception at the first signal, because an exception could be lost in a callback.
        Batch systems send SIGTERM twice. So only a second Ctrl-C ends the study without a checkpoint.

        Raises:
          KeyboardInterrupt: the second SIGINT.
        """
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted |= number == signal.SIGINT
        if self.number is None:
            self.number = number


NO_STOP = StopSignal()
"""A signal that never asks the study to stop."""


@contextlib.contextmanager
def handlers_kept() -> Iterator[bool]:
    """Restores the handlers of `SIGNALS` when the context ends, in the main thread only.

    Yields:
      Whether the handlers will be restored: False outside the main thread, where Python can't set them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield True
    finally:
        for number, handler in before.items():
            if handler is not None:  # a handler that was not set from Python can't be restored
                signal.signal(number, handler)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopSignal]:
    """Notes the signals that ask a process to stop. Outside the main thread it notes nothing."""
    stopping = StopSignal()
    with handlers_kept() as in_main_thread:
        for number in SIGNALS if in_main_thread else ():
            signal.signal(number, stopping.note)
        yield stopping
