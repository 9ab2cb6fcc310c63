"""A study into its folder: what is missing is simulated, chunk by chunk, and every chunk is kept at once."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis.made import said
from pausejax.data.host import Sources
from pausejax.engine import events, schedule
from pausejax.engine.engine import Engine, Progress
from pausejax.engine.schedule import Chunk, Unit
from pausejax.engine.stopping import NEVER, Stopping
from pausejax.engine.tracking import Tracker
from pausejax.engine.tuning import Asked, decide
from pausejax.results import layout, made, placements, store
from pausejax.results.checkpoint import Checkpoints
from pausejax.results.folder import Folder
from pausejax.study.simulation import Arrays
from pausejax.study.study import Plan

_TOLD_AT_ONCE = 256


class Settings(NamedTuple):
    """How a study is simulated; none of it changes a result beyond float32 rounding."""

    most: int | None = None
    """The most runs side by side; None: what the devices are good for."""
    device_memory: int | None = None
    """Bytes that a program may use on each device; None: what there is."""
    checkpoint_seconds: float = 300.0
    """Between two checkpoints of a chunk."""
    shard: tuple[int, int] = (1, 1)
    """This process's number, from 1, and how many share the study."""
    command: str = ""
    """What was typed to have it simulated; the result keeps it."""
    tune: bool = False
    """Whether to lie on the devices as was measured there before, or is now where that pays."""
    data_placement: str | None = None
    """Where training inputs lie, as `Engine` says."""


class Outcome(NamedTuple):
    """What a process has done for a study."""

    already: int
    """Runs that were finished before."""
    missing: int
    """Runs that are not finished: other processes' work, or none."""
    damaged: tuple[str, ...]
    """Files that were found damaged; their runs were simulated again."""


def simulate_into(
    folder: Folder,
    plan: Plan,
    found: store.Progress,
    sources: Sources,
    settings: Settings,
    *,
    progress: Progress,
    tracker: Tracker | None = None,
    stopping: Stopping = NEVER,
) -> Outcome:
    """Simulates a study's missing runs, or this process's share of them, into a folder.

    Args:
      folder: where the result goes.
      plan: the whole study.
      found: from `store.prepare`.
      sources: where data come from.
      settings: how.
      progress: called with how many rounds × runs have been advanced; first with those that are not this
        process's work, because they are finished or other shards'.
      tracker: told of every chunk that has been written, and in the end of the runs that were there before.
      stopping: whether the study is asked to stop; what is in flight is then kept.

    Raises:
      Stopped: it was.
      SpecError: a group can't be built; nothing has been simulated then.
      ValueError: the tracker can't be reached; nothing has been simulated then.
      OSError: the folder is full, or the like; finished chunks are kept.
    """
    if tracker:
        tracker.start(layout.provenance(plan))
    already = sum(identity in found.identities for identity in plan.identities)
    number, count = settings.shard
    engine = Engine(
        plan,
        sources,
        device_memory=settings.device_memory,
        data_placement=settings.data_placement,
        stopping=stopping,
    )
    most = settle(folder, engine, found.settled, settings)
    work = schedule.units(plan, found.settled, most=most, at_least=count)
    work = schedule.unfinished(plan, schedule.share(work, number, count), found.identities)
    left = sum(len(unit.rows) for unit in work)
    progress((len(plan.runs) - left) * max(plan.study.rounds, 1))
    damaged, written = list(found.damaged), list(found.identities)
    if work:
        columns = layout.coordinates(plan)
        for chunk, arrays in play_into(folder, engine, work, settings, progress, damaged):
            written += schedule.identities_of(plan, chunk.group, chunk.members)
            if tracker:
                tracker.runs_finished(labelled(plan, columns, chunk, arrays))
    missing = store.consolidate(folder, plan)
    if missing and (lost := len(set(written) - store.examine(folder, plan).identities)):
        raise OSError(
            f"{folder}: {lost} runs that were finished are no longer there; has the folder been moved or "
            "cleared? The same command simulates them again"
        )
    if tracker:
        # By another process, or by one that was killed before it could tell.
        tell(tracker, folder, () if missing else places(plan, found.identities))
        tracker.finish()
    return Outcome(already, missing, tuple(damaged))


