"""What XLA makes of a round for an H100 that is not there: launches, waits, memory, and what must not be.

The compiler comes with the extra gpu-plan, or lies in .cache/gpu-plan; the newer JAX lies in .cache/py312 and
its compiler in the folder gpu-plan there. `scripts/test.sh --slow` makes both.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ROOT / ".cache" / "gpu-plan"
HAS_COMPILER = (BESIDE / "jax_plugins").is_dir() or importlib.util.find_spec("jax_plugins") is not None
NEWER = ROOT / ".cache" / "py312"
HAS_NEWER = (NEWER / "gpu-plan" / "jax_plugins").is_dir()

pytestmark = pytest.mark.slow

FEW = 100
"""Launches of a round without training, for any number of clients."""
KNOWN_CUSTOM_CALLS = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "__cublas$gemm"}
ONCE = "take_along_axis"
"""Its gradient adds one number to each place: the order of threads changes nothing."""


LAST = "newer JAX" if HAS_NEWER else "this JAX"
one_version = pytest.mark.parametrize("count", [LAST], indirect=True)
"""Both versions of JAX compile a bandit, annealing and training. The other programs take minutes."""


@pytest.fixture(scope="module", params=["this JAX", "newer JAX"])
def count(request, tmp_path_factory):
    """Compiles a case for the H100 once, and returns what `gpu_plan.py` keeps of it."""
    out, found = tmp_path_factory.mktemp("gpu_plan"), {}
    newer = request.param == "newer JAX"
    if newer and not HAS_NEWER:
        pytest.skip("no newer JAX here: scripts/test.sh --slow installs it where there is a Python 3.12")
    if not newer and not HAS_COMPILER:
        pytest.skip("no compiler for GPUs here: pip install 'pausejax[gpu-plan]'")
    python, beside = (NEWER / "bin" / "python", NEWER / "gpu-plan") if newer else (sys.executable, BESIDE)

    def counted(case, runs, *options):
        key = (case, runs, options)
        if key not in found:
            tag = f"-{len(found)}"
            command = [python, ROOT / "scripts/bench/gpu_plan.py", "--out", out, "--tag", tag]
            path = os.pathsep.join([str(beside), str(ROOT), os.environ.get("PYTHONPATH", "")])
            environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
            done = subprocess.run(
                [*map(str, command), "--case", case, "--runs", str(runs), *options],
                env=environment | {"PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=900,
            )
            file = out / f"h100-{case}-{runs}{tag}.json"
            assert file.exists(), done.stdout + done.stderr[-2000:]
            found[key] = json.loads(file.read_text())
        return found[key]

    return counted


def check(found):
    """What every program keeps to."""
    assert not found["callbacks"] and not found["collectives"] and not found["unsaid_precision"]
    assert set(found["custom_calls"]) <= KNOWN_CUSTOM_CALLS
    assert all(ONCE in source for source in found["float_atomics"])
    assert not found["unknown"], "a loop whose turns nobody has counted"


def check_rounds_without_training(found):
    check(found)
    assert found["launches"] <= FEW and found["syncs"] == 0 and not found["float64"]
    assert found["launches"] - found["in_graphs"] < 1


def test_rounds_without_training_are_few_launches_in_one_graph(count):
    check_rounds_without_training(count("pause-30", 256))


@one_version
@pytest.mark.parametrize(
    ("case", "runs"),
    [
        ("pause-300", 256),
        ("pause-3000", 64),
        ("random-3000", 64),
        ("random-30", 256),
        ("fedcs-300", 256),
        ("clustered_size-30", 256),
    ],
)
def test_so_are_those_of_every_kind_of_policy(count, case, runs):
    check_rounds_without_training(count(case, runs))


def test_annealing_never_waits_for_the_host(count):
    found = count("sa_pause-30", 256)
    check(found)
    assert found["syncs"] == 0 and found["launches"] < 2800 and not found["float64"]


def test_training_waits_for_the_host_four_times_at_most(count):
    found = count("mlp", 8)
    check(found)
    assert found["syncs"] <= 4 and found["launches"] < 350 and not found["float64"]


@one_version
def test_the_linkage_calls_nobody_back_and_is_where_float64_is(count):
    found = count("mlp-clustered_similarity", 8)
    check(found)
    assert any("ward" in source for source in found["float64"])


@one_version
def test_thousands_of_runs_fit_the_device(count):
    assert count("pause-300", 4096)["memory"] < 70e9


@one_version
def test_thousands_of_runs_that_train_fit_the_device(count):
    assert count("mlp", 4096)["memory"] < 70e9


@one_version
def test_eight_devices_play_without_talking_to_each_other(count):
    found, alone = count("pause-30", 2048, "--devices", "8"), count("pause-30", 256)
    check(found)
    assert found["memory"] < 1.1 * alone["memory"] and found["launches"] <= FEW
