"""From a checked study and what is asked of it to a search that has been played."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import xarray as xr

from pausejax.analysis.made import said
from pausejax.data.host import Sources
from pausejax.engine import local
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.engine.tracking import Tracker
from pausejax.results import layout, made, store
from pausejax.results.folder import Folder
from pausejax.searches.goal import Goal, goal_of
from pausejax.searches.halving import order
from pausejax.searches.journal import Journal
from pausejax.searches.options import Options, check, check_budget, step_of, up_to
from pausejax.searches.player import LocalPlayer, Player
from pausejax.searches.programs import Cut, Programs
from pausejax.searches.progress import Callback
from pausejax.searches.sampler import Sampler
from pausejax.searches.search import Ended, Search
from pausejax.searches.space import Setting, Space, space_of
from pausejax.study.plan import plan_of
from pausejax.study.simulation import Arrays
from pausejax.study.spec import SpecError
from pausejax.study.study import Plan, Study

Players = Callable[[Space, Goal, Options, Sources], contextlib.AbstractContextManager[Player]]


@contextlib.contextmanager
def local_player(space: Space, goal: Goal, options: Options, sources: Sources) -> Iterator[Player]:
    """This process's devices."""
    yield LocalPlayer(goal, Programs(space, sources, options), options)


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
    progress: Callback = lambda _: None,
    tracker: Tracker | None = None,
    stopping: Stopping = NEVER,
    players: Players = local_player,
) -> Found:
    """Searches a study's ranges and lists.

    Args:
      study: checked; its seeds are those of every setting.
      options: what is asked.
      sources: where data come from.
      folder: where everything is kept, and a search that was killed goes on; None: in memory.
      command: as it was typed, for the result to say.
      progress: told how far the search is.
      tracker: told of the runs of each setting that has ended.
      stopping: whether the search is asked to stop; what has been seen is kept.
      players: makes who plays, when somebody has to; by default this process's devices.

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
        reduction=options.stopping,
        first=options.first_rung,
        step=step,
    )
    check_budget(study, options, goal, step)
    _sampler(space, options, goal)  # what it can't do is said before anything is made
    asked = options._replace(most=None, device_memory=None)._asdict()
    del asked["data_placement"]  # it changes nothing beyond rounding
    wanted = {"spec": layout.spec_text(plan_of(study, [])), "options": asked}
    journal = Journal(folder, command)
    settled = journal.settled(wanted)
    with contextlib.ExitStack() as stack:
        player: Player | None = None

        def playing() -> Player:
            nonlocal player
            player = player or stack.enter_context(players(space, goal, options, sources))
            return player

        if settled is None:
            settled = {**wanted, "cut": playing().cut()._asdict()}
            journal.settle(settled)
            if folder:
                folder.write(store.SPEC, settled["spec"].encode())
        cut = Cut(**settled["cut"])

        def played(journal: Journal) -> Found:
            found = Search(
                space,
                goal,
                _sampler(space, options, goal),
                playing,
                journal,
                budget=options.budget,
                reduction=options.stopping,
                blocks=cut.blocks,
                width=cut.width,
                step=step,
            )
            if tracker:
                found.told = _tell(tracker, study)
            found.play(progress, stopping.check)
            return _outcome(found, study, space, goal, folder)

        if tracker:
            tracker.start(layout.provenance(plan_of(study, [])))
        outcome = None
        if folder and folder.exists(store.RESULT):
            # It was at its end before: the result has what the parts had, unless it is damaged.
            with contextlib.suppress(Missing):
                outcome = played(Journal(folder, command, parts_are_kept=False))
        outcome = outcome or played(journal)
    if tracker:
        if folder:  # runs of a process before this one
            local.tell(tracker, folder, range(len(outcome.plan.runs)))
        tracker.finish()
    return outcome


def _tell(tracker: Tracker, study: Study) -> Callable[[Setting, Arrays], None]:
    """Tells a tracker of the runs of a setting that has ended."""

    def tell(setting: Setting, arrays: Arrays) -> None:
        plan = plan_of(study, setting.runs(study))
        tracker.runs_finished(layout.label(plan, layout.coordinates(plan), slice(None), arrays))

    return tell


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
