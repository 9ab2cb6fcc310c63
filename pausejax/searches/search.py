"""Searches a study's ranges and lists for the best settings.

In each step the search asks the sampler for settings, simulates their runs, and tells the sampler the scores.
As for any study, the store keeps the runs and finds them again by their identities. Every choice depends only
on the study, the options and the figures of earlier settings. So a search that was killed asks for the same
settings again, and simulates only the missing runs.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pausejax import measured
from pausejax.execution import events
from pausejax.execution.batches import Batch, unfinished
from pausejax.execution.play import Executor, play_batches, report_runs, start_tracker
from pausejax.execution.stopping import NO_STOP, StopSignal
from pausejax.execution.tracking import Tracker
from pausejax.results import labels
from pausejax.results.exchange import result_name
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore, MemoryStore, Store
from pausejax.rounding import reaches
from pausejax.searches import search_file
from pausejax.searches.goal import Goal, Trial, figures_at, goal_of
from pausejax.searches.options import SearchOptions, check, with_horizon
from pausejax.searches.progress import Callback, State
from pausejax.searches.ranking import order
from pausejax.searches.result import SearchResult
from pausejax.searches.sampler import Sampler, versions
from pausejax.searches.space import Setting, Space, space_of
from pausejax.study.plan import plan_of
from pausejax.study.runs import Run
from pausejax.study.spec import SpecError, refuse_changed_files
from pausejax.study.study import Plan, Study

_STEPS = 32
"""A search with at least this number of trials distributes them over at least this number of lists.

The sampler learns only between two steps, and in a step each worker simulates one list of settings.
"""
_KNOWN_BEFORE_RANDOM = 10
"""After this number of consecutive suggestions that were all tried before, settings are drawn at random.

