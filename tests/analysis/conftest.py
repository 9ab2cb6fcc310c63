"""Results to analyse, in memory and on disk."""

import pytest
import xarray as xr

from .made_up import AXES, POLICIES, build


@pytest.fixture(params=["training", "bandit"])
def made(request):
    """(result, rows, last round of each run)."""
    return build(POLICIES, 6, AXES, request.param)


@pytest.fixture
def result():
    return build(POLICIES, 6, AXES)[0]


@pytest.fixture
def stored(result, tmp_path):
    """The same result on disk, seven runs a chunk."""
    chunked = result.copy()
    for array in chunked.data_vars.values():
        array.encoding["chunks"] = (7, *array.shape[1:])
    chunked.to_zarr(tmp_path / "results.zarr", zarr_format=2, consolidated=True)
    return xr.open_zarr(tmp_path / "results.zarr")
