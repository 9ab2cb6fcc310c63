"""Reads, checks and writes the result one block of runs at a time, so that memory use stays bounded."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from pausejax.analysis.made import Provenance, provenance_of, with_provenance
from pausejax.analysis.quantities import Variable
from pausejax.results import labels, manifest
from pausejax.results.folder import Folder
from pausejax.results.labels import Labels
from pausejax.results.snapshot import Replaced, opened
from pausejax.study.simulation import Arrays
from pausejax.study.study import Kind, Plan

_BLOCK_BYTES = 2**24
_BLOCK_RUNS = 256


class StoredRuns(NamedTuple):
    """Finished runs in one file of `parts/` or one block of the result."""

    identities: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    """Shape of each variable, by name. It is {} if the runs are of another study, or if the file has not been
    checked (`parts.stored_in_part`)."""
    load: Callable[[], Arrays]
    provenance: tuple[Provenance, ...] = ()
    """The commands, devices and versions with which the runs were made."""
    file: str = ""
    """Name of the file of `parts/`; "" for a block."""


def shapes_of(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every variable."""
    return {name: array.shape for name, array in arrays.items()}


class ExpectedRuns(NamedTuple):
    """The runs that a study plans, finished or not, and the variables that each run must have."""

    identities: frozenset[str]
    """Identities of the runs."""
    variables: Mapping[str, Variable]
    """Variables by name, `Outputs.variables` of the study."""
    kind: Kind

    @classmethod
    def of(cls, plan: Plan) -> "ExpectedRuns":
        return cls(plan.known, plan.study.outputs.variables, plan.study.kind)

    def complete(self, arrays: Arrays) -> Arrays:
        """Returns the arrays of finished runs with all variables of the study.

        A file has the variables that the study had when the file was written. An extended study may have more
        variables. `Kind.complete` adds them.
        """
        return self.kind.complete(self.variables, arrays)


def examine(folder: Folder, name: str, expected: ExpectedRuns) -> Iterator[StoredRuns | str]:
    """Checks a result on disk block by block. Yields the runs of each intact block, and each damaged block's
    name.

    Raises:
      OSError: the result can't be read, which does not mean that it is damaged.
    """
    table = expected.variables

    def load(rows: slice) -> Arrays:
        block = store.isel(run=rows)
        return expected.complete({key: block[key].values for key in table if key in block.variables})

    def stored(rows: slice, arrays: Arrays) -> StoredRuns:
        return StoredRuns(tuple(identities[rows]), shapes_of(arrays), lambda: load(rows), provenance)

    # A damaged store can make its libraries raise any exception. In each case the runs in it count as not
    # finished.
    try:
        sealed = manifest.read(folder, name)
        # Files of values are left out here. They are compared with the manifest when they are read below.
        others = [f for f in sealed.files if manifest.is_metadata(f) or f.partition("/")[0] not in table]
        broken = manifest.damaged(folder, name, sealed, others)
        store = opened(folder, name, sealed, chunks=None)
        if any(manifest.is_metadata(file) or file.partition("/")[0] in store.coords for file in broken):
            raise ValueError("the description of the runs is damaged")
        identities = store["identity"].values.tolist()
        size = store["identity"].encoding["chunks"][0]
        provenance = tuple(provenance_of(store))
        absent = {block_of(store, file) for file in broken}
    except Exception as error:
        _raise_if_unread(error)
        yield name
        return
    for block, first in enumerate(range(0, len(identities), size)):
        rows = slice(first, first + size)
        try:
            if block in absent:
                raise FileNotFoundError
            arrays = load(rows)
        except Exception as error:
            _raise_if_unread(error)
            yield f"{name}, runs {first + 1} to {min(first + size, len(identities))}"
            continue
        yield stored(rows, arrays)


def _raise_if_unread(error: Exception) -> None:
    """Raises an error again if it says that a file could not be read, which is no damage."""
    if isinstance(error, OSError) and not isinstance(error, (*manifest.GONE, Replaced)):
        raise error


def block_of(store: xr.Dataset, file: str) -> int:
    """Returns the index of the block of runs to which a file of the store belongs.

    Raises:
      ValueError: the file belongs to no array with a `run` dimension.
    """
    variable, _, chunk = file.partition("/")
    if variable not in store.data_vars or store[variable].dims[:1] != ("run",):
        raise ValueError(f"{file}: belongs to no run")
    return int(chunk.split("/")[1])


def write(
    folder: Folder,
    name: str,
    planned: Labels,
    stored_runs: Sequence[StoredRuns],
    provenance: Sequence[Provenance] = (),
) -> None:
    """Writes finished runs into a new Zarr store, in the order of `planned`.

    Args:
      folder: the folder of the study.
      name: the name of the new store.
      planned: the labels of the runs.
      stored_runs: the parts and intact blocks that hold these runs.
      provenance: the commands, devices and versions with which the runs were made.
    """
    lengths = labels.sizes(planned.variables, (stored.shapes for stored in stored_runs))
    names = {variable for stored in stored_runs for variable in stored.shapes}
    largest = max(4 * int(np.prod([lengths[dim] for dim in planned.variables[name].dims])) for name in names)
    size = runs_per_block(largest)
    write_store(folder, name, labelled(planned, stored_runs, provenance, size), size)