TPE may suggest a known setting for ever, for example that of a policy without ranges.
"""
_KNOWN_IN_A_ROW = 1000
"""After this number of consecutive suggestions that were all tried before, a search ends."""


Question = tuple[int, Setting]
"""A setting that waits for its simulation: its number in the sampler, and the setting."""


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
    """Searches a study's ranges and lists for the best settings.

    Args:
      study: a checked study; every setting is simulated with its seeds.
      options: the options of the search.
      executor: the executor that simulates the runs.
      store: the store of the runs. With a folder, a search that was killed continues where it stopped.
      progress: a function that is called with the state of the search after each step.
      tracker: the tracker that receives the runs of each step.
      stopping: the signal to stop; finished runs are kept.

    Raises:
      SpecError: the study or the options have mistakes, and nothing was computed; or a file of the study has
        changed since the spec was parsed.
      StopRequested: `stopping` asked the search to stop.
      OSError: the folder can't be written, for example because no space is left.
    """
    folder = store.folder if isinstance(store, FolderStore) else None
    study, space, goal, everything, wanted, held = prepare(study, options, folder)
    sampler = Sampler(space, goal, options)
    ready = held is None
    if ready:  # before `prepare` writes the spec, because data or memory may show a mistake
        _make_programs(executor, everything, store)
    contents = store.prepare(everything, grows=True)
    damaged = [f"{name}: was damaged, so its runs were simulated again" for name in contents.damaged]
    for name, sentence in zip(contents.damaged, damaged, strict=True):
        events.say("damaged", sentence, file=name)
    # A result without `search.json` has all runs of this search, or belongs to another search.
    ended = held is None and folder is not None and result_name(folder) is not None
    if held is None:
        held = {**wanted, "lists": executor.workers, "batch": _batch(study, options)}
        if folder:
            held = search_file.write(folder, held, writes=not ended)
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
            if work and ended:
                raise _another_result(folder)
            if work and not ready:
                _make_programs(executor, everything, store)
                ready = True
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
        result = SearchResult(study, space, goal, tuple(trials), plan, None, asked=options.trials)
        if ended and plan.known != contents.in_result:
            raise _another_result(folder)
        if folder:
            search_file.write(folder, held)
        if missing := store.build_if_complete(plan):
            raise OSError(f"{store}: {missing} finished runs are missing. Was the folder moved or cleared?")
        if tracker:
            rest = [r for r in plan.runs if (r.policy, r.identity) not in reported]
            with store.reporting(alone=True):
                report_runs(tracker, store, plan, rest)
    finally:
        if tracker:
            tracker.finish()
    if folder:
        rows = [row._asdict() for row in result.rows]
        folder.write(search_file.TRIALS, json.dumps(rows, indent=1).encode())
        folder.write(search_file.JOURNAL, sampler.log())
    elif isinstance(store, MemoryStore):
        result = result._replace(result=store.result(plan))
    return result._replace(damaged=(*damaged, *store.damaged))


def _make_programs(executor: Executor, everything: Plan, store: Store) -> None:
    """Makes every program of a search.

    This reads all data and files, and sends them to the workers of a cluster.

    Raises:
      SpecError: a program can't be built or does not fit into memory, or a file has changed since the spec
        was parsed.
    """
    executor.layouts(everything, store)
    refuse_changed_files(everything.study)


def _another_result(folder: Folder | None) -> SpecError:
    wrong = f"{search_file.NAME} is missing or damaged, and the result has other runs than this search"
    return SpecError([f"--out {folder}: {wrong}. Choose another folder"])


class Preparation(NamedTuple):
    """A study and options that can be searched, and what the folder of the search holds."""

    study: Study
    """The study, with rounds up to the horizon."""
    space: Space
    goal: Goal
    everything: Plan
    """A plan that has one setting for each program."""
    wanted: dict[str, Any]
    """What `search.json` must say: "spec", "options", "versions" and "files"."""
    held: dict[str, Any] | None
    """What `search.json` says; None if no search has begun."""


def prepare(study: Study, options: SearchOptions, folder: Folder | None) -> Preparation:
    """Checks a search without simulating anything, and makes its folder.

    Args:
      study: a checked study.
      options: the options of the search.
      folder: the folder of the search; None if its runs stay in memory.

    Raises:
      SpecError: the study or the options have mistakes, or the folder holds another study or search.
      OSError: the folder can't be made or read.
    """
    check(options)
    study = with_horizon(study, options)
    space, goal = space_of(study), goal_of(study, options)
    everything = plan_of(study, [run for setting in space.corners() for run in setting.runs(study)])
    wanted = {
        "spec": labels.spec_text(everything),
        "options": options.asked,
        "versions": versions(options.sampler),
        "files": labels.used_files(study),
    }
    held = search_file.read(folder, wanted) if folder else None
    return Preparation(study, space, goal, everything, wanted, held)


class _Steps:
    """Asks the sampler for settings, and groups the settings that are simulated together into steps.

    Each compiled program has a list of waiting settings. A step simulates the full lists. The last steps
    simulate the remaining lists.
    """

    def __init__(self, space: Space, sampler: Sampler, trials: int, batch: int, lists: int) -> None:
        self._space, self._sampler = space, sampler
        self._left, self._batch, self._lists = trials, batch, lists
        self._waiting: dict[Any, list[Question]] = {}
        self._known: set[tuple[Any, ...]] = set()

    def next(self) -> list[Question]:
        """Asks the sampler until enough lists are full, and returns the settings of the next step.

        The settings come from full lists, or at the end of the search from all lists. Returns [] if no
        setting is left.
        """
        while len(self._full()) < self._lists and (asked := self._ask()):
            self._waiting.setdefault(self._space.program_key(asked[1]), []).append(asked)
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
        """Asks the sampler for a setting that it did not suggest before, and returns the setting.

        Returns None if the sampler finds no such setting, or if the search has tried `trials` settings.
        """
        for known in range(_KNOWN_IN_A_ROW if self._left else 0):
            number, setting = self._sampler.ask(at_random=known >= _KNOWN_BEFORE_RANDOM)
            if setting.key not in self._known:
                self._known.add(setting.key)
                self._left -= 1
                return number, setting
            self._sampler.tell(number, None)
        self._left = 0
        return None


def _batch(study: Study, options: SearchOptions) -> int:
    """Returns how many settings of one program are simulated together, at least 1."""
    max_width = options.max_width or measured.max_width(jax.default_backend())
    return max(min(options.trials // _STEPS, max_width // len(study.seeds)), 1)


def _trial(study: Study, goal: Goal, store: Store, question: Question, runs: Sequence[Run]) -> Trial:
    """Loads a setting's runs from the store, and returns its trial: the setting's score and metrics."""
    arrays = store.load(runs)
    figures = figures_at(study, goal, arrays)
    elapsed = arrays["elapsed"]
    played = int((~np.isnan(elapsed)).sum())
    short = goal.by_latency and not reaches(np.nanmax(elapsed, axis=1), goal.horizon).all()
    return Trial(*question, goal.score(figures), figures, played, short)


def _state(goal: Goal, trials: list[Trial]) -> State:
    scores, best = [trial.score for trial in trials], None
    if len(goal.metrics) == 1 and any(score.values[0] == score.values[0] for score in scores):
        worth = scores[order(scores)[0]].values[0]
        best = worth if goal.maximize[0] else -worth
    return State(len(trials), sum(trial.rounds for trial in trials), best)
