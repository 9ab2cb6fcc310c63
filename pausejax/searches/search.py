"""Searches a study's ranges and lists: ask for settings, play their runs, tell what they have come to.

The runs of a step go the way of any study's into the store, and are found there by their identities. Every
choice depends on the study, the options and the figures of earlier settings alone. So a search that was
killed asks for the same settings again, and plays only what is missing.
"""

import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pausejax import measured
from pausejax.execution import events
from pausejax.execution.batches import Batch, unfinished
from pausejax.execution.play import Executor, play_batches, report_runs, start_tracker
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.execution.tracking import Tracker
from pausejax.results import labels
from pausejax.results.stores import FolderStore, MemoryStore, Store
from pausejax.searches import search_file
from pausejax.searches.goal import Goal, Trial, figures_at, goal_of, order
from pausejax.searches.options import SearchOptions, check, with_horizon
from pausejax.searches.progress import Callback, State
from pausejax.searches.result import SearchResult
from pausejax.searches.sampler import Sampler, versions
from pausejax.searches.space import Setting, Space, space_of
from pausejax.study.plan import plan_of
from pausejax.study.runs import Run
from pausejax.study.study import Study

_STEPS = 32
"""Samplers learn from one step for the next, so a search has at least so many."""
_KNOWN_IN_A_ROW = 200
"""So many settings in a row that are known already, and the space counts as exhausted."""


Question = tuple[int, Setting]
"""A setting that waits to be played, after its number at the sampler."""


def search(
    study: Study,
    options: SearchOptions,
    executor: Executor,
    store: FolderStore | MemoryStore,
    *,
    progress: Callback = lambda _: None,
    tracker: Tracker | None = None,
    stopping: StopSignal = NO_STOP,
) -> SearchResult:
    """Searches a study's ranges and lists.

    Args:
      study: checked; its seeds are those of every setting.
      options: what is asked.
      executor: where runs are played.
      store: where they are kept; in a folder, a search that was killed goes on.
      progress: told how far the search is.
      tracker: told of the runs of each step.
      stopping: whether the search is asked to stop; what is finished is kept.

    Raises:
      SpecError: the study or the options have mistakes; nothing has been computed then.
      StopRequested: it was asked to.
      OSError: the folder is full, or the like.
    """
    check(options)
    study = with_horizon(study, options)
    space, goal = space_of(study), goal_of(study, options)
    sampler = Sampler(space, goal, options)
    everything = plan_of(study, [run for setting in space.corners() for run in setting.runs(study)])
    wanted = {
        "spec": labels.spec_text(everything),
        "options": options.asked,
        "versions": versions(options.sampler),
    }
    folder = store.folder if isinstance(store, FolderStore) else None
    held = search_file.read(folder, wanted) if folder else None
    contents = store.prepare(everything, grows=True)
    damaged = [f"{name}: was damaged, and was played again" for name in contents.damaged]
    for name, sentence in zip(contents.damaged, damaged, strict=True):
        events.say("damaged", sentence, file=name)
    if held is None:
        # Refuses at once what can't be built or has no room.
        executor.layouts(everything, store)
        held = {**wanted, "lists": executor.workers, "batch": _batch(study, options)}
        held = search_file.write(folder, held) if folder else held
    if tracker:
        start_tracker(tracker, everything)
    steps = _Steps(space, sampler, options.trials, held["batch"], held["lists"])
    seeds = len(study.seeds)
    finished, reported, trials = set(contents.identities), set[tuple[str, str]](), list[Trial]()
    try:
        while step := steps.next():
            plan = plan_of(study, [run for _, setting in step for run in setting.runs(study)])
            work = unfinished(
                [Batch(group, group.runs, held["batch"] * seeds) for group in plan.groups], finished
            )
            if work:
                executor.layouts(plan, store)
            reported |= play_batches(
                plan, executor, store, work, progress=lambda _: None, tracker=tracker, stopping=stopping
            )
            finished |= set(plan.identities)
            for place, (number, setting) in enumerate(step):
                runs = plan.runs[place * seeds : (place + 1) * seeds]
                trials.append(_trial(study, goal, store, (number, setting), runs))
                sampler.tell(number, trials[-1].score)
            progress(_state(goal, trials))
            stopping.check()
        trials.sort(key=lambda trial: trial.number)
        plan = plan_of(study, [run for trial in trials for run in trial.setting.runs(study)])
        result = SearchResult(study, space, goal, tuple(trials), plan, None)
        if missing := store.finish(plan):
            raise OSError(f"{store}: {missing} runs that had ended are no longer there; has it been cleared?")
        if tracker and folder:
            report_runs(
                tracker, store, plan, [r for r in plan.runs if (r.policy, r.identity) not in reported]
            )
    finally:
        if tracker:
            tracker.finish()
    if folder:
        folder.write("trials.json", json.dumps([row._asdict() for row in result.rows], indent=1).encode())
        folder.write("optuna.log", sampler.log())
    elif isinstance(store, MemoryStore):
        result = result._replace(result=store.result(plan))
    return result._replace(damaged=(*damaged, *store.damaged))


