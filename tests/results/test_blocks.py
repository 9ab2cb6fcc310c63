"""Blocks of runs: their size, their files, and how finished runs become larger arrays."""

from types import SimpleNamespace

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import Variable
from pausejax.results import blocks, labels, manifest
from pausejax.results.folder import Folder
from pausejax.results.snapshot import opened

TABLE = {
    "elapsed": Variable(("round",), "float32", float("nan"), "s", "time"),
    "selected": Variable(("round", "slot"), "int32", -1, "1", "members"),
    "diverged_round": Variable((), "int32", 0, "1", "when"),
}

EXPECTED = blocks.ExpectedRuns(frozenset(), TABLE, SimpleNamespace(complete=lambda table, arrays: arrays))


def test_runs_find_their_places_and_leave_fill_values_behind_them():
    whole = labels.blank(TABLE, ["elapsed", "selected"], 3, {"round": 3, "slot": 2})
    assert {name: (array.shape, array.dtype) for name, array in whole.items()} == {
        "elapsed": ((3, 3), np.dtype("float32")),
        "selected": ((3, 3, 2), np.dtype("int32")),
    }
    part = {"elapsed": np.array([[1.0, 2], [3, 4]]), "selected": np.arange(4).reshape(2, 2, 1)}
    labels.put(whole, np.array([2, 0]), part, np.array([0, 1]))
    nan = np.nan
    np.testing.assert_array_equal(whole["elapsed"], [[3, 4, nan], [nan] * 3, [1, 2, nan]])
    np.testing.assert_array_equal(
        whole["selected"], [[[2, -1], [3, -1], [-1, -1]], [[-1, -1]] * 3, [[0, -1], [1, -1], [-1, -1]]]
    )


def test_a_store_is_read_block_by_block_and_a_damaged_one_is_named(tmp_path):
    values = np.arange(10.0).reshape(5, 2)
    runs = xr.Dataset(
        {"elapsed": (("run", "round"), values)}, {"identity": ("run", [f"run{n}" for n in range(5)])}
    )
    folder = Folder(tmp_path)
    parts = [runs.isel(run=rows) for rows in (slice(0, 2), slice(2, 4), slice(4, 5))]
    blocks.write_store(folder, "store", parts, 2)
    found = list(blocks.examine(folder, "store", EXPECTED))
    assert [source.identities for source in found] == [("run0", "run1"), ("run2", "run3"), ("run4",)]
    assert [source.shapes for source in found] == [{"elapsed": (n, 2)} for n in (2, 2, 1)]
    np.testing.assert_array_equal(np.concatenate([source.load()["elapsed"] for source in found]), values)
    chunks = opened(folder, "store", manifest.read(folder, "store"))["elapsed"].encoding["chunks"]
    assert chunks == (2, 2)
    (tmp_path / "store/elapsed/c/1/0").write_bytes(b"damaged")
    (tmp_path / "store/elapsed/c/2/0").unlink()
    first, *broken = blocks.examine(folder, "store", EXPECTED)
    assert first.identities == ("run0", "run1")
    assert broken == ["store, runs 3 to 4", "store, runs 5 to 5"]
    (tmp_path / "store/identity/c/0").write_bytes(b"damaged")
    assert list(blocks.examine(folder, "store", EXPECTED)) == ["store"]
