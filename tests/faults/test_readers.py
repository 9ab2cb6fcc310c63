"""Readers beside a process that extends what they read: old numbers, new ones, or an error of one line.

`--readers N` says how many; none without `--slow`.
"""

import collections
import random
import subprocess
import sys
import time

import numpy as np
import pytest

import pausejax
from pausejax.results import blocks
from pausejax.results.folder import Folder

from ..alike import assert_alike
from ..results.studies import expected, finish, make

WRITER = """
import random, shutil, sys, time
from pausejax.results import exchange
from pausejax.results.folder import Folder

out, *stores = sys.argv[1:]
folder = Folder(out)
rng = random.Random(0)
while True:
    for store in stores:
        shutil.copytree(store, f"{out}/.results.zarr.new.partial")
        with folder.lock(".lock"):
            exchange.replace(folder, ".results.zarr.new.partial")
        print(store, flush=True)
        time.sleep(rng.uniform(0, 0.3))
"""
SAID = (
    "has been extended or removed since it was opened. Open it again",
    "is extending results.zarr. Open it again later",
)


@pytest.mark.slow
def test_no_reader_sees_other_numbers_while_a_study_is_extended(tmp_path, monkeypatch, request):
    monkeypatch.setattr(blocks, "_BLOCK_RUNS", 3)
    plans = {len(plan.runs): plan for plan in (make(seeds=2), make(seeds=4), make(seeds=7))}
    results = {size: expected(plan) for size, plan in plans.items()}
    stores = []
    for size, plan in plans.items():
        finish(Folder(tmp_path / str(size)), plan)
        stores.append(str(tmp_path / str(size) / "results.zarr"))
    out = tmp_path / "out"
    finish(Folder(out), plans[min(plans)])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(out), *stores], stdout=subprocess.PIPE, text=True
    )
    try:
        writer.stdout.readline()
        first, readers = request.config.getoption("--first-seed"), request.config.getoption("--readers")
        outcomes = collections.Counter()
        for number in range(first, first + readers):
            said = read(out, results, random.Random(number))
            assert said == "read" or (said.endswith(SAID) and "\n" not in said), said
            outcomes["read" if said == "read" else "refused"] += 1
            assert writer.poll() is None
        print(f"{readers} readers from seed {first}: {dict(outcomes)}")
        assert outcomes["read"] > readers / 20 and outcomes["refused"] > readers / 20
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


def read(out, results, rng):
    """Opens a result, waits, and reads some of it; "read" where that went well, else what was said."""
    try:
        opened = pausejax.open(out)
        whole = results[opened.sizes["run"]]
        time.sleep(rng.uniform(0, 0.15))
        rows = np.sort(rng.sample(range(whole.sizes["run"]), rng.randrange(1, whole.sizes["run"])))
        names = rng.sample(sorted(whole.data_vars), rng.randrange(1, len(whole.data_vars) + 1))
        found = opened[names].isel(run=rows).load()
    except OSError as error:
        return str(error)
    assert_alike(found, whole[names].isel(run=rows))
    return "read"
