"""How a study is asked to stop: a signal is noted, and the study ends when what is in flight is kept."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""Ctrl-C, the end of a batch job, and the warning that some batch systems send before it."""


class StopRequested(Exception):
    """The study was asked to stop, and what was in flight has been kept."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 130 if number == signal.SIGINT else 143


class StopSignal:
    """Whether a signal has asked the study to stop."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The first one."""
        self._interrupted = False

    def __call__(self) -> bool:
        return self.number is not None

    def check(self) -> None:
        """Ends the study if it was asked to.

        Raises:
          StopRequested: it was.
        """
        if self.number is not None:
            raise StopRequested(self.number)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal: it is noted, since an exception could be lost in a callback.

        Batch systems send SIGTERM twice. Only a second Ctrl-C means that nothing is to be kept.

        Raises:
          KeyboardInterrupt: the second SIGINT.
        """
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted |= number == signal.SIGINT
        if self.number is None:
            self.number = number


NO_STOP = StopSignal()
"""Nobody asks."""


@contextlib.contextmanager
def handlers_kept() -> Iterator[bool]:
    """Puts the handlers of the signals that ask for a stop back at the end, in the main thread alone.

    Yields:
      Whether it does: elsewhere handlers can't be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield True
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that was not set from Python can't be put back
                signal.signal(number, handler)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopSignal]:
    """Notes the signals that ask a process to stop, in its main thread; elsewhere nothing is noted."""
    stopping = StopSignal()
    with handlers_kept() as in_main_thread:
        for number in SIGNALS if in_main_thread else ():
            signal.signal(number, stopping.note)
        yield stopping
