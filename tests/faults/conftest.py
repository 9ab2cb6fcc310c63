"""Settings shared by the tests of faults."""

import resource
from pathlib import Path

import pytest


@pytest.fixture
def little_memory():
    """Limits the memory that the test adds to the process: a spec that asks for all of it fails here.

    Other tests may have run in the process before, and the compiler of Vega-Lite reserves many addresses. So
    the limit counts from the present size.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**34, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
