"""Distributes rows, such as runs, over the local devices. Each device holds its own share of the rows."""

import collections
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "runs"
"""The name of the one axis of every mesh."""
SPLIT, SHARED = PartitionSpec(AXIS), PartitionSpec()
"""The two placements: SPLIT cuts the first axis, the rows, and SHARED copies arrays to every device."""


_IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
"""Commands that XLA may put into CUDA graphs: its default commands, and WHILE and CONDITIONAL."""


_SHAPES_HELD = 16
"""Largest number of shapes for which JAX holds a compiled function. Above it, JAX's caches are cleared.

See docs/reliability.md."""


def local_devices() -> str:
    """Returns this process's devices in words, such as "2 × NVIDIA H100"."""
    kinds = collections.Counter(device.device_kind for device in jax.local_devices())
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items())


def runs_mesh(rows: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns a mesh with the one axis "runs" over the devices, or over `rows` of them if these are fewer.

    Args:
      rows: the number of rows.
      devices: the devices; the local ones if not given.
    """
    return Mesh(np.array((devices or jax.local_devices())[: max(rows, 1)]), (AXIS,))


def compiler_options(platform: str) -> dict[str, str | bool]:
    """Returns XLA's options for the programs of a study on one platform; empty unless it is a GPU.

    On a GPU, loops and conditionals become parts of CUDA graphs, so that the host reads no number between two
    kernels. XLA omits them from graphs if the driver does not support them. A flag that is set in `XLA_FLAGS`
    is not changed.
    """
    wanted: dict[str, str | bool] = {}
    if platform == "gpu":
        wanted["xla_gpu_enable_command_buffer"] = _IN_GRAPHS
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in wanted.items() if f"--{name}" not in flags}


def compile_for(
    lowered: jax.stages.Lowered, devices: Sequence[jax.Device] | None = None
) -> jax.stages.Compiled:
    """Compiles a program for some devices (the local ones if not given) with their `compiler_options`."""
    platform = (devices or jax.local_devices())[0].platform
    return lowered.compile(compiler_options=compiler_options(platform) or None)


def forget(jitted: Sequence[Any]) -> None:
    """Clears JAX's caches of some jitted functions. Compiled programs that a caller holds stay valid."""
    for function in jitted:
        function.clear_cache()


def make_room(jitted: Sequence[Any]) -> None:
    """Clears all of JAX's caches if one of these jitted functions has been compiled for many shapes.

    JAX caches the trace and the program of each shape, about 40 MB for a group of runs. The caches speed up a
    study that is played again. But they would let the memory of a process that plays many different studies
    grow without limit. Functions within a program have their own traces, which only `jax.clear_caches` drops.
    """
    if max(function._cache_size() for function in jitted) > _SHAPES_HELD:
        jax.clear_caches()


def padded(width: int, *, on_all: bool = False) -> int:
    """Rounds `width` up to a number of rows, so that all devices in use get equally many rows.

    Args:
      width: the number of rows without padding.
      on_all: whether all local devices are used; if false, at most one device for each row is used.
    """
    return width + -width % (len(jax.local_devices()) if on_all else runs_mesh(width).size)


def put(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Puts arrays on the devices of a mesh: cut along the first axis (`spec` SPLIT), or copied (SHARED)."""
    return jax.device_put(tree, NamedSharding(mesh, spec))


def put_shards(rows: Any, mesh: Mesh) -> jax.Array:
    """Cuts rows, [N, ...], into one shard for each device, and puts it there. Zeros pad short shards."""
    length = -(-len(rows) // mesh.size)

    def own(place: Any) -> np.ndarray:
        there = rows[place[0].start or 0 : place[0].stop]
        return np.pad(there, ((0, length - len(there)), *((0, 0),) * (rows.ndim - 1)))

    lengths = (length * mesh.size, *rows.shape[1:])
    return jax.make_array_from_callback(lengths, NamedSharding(mesh, SPLIT), own)


def shapes(tree: Any, mesh: Mesh, spec: PartitionSpec, rows: int | None = None) -> Any:
    """Returns the shapes of the arrays that `put` would return.

    Args:
      tree: the arrays, or their shapes.
      mesh: the mesh of devices.
      spec: the placement, SPLIT or SHARED.
      rows: the length of the first axis; by default the length that the arrays have.
    """
    sharding = NamedSharding(mesh, spec)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        lengths = tuple(leaf.shape) if rows is None else (rows, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(lengths, leaf.dtype, sharding=sharding)

    return jax.tree.map(shape, tree)
