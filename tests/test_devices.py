"""How rows lie on devices; the tests have two of them, see conftest.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import devices
from pausejax.devices import SHARED, SPLIT


def test_a_mesh_has_no_more_devices_than_rows():
    assert [devices.runs_mesh(rows).size for rows in (0, 1, 2, 7)] == [1, 1, 2, 2]
    (own,) = devices.runs_mesh(5, jax.local_devices()[1:]).devices
    assert own == jax.local_devices()[1] and devices.runs_mesh(3).axis_names == ("runs",)


def test_rows_fill_up_the_devices_that_have_some():
    assert [devices.padded(width) for width in (1, 2, 3, 8)] == [1, 2, 4, 8]
    assert [devices.padded(width, on_all=True) for width in (1, 2, 3, 8)] == [2, 2, 4, 8]


def test_a_gpu_is_told_of_its_graphs_unless_the_environment_says_more(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    told = devices.compiler_options("gpu")
    assert list(told) == ["xla_gpu_enable_command_buffer"] and "WHILE" in next(iter(told.values()))
    assert devices.compiler_options("cpu") == {}
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=FUSION")
    assert devices.compiler_options("gpu") == {}
    monkeypatch.delenv("XLA_FLAGS")
    assert devices.compiler_options("gpu") == told


@pytest.mark.parametrize("shape", [(5,), (5, 3), (4, 3, 2), (1, 2)])
def test_shares_are_equal_and_zeros_fill_up_the_last(shape):
    mesh = devices.runs_mesh(2)
    rows = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    found = devices.put_shards(rows, mesh)
    each = -(-shape[0] // 2)
    assert found.shape == (2 * each, *shape[1:])
    np.testing.assert_array_equal(found[: shape[0]], rows)
    assert not np.asarray(found[shape[0] :]).any()
    assert [part.data.shape[0] for part in found.addressable_shards] == [each, each]


def test_shapes_are_those_that_are_put():
    mesh, tree = devices.runs_mesh(2), {"a": jnp.zeros((4, 3)), "b": jnp.zeros(4, jnp.int32)}
    for spec in (SPLIT, SHARED):
        there, told = devices.put(tree, mesh, spec), devices.shapes(tree, mesh, spec)
        for name in tree:
            assert (told[name].shape, told[name].dtype) == (tree[name].shape, tree[name].dtype)
            assert told[name].sharding == there[name].sharding
    more = devices.shapes(tree, mesh, SPLIT, rows=6)
    assert (more["a"].shape, more["b"].shape) == ((6, 3), (6,))
