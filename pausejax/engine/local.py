"""A study into its folder: what is missing is simulated, chunk by chunk, and every chunk is kept at once."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from pausejax.clients.build import Sources
from pausejax.engine import schedule
from pausejax.engine.engine import Engine, Progress, most_runs
from pausejax.engine.schedule import Chunk, Unit
from pausejax.engine.tracking import Tracker
from pausejax.results import layout, store
from pausejax.results.checkpoint import Checkpoints
from pausejax.results.folder import Folder
from pausejax.results.layout import Arrays
from pausejax.study.plan import Plan

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
) -> Outcome:
    """Simulates a study's missing runs, or this process's share of them, into a folder.

    Args:
      folder: where the result goes.
      plan: the whole study.
      found: from `store.prepare`.
      sources: where data come from.
      settings: how.
      progress: called with how many rounds × runs have been advanced.
      tracker: told of every chunk that has been written, and in the end of the runs that were there before.

    Raises:
      SpecError: a group can't be built; nothing has been simulated then.
      ValueError: the tracker can't be reached; nothing has been simulated then.
      OSError: the folder is full, or the like; finished chunks are kept.
    """
    if tracker:
        tracker.start(layout.provenance(plan))
    identities = plan.identities
    settled = places(identities, found.settled)
    finished = places(identities, found.identities)
    progress(len(finished) * plan.study.rounds)
    number, count = settings.shard
    work = schedule.units(plan, settled, most=settings.most or most_runs(), at_least=count)
    work = [unit for unit in schedule.share(work, number, count) if not finished.issuperset(unit.members)]
    if work:
        engine = Engine(plan, sources, device_memory=settings.device_memory)
        columns = layout.coordinates(plan)
        for chunk, arrays in play_into(folder, engine, work, finished, settings, progress):
            if tracker:
                tracker.runs_finished(layout.label(plan, columns, list(chunk.members), arrays))
    missing = store.consolidate(folder, plan)
    if tracker:
        # By another process, or by one that was killed before it could tell.
        tell(tracker, folder, () if missing else finished)
        tracker.finish()
    return Outcome(len(finished), missing, found.damaged)


def play_into(
    folder: Folder,
    engine: Engine,
    work: Sequence[Unit],
    finished: frozenset[int],
    settings: Settings,
    progress: Progress,
) -> Iterator[tuple[Chunk, Arrays]]:
    """Plays what is unfinished of some units; each chunk is in the folder when it is yielded.

    Raises: as `simulate_into`.
    """
    identities = engine.plan.identities

    def checkpoints(chunk: Chunk) -> Checkpoints:
        name = schedule.identity(identities, chunk)
        return Checkpoints(folder, name, settings.checkpoint_seconds)

    # Orbax writes to disks; under a URL a kill costs the chunk in flight.
    kept = checkpoints if folder.is_local else None
    for chunk, arrays in engine.simulate(work, finished=finished, progress=progress, checkpoints=kept):
        store.write_part(folder, [identities[member] for member in chunk.members], arrays)
        if kept:
            kept(chunk).remove()
        yield chunk, arrays


def tell(tracker: Tracker, folder: Folder, members: Collection[int]) -> None:
    """Tells a tracker of some runs, by their places in the plan, that are in the result."""
    in_order = sorted(members)
    for first in range(0, len(in_order), _TOLD_AT_ONCE):
        runs = store.read(str(folder)).isel(run=in_order[first : first + _TOLD_AT_ONCE])
        tracker.runs_finished(runs.load())


def places(identities: tuple[str, ...], known: frozenset[str]) -> frozenset[int]:
    """The places in the plan's runs of those with known identities."""
    return frozenset(place for place, identity in enumerate(identities) if identity in known)
