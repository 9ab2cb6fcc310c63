"""Measures how far a search is, and describes it; `execution.displays` shows the description."""

import datetime
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pausejax.execution.progress import Clock, Message, Speed, duration, ended
from pausejax.searches.options import SearchOptions
from pausejax.study.study import Study


class State(NamedTuple):
    """Of a search after a step."""

    settings: int
    """That have ended."""
    rounds: int
    """Rounds × runs."""
    best: float | None
    """The metric of the best, on the search's own seeds; of several metrics none."""

    def sentence(self, trials: int) -> str:
        """Says it in words."""
        best = "" if self.best is None else f", best so far {self.best:.4g}"
        return f"{self.settings} of {trials} settings, {self.rounds:,} rounds × runs{best}"


Callback = Callable[[State], None]


class SearchMeter:
    """Counts the settings of a search; it is called with the state after each step.

    Args:
      study: what is searched.
      options: what is asked.
      devices: what plays it, in words.
      clock: tells the time.
    """

    def __init__(
        self, study: Study, options: SearchOptions, devices: str, clock: Clock = time.monotonic
    ) -> None:
        self._study, self._options, self._devices, self._clock = study, options, devices, clock
        self._begun, self._speed = clock(), Speed(clock)
        self._state = State(0, 0, None)

    def start(self) -> Message:
        """Says what begins."""
        options = self._options
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return Message(
            "start",
            f"{now} search of up to {options.trials:,} settings, {options.sampler}, on {self._devices}",
            {
                "time": now,
                "study": self._study.name,
                "trials": options.trials,
                "sampler": options.sampler,
                "devices": self._devices,
            },
        )

    def __call__(self, state: State) -> None:
        """Keeps the state after a step."""
        self._state = state

    def hear(self, event: str, fields: Mapping[str, Any]) -> bool:
        """Returns False for finished runs, which get no line: a search is measured in settings."""
        return event != "batch"

    def status(self) -> Message:
        """Says how many settings have ended, and how long the others take."""
        state, trials = self._state, self._options.trials
        speed = self._speed.measure(state.settings)
        left = (trials - state.settings) / speed if speed else None
        words = [state.sentence(trials)] + ([f"{duration(left)} left"] if left is not None else [])
        more = {"part": self._part, "seconds_left": left and round(left, 1)}
        return Message("progress", ", ".join(words), {**state._asdict(), **more})

    def end(self, completed: bool) -> Message:
        """Says how far the search came."""
        sentence = (
            f"{ended(completed, self._clock() - self._begun)}: {self._state.sentence(self._options.trials)}"
        )
        return Message("end", sentence, {"completed": completed, **self._state._asdict(), "part": self._part})

    @property
    def _part(self) -> float:
        return round(self._state.settings / self._options.trials, 4)
