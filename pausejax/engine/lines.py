"""A study's log, line by line: for a file, where a bar that moves would write nothing or too much."""

import collections
import contextlib
import datetime
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pausejax.engine.events import LOGGER
from pausejax.study.study import Plan

Field = str | float | bool | None

SECONDS_BETWEEN_LINES = 30.0
_LINES_OF_SPEED = 10
"""Speed is a mean over so many lines: one chunk's segments may take longer than one line."""


class Lines(logging.Handler):
    """Writes what is said line by line, with the time since the start.

    Args:
      as_json: one JSON object a line, with "event" and "seconds" since the start, in place of sentences.
      clock: seconds that never go back.
      write: takes a line; by default to stderr at once.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(logging.INFO)
        self._as_json, self._clock, self._write = as_json, clock, write or _to_stderr
        self._begun = self._last = clock()
        self._marks = collections.deque([(self._begun, 0)], maxlen=_LINES_OF_SPEED)

    def emit(self, record: logging.LogRecord) -> None:
        """What the engine says becomes a line; handlers are called under their lock."""
        fields = getattr(record, "fields", {})
        event = getattr(record, "event", record.levelname.lower())
        self.say(event, record.getMessage(), **fields)

    def tick(self) -> None:
        """Called every second."""

    def end(self, completed: bool) -> None:
        """The last line: whether everything was played that was this process's to play."""

    def due(self) -> float | None:
        """The time if the last line of this kind is old enough, which then counts as written."""
        now = self._clock()
        if now - self._last < SECONDS_BETWEEN_LINES:
            return None
        self._last = now
        return now

    def speed(self, now: float, played: int) -> float:
        """Rounds × runs per second since the oldest line that counts; this one counts from now on."""
        since, before = self._marks[0] if self._marks else (now, played)
        self._marks.append((now, played))
        return (played - before) / (now - since) if now > since else 0.0

    def took(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._begun

    def say(self, event: str, sentence: str, **fields: Field) -> None:
        """Writes a line."""
        seconds = self.took()
        if self._as_json:
            line = json.dumps({"event": event, "seconds": round(seconds, 3), **fields})
        else:
            line = f"[{duration(seconds)}] {sentence}"
        # A log that can't be written, on a full disk or to a reader that has gone, ends no study.
        with contextlib.suppress(OSError):
            self._write(line)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else counts or writes meanwhile."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


class Log(Lines):
    """Says how far a study is: at the start, every 30 s, after each program and chunk, and at the end.

    Args:
      plan: the whole study.
      devices: what plays it, in words.
      **options: of `Lines`.
    """

    def __init__(self, plan: Plan, devices: str, **options: Any) -> None:
        super().__init__(**options)
        # An ensemble study may leave the rounds to its streams; what is left is then not known.
        self._rounds = plan.study.rounds
        self._of = len(plan.runs)
        self._found: int | None = None
        self._finished = self._played = 0
        self._before = "compiling"
        runs, groups = _count(self._of, "run"), _count(len(plan.groups), "group")
        each = f", {_count(self._rounds, 'round')} each" if self._rounds else ""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.say(
            "start",
            f"{now} {runs} in {groups}{each}, on {devices}",
            time=now,
            study=plan.study.name,
            runs=self._of,
            groups=len(plan.groups),
            rounds=self._rounds or None,
            devices=devices,
        )

    def __call__(self, rounds_times_runs: int) -> None:
        """Counts what has been advanced; the first call tells what is not this process's work."""
        with self.locked():
            if self._found is not None:
                self._played += rounds_times_runs
                return
            self._found = rounds_times_runs // max(self._rounds, 1)
            if self._found:
                told = (
                    f"{self._found} of {_count(self._of, 'run')} are there already, or other processes' work"
                )
                self._of -= self._found
                self.say("found", told, runs=self._found, left=self._of)

    def emit(self, record: logging.LogRecord) -> None:
        """What the engine says becomes a line; handlers are called under their lock."""
        event = getattr(record, "event", "")
        if event == "chunk":
            self._finished += int(getattr(record, "fields", {})["runs"])
        elif event == "compiled":
            self._before = "playing the first rounds"
        super().emit(record)

    def tick(self) -> None:
        """Writes how far the study is if the last such line is old enough."""
        with self.locked():
            if (now := self.due()) is None:
                return
            if not self._played:
                self._marks.clear()  # until now programs were compiled
            speed = self.speed(now, self._played)
            part, left = None, None
            if self._rounds and self._of:
                whole = self._of * self._rounds
                part = min(self._played / whole, 1.0)
                left = max(whole - self._played, 0) / speed if speed else None
            pace = f"{speed:,.0f} rounds/s" if self._played else self._before
            words = [f"{self._finished} of {_count(self._of, 'run')} finished"]
            words += [f"{part:.0%}"] if part is not None else []
            words += [pace]
            words += [f"{duration(left)} left"] if left is not None else []
            self.say(
                "progress",
                ", ".join(words),
                finished=self._finished,
                runs=self._of,
                part=part and round(part, 4),
                rounds_per_second=round(speed, 1),
                seconds_left=left and round(left, 1),
            )

    def end(self, completed: bool) -> None:
        """The last line: whether everything was played that was this process's to play."""
        with self.locked():
            took = self.took()
            how = "done" if completed else "stopped"
            finished = f"{self._finished} of {_count(self._of, 'run')} finished"
            speed = self._played / took if took else 0.0
            self.say(
                "end",
                f"{how} after {duration(took)}: {finished}, {speed:,.0f} rounds/s",
                completed=completed,
                finished=self._finished,
                runs=self._of,
                rounds_per_second=round(speed, 1),
            )


@contextlib.contextmanager
def listening(log: Lines) -> Iterator[None]:
    """Lets a log hear the engine and the clock, and writes its last line."""
    over = threading.Event()

    def tick() -> None:
        # Apart from what is played: while programs are compiled nothing advances for minutes.
        while not over.wait(1.0):
            log.tick()

    clock = threading.Thread(target=tick, name="pausejax-log", daemon=True)
    level = LOGGER.level
    LOGGER.addHandler(log)
    LOGGER.setLevel(logging.INFO)
    clock.start()
    completed = False
    try:
        yield
        completed = True
    finally:
        over.set()
        clock.join()
        LOGGER.removeHandler(log)
        LOGGER.setLevel(level)
        log.end(completed)
        log.close()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(datetime.timedelta(seconds=round(seconds)))
