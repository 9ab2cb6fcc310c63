"""Measures and describes the progress of a search; `execution.displays` shows the description."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pausejax.execution.progress import Clock, Message, Meter, duration
from pausejax.searches.options import SearchOptions
from pausejax.study.study import Study


class State(NamedTuple):
    """The state of a search after a step."""

    settings: int
    """Number of settings that were simulated."""
    rounds: int
    """Number of simulated rounds, summed over runs."""
    best: float | None
    """The metric of the best setting so far, on the search's seeds; None if there are several metrics."""

    def sentence(self, trials: int) -> str:
        """Returns the state in words; `trials` is the number of settings to try."""
        best = "" if self.best is None else f", best so far {self.best:.4g}"
        return f"{self.settings} of {trials} settings, {self.rounds:,} rounds over all runs{best}"


Callback = Callable[[State], None]


class SearchMeter(Meter):
    """Counts the settings of a search, for a display of its progress.

    The search calls the meter with its state after each step.

    Args:
      study: the study that is searched.
      options: the options of the search.
      devices: the devices that simulate the runs, in words.
      clock: a function that returns the time in seconds.
    """

    def __init__(
        self, study: Study, options: SearchOptions, devices: str, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._study, self._options, self._devices = study, options, devices
        self._state = State(0, 0, None)

    def start(self) -> Message:
        trials, sampler = self._options.trials, self._options.sampler
        fields = {"study": self._study.name, "trials": trials, "sampler": sampler, "devices": self._devices}
        return self._began(f"search of up to {trials:,} settings, {sampler}, on {self._devices}", fields)

    def __call__(self, state: State) -> None:
        """Records the state after a step."""
        self._state = state

    def hear(self, event: str, fields: Mapping[str, Any]) -> bool:
        """Returns whether the display shows an event.

        Batches are not shown, because a search counts settings.
        """
        return event != "batch"

    def status(self) -> Message:
        state, trials = self._state, self._options.trials
        speed = self._speed(state.settings)
        left = (trials - state.settings) / speed if speed else None
        words = [state.sentence(trials)] + ([f"{duration(left)} left"] if left is not None else [])
        more = {"part": self._part, "seconds_left": left and round(left, 1)}
        return Message("progress", ", ".join(words), {**state._asdict(), **more})

    def end(self, completed: bool) -> Message:
        sentence = self._state.sentence(self._options.trials)
        return self._ended(completed, sentence, {**self._state._asdict(), "part": self._part})

    @property
    def _part(self) -> float:
        return round(self._state.settings / self._options.trials, 4)
