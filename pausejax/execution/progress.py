"""Measures the progress of a study and describes it. The module `displays` shows the description."""

import collections
import datetime
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pausejax.execution.local import COMPILED_AHEAD
from pausejax.study.study import Plan

Clock = Callable[[], float]
"""A function that returns a time in seconds, which never decreases."""

_SECONDS_OF_SPEED = 300.0
"""The time in seconds over which a speed is measured.

It is long, because a segment may take longer than the time between two status lines.
"""
_LEAST_SECONDS_OF_SPEED = 10.0
"""The least time in seconds over which a speed is measured."""


class Message(NamedTuple):
    """Message of a display, as a sentence for people and as fields for programs."""

    event: str
    sentence: str
    fields: Mapping[str, str | float | bool | None]
    is_warning: bool = False


class Meter:
    """Meter that measures the progress of a study or a search, and describes it.

    Args:
      clock: the function that returns the time in seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._begun = clock, clock()
        self._marks = collections.deque([(self._begun, 0.0)])

    def start(self) -> Message:
        """Returns a message about the start."""
        raise NotImplementedError

    def hear(self, event: str, fields: Mapping[str, Any]) -> bool:
        """Counts an event of the executor, from any thread. Returns whether the display shows the event."""
        raise NotImplementedError

    def status(self) -> Message:
        """Returns a message about the progress.

        Its field "part" is the finished fraction in [0, 1], or None.
        """
        raise NotImplementedError

    def end(self, completed: bool) -> Message:
        """Returns a message about the end.

        The message says which runs are finished, and whether all runs are finished.
        """
        raise NotImplementedError

    def _forget_speed(self, count: float) -> None:
        """Forgets earlier counts and begins to measure the speed anew, for example after programs were
        compiled."""
        self._marks = collections.deque([(self._clock(), count)])

    def _speed(self, count: float) -> float | None:
        """Notes the present `count`, and returns its growth per second over the last five minutes.

        Returns None in the first ten seconds.
        """
        now = self._clock()
        self._marks.append((now, count))
        while now - self._marks[0][0] > _SECONDS_OF_SPEED and len(self._marks) > 2:
            self._marks.popleft()
        since, before = self._marks[0]
        return (count - before) / (now - since) if now - since >= _LEAST_SECONDS_OF_SPEED else None

    def _began(self, what: str, fields: Mapping[str, Any]) -> Message:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return Message("start", f"{now} {what}", {"time": now, **fields})

    def _ended(self, completed: bool, what: str, fields: Mapping[str, Any]) -> Message:
        took = duration(self._clock() - self._begun)
        sentence = f"{'done' if completed else 'stopped'} after {took}: {what}"
        return Message("end", sentence, {"completed": completed, **fields})


class StudyMeter(Meter):
    """Meter of the rounds and runs of a study. The executor calls it with each number of simulated rounds ×
    runs.

    Args:
      plan: the plan of the whole study.
      devices: the devices that play the study, in words.
      clock: the function that returns the time in seconds.
    """

    def __init__(self, plan: Plan, devices: str, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._plan, self._devices = plan, devices
        self._lock = threading.Lock()
        self._rounds, self._runs = plan.study.rounds, len(plan.runs)
        """The rounds of a run (0 if the data stream sets them), and the number of runs of this process."""
        self._finished, self._played, self._restored = 0, 0.0, 0.0
        """The number of finished runs; the rounds × runs that are played or skipped; those of them that are
        restored from checkpoints, or that runs which have ended skip."""
        self._compiled, self._groups = 0, len(plan.groups)
        self._skipped = 0
        """The number of runs that were finished already or that other processes play."""

    def start(self) -> Message:
        runs, groups = _count(self._runs, "run"), _count(self._groups, "group")
        each = f", {_count(self._rounds, 'round')} each" if self._rounds else ""
        fields = {
            "study": self._plan.study.name,
            "runs": self._runs,
            "groups": self._groups,
            "rounds": self._rounds or None,
            "devices": self._devices,
        }
        return self._began(f"{runs} in {groups}{each}, on {self._devices}", fields)

    def __call__(self, rounds_times_runs: float) -> None:
        """Adds `rounds_times_runs` to the simulated rounds × runs."""
        with self._lock:
            self._played += rounds_times_runs

    def hear(self, event: str, fields: Mapping[str, Any]) -> bool:
        with self._lock:
            if event == "found":
                self._runs, self._groups = int(fields["left"]), int(fields["programs"])
                self._skipped = int(fields["runs"])
            elif event == "batch":
                self._finished += int(fields["runs"])
            elif event in ("resumed", "ended_early"):
                before, after = fields["round"], fields["rounds"] - fields["round"]
                rounds = fields["runs"] * (before if event == "resumed" else after)
                self._restored += rounds if self._rounds else rounds / fields["rounds"]
            elif event == "compiled":
                self._compiled += 1
                if self._compiled <= min(self._groups, COMPILED_AHEAD):
                    # Rounds that are played while programs are compiled take longer than later rounds.
                    self._forget_speed(self._played_here)
        return True

    def status(self) -> Message:
        """Returns a message with the number of finished runs, the played fraction, the speed and the time
        left."""
        with self._lock:
            here, whole = self._played_here, self._runs * max(self._rounds, 1)
            if not here:
                self._forget_speed(0.0)  # programs were compiled until now
            speed = self._speed(here)
            part = min(self._played / whole, 1.0) if whole else None
            left = max(whole - self._played, 0) / speed if whole and speed else None
            words = [f"{self._finished} of {_count(self._runs, 'run')} finished"]
            words += [f"{part:.0%}"] if part is not None else []
            words += [self._preparing()] if not here else []
            words += [self._in_words(speed)] if here and speed is not None else []
            words += [f"{duration(left)} left"] if left is not None else []
            fields = {
                "finished": self._finished,
                "runs": self._runs,
                "part": part and round(part, 4),
                "rounds_per_second": self._rounded(speed),
                "seconds_left": left and round(left, 1),
            }
        return Message("progress", ", ".join(words), fields)

    def end(self, completed: bool) -> Message:
        """Returns a message about the end, with this process's number of finished runs and mean speed."""
        took = self._clock() - self._begun
        speed = self._played_here / took if took else 0.0
        finished = f"{self._finished} of {_count(self._runs, 'run')} finished, {self._in_words(speed)}"
        if self._skipped and not self._runs:
            finished = f"nothing left to play of {_count(self._skipped, 'run')}"
        whole = self._runs * max(self._rounds, 1)
        fields = {
            "finished": self._finished,
            "runs": self._runs,
            "part": 1.0 if completed else round(min(self._played / whole, 1.0), 4) if whole else None,
            "rounds_per_second": self._rounded(speed),
        }
        return self._ended(completed, finished, fields)

    @property
    def _played_here(self) -> float:
        """The rounds × runs that this process has played, without restored and skipped ones."""
        return max(self._played - self._restored, 0.0)

    def _preparing(self) -> str:
        if self._compiled < self._groups:
            return f"compiling, {self._compiled} of {_count(self._groups, 'program')} ready"
        return "playing the first rounds"

    def _in_words(self, speed: float) -> str:
        return f"{speed:,.0f} rounds/s" if self._rounds else f"{speed:,.2g} runs/s"

    def _rounded(self, speed: float | None) -> float | None:
        return round(speed, 1) if self._rounds and speed is not None else None


def duration(seconds: float) -> str:
    """Returns a duration in words, with hours, minutes and seconds."""
    return str(datetime.timedelta(seconds=round(seconds)))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