def write_store(folder: Folder, name: str, parts: Iterable[xr.Dataset], size: int) -> None:
    """Writes a new Zarr store and seals it.

    Args:
      folder: the folder of the study.
      name: the name of the new store in the folder.
      parts: data sets of labelled runs; each holds `size` runs, and the last may hold fewer.
      size: the runs per chunk of the store.
    """
    for number, part in enumerate(parts):
        put(folder, name, part, size if number == 0 else None)
    seal(folder, name)


def runs_per_block(largest: int) -> int:
    """Returns the runs per chunk of a store, from 1 to `_BLOCK_RUNS`.

    A chunk of the largest variable has at most 16 MiB, unless a single run is larger.

    Args:
      largest: the bytes per run of the largest variable.
    """
    return int(np.clip(_BLOCK_BYTES // max(largest, 1), 1, _BLOCK_RUNS))


def labelled(
    planned: Labels, stored_runs: Sequence[StoredRuns], provenance: Sequence[Provenance], size: int
) -> Iterator[xr.Dataset]:
    """Yields labelled runs, `size` at a time, in the order of `planned`.

    Up to four parts and blocks are cached, because consecutive runs often lie in the same ones.

    Args:
      planned: the labels of the runs.
      stored_runs: the parts and blocks that hold the runs. The longest array among them sets a dimension's
        length.
      provenance: the commands, devices and versions with which the runs were made.
      size: the number of runs of each data set; the last one may hold fewer.
    """
    lengths = labels.sizes(planned.variables, (stored.shapes for stored in stored_runs))
    names = {variable for stored in stored_runs for variable in stored.shapes}
    identities = planned.identities
    place = {
        identity: (number, row)
        for number, stored in enumerate(stored_runs)
        for row, identity in enumerate(stored.identities)
    }

    @lru_cache(maxsize=4)
    def load(number: int) -> Arrays:
        return stored_runs[number].load()

    for first in range(0, len(identities), size):
        rows = range(first, min(first + size, len(identities)))
        block = labels.blank(planned.variables, names, len(rows), lengths)
        from_source: dict[int, list[tuple[int, int]]] = {}
        for here, row in enumerate(rows):
            number, there = place[identities[row]]
            from_source.setdefault(number, []).append((here, there))
        for number, pairs in from_source.items():
            here, there = np.array(pairs).T
            part = {key: array for key, array in load(number).items() if key in names}
            labels.put(block, here, part, there)
        yield with_provenance(planned.take(slice(rows.start, rows.stop)).label(block), provenance)


def put(folder: Folder, name: str, labelled: xr.Dataset, size: int | None) -> None:
    """Writes a block of runs: the first block of a new store if `size` is given, else the next block.

    Args:
      folder: the folder of the study.
      name: the name of the store in the folder.
      labelled: the labelled runs of the block.
      size: the runs per chunk of a new store; None: the block is appended.
    """
    # Zarr 3 stores strings of variable length.
    words = [name for name in labelled.coords if labelled[name].dtype.kind == "U"]
    labelled = labelled.assign_coords({key: labelled[key].astype(np.dtypes.StringDType()) for key in words})
    how: dict[str, Any] = {"append_dim": "run"}
    if size is not None:
        encoding = {key: _encoding(labelled[key], size) for key in labelled.variables}
        how = {"mode": "w", "encoding": encoding}
    how = {"zarr_format": 3, "consolidated": False, "write_empty_chunks": True, **how}
    with folder.errors():
        labelled.to_zarr(_location(folder, name), **how)


def _location(folder: Folder, name: str) -> Any:
    """Returns where Zarr writes a store. Zarr takes the text of a path with a "?" for a URL."""
    return zarr.storage.LocalStore(folder.path(name)) if folder.is_local else folder.path(name)


def seal(folder: Folder, name: str) -> None:
    """Completes a store: consolidates its metadata and writes its manifest.

    Raises:
      OSError: a chunk of an array is missing.
    """
    with folder.errors(), warnings.catch_warnings():
        # Zarr 3 does not specify consolidated metadata, but xarray warns if a store lacks them.
        warnings.filterwarnings("ignore", "Consolidated metadata")
        group = zarr.consolidate_metadata(_location(folder, name), zarr_format=3)
    # A reader would replace a missing chunk by fill values without an error.
    files = set(folder.tree(name))
    for array_name, array in group.arrays():
        grid = [-(-length // size) for length, size in zip(array.shape, array.chunks, strict=True)]
        chunks = ("/".join([array_name, "c", *map(str, index)]) for index in np.ndindex(*grid))
        if missing := next((chunk for chunk in chunks if chunk not in files), None):
            raise FileNotFoundError(f"{folder}: {name}/{missing} was removed while the result was written")
    manifest.seal(folder, name)


def _encoding(variable: xr.DataArray, size: int) -> dict[str, object]:
    # The checksum makes a truncated or altered file an error for every reader.
    compressors = [BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"), Crc32cCodec()]
    chunks = (size, *variable.shape[1:]) if variable.dims[:1] == ("run",) else variable.shape
    # Clients' models of length 0 are those of a study in which no client keeps weights of its own.
    return {"compressors": compressors, "chunks": tuple(max(length, 1) for length in chunks)}
