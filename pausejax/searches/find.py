"""From a checked study and what is asked of it to a search that has been played."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import xarray as xr

from pausejax.analysis.made import said
from pausejax.data.host import Sources
from pausejax.devices import compile_for
from pausejax.engine import events, memory
from pausejax.engine.engine import most_runs
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.parts import PartError
from pausejax.results import layout, made, store
from pausejax.results.folder import Folder
from pausejax.searches.goal import Goal, goal_of
from pausejax.searches.halving import order
from pausejax.searches.journal import Journal
from pausejax.searches.lanes import Compiled, Lanes
from pausejax.searches.options import Options, check, check_budget, step_of, up_to
from pausejax.searches.sampler import Sampler
from pausejax.searches.search import Ended, Search
from pausejax.searches.space import Setting, Space, space_of
from pausejax.study.plan import plan_of
from pausejax.study.simulation import Refillable
from pausejax.study.spec import SpecError
from pausejax.study.study import Plan, Study

# Samplers learn from one batch for the next, so a budget comes to at least so many.
_BATCHES = 8


class Found(NamedTuple):
    """What a search has come to."""

    study: Study
    """As it was searched: up to the horizon."""
    space: Space
    goal: Goal
    ended: tuple[Ended, ...]
    """Every setting, in the order in which they ended."""
    spent: int
    """Rounds × runs."""
    lane_rounds: int
    """Rounds × lanes; what of it was not spent went to empty lanes."""
    plan: Plan
    """Every run that was played, settings by number."""
    result: xr.Dataset | None
    """All runs, if nothing was written to a folder."""

    def best(self, count: int) -> list[Ended]:
        """The best of those that have come farthest; of several objectives, the front first."""
        finished = [one for one in self.ended if one.why == "finished"]
        if not finished:
            reached = [one for one in self.ended if one.history]
            farthest = max((one.history[-1][0] for one in reached), default=0)
            finished = [one for one in reached if one.history[-1][0] == farthest]
        finished.sort(key=lambda one: one.number)
        return [finished[place] for place in order([one.history[-1][1] for one in finished])[:count]]


def search(
    study: Study,
    options: Options,
    sources: Sources,
    folder: Folder | None = None,
    *,
    command: str = "",
    progress: Callable[[int], None] = lambda _: None,
    stopping: Stopping = NEVER,
) -> Found:
    """Searches a study's ranges and lists.

    Args:
      study: checked; its seeds are those of every setting.
      options: what is asked.
      sources: where data come from.
      folder: where everything is kept, and a search that was killed goes on; None: in memory.
      command: as it was typed, for the result to say.
      progress: told of rounds × runs.
      stopping: whether the search is asked to stop; what has been seen is kept.

    Raises:
      SpecError: the study or the options have mistakes; nothing has been computed then.
      Stopped: it was asked to.
      OSError: the folder is full, or the like.
    """
    check(options)
    study = up_to(study, options)
    space, step = space_of(study), step_of(study)
    goal = goal_of(
        study,
        options.metrics,
        options.maximize,
        options.constraints,
        horizon=options.at_latency or study.rounds,
        by_latency=options.at_latency is not None,
        reduction=options.reduction,
        first=options.first_rung,
        step=step,
    )
    check_budget(study, options, goal, step)
    _sampler(space, options, goal)  # what it can't do is said before anything is made
    wanted = {
        "spec": layout.spec_text(plan_of(study, [])),
        "options": options._replace(most=None, device_memory=None)._asdict(),
    }
    journal = Journal(folder, command)
    settled = journal.settled(wanted)
    makers = {
        key: _Maker(study, settings, sources, step, options) for key, settings in space.programs().items()
    }
    if settled is None:
        settled = {**wanted, "slots": _slots(study, goal, options, list(makers.values()), step)}
        journal.settle(settled)
        if folder:
            folder.write(store.SPEC, settled["spec"].encode())
    each = max(1, settled["slots"] // len(makers))

    def played(journal: Journal) -> Search:
        found = Search(
            space,
            goal,
            _sampler(space, options, goal),
            {key: _Lazily(maker, each) for key, maker in makers.items()},
            journal,
            budget=options.budget,
            reduction=options.reduction,
            slots=each * len(makers),
            step=step,
        )
        found.play(progress, stopping.check)
        return found

    if folder and folder.exists(store.RESULT):
        # It was at its end before: the result has what the parts had, unless it is damaged.
        with contextlib.suppress(Missing):
            known = Journal(folder, command, parts_are_kept=False)
            return _outcome(played(known), study, space, goal, folder)
    return _outcome(played(journal), study, space, goal, folder)


def _sampler(space: Space, options: Options, goal: Goal) -> Sampler:
    several = len(goal.metrics)
    return Sampler(space, options.sampler, options.sampler_seed, several, constrained=bool(goal.constraints))


class Missing(OSError):
    """Runs that had ended are not there."""


def _outcome(found: Search, study: Study, space: Space, goal: Goal, folder: Folder | None) -> Found:
    ended = sorted(found.ended, key=lambda one: one.number)
    if not any(one.history for one in ended):
        what = (
            f"was spent before any setting came to {goal.rungs[0]:g} {'s' if goal.by_latency else 'rounds'}"
        )
        raise SpecError([f"--budget {found.spent}: {what}, where settings are first compared"])
    plan = plan_of(study, [run for one in ended for run in one.setting.runs(study)])
    result = None
    if folder:
        if missing := store.consolidate(folder, plan):
            raise Missing(
                f"{folder}: {missing} runs that had ended are no longer there; has it been cleared?"
            )
        folder.write("trials.json", json.dumps([_row(one, goal) for one in ended], indent=1).encode())
    else:
        count = len(study.seeds)
        parts = [
            (range(place * count, (place + 1) * count), found.arrays[one.number])
            for place, one in enumerate(ended)
        ]
        result = said(layout.merge(plan, parts), [made.record()])
    return Found(study, space, goal, tuple(found.ended), found.spent, found.lane_rounds, plan, result)


def _row(one: Ended, goal: Goal) -> dict[str, Any]:
    """A setting for other programs to read."""
    means = one.figures.mean(axis=0) if one.history else []
    return {
        "number": one.number,
        "policy": one.setting.policy,
        "values": dict(one.setting.values),
        "outcome": one.why,
        "rounds": one.rounds,
        "spent": one.spent,
        "rung": goal.rungs[one.history[-1][0]] if one.history else None,
        "figures": {
            name: float(mean) if mean == mean else None
            for name, mean in zip(goal.figures, means, strict=False)
        },
    }


class _Maker(NamedTuple):
    """Makes the program of some settings."""

    study: Study
    settings: Sequence[Setting]
    """Of one program, together at the ends of everything."""
    sources: Sources
    step: int
    options: Options

    def compiled(self, slots: int) -> Compiled:
        """The program for so many settings side by side.

        Raises:
          SpecError: it can't be built, or the kind of study does not search.
        """
        runs = [run for setting in self.settings for run in setting.runs(self.study)]
        plan = plan_of(self.study, runs)
        simulation = self.study.kind.simulation(plan, plan.groups[0], self.sources)
        if not isinstance(simulation, Refillable):
            raise SpecError(
                [f'mode = "{self.study.mode}": has no search; only studies of client selection do']
            )
        seeds = list(self.study.seeds) * slots
        values = [self.settings[0].values] * len(seeds)
        width = Lanes.width(slots, len(self.study.seeds))
        policy = self.settings[0].policy
        try:
            call = compile_for(simulation.with_runs(seeds, values).lower_by_row(width, self.step))
        except PartError as error:
            raise SpecError([str(error)]) from None
        except ValueError as error:
            raise SpecError([f"policy {policy}: {error}"]) from None
        told = f"compiled {policy} for {slots} settings side by side"
        events.say("compiled", told, policy=policy, width=width)
        return Compiled(simulation, call)


@dataclasses.dataclass(frozen=True)
class _Lazily:
    maker: _Maker
    slots: int

    def __call__(self) -> Lanes:
        maker = self.maker
        return Lanes(lambda: maker.compiled(self.slots), self.slots, maker.study.seeds, maker.step)


def _slots(study: Study, goal: Goal, options: Options, makers: list[_Maker], step: int) -> int:
    """Settings side by side: as many as the devices are good for and have memory for, and a few batches."""
    seeds = len(study.seeds)
    wide = max((options.most or most_runs()) // seeds, 1)
    if options.most is None:
        shares = [1.0 / options.reduction**rung for rung in range(len(goal.rungs))]
        lengths = [b - a for a, b in zip((0.0, *goal.rungs), goal.rungs, strict=False)]
        share = sum(a * b for a, b in zip(shares, lengths, strict=True)) / goal.rungs[-1]
        rounds = max(share * study.rounds, step)
        wide = min(wide, max(int(options.budget / (seeds * rounds * _BATCHES)), 1))
    limit = options.device_memory or memory.device_memory()
    while True:
        each = max(1, wide // len(makers))
        used = max(memory.program_memory(maker.compiled(each).call) for maker in makers)
        if used <= limit or each == 1:
            return wide
        wide //= 2
