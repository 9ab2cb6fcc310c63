"""A study on disk: what is finished, chunk by chunk, and in the end one labelled Zarr store.

Every chunk of runs is written as one file under `parts/`, whole or not at all, so that a killed study goes
on where it was and any number of processes may work on it. When all runs are there, `results.zarr` is put
together from the parts, block by block, and takes their place. Nothing is trusted unseen: parts and blocks
carry checksums, and what does not pass counts as not finished.
"""

import contextlib
import difflib
import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from pausejax.results import blocks, layout, made, manifest
from pausejax.results.blocks import Source
from pausejax.results.folder import Folder
from pausejax.study.simulation import Arrays
from pausejax.study.spec import SpecError
from pausejax.study.study import FORMAT, Plan

RESULT = "results.zarr"
SPEC = "spec.toml"
FILES = "files.json"
"""Digests of the files that the runs depend on."""
USED = "used"
"""Copies of the files with parts."""
PARTS = "parts"
CHECKPOINTS = "checkpoints"
_REPLACED = f".{RESULT}.replaced"
LOCK = ".lock"
_PART = re.compile(r"[0-9a-f]{16}\.npz")
_CHUNK = re.compile(r"[0-9a-f]{16}(\.lease)?")


class Progress(NamedTuple):
    """What a folder holds of a study."""

    parts: tuple[Source, ...]
    blocks: tuple[Source, ...]
    """Of the result."""
    damaged: tuple[str, ...]
    """Files that did not pass; their runs are not finished."""
    current: bool
    """Whether the result is there, whole, and of the very spec."""
    merged: tuple[str, ...]
    """Files under `parts/` that hold nothing but runs of this plan, or nothing that can be read."""

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


def prepare(folder: Folder, plan: Plan) -> Progress:
    """Makes the study's folder, checks before any compute that it may be used, and says what it holds.

    A spec that adds runs to those of the folder is welcome, one that lacks some of them is not.

    Raises:
      SpecError: the folder holds runs of another spec; says where they differ.
      OSError: the folder can't be made or written to.
    """
    folder.make()
    with folder.lock(LOCK):
        if not folder.exists(RESULT) and folder.exists(_REPLACED):
            folder.move(_REPLACED, RESULT)
    _check_format(folder)
    found = examine(folder, plan)
    text = layout.spec_text(plan)
    files = layout.used_files(plan.study)
    if not found.identities <= set(plan.identities):
        raise SpecError(_differences(folder, text, files))
    folder.write(SPEC, text.encode())
    if files or folder.exists(FILES):
        folder.write(FILES, json.dumps(files, indent=1).encode())
    for name, content in layout.copies(plan.study).items():
        folder.write(f"{USED}/{name}", content)
    return found


def _check_format(folder: Folder) -> None:
    """Refuses the result of a release whose identities meant something else."""
    if folder.exists(RESULT):
        try:
            if folder.exists(f"{RESULT}/.zattrs"):
                kept = json.loads(folder.read(f"{RESULT}/.zattrs")).get("format")
            elif manifest.damaged(folder, RESULT, manifest.described(folder, RESULT)):
                return  # that is said elsewhere
            else:
                manifest.check_codecs(folder, RESULT)
                kept = blocks.opened(folder, RESULT).attrs.get("format")
        except Exception:
            return
        if kept != FORMAT:
            raise SpecError(
                [
                    f"--out {folder}: holds a result of format {kept or 1}, this release writes {FORMAT}; "
                    "choose another folder"
                ]
            )


