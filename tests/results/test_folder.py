"""Files of arrays: read as they were written, and nothing in them is executed."""

import hashlib
import io

import numpy as np
import pytest

from pausejax.results.folder import Folder


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("something was executed",))


def test_objects_in_a_file_of_arrays_are_refused(tmp_path):
    """Whoever writes the file can write its digest too."""
    archive = io.BytesIO()
    np.savez(archive, good=np.arange(3), evil=np.array([Evil()], object))
    content = archive.getvalue()
    (tmp_path / "part").write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(pytest.fail.Exception, match="was executed"):
        np.load(io.BytesIO(content), allow_pickle=True)["evil"]
    with pytest.raises(ValueError, match="allow_pickle"):
        Folder(tmp_path).read_arrays("part")
