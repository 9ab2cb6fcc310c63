"""Stores a study on disk: one file for each finished piece, and at the end one labelled Zarr store.

A piece is a batch, or the part of it that is played in parallel. Every piece is written as one file under
`parts/`, completely or not at all. So a killed study can resume, and several processes can work on one study.
When all runs are finished, `results.zarr` is built from the parts, block by block, and the parts are removed.
Parts and blocks carry checksums. Runs in a damaged part or block count as not finished.
"""

import contextlib
import random
import re
import time
import uuid
from collections.abc import Collection, Mapping

from pausejax.results import blocks, contents, description, labels, manifest, planned
from pausejax.results.blocks import ExpectedRuns
from pausejax.results.contents import Contents as Contents
from pausejax.results.description import CHECKPOINTS as CHECKPOINTS
from pausejax.results.description import FILES as FILES
from pausejax.results.description import LOCK as LOCK
from pausejax.results.description import PIECE
from pausejax.results.description import SPEC as SPEC
from pausejax.results.description import USED as USED
from pausejax.results.exchange import LABELS, REPLACED, SEARCH, replace, result_name, version
from pausejax.results.exchange import RESULT as RESULT
from pausejax.results.exchange import read as read
from pausejax.results.folder import Folder
from pausejax.results.parts import MARK, PLAYING, is_played, part_names
from pausejax.results.parts import PARTS as PARTS
from pausejax.results.parts import playing as playing
from pausejax.results.parts import write_part as write_part
from pausejax.results.snapshot import opened
from pausejax.study.spec import SpecError
from pausejax.study.study import Plan

_ATTEMPTS = 3
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")
"""The end of the name of a file that is being written, or whose writer was killed."""


def prepare(
    folder: Folder, plan: Plan, *, grows: bool = False, begun: contextlib.ExitStack | None = None
) -> Contents:
    """Makes the study's folder, checks that the plan may use it, and returns its contents.

    The plan may add runs to those of the folder. Without `grows`, it must have all runs of the folder. If
    another process plays a plan in the folder, one of the two plans must have all runs of the other.

    Args:
      folder: the folder of the study.
      plan: the plan.
      grows: whether the plan may lack runs of the folder, as the growing plan of a search does.
      begun: receives the lock `PLAYING`, by which other processes know that this process plays the plan.

    Raises:
      SpecError: the folder holds runs or checkpoints of another spec, or another process plays another spec;
        the message shows where the specs differ. Or the folder holds a damaged result, perhaps of another
        spec, or a search, or files of the user that the study would replace.
      OSError: the folder can't be made, read or written to.
    """
    folder.make()
    found = checked_contents(folder, plan, grows=grows)
    with folder.lock(LOCK):
        if grows:
            description.describe(folder, plan, None)
            return found
        runs, known = planned.runs(folder), plan.known
        if not found.in_result.issuperset(planned.marked(plan, runs)):
            # A smaller study has ended since the folder was examined, or a block is damaged.
            found = examine(folder, plan)
        found = found._replace(left_out=planned.left_out(plan, runs, found.in_result))
        played = is_played(folder)
        if not played and not (runs and runs.keys() <= known):  # without labels, they may be of any study
            description.refuse_unfinished(folder, plan)
        if played and not (known <= runs.keys() or runs.keys() <= known):
            raise SpecError(
                description.differences(
                    folder,
                    plan,
                    "another spec is planned here, and a process plays. Wait until no process plays",
                )
            )
        # A larger study that another process plays keeps its spec and its labels.
        if not (played and known < runs.keys()):
            description.describe(folder, plan, found.left_out)
        if begun is not None:  # before another process can replace the description
            begun.enter_context(playing(folder))
    return found


