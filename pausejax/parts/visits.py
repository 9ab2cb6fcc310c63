"""Swaps the modules of an entry of `use` into `sys.modules`. Threads that need other modules wait."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Modules(Protocol):
    """Modules of an entry of `use`."""

    def put(self) -> Callable[[], None]:
        """Puts these modules into `sys.modules`. Returns the function that restores the others."""

    def lead(self) -> None:
        """Moves their finder to the front of `sys.meta_path`."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keeps other threads from putting modules in place within the `with` block."""
    with visit(None):
        yield


@contextlib.contextmanager
def lending() -> Iterator[None]:
    """Lets other threads replace modules within the `with` block that only this thread needs now.

    A file of `use` may play a study with another file. XLA calls the functions of that study in other
    threads, and this one waits for them.
    """
    thread = threading.get_ident()
    with _CHANGED:
        stay = next((stay for stay in _STAYS[-1:] if thread in stay.visits.values()), None)
        if stay:
            stay.lent.append(thread)
            _CHANGED.notify_all()
    try:
        yield
    finally:
        if stay:
            with _CHANGED:
                stay.lent.remove(thread)
                _CHANGED.wait_for(lambda: _STAYS[-1] is stay)


@dataclasses.dataclass
class _Stay:
    """Time in which some modules are in place. It ends with the last `with` block that needs them."""

    own: Modules | None
    """The modules of an entry. None: those that were in place before, kept for one thread."""
    undo: Callable[[], None]
    visits: dict[object, int]
    """The thread of each `with` block that needs them."""
    lent: list[int]
    """The threads within `lending`."""


# A stack: only the modules of the last one are in place.
_STAYS: list[_Stay] = []
_CHANGED = threading.Condition()


@contextlib.contextmanager
def visit(own: Modules | None) -> Iterator[None]:
    """Keeps modules in `sys.modules` within the `with` block.

    Threads that need the same modules share them. Threads that need others wait.

    Args:
      own: the modules of an entry; None for those that are there already.
    """
    this = object()
    try:
        _enter(own, this)
        yield
    finally:
        try:
            _leave(this)
        except BaseException:
            _leave(this)  # the interrupt may have come before the first call did anything
            raise


def is_visiting(own: Modules) -> bool:
    """Returns whether this thread is within a `with` block that needs these modules."""
    thread = threading.get_ident()
    return any(stay.own is own and thread in stay.visits.values() for stay in [*_STAYS])


def _enter(own: Modules | None, visit: object) -> None:
    thread = threading.get_ident()

    def shared() -> bool:
        return bool(_STAYS and own and _STAYS[-1].own is own)

    def allowed() -> bool:
        if not _STAYS or shared() or thread in _STAYS[-1].visits.values():
            return True
        # A thread that needs the session's modules must not find those of an entry.
        return own is not None and {*_STAYS[-1].visits.values()} <= {*_STAYS[-1].lent}

    with _CHANGED:
        _CHANGED.wait_for(allowed)
        with _uninterrupted():
            if not shared():
                _STAYS.append(_Stay(own, own.put() if own else lambda: None, {}, []))
            if own:
                own.lead()
            _STAYS[-1].visits[visit] = thread


def _leave(visit: object) -> None:
    with _uninterrupted(), _CHANGED:
        for stay in _STAYS:
            stay.visits.pop(visit, None)
        try:
            while _STAYS and not _STAYS[-1].visits:
                _STAYS.pop().undo()
        finally:
            _CHANGED.notify_all()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds an interrupt (Ctrl-C) back until the `with` block ends, so that no exchange is left half done."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    held: list[Any] = []
    signal.signal(signal.SIGINT, lambda *details: held.append(details))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)