def settle(folder: Folder, engine: Engine, settled: Collection[str], settings: Settings) -> dict[int, int]:
    """Decides how a study lies on the devices, or learns from its folder how it was decided.

    Whoever decides first decides for all who have such devices: all shards and workers of a study.

    Args:
      folder: of the study.
      engine: of its plan; it plays the groups so from now on.
      settled: identities of runs that were in the result before anybody began.
      settings: how.

    Returns:
      The most runs side by side, by the numbers of the groups that are not settled.
    """
    plan = engine.plan
    known = frozenset(settled)
    groups = [
        group for group in plan.groups if not known.issuperset(plan.identities[m] for m in group.members)
    ]
    # Where there are no locks, processes that begin together could decide otherwise at the same time.
    alone = folder.is_local or settings.shard[1] == 1
    tunes = settings.tune and alone
    before = placements.read(folder)
    asked = Asked(before, kept=tunes, seconds=None if tunes else 0.0, most=settings.most)
    decided = decide(engine, groups, asked)
    after = placements.settle(folder, store.LOCK, decided.layouts) if decided.answers else before
    if any(after[name] != own for name, own in decided.layouts.items()):  # somebody was faster
        decided = decide(engine, groups, asked._replace(settled=after))
    return decided.runs


def play_into(
    folder: Folder,
    engine: Engine,
    work: Sequence[Unit],
    settings: Settings,
    progress: Progress,
    damaged: list[str],
) -> Iterator[tuple[Chunk, Arrays]]:
    """Plays some units; each chunk is in the folder when it is yielded.

    Args:
      folder: of the study.
      engine: of its plan.
      work: the units, without the runs that are finished.
      settings: how.
      progress: called with how many rounds × runs have been advanced.
      damaged: gets the names of checkpoints that could not be trusted.

    Raises: as `simulate_into`.
    """
    plan = engine.plan
    current: list[Checkpoints] = []

    def checkpoints(chunk: Chunk) -> Checkpoints:
        current[:] = [Checkpoints(folder, schedule.name_of(plan, chunk), settings.checkpoint_seconds)]
        return current[0]

    # Orbax writes to disks; under a URL a kill costs the chunk in flight.
    kept = checkpoints if folder.is_local else None
    store.record(folder, settings.command)
    for chunk, arrays in engine.simulate(work, progress=progress, checkpoints=kept):
        store.write_part(folder, schedule.identities_of(plan, chunk.group, chunk.members), arrays)
        if current:
            if current[0].damaged:
                damaged.append(f"{store.CHECKPOINTS}/{schedule.name_of(plan, chunk)}")
            current[0].remove()
        events.finished(plan.runs[chunk.group.members[0]].policy, len(chunk.members))
        yield chunk, arrays


def labelled(plan: Plan, columns: dict[str, np.ndarray], chunk: Chunk, arrays: Arrays) -> xr.Dataset:
    """The result of a chunk's runs alone, laid out as the whole."""
    return layout.label(plan, columns, [chunk.group.members[row] for row in chunk.members], arrays)


def run(
    plan: Plan,
    sources: Sources,
    progress: Progress | None = None,
    tracker: Tracker | None = None,
    *,
    tune: bool = False,
    data_placement: str | None = None,
) -> xr.Dataset:
    """Simulates every run of a plan in memory and returns the labelled result, runs in the plan's order.

    Runs lie on the devices as `measured.json` says, or, with `tune`, as was measured there or now is.

    Raises:
      SpecError: a group can't be built; nothing has been computed then.
      ValueError: the tracker can't be reached; nothing has been computed then.
    """
    if tracker:
        tracker.start(layout.provenance(plan))
    columns = layout.coordinates(plan)
    parts = []
    engine = Engine(plan, sources, data_placement=data_placement)
    most = decide(engine, plan.groups, Asked(kept=tune, seconds=None if tune else 0.0)).runs
    work = schedule.units(plan, (), most=most)
    for chunk, arrays in engine.simulate(work, progress=progress or (lambda _: None)):
        parts.append(([chunk.group.members[row] for row in chunk.members], arrays))
        events.finished(plan.runs[chunk.group.members[0]].policy, len(chunk.members))
        if tracker:
            tracker.runs_finished(labelled(plan, columns, chunk, arrays))
    if tracker:
        tracker.finish()
    return said(layout.merge(plan, parts), [made.record()])


def tell(tracker: Tracker, folder: Folder, members: Collection[int]) -> None:
    """Tells a tracker of some runs, by their places in the plan, that are in the result."""
    in_order = sorted(members)
    for first in range(0, len(in_order), _TOLD_AT_ONCE):
        runs = store.read(str(folder)).isel(run=in_order[first : first + _TOLD_AT_ONCE])
        tracker.runs_finished(runs.load())


def places(plan: Plan, known: Collection[str]) -> frozenset[int]:
    """The places in the plan's runs of those with known identities."""
    return frozenset(place for place, identity in enumerate(plan.identities) if identity in known)
