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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numcodecs
import numpy as np
import xarray as xr

from pausejax.analysis.quantities import Variable
from pausejax.results import layout
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
_LOCK = ".lock"

_BLOCK_BYTES = 2**24
_BLOCK_RUNS = 256


class Source(NamedTuple):
    """Finished runs that lie together on disk, seen to be intact."""

    identities: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    load: Callable[[], Arrays]


class Progress(NamedTuple):
    """What a folder holds of a study."""

    parts: tuple[Source, ...]
    blocks: tuple[Source, ...]
    """Of the result."""
    damaged: tuple[str, ...]
    """Files that did not pass; their runs are not finished."""
    current: bool
    """Whether the result is there, whole, and of the very spec."""

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
    with folder.lock(_LOCK):
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
            kept = xr.open_zarr(folder.path(RESULT), chunks=None).attrs.get("format")
        except Exception:
            return  # damaged: that is said elsewhere
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
    compared = difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)
    shown = [line for line in compared if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return [f"--out {folder}: holds runs of another spec; {allowed}", *shown[:20]]


def examine(folder: Folder, plan: Plan) -> Progress:
    """Reads everything that is finished once, to see that it is intact."""
    parts: list[Source] = []
    blocks: list[Source] = []
    damaged: list[str] = []
    for name in folder.names(PARTS):
        if name.endswith(".npz"):
            try:
                parts.append(_examine_part(folder, f"{PARTS}/{name}"))
            except (ValueError, OSError):
                damaged.append(f"{PARTS}/{name}")
    whole = len(damaged)
    spec = ""
    if folder.exists(RESULT):
        for source in _blocks(folder, plan.study.kind.variables(plan.study)):
            blocks.append(source) if isinstance(source, Source) else damaged.append(source)
        with contextlib.suppress(Exception):
            spec = xr.open_zarr(folder.path(RESULT), chunks=None).attrs["spec"]
    return Progress(
        tuple(parts), tuple(blocks), tuple(damaged), spec == layout.spec_text(plan) and len(damaged) == whole
    )


def write_part(folder: Folder, identities: Sequence[str], arrays: Arrays) -> None:
    """Puts finished runs into the folder; a file that is there is there whole.

    Raises:
      OSError: no space left, or the like; nothing is left behind then.
    """
    name = hashlib.sha256("".join(identities).encode()).hexdigest()[:16]
    folder.write_arrays(f"{PARTS}/{name}.npz", identity=np.array(identities), **arrays)


def _examine_part(folder: Folder, name: str) -> Source:
    arrays = folder.read_arrays(name)
    identities = tuple(arrays["identity"].tolist())
    return Source(identities, _shapes(arrays), lambda: folder.read_arrays(name))


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items() if name != "identity"}


def _blocks(folder: Folder, table: Mapping[str, Variable]) -> Iterator[Source | str]:
    """The blocks of runs of the result: intact ones, and the names of the others."""

    def load(rows: slice) -> Arrays:
        block = xr.open_zarr(folder.path(RESULT), chunks=None).isel(run=rows).load()
        return {name: block[name].values for name in table if name in block}

    # What a damaged store raises is its libraries' affair; whatever it is, the runs are not finished.
    try:
        store = xr.open_zarr(folder.path(RESULT), chunks=None)
        identities = store["identity"].values.tolist()
        size = store["identity"].encoding["chunks"][0]
        missing = set(_missing_blocks(folder, store, size))
    except Exception:
        yield RESULT
        return
    for block, first in enumerate(range(0, len(identities), size)):
        rows = slice(first, first + size)
        try:
            if block in missing:
                raise FileNotFoundError
            arrays = load(rows)
        except Exception:
            yield f"{RESULT}, runs {first + 1} to {min(first + size, len(identities))}"
            continue
        yield Source(tuple(identities[rows]), _shapes(arrays), lambda rows=rows: load(rows))


