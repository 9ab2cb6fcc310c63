"""The search itself: settings enter lanes, are looked at on rungs, and go on or make room for others.

Every choice depends on the study, the options and what the settings have shown, in the order of the steps;
on no clock and on nobody's speed. So a search that is played again up to some step, from its journal and
without a simulation, is where it was.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pausejax.searches.goal import Goal, figures_at
from pausejax.searches.halving import Halving, Shown, order
from pausejax.searches.journal import Journal, Reports
from pausejax.searches.lanes import Lanes, Trial
from pausejax.searches.sampler import Sampler
from pausejax.searches.space import Setting, Space
from pausejax.study.plan import plan_of
from pausejax.study.simulation import Arrays

# So many settings in a row that are known already, and the space counts as exhausted.
_KNOWN_IN_A_ROW = 200


class Ended(NamedTuple):
    """What has become of a setting."""

    number: int
    setting: Setting
    history: tuple[tuple[int, Shown], ...]
    """(rung, what it showed there)."""
    figures: np.ndarray
    """Its seeds' figures at the last of these rungs, float64 [seeds, figures]."""
    rounds: int
    """That each of its runs has played."""
    spent: int
    """Rounds × runs of the whole search when it ended."""
    why: str
    """"finished", "stopped" at a rung, or out of "budget"."""
    short: bool = False
    """Whether its rounds ended before the time at which it was to be seen last."""


