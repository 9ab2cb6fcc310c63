"""A study on disk: what is finished, batch by batch, and in the end one labelled Zarr store.

Every batch of runs is written as one file under `parts/`, whole or not at all, so that a killed study goes
on where it was and any number of processes may work on it. When all runs are there, `results.zarr` is put
together from the parts, block by block, and takes their place. Nothing is trusted unseen: parts and blocks
carry checksums, and what does not pass counts as not finished.
"""

import contextlib
import difflib
import json
import random
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pausejax.analysis import schema
from pausejax.results import blocks, labels, manifest
from pausejax.results.blocks import Source
from pausejax.results.exchange import REPLACED, held, replace
from pausejax.results.exchange import RESULT as RESULT
from pausejax.results.exchange import read as read
from pausejax.results.folder import MARK, Folder, IrregularFile
from pausejax.results.parts import PARTS as PARTS
from pausejax.results.parts import PLAYING, part_names
from pausejax.results.parts import examine as examine_part
from pausejax.results.parts import playing as playing
from pausejax.results.parts import write_part as write_part
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.results.snapshot import described, opened
from pausejax.study.spec import SpecError
from pausejax.study.study import FORMAT, Plan

SPEC = "spec.toml"
FILES = "files.json"
"""Digests of the files that the runs depend on."""
USED = "used"
"""Copies of the files with parts."""
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
"""Held by whoever puts a result together, and shared by those who look at what is finished."""
_ATTEMPTS = 3
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")
"""A file whose writer was killed."""
_BATCH = re.compile(r"[0-9a-f]{16}(\.lease)?")


class Contents(NamedTuple):
    """What a store holds of a study."""

    parts: tuple[Source, ...] = ()
    blocks: tuple[Source, ...] = ()
    """Of the result."""
    damaged: tuple[str, ...] = ()
    """Files that did not pass; their runs are not finished."""
    current: bool = False
    """Whether the result is there, whole, and of the very spec, or of one that adds runs to it."""
    whole: bool = True
    """Whether every block of the result passed, if it is there."""
    removable: tuple[str, ...] = ()
    """Parts that hold no runs: what did not pass will not do so later."""

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.parts + self.blocks

    @property
    def identities(self) -> frozenset[str]:
        """Every finished run."""
        return _identities(self.sources)

    @property
    def settled(self) -> frozenset[str]:
        """The runs of the result: they were finished before anybody began."""
        return _identities(self.blocks)


def _identities(sources: Sequence[Source]) -> frozenset[str]:
    return frozenset(identity for source in sources for identity in source.identities)


def prepare(folder: Folder, plan: Plan, *, grows: bool = False) -> Contents:
    """Makes the study's folder, checks before any compute that it may be used, and says what it holds.

    A spec that adds runs to those of the folder is welcome, one that lacks some of them is not.

    Raises:
      SpecError: the folder holds runs of another spec; says where they differ.
      OSError: the folder can't be made or written to.
    """
    folder.make()
    found = look(folder, plan, grows=grows)
    files = labels.used_files(plan.study)
    folder.write(SPEC, labels.spec_text(plan).encode())
    if files or folder.exists(FILES):
        write_sealed(folder, FILES, files)
    for name, content in labels.copies(plan.study).items():
        folder.write(f"{USED}/{name}", content)
    return found


def look(folder: Folder, plan: Plan, *, grows: bool = False) -> Contents:
    """Says what a folder holds of a study and changes nothing there; as `prepare`."""
    if held(folder) is None and not part_names(folder):  # it may be no folder that has a lock
        return Contents()
    _check_format(folder)
    with folder.lock(LOCK, shared=True):
        found = examine(folder, plan)
    if not grows and not found.identities <= set(plan.identities):
        raise SpecError(_differences(folder, labels.spec_text(plan), labels.used_files(plan.study)))
    return found


def _check_format(folder: Folder) -> None:
    """Refuses the result of a release that laid results out otherwise."""
    if (name := held(folder)) is None:
        return
    try:
        if folder.exists(f"{name}/.zattrs"):
            written = json.loads(folder.read(f"{name}/.zattrs")).get("format")
        else:
            written = described(folder, name, manifest.read(folder, name)).attrs.get("format")
    except Exception:
        return  # that is said elsewhere
    if written != FORMAT:
        raise SpecError(
            [
                f"--out {folder}: holds a result of format {schema.brief(written or 1)}, "
                f"this release writes {FORMAT}; choose another folder"
            ]
        )