def checked_contents(folder: Folder, plan: Plan, *, grows: bool = False) -> Contents:
    """Returns a folder's contents without changing the folder. The checks are those of `prepare`."""
    if not grows and folder.exists(SEARCH):
        raise SpecError([f"--out {folder}: holds a search, not a study. Choose another folder"])
    # The folder may not exist. Then it can't be locked.
    if result_name(folder) is None and not part_names(folder):
        if not grows:
            description.refuse_replacing(folder, plan)
        return Contents()
    description.refuse_other_format(folder)
    with folder.lock(LOCK, shared=True):
        found = examine(folder, plan)
    if not grows and not found.identities <= plan.known:
        raise SpecError(
            description.differences(
                folder, plan, "holds runs of another spec", description.foreign(found, plan)
            )
        )
    if not grows and not found.whole:
        description.refuse_unknown(folder, plan)
    return found


def examine(folder: Folder, plan: Plan) -> Contents:
    """Reads all parts and all blocks of the result to check them, and returns the contents.

    Raises:
      OSError: the result can't be read.
    """
    for _ in range(_ATTEMPTS):
        before = version(folder)
        found = contents.read(folder, ExpectedRuns.of(plan))
        if found.whole or version(folder) == before:
            break  # else another process has replaced the result meanwhile, without a lock
    held: Mapping[str, object] = {}
    if found.blocks:  # in this case the metadata are intact
        with contextlib.suppress(Exception):
            result = result_name(folder) or RESULT
            held = opened(folder, result, manifest.read(folder, result)).attrs
    known, kept = plan.known, found.in_result
    # A saved selection of a study's runs has the spec of the whole study.
    current = found.whole and (known < kept or (known == kept and description.is_of(held, plan)))
    return found._replace(current=current, result=before)


def build_if_complete(folder: Folder, plan: Plan, *, grows: bool = False) -> int:
    """Builds the result if every run is finished, and then removes the parts. Else it builds nothing.

    Only one block of the new result, and a few of the old parts and blocks, are in memory at a time. If
    another process has meanwhile written a result with all runs of the plan and others, that result is kept.

    Args:
      folder: the folder of the study.
      plan: the plan of the study.
      grows: whether the result may lose runs that the plan lacks, as that of a search does. If runs of a
        search were damaged, the sampler may suggest other settings.

    Returns:
      The number of missing runs; 0 if the result is complete.

    Raises:
      OSError: the result can't be written, or another study has put its runs or its result into the folder
        meanwhile; the parts are kept then.
    """
    with folder.lock(LOCK) as locked:
        found, in_result = _build(folder, plan, locked=locked, grows=grows)
        if missing := len(plan.known - found.identities):
            description.refuse_foreign(folder, plan, found)
            return missing
        _remove_sources(folder, found, in_result, locked=locked)
    return 0


def _build(folder: Folder, plan: Plan, *, locked: bool, grows: bool) -> tuple[Contents, frozenset[str]]:
    """Builds the result, unless runs are missing or the folder has the result already.

    Args:
      folder: the folder of the study.
      plan: the plan of the study.
      locked: whether this process holds `LOCK`.
      grows: whether the result may lose runs that the plan lacks.

    Returns:
      The contents of the folder when they were last read, and the identities of the runs that are now in the
      result.

    Raises:
      OSError: as `build_if_complete`.
    """
    known = plan.known
    # Without a lock, another process may remove files that this process reads, or replace the result that it
    # wrote. So it then examines the folder again.
    attempts = 1 if locked else _ATTEMPTS
    while True:
        found = examine(folder, plan)
        in_result = found.in_result
        if known - found.identities:
            return found, in_result
        if found.current or (in_result - known and not grows):
            if known - in_result and found.whole:
                raise OSError(
                    f"{folder}: meanwhile another study has written its result here. The runs of this "
                    f"study are kept in {PARTS}. To use them, run a spec with the runs of both studies"
                )
            return found, in_result
        if not attempts:
            what = f"other processes replace {RESULT} at the same time"
            raise OSError(f"{folder}: {what}. The same command finishes the study")
        attempts -= 1
        try:
            _put_together(folder, plan, found)
        except (OSError, ValueError):
            if not attempts:
                raise
            time.sleep(random.uniform(0, 1))
            continue
        if locked:
            return found, known