def _differences(folder: Folder, text: str, files: Mapping[str, str]) -> list[str]:
    """In what a folder's study is another one."""
    allowed = "choose another folder, or a spec that adds runs and takes none away"
    old = folder.read(SPEC).decode() if folder.exists(SPEC) else ""
    before = json.loads(folder.read(FILES)) if folder.exists(FILES) else {}
    changed = [name for name, digest in before.items() if files.get(name, digest) != digest]
    if changed:
        return [
            f"--out {folder}: holds runs of other files; {allowed}",
            *(f"{name}: its content has changed since" for name in changed),
        ]
    compared = difflib.unified_diff(old.splitlines(), text.splitlines(), n=0)
    shown = [line for line in compared if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return [f"--out {folder}: holds runs of another spec; {allowed}", *shown[:20]]


def examine(folder: Folder, plan: Plan) -> Progress:
    """Reads everything that is finished once, to see that it is intact."""
    parts: list[Source] = []
    settled: list[Source] = []
    damaged: list[str] = []
    merged: list[str] = []
    known = set(plan.identities)
    for name in filter(_PART.fullmatch, folder.names(PARTS)):
        try:
            parts.append(_examine_part(folder, f"{PARTS}/{name}"))
            if known.issuperset(parts[-1].identities):
                merged.append(f"{PARTS}/{name}")
        except (ValueError, OSError):
            damaged.append(f"{PARTS}/{name}")
            merged.append(f"{PARTS}/{name}")
    whole = len(damaged)
    spec = ""
    if folder.exists(RESULT):
        for source in blocks.examine(folder, RESULT, plan.study.kind.variables(plan.study)):
            settled.append(source) if isinstance(source, Source) else damaged.append(source)
        if settled:  # what describes it is sound, then
            with contextlib.suppress(Exception):
                spec = blocks.opened(folder, RESULT).attrs["spec"]
    return Progress(
        tuple(parts),
        tuple(settled),
        tuple(damaged),
        # A selection of a study's runs, saved, has the spec of the whole.
        spec == layout.spec_text(plan) and len(damaged) == whole and known == _identities(settled),
        tuple(merged),
    )


def write_part(folder: Folder, identities: Sequence[str], arrays: Arrays) -> str:
    """Puts finished runs into the folder, and returns the file's name; a file that is there is there whole.

    Raises:
      OSError: no space left, or the like; nothing is left behind then.
    """
    name = f"{PARTS}/{hashlib.sha256(''.join(identities).encode()).hexdigest()[:16]}.npz"
    folder.write_arrays(name, identity=np.array(identities), **arrays)
    return name


def record(folder: Folder, command: str) -> None:
    """Says how this process makes the runs that it is about to write."""
    made.keep(folder, PARTS, command)


def _examine_part(folder: Folder, name: str) -> Source:
    arrays = folder.read_arrays(name)
    identities = tuple(arrays["identity"].tolist())
    return Source(identities, blocks.shapes_of(arrays), lambda: folder.read_arrays(name))


def consolidate(folder: Folder, plan: Plan) -> int:
    """Puts the result together if every run is finished, and then removes the parts.

    One block of runs is in memory at a time, however many there are.

    Returns:
      How many runs are still missing; 0: the result is there.

    Raises:
      OSError: no space left, or the like; the parts are still there then.
    """
    with folder.lock(LOCK):
        found = examine(folder, plan)
        identities = plan.identities
        if missing := len(set(identities) - found.identities):
            return missing
        if not found.current:
            partial = f".{RESULT}.{uuid.uuid4().hex}.partial"
            try:
                records = made.gathered(folder, PARTS, RESULT if found.blocks else None)
                blocks.write(folder, partial, plan, identities, found.sources, records)
                replace(folder, partial)
            finally:
                folder.remove(partial)
        for leftover in (_REPLACED, *_partials(folder)):
            folder.remove(leftover)
        _remove_parts(folder, found)
    return 0


def replace(folder: Folder, partial: str) -> None:
    """Puts a store that is whole in the place of the result; the old one is there until the new one is."""
    if folder.exists(RESULT):
        folder.remove(_REPLACED)
        folder.move(RESULT, _REPLACED)
    folder.move(partial, RESULT)
    folder.remove(_REPLACED)


def _remove_parts(folder: Folder, found: Progress) -> None:
    """Removes the parts that have become the result, and the checkpoints of chunks that nobody plays.

    What another study of this folder has finished meanwhile stays, and so does what is no file of a study.
    """
    for name in found.merged:
        folder.remove(name)
    for name in folder.names(PARTS):
        if name.endswith(".partial"):
            folder.remove(f"{PARTS}/{name}")
    if len(records := made.names(folder, PARTS)) == len(folder.names(PARTS)):
        for name in (*records, PARTS):
            folder.remove(name)
        for name in folder.names(CHECKPOINTS):
            if _CHUNK.fullmatch(name):
                folder.remove(f"{CHECKPOINTS}/{name}")
    if not folder.names(CHECKPOINTS):
        folder.remove(CHECKPOINTS)


def _partials(folder: Folder) -> list[str]:
    """What killed processes left half written."""
    return [name for name in folder.names("") if name.startswith(".") and name.endswith(".partial")]


def read(directory: str | Path) -> xr.Dataset:
    """Opens the result in a study's folder; values are read when they are asked for.

    Raises:
      FileNotFoundError: there is none, or its study is unfinished.
      ValueError: it is damaged; no value has been decoded.
    """
    folder = Folder(directory)
    if not folder.exists(RESULT):
        parts = len([name for name in folder.names(PARTS) if name.endswith(".npz")])
        held = f"an unfinished study ({parts} chunks of runs are done)" if parts else f"no result ({RESULT})"
        raise FileNotFoundError(f"{directory}: holds {held}; `pausejax run SPEC --out` finishes it")
    try:
        # Nothing is decoded before its description is known to be sound; values carry checksums of their own.
        manifest.check_codecs(folder, RESULT)
        broken = manifest.damaged(folder, RESULT, manifest.described(folder, RESULT))
        if broken:
            raise ValueError(f"{broken[0]} and {len(broken) - 1} other files" if broken[1:] else broken[0])
        result = xr.open_zarr(folder.path(RESULT), consolidated=True, zarr_format=3)
        words = [name for name in result.coords if isinstance(result[name].dtype, np.dtypes.StringDType)]
        result = result.assign_coords({name: _of_one_length(result[name]) for name in words})
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"{directory}: {RESULT} is damaged or no result of this release ({error}); "
            "`pausejax run` with its spec makes it whole"
        ) from None
    return result


def _of_one_length(words: xr.DataArray) -> xr.Variable:
    """Words as a simulation in memory has them, and as all libraries know them."""
    return xr.Variable(words.dims, np.array(words.values.tolist(), np.str_), words.attrs)