def _differences(folder: Folder, text: str, files: Mapping[str, str]) -> list[str]:
    """In what a folder's study is another one."""
    allowed = "choose another folder, or a spec that adds runs and takes none away"
    old = folder.read(SPEC).decode(errors="replace") if folder.exists(SPEC) else ""
    try:
        before = dict(read_sealed(folder, FILES))
    except (OSError, TypeError, ValueError):
        before = {}  # a damaged list of files is ignored; the specs are compared below
    changed = [name for name, digest in before.items() if files.get(name, digest) != digest]
    if changed:
        return [
            f"--out {folder}: holds runs of other files; {allowed}",
            *(f"{name}: its content has changed since" for name in changed),
        ]
    compared = difflib.unified_diff(old.splitlines(), text.splitlines(), n=0)
    shown = [line for line in compared if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return [f"--out {folder}: holds runs of another spec; {allowed}", *shown[:20]]


def examine(folder: Folder, plan: Plan) -> Contents:
    """Reads everything that is finished once, to see that it is intact."""
    parts: list[Source] = []
    settled: list[Source] = []
    damaged: list[str] = []
    removable: list[str] = []
    for name in part_names(folder):
        try:
            parts.append(examine_part(folder, name))
        except (ValueError, FileNotFoundError, IrregularFile):
            damaged.append(name)
            removable.append(name)
        except OSError:  # a disk that fails for a moment has damaged nothing
            damaged.append(name)
    unread, spec = len(damaged), ""
    if (result := held(folder)) is not None:
        for source in blocks.examine(folder, result, plan.study.outputs.variables):
            settled.append(source) if isinstance(source, Source) else damaged.append(source)
        if settled:  # what describes it is sound, then
            with contextlib.suppress(Exception):
                spec = opened(folder, result, manifest.read(folder, result)).attrs["spec"]
    whole = len(damaged) == unread
    known, kept = set(plan.identities), _identities(settled)
    return Contents(
        tuple(parts),
        tuple(settled),
        tuple(damaged),
        # A selection of a study's runs, saved, has the spec of the whole.
        whole and (known < kept or (known == kept and spec == labels.spec_text(plan))),
        whole,
        tuple(removable),
    )


def consolidate(folder: Folder, plan: Plan) -> int:
    """Puts the result together if every run is finished, and then removes the parts.

    One block of runs is in memory at a time, however many there are. A result that another process has
    extended beyond the plan meanwhile stays as it is.

    Returns:
      How many runs are still missing; 0: the result is there.

    Raises:
      OSError: no space left, a result of another study that ended meanwhile, or the like; the parts are
        still there then.
    """
    known = set(plan.identities)
    with folder.lock(LOCK) as alone:
        # Without a lock another process may take away what this one reads, or put its result in the place of
        # this one's: nothing is removed before a result has been seen to be whole.
        attempts = 1 if alone else _ATTEMPTS
        while True:
            found = examine(folder, plan)
            if missing := len(known - found.identities):
                return missing
            in_result = found.settled
            if found.current or in_result - known:
                if known - in_result and found.whole:
                    raise OSError(
                        f"{folder}: another study has put its result here meanwhile; the runs of this one "
                        f"are kept in {PARTS}; a spec with the runs of both takes them"
                    )
                break
            if not attempts:
                what = f"other processes replace {RESULT} as well"
                raise OSError(f"{folder}: {what}; the same command finishes it")
            attempts -= 1
            try:
                _put_together(folder, plan, found)
            except (OSError, ValueError):
                if not attempts:
                    raise
                time.sleep(random.uniform(0, 1))
                continue
            if alone:
                in_result = frozenset(known)
                break
        for part in found.parts:
            if in_result.issuperset(part.identities):
                folder.remove(part.file)
        for name in found.removable:
            folder.remove(name)
        if alone:
            _tidy_up(folder)
        else:
            folder.remove(PLAYING)  # it keeps nobody away
        for name in (PARTS, CHECKPOINTS):
            folder.remove_if_empty(name)
    return 0


def _put_together(folder: Folder, plan: Plan, found: Contents) -> None:
    """Makes the result of the finished runs of a plan."""
    partial = f".{RESULT}.{uuid.uuid4().hex}.partial"
    known = set(plan.identities)
    sources = [source for source in found.sources if not known.isdisjoint(source.identities)]
    records = [record for source in sources for record in source.records]
    try:
        blocks.write(folder, partial, plan, plan.identities, sources, records)
        replace(folder, partial)
    finally:
        folder.remove(partial, manifest.NAME)


def _tidy_up(folder: Folder) -> None:
    """Removes what killed processes have left: half-written files, and the checkpoints of their batches.

    Only under the lock, since nobody else puts a result together then. What other processes have in flight
    stays, and so does what is no file of a study.
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
                    folder.remove(name)
            if not part_names(folder):  # of another study, which was killed
                for name in filter(_BATCH.fullmatch, folder.names(CHECKPOINTS)):
                    folder.remove(f"{CHECKPOINTS}/{name}")
            folder.remove(PLAYING)


def lost(folder: Folder, plan: Plan, identities: Collection[str]) -> frozenset[str]:
    """Of runs that were finished, those that the folder does not hold any more."""
    for pause in (0.0, 0.5, 5.0):
        time.sleep(pause)
        with folder.lock(LOCK, shared=True) as alone:
            missing = frozenset(identities) - examine(folder, plan).identities
        # Without a lock another process may be replacing the result, which takes a while under a URL.
        if alone or not missing:
            break
    return missing