class Search:
    """One search; `play` it to its end.

    Args:
      space: what is chosen from.
      goal: what settings are judged by.
      sampler: where they come from.
      lanes: of each program; made when a setting of it comes first.
      journal: where steps are kept.
      budget: rounds × runs.
      reduction: one in so many goes on at a rung.
      slots: the most settings side by side.
      step: rounds between two looks.
    """

    def __init__(
        self,
        space: Space,
        goal: Goal,
        sampler: Sampler,
        lanes: Mapping[tuple[Any, ...], Callable[[], Lanes]],
        journal: Journal,
        *,
        budget: int,
        reduction: float,
        slots: int,
        step: int,
    ) -> None:
        self._space, self._goal, self._sampler, self._journal = space, goal, sampler, journal
        self._make_lanes, self._lanes = lanes, dict[tuple[Any, ...], Lanes]()
        self._halving = Halving(len(goal.rungs), reduction)
        self._budget, self._slots, self._step = budget, slots, step
        self._seeds = len(space.study.seeds)
        self._waiting: dict[tuple[Any, ...], deque[Trial]] = {key: deque() for key in lanes}
        self._known: set[tuple[Any, ...]] = set()
        self._exhausted, self._in_a_row = False, 0
        self._histories: dict[int, list[tuple[int, Shown]]] = {}
        self._figures: dict[int, np.ndarray] = {}
        self._short: set[int] = set()
        self._seconds, self._rounds = 0.0, 0
        self.spent = 0
        """Rounds × runs of settings so far."""
        self.ended: list[Ended] = []
        self.arrays: dict[int, Arrays] = {}
        """What the runs of settings have left, by number, seeds first; empty where a journal keeps them."""

    @property
    def lane_rounds(self) -> int:
        """Rounds × lanes so far, those of empty lanes among them."""
        return sum(lanes.lane_rounds for lanes in self._lanes.values())

    def play(self, progress: Callable[[int], None], check: Callable[[], None]) -> None:
        """Plays to the end of the budget or of the space.

        Args:
          progress: told of rounds × runs after each step.
          check: called after each step; may raise to stop, the step is kept then.
        """
        step, replayed = 0, True
        while True:
            self._fill()
            playing = [lanes for lanes in self._lanes.values() if lanes.trials]
            if not playing:
                return
            before = self.spent
            reports = self._journal.read(step) if replayed else None
            if replayed and reports is None:
                replayed = False
                for lanes in playing:
                    lanes.restore()
            for lanes in playing:
                lanes.skip() if replayed else lanes.advance()
                self.spent += len(lanes.trials) * self._seeds * self._step
            if reports is None:
                reports = self._reports(playing)
            ended = self._judge(playing, reports, simulated=not replayed)
            if not replayed:
                self._journal.write(step, reports, ended)
            if self._journal.keeps:
                self.arrays.clear()
            progress(self.spent - before)
            step += 1
            check()

    def _fill(self) -> None:
        """Asks for settings and puts them into lanes, as long as there is room and budget."""
        while not self._exhausted and self._there() < self._slots and self._affords(newcomers=1):
            number, setting = self._sampler.ask()
            if setting.key in self._known:
                self._sampler.tell(number, (), finished=False)
                self._in_a_row += 1
                self._exhausted = self._in_a_row >= _KNOWN_IN_A_ROW
                continue
            self._in_a_row = 0
            self._known.add(setting.key)
            self._waiting[self._space.program(setting)].append(Trial(number, setting))
        for key, waiting in self._waiting.items():
            if waiting and key not in self._lanes:
                self._lanes[key] = self._make_lanes[key]()
            while waiting and self._lanes[key].free:
                self._lanes[key].enter(waiting.popleft())

    def _there(self) -> int:
        live = sum(len(lanes.trials) for lanes in self._lanes.values())
        return live + sum(map(len, self._waiting.values()))

    def _affords(self, *, newcomers: int = 0) -> bool:
        """Whether the budget lasts until everybody, and so many besides, has come to its next rung.

        Until one has come to the end, the way of whoever is ahead to the last rung is not spent on others.
        """
        trials = [trial for lanes in self._lanes.values() for trial in lanes.trials]
        trials += [trial for waiting in self._waiting.values() for trial in waiting]
        owed = sum(max(self._rounds_to(trial.rung) - trial.rounds, 0) for trial in trials)
        owed += newcomers * self._rounds_to(0)
        if not any(one.why == "finished" for one in self.ended):
            ahead = max((trial.rung for trial in trials), default=0)
            owed += self._rounds_to(len(self._goal.rungs) - 1) - self._rounds_to(ahead)
        return self.spent + self._seeds * owed <= self._budget

    def _rounds_to(self, rung: int) -> int:
        """Rounds from the start to a rung; of a time, by what a round has taken on average."""
        rounds = self._goal.rungs[rung]
        if self._goal.by_latency:
            longest = self._space.study.rounds
            rounds = min(rounds * self._rounds / self._seconds, longest) if self._seconds else self._step
        return self._step * math.ceil(rounds / self._step)

    def _reports(self, playing: list[Lanes]) -> dict[int, np.ndarray]:
        """The figures of all who have come to a rung, or to several at once."""
        found, study, goal = {}, self._space.study, self._goal
        for lanes in playing:
            for trial in lanes.trials:
                if not goal.by_latency and trial.rounds < goal.rungs[trial.rung]:
                    continue
                arrays = lanes.arrays(trial)
                elapsed = np.nanmax(arrays["elapsed"], axis=1)
                reached = elapsed.min() if goal.by_latency else trial.rounds
                if trial.rounds >= study.rounds:
                    reached = np.inf  # there is no more of it
                rungs = [rung for rung in goal.rungs[trial.rung :] if rung <= reached]
                if rungs:
                    each = [np.column_stack([figures_at(study, goal, arrays, r), elapsed]) for r in rungs]
                    found[trial.number] = np.stack(each)
        return found

    def _judge(
        self, playing: list[Lanes], reports: Reports, *, simulated: bool
    ) -> dict[tuple[str, ...], Arrays]:
        """Lets settings go on or end; returns the runs of those that ended, by identities."""
        there = {trial.number: (lanes, trial) for lanes in playing for trial in lanes.trials}
        before = {number: there[number][1].rung for number in reports}
        for number, seen in reports.items():
            self._rounds += there[number][1].rounds * self._seeds
            self._seconds += float(seen[0, :, -1].sum())
        ends: dict[int, str] = {}
        moved: dict[int, tuple[int, int]] = {}
        top = len(self._goal.rungs) - 1
        for rung in range(top + 1):
            here = [
                number
                for number, seen in reports.items()
                if number not in ends and there[number][1].rung == rung and rung < before[number] + len(seen)
            ]
            batch = [self._goal.shown(reports[number][rung - before[number]][:, :-1]) for number in here]
            for number, shown in zip(here, batch, strict=True):
                self._histories.setdefault(number, []).append((rung, shown))
                seen = reports[number][rung - before[number]]
                self._figures[number] = seen[:, :-1]
                if self._goal.by_latency and seen[:, -1].min() < self._goal.rungs[rung]:
                    self._short.add(number)
            if rung == top:
                ends |= dict.fromkeys(here, "finished")
                continue
            # Where nobody has anything to show yet, nobody is stopped.
            known = any(value == value for shown in batch for value in shown.values)
            passed = self._halving.go_on(rung, batch) if known else [True] * len(batch)
            for place, worth in enumerate(order(batch)):
                if passed[worth]:
                    there[here[worth]][1].rung = rung + 1
                    moved[here[worth]] = (rung, -place)
                else:
                    ends[here[worth]] = "stopped"
        for number in ends:
            self._end(*there[number], ends[number], simulated=simulated)
        # The budget is for those who are farthest and best.
        for number in sorted((number for number in moved if number not in ends), key=moved.__getitem__):
            if self._affords():
                break
            ends[number] = "budget"
            self._end(*there[number], "budget", simulated=simulated)
        left = [number for number in there if number not in ends]
        if self.spent + len(left) * self._seeds * self._step > self._budget:
            for number in left:
                ends[number] = "budget"
                self._end(*there[number], "budget", simulated=simulated)
        study = self._space.study
        return {
            plan_of(study, there[number][1].setting.runs(study)).identities: self.arrays.get(number, {})
            for number in ends
        }

    def _end(self, lanes: Lanes, trial: Trial, why: str, *, simulated: bool) -> None:
        history = tuple(self._histories.get(trial.number, ()))
        nothing = np.full((self._seeds, len(self._goal.figures)), np.nan)
        figures = self._figures.get(trial.number, nothing)
        rounds = min(trial.rounds, self._space.study.rounds)
        self._sampler.tell(trial.number, history, finished=why == "finished")
        short = trial.number in self._short
        self.ended.append(
            Ended(trial.number, trial.setting, history, figures, rounds, self.spent, why, short)
        )
        if simulated:
            self.arrays[trial.number] = lanes.arrays(trial)
        lanes.leave(trial)
