"""Reading a result block by block of runs, so that memory does not grow with the number of runs."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

MAX_BYTES = 1 << 22


def run_blocks(*arrays: xr.DataArray, max_bytes: int = MAX_BYTES) -> Iterator[slice]:
    """Slices of the runs that cover all of them in order, cut where the stored chunks end.

    A slice holds at least one chunk, and no more of them than fit into `max_bytes`, all arrays together.

    Args:
      *arrays: with the leading dimension `run`, all of one length.
      max_bytes: memory for the values of one slice.
    """
    runs = arrays[0].sizes["run"]
    chunk = max(_stored_chunk(array) for array in arrays)
    row = sum(array.nbytes for array in arrays) / max(runs, 1)
    width = chunk * max(int(max_bytes / max(row * chunk, 1)), 1)
    for first in range(0, runs, width):
        yield slice(first, min(first + width, runs))


def _stored_chunk(array: xr.DataArray) -> int:
    """Runs per stored chunk; 1 for what is in memory only."""
    preferred = array.encoding.get("preferred_chunks") or {}
    chunks = array.encoding.get("chunks")
    return int(preferred.get("run", chunks[0] if chunks else 1))


def read(array: xr.DataArray, runs: slice) -> np.ndarray:
    """The values of some runs; the array itself stays on disk."""
    return array.isel(run=runs).values