def _remove_sources(folder: Folder, found: Contents, in_result: frozenset[str], *, locked: bool) -> None:
    """Removes the parts whose runs are all in the result, damaged parts, and files of killed processes."""
    for part in found.parts:
        if in_result.issuperset(part.identities):
            folder.remove(part.file)
    for name in found.removable:
        folder.remove(name)
    if locked:
        _tidy_up(folder, keeps_checkpoints=not planned.runs(folder).keys() <= in_result)
    else:
        folder.remove(PLAYING)  # without locks the lock file is not needed
    for name in (PARTS, CHECKPOINTS):
        folder.remove_if_empty(name)


def _put_together(folder: Folder, plan: Plan, found: Contents) -> None:
    """Builds the result from the finished runs of a plan, and replaces the old result.

    The spec and the labels become those of the result, unless a larger study is planned in the folder.

    Raises:
      OSError: without locks: another process has replaced the result since `found` was read.
      SpecError: the result is damaged, and may hold runs that the plan lacks.
    """
    if not found.whole and planned.runs(folder):
        description.refuse_unknown(folder, plan)  # a larger study was planned meanwhile
    partial = f".{RESULT}.{uuid.uuid4().hex}.partial"
    known = plan.known
    stored_runs = [stored for stored in found.stored_runs if not known.isdisjoint(stored.identities)]
    provenance = [one for stored in stored_runs for one in stored.provenance]
    try:
        blocks.write(folder, partial, labels.Labels.of(plan), stored_runs, provenance)
        if version(folder) != found.result:
            raise OSError(f"{folder}: another process has replaced {RESULT}. The same command goes on")
        replace(folder, partial)
        last = planned.runs(folder).keys()
        if not known < last:
            left_out = known if folder.exists(LABELS) else None
            # If the last plan had these runs, `prepare` has written the spec. The user may have edited it.
            description.describe(folder, plan, left_out, keeps_spec=last == known)
    finally:
        folder.remove(partial, manifest.NAME)


def _tidy_up(folder: Folder, *, keeps_checkpoints: bool) -> None:
    """Removes files of killed processes: partial files, and the checkpoints of their pieces.

    The caller must hold the lock of the process that builds the result. Files of running processes and files
    that do not belong to a study are kept.

    Args:
      folder: the folder of the study.
      keeps_checkpoints: whether planned runs are missing, so that a checkpoint may still be continued.
    """
    for name in folder.names(""):
        if name.startswith(".") and name.endswith(".partial"):
            folder.remove(name)
    folder.remove(REPLACED, manifest.NAME)
    with folder.lock(PLAYING, wait=False) as nobody_plays:
        if nobody_plays:
            for name in folder.names(PARTS):
                if name.endswith(".partial"):
                    folder.remove(f"{PARTS}/{name}")
            for name in folder.names(""):
                if _PARTIAL.search(name) or name.startswith(MARK):
                    with folder.lock(name, wait=False) as nobody_writes:
                        if nobody_writes:
                            folder.remove(name)
            if not keeps_checkpoints and not part_names(folder):
                for name in filter(PIECE.fullmatch, folder.names(CHECKPOINTS)):
                    folder.remove(f"{CHECKPOINTS}/{name}")
            folder.remove(PLAYING)


def lost(folder: Folder, plan: Plan, identities: Collection[str]) -> frozenset[str]:
    """Returns the entries of `identities` whose runs the folder no longer holds."""
    for pause in (0.0, 0.5, 5.0):
        time.sleep(pause)
        with folder.lock(LOCK, shared=True) as locked:
            missing = frozenset(identities) - examine(folder, plan).identities
        # Without a lock another process may be replacing the result, which takes a while under a URL.
        if locked or not missing:
            break
    return missing
