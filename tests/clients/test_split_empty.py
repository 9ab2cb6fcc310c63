"""Does the compiler still crash on an array without elements? A line in `clients/loop.py` is for that alone.

Shardy of jaxlib 0.11.2 ends in `ManualComputationUnusedInputsPattern` by a segmentation fault; that of 0.10.2
does not. On one device, and where no other array comes with the empty one, it does not crash either.
"""

import os
import subprocess
import sys

import jax
import pytest

REDUCED = """
import jax, jax.numpy as jnp
mesh = jax.make_mesh((2,), ("runs",), axis_types=(jax.sharding.AxisType.Auto,))
split = jax.P("runs")
both = jax.shard_map(lambda empty, full: (empty, full), mesh=mesh, in_specs=split, out_specs=split)
empty, full = jax.jit(both)(jnp.ones((2, 0)), jnp.ones((2, 1)))
assert empty.shape == (2, 0) and full.shape == (2, 1)
"""


@pytest.mark.slow
@pytest.mark.xfail(
    jax.__version_info__ >= (0, 11), reason="the compiler crashes on an empty array", strict=False
)
def test_a_split_program_takes_an_array_without_elements():
    devices = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    run = subprocess.run(
        [sys.executable, "-c", REDUCED], env=os.environ | devices, capture_output=True, timeout=120
    )
    assert run.returncode == 0, run.stderr.decode()
