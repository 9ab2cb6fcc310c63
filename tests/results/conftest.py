"""Fixtures of the tests of results."""

import pytest

from pausejax.results.folder import Folder


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path, monkeypatch):
    """A folder on the disk, or one under a URL."""
    monkeypatch.setattr("pausejax.results.snapshot.PAUSES", (0.0,))
    made = Folder(tmp_path / "out" if request.param == "disk" else f"memory://{tmp_path.name}/out")
    yield made
    made.remove("")