class _Steps:
    """Asks the sampler for settings, and hands out those that are played together.

    Settings wait, by program, until one program's list is full: so each program is compiled for one width.
    """

    def __init__(self, space: Space, sampler: Sampler, trials: int, batch: int, lists: int) -> None:
        self._space, self._sampler = space, sampler
        self._left, self._batch, self._lists = trials, batch, lists
        self._waiting: dict[Any, list[Question]] = {}
        self._known: set[tuple[Any, ...]] = set()

    def next(self) -> list[Question]:
        """Returns the settings of the next step: full lists, and in the end the rest; then none."""
        while len(self._full()) < self._lists and (asked := self._ask()):
            self._waiting.setdefault(self._space.program(asked[1]), []).append(asked)
        keys = self._full() or list(self._waiting)
        step = [asked for key in keys for asked in self._waiting[key][: self._batch]]
        for key in keys:
            del self._waiting[key][: self._batch]
            if not self._waiting[key]:
                del self._waiting[key]
        return step

    def _full(self) -> list[Any]:
        return [key for key, waiting in self._waiting.items() if len(waiting) >= self._batch]

    def _ask(self) -> Question | None:
        """Asks for a setting that is not known yet; None: there are none, or enough."""
        for _ in range(_KNOWN_IN_A_ROW if self._left else 0):
            number, setting = self._sampler.ask()
            if setting.key not in self._known:
                self._known.add(setting.key)
                self._left -= 1
                return number, setting
            self._sampler.tell(number, None)
        self._left = 0
        return None


def _batch(study: Study, options: SearchOptions) -> int:
    """Returns how many settings of a program are played together."""
    most = options.most or measured.most_runs(jax.default_backend())
    return max(min(options.trials // _STEPS, most // len(study.seeds)), 1)


def _trial(study: Study, goal: Goal, store: Store, question: Question, runs: Sequence[Run]) -> Trial:
    """Judges a setting by its runs."""
    arrays = store.load(runs)
    figures = figures_at(study, goal, arrays)
    elapsed = arrays["elapsed"]
    played = int((~np.isnan(elapsed)).sum())
    short = goal.by_latency and bool(np.nanmax(elapsed, axis=1).min() < goal.horizon)
    return Trial(*question, goal.score(figures), figures, played, short)


def _state(goal: Goal, trials: list[Trial]) -> State:
    scores, best = [trial.score for trial in trials], None
    if len(goal.metrics) == 1 and any(score.values[0] == score.values[0] for score in scores):
        worth = scores[order(scores)[0]].values[0]
        best = worth if goal.maximize[0] else -worth
    return State(len(trials), sum(trial.rounds for trial in trials), best)
