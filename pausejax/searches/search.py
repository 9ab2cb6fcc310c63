"""The search itself: settings enter lanes, are looked at on rungs, and go on or make room for others.

Every choice depends on the study, the options and what the settings have shown, in the order of the steps;
on no clock and on nobody's speed. So a search that is played again up to some step, from its journal and
without a simulation, is where it was.
"""

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from pausejax.devices import padded
from pausejax.searches.goal import Goal
from pausejax.searches.halving import Halving, Shown, order
from pausejax.searches.journal import Journal, Reports
from pausejax.searches.player import Player
from pausejax.searches.progress import Callback, State
from pausejax.searches.sampler import Sampler
from pausejax.searches.seating import Seating, Trial
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

    Settings sit in blocks of lanes. A block plays one program; whichever program the sampler's settings need
    opens the next free one, so that the share of the lanes follows the demand.

    Args:
      space: what is chosen from.
      goal: what settings are judged by.
      sampler: where they come from.
      player: gives who plays the blocks, when somebody has to.
      journal: where steps are kept.
      budget: rounds × runs.
      reduction: one in so many goes on at a rung.
      blocks: the most of them at a time.
      width: settings side by side in each.
      step: rounds between two looks.
    """

    def __init__(
        self,
        space: Space,
        goal: Goal,
        sampler: Sampler,
        player: Callable[[], Player],
        journal: Journal,
        *,
        budget: int,
        reduction: float,
        blocks: int,
        width: int,
        step: int,
    ) -> None:
        self._space, self._goal, self._sampler, self._journal = space, goal, sampler, journal
        self._player = player
        self._halving = Halving(len(goal.rungs), reduction)
        self._budget, self._step = budget, step
        self._seating = Seating(space, blocks, width)
        self._seeds = len(space.study.seeds)
        self._known: set[tuple[Any, ...]] = set()
        self._exhausted, self._in_a_row = False, 0
        self._histories: dict[int, list[tuple[int, Shown]]] = {}
        self._figures: dict[int, np.ndarray] = {}
        self._short: set[int] = set()
        self._seconds, self._rounds = 0.0, 0
        self.spent = 0
        """Rounds × runs of settings so far."""
        self.lane_rounds = 0
        """Rounds × lanes so far, those of empty lanes among them."""
        self.ended: list[Ended] = []
        self.arrays: dict[int, Arrays] = {}
        """What the runs of settings have left, by number, seeds first; empty where a journal keeps them."""
        self.told: Callable[[Setting, Arrays], None] | None = None
        """Told of every setting that ends, with what its runs have left."""

    @property
    def state(self) -> State:
        """How far the search is."""
        ends = [one.history[-1][1] for one in self.ended if one.why == "finished"]
        best = None
        if len(self._goal.metrics) == 1 and any(value.values[0] == value.values[0] for value in ends):
            worth = ends[order(ends)[0]].values[0]
            best = worth if self._goal.maximize[0] else -worth
        return State(self.spent, len(self.ended), len(ends), best)

    def play(self, progress: Callback, check: Callable[[], None]) -> None:
        """Plays to the end of the budget or of the space.

        Args:
          progress: told how far it is after each step.
          check: called after each step; may raise to stop, the step is kept then.
        """
        step, replayed = 0, True
        while True:
            self._fill()
            blocks = self._seating.blocks
            if not blocks:
                return
            orders = [block.order for block in blocks]
            reports = self._journal.read(step) if replayed else None
            replayed = reports is not None
            if reports is None:
                reports = self._player().play(orders)
            for block in blocks:
                for trial in block.trials:
                    trial.rounds += self._step
                self.spent += len(block.trials) * self._seeds * self._step
                self.lane_rounds += padded(len(block.seats) * self._seeds) * self._step
            ended = self._judge(reports, simulated=not replayed)
            if not replayed:
                self._journal.write(step, reports, ended)
            if self._journal.keeps:
                self.arrays.clear()
            progress(self.state)
            step += 1
            check()

    def _fill(self) -> None:
        """Asks for settings and seats them, as long as there is room and budget.

        Some may wait for a block of their program; others then take what is free in the rest.
        """
        # Nobody is seated whose first step the budget does not last for.
        most = (self._budget - self.spent) // (self._seeds * self._step)
        self._seating.refill(most)
        while not self._exhausted and self._seating.has_room and self._affords(newcomers=1):
            number, setting = self._sampler.ask()
            if setting.key in self._known:
                self._sampler.tell(number, (), finished=False)
                self._in_a_row += 1
                self._exhausted = self._in_a_row >= _KNOWN_IN_A_ROW
                continue
            self._in_a_row = 0
            self._known.add(setting.key)
            self._seating.enter(Trial(number, setting), most)

    def _affords(self, *, newcomers: int = 0, without: Collection[int] = ()) -> bool:
        """Whether the budget lasts until everybody, and so many besides, has come to its next rung.

        Until one has come to the end, the way of whoever is ahead to the last rung is not spent on others.
        """
        trials = [trial for trial in self._seating.trials if trial.number not in without]
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

    def _judge(self, reports: Reports, *, simulated: bool) -> dict[tuple[str, ...], Arrays]:
        """Lets settings go on or end; returns the runs of those that ended, by identities."""
        there = {trial.number: (block, trial) for block in self._seating.blocks for trial in block.trials}
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
            seen_here = [reports[number][rung - before[number]][:, :-1] for number in here]
            batch = [self._goal.shown(figures, rung) for figures in seen_here]
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
            self._end(there[number][1], ends[number])
        # The budget is for those who are farthest and best.
        for number in sorted((number for number in moved if number not in ends), key=moved.__getitem__):
            if self._affords(without=ends):
                break
            ends[number] = "budget"
            self._end(there[number][1], "budget")
        left = [number for number in there if number not in ends]
        if self.spent + len(left) * self._seeds * self._step > self._budget:
            for number in left:
                ends[number] = "budget"
                self._end(there[number][1], "budget")
        if simulated:
            leaving = [(there[number][0].order, number) for number in ends]
            left_behind = self._player().arrays(leaving)
            self.arrays |= left_behind
            if self.told:
                for number, arrays in left_behind.items():
                    self.told(there[number][1].setting, arrays)
        for number in ends:
            there[number][0].leave(there[number][1])
        study = self._space.study
        return {
            plan_of(study, there[number][1].setting.runs(study)).identities: self.arrays.get(number, {})
            for number in ends
        }

    def _end(self, trial: Trial, why: str) -> None:
        history = tuple(self._histories.get(trial.number, ()))
        nothing = np.full((self._seeds, len(self._goal.figures)), np.nan)
        figures = self._figures.get(trial.number, nothing)
        rounds = min(trial.rounds, self._space.study.rounds)
        self._sampler.tell(trial.number, history, finished=why == "finished")
        short = trial.number in self._short
        self.ended.append(
            Ended(trial.number, trial.setting, history, figures, rounds, self.spent, why, short)
        )
