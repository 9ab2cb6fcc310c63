"""How the command's own process ends: as it is if it has loaded Ray, all said, with its code."""

import subprocess
import sys

import pytest

# What the C library calls when a process is taken apart: here it ends in SIGABRT.
START = """
import ctypes, sys, types
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.abort, None, None)
if {loaded}:
    sys.modules["ray"] = types.ModuleType("ray")
from pausejax.commands import main
{more}
sys.exit(main.main())
"""
PARTS = """
import atexit
atexit.register(print, "a library is told")
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="__cxa_atexit of the C library")


def end(*arguments, loaded=True, more=""):
    line = [sys.executable, "-c", START.format(loaded=loaded, more=more), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_a_process_that_has_loaded_ray_is_not_taken_apart(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    arguments = ("parts", "policy", "--use", str(tmp_path / "parts.py"))
    done = end(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sa_pause" in done.stdout and done.stdout.endswith("a library is told\n")
    assert end(*arguments, loaded=False).returncode == -6  # so would the first one have ended


@pytest.mark.slow
@pytest.mark.parametrize(("command", "code"), [("plan", 2), ("report", 1)])
def test_the_code_of_a_mistake_stays(tmp_path, command, code):
    done = end(command, str(tmp_path / "missing"))
    assert done.returncode == code and done.stderr.count("\n") == 1


def test_an_error_that_nobody_foresaw_is_no_success():
    done = end(more="main._carry_out = lambda *_, **__: 1 / 0")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