def _missing_blocks(folder: Folder, store: xr.Dataset, size: int) -> Iterator[int]:
    """Blocks of which a file is missing; a reader would take fill values for it."""
    blocks = range(-(-store.sizes["run"] // size))
    for name in store.variables:
        there = {key.partition(".")[0] for key in folder.names(f"{RESULT}/{name}")}
        if store[name].dims[:1] == ("run",):
            yield from (block for block in blocks if str(block) not in there)
        elif "0" not in there:
            yield from blocks


def consolidate(folder: Folder, plan: Plan) -> int:
    """Puts the result together if every run is finished, and then removes the parts.

    One block of runs is in memory at a time, however many there are.

    Returns:
      How many runs are still missing; 0: the result is there.

    Raises:
      OSError: no space left, or the like; the parts are still there then.
    """
    with folder.lock(_LOCK):
        found = examine(folder, plan)
        identities = plan.identities
        if missing := len(set(identities) - found.identities):
            return missing
        if not found.current:
            partial = f".{RESULT}.{uuid.uuid4().hex}.partial"
            try:
                _write(folder, partial, plan, identities, found.sources)
                if folder.exists(RESULT):
                    folder.remove(_REPLACED)
                    folder.move(RESULT, _REPLACED)
                folder.move(partial, RESULT)
            finally:
                folder.remove(partial)
        for leftover in (_REPLACED, PARTS, CHECKPOINTS, *_partials(folder)):
            folder.remove(leftover)
    return 0


def _partials(folder: Folder) -> list[str]:
    """What killed processes left half written."""
    return [name for name in folder.names("") if name.startswith(".") and name.endswith(".partial")]


def _write(
    folder: Folder, name: str, plan: Plan, identities: Sequence[str], sources: Sequence[Source]
) -> None:
    table, columns = plan.study.kind.variables(plan.study), layout.coordinates(plan)
    lengths = layout.sizes(table, (source.shapes for source in sources))
    names = {variable for source in sources for variable in source.shapes}
    place = {
        identity: (number, row)
        for number, source in enumerate(sources)
        for row, identity in enumerate(source.identities)
    }
    load = lru_cache(maxsize=4)(lambda number: sources[number].load())
    size = _block_runs(table, names, lengths)
    for first in range(0, len(identities), size):
        rows = range(first, min(first + size, len(identities)))
        block = layout.blank(table, names, len(rows), lengths)
        from_source: dict[int, list[tuple[int, int]]] = {}
        for here, row in enumerate(rows):
            number, there = place[identities[row]]
            from_source.setdefault(number, []).append((here, there))
        for number, pairs in from_source.items():
            here, there = np.array(pairs).T
            part = {key: array for key, array in load(number).items() if key in names}
            layout.put(block, here, part, there)
        labelled = layout.label(plan, columns, slice(rows.start, rows.stop), block)
        target = folder.path(name)
        if first == 0:
            encoding = {key: _encoding(labelled[key], size) for key in labelled.variables}
            labelled.to_zarr(target, mode="w", zarr_format=2, encoding=encoding, write_empty_chunks=True)
        else:
            labelled.to_zarr(target, append_dim="run", write_empty_chunks=True)


def _block_runs(table: Mapping[str, Variable], names: set[str], lengths: dict[str, int]) -> int:
    """Runs per chunk of the store: some megabytes of the largest variable."""
    largest = max(4 * int(np.prod([lengths[dim] for dim in table[name].dims])) for name in names)
    return int(np.clip(_BLOCK_BYTES // largest, 1, _BLOCK_RUNS))


def _encoding(variable: xr.DataArray, size: int) -> dict[str, object]:
    # The checksum makes a truncated or altered file an error for every reader.
    checked = {"compressors": [numcodecs.Zstd(level=1, checksum=True)]}
    if variable.dims[:1] != ("run",):
        return checked
    shuffle = [numcodecs.Shuffle(variable.dtype.itemsize)] if variable.dtype.kind in "if" else []
    return {**checked, "chunks": (size, *variable.shape[1:]), "filters": shuffle}


def read(directory: str | Path) -> xr.Dataset:
    """Opens the result in a study's folder; values are read when they are asked for.

    Raises:
      FileNotFoundError: there is none, its study is unfinished, or a file of it is missing.
    """
    folder = Folder(directory)
    if not folder.exists(RESULT):
        parts = len([name for name in folder.names(PARTS) if name.endswith(".npz")])
        held = f"an unfinished study ({parts} chunks of runs are done)" if parts else f"no result ({RESULT})"
        raise FileNotFoundError(f"{directory}: holds {held}; `pausejax run SPEC --out` finishes it")
    result = xr.open_zarr(folder.path(RESULT))
    size = result["identity"].encoding["chunks"][0]
    if any(True for _ in _missing_blocks(folder, result, size)):
        raise FileNotFoundError(f"{directory}: {RESULT} lacks files; `pausejax run` makes them again")
    return result
