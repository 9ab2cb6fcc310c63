"""Two processes that simulate the same study where the file system has no locks."""

import os
import subprocess

import pytest

import pausejax

from ..alike import assert_alike
from . import folders, specs

REFUSING = """
import errno, fcntl

def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = refuse
"""
STUDY = {**specs.BANDIT, "rounds": 500, "policy": [{"name": "pause"}, {"name": "random"}]}
OFTEN = ("--lanes", "2", "--checkpoint-every", "0")


@pytest.mark.slow
def test_two_processes_end_with_one_result_where_nothing_can_be_locked(tmp_path):
    spec = folders.write(tmp_path, STUDY)
    folders.play(spec, tmp_path / "alone", *OFTEN)
    (tmp_path / "sitecustomize.py").write_text(REFUSING)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    both = [
        subprocess.Popen(
            folders.command(spec, tmp_path / "both", "--quiet", *OFTEN),
            env={**os.environ, "PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        said = [process.communicate(timeout=300)[1] for process in both]
    finally:
        for process in both:
            folders.kill(process)
    assert [process.returncode for process in both] == [0, 0], said
    assert_alike(*(pausejax.open(tmp_path / name).load() for name in ("both", "alone")))
    assert sorted(os.listdir(tmp_path / "both")) == sorted(os.listdir(tmp_path / "alone"))
