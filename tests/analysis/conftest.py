"""Results to analyse, in memory and on disk."""

import pytest
import xarray as xr

from .made_up import AXES, POLICIES, build, store


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
    store(result, tmp_path, runs=7)
    return xr.open_zarr(tmp_path / "results.zarr")
