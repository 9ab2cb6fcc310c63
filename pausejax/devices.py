"""How rows lie on the local devices: side by side along one axis, each device with its own share."""

import collections
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "runs"
"""The only one of every mesh here."""
SPLIT, SHARED = PartitionSpec(AXIS), PartitionSpec()
"""Along the rows, which come first; and the same on every device."""


_IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
"""Commands that XLA may put into CUDA graphs: those that it does by default, and the last two."""


_SHAPES_HELD = 16
"""Of studies that were played before; see docs/reliability.md."""


def local_devices() -> str:
    """This process's devices in words, such as "2 × NVIDIA H100"."""
    kinds = collections.Counter(device.device_kind for device in jax.local_devices())
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items())


def runs_mesh(rows: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh with one axis, "runs", over some devices (the local ones), or fewer if there are fewer rows."""
    return Mesh(np.array((devices or jax.local_devices())[: max(rows, 1)]), (AXIS,))


def compiler_options(platform: str) -> dict[str, str | bool]:
    """What XLA is told about the programs of a study on one kind of device; empty for the most part.

    On a GPU loops and choices become parts of CUDA graphs, so that the host need not look at a number between
    two kernels (a driver that can't do so makes XLA leave them out). A flag that `XLA_FLAGS` names is left as
    it says there.
    """
    wanted: dict[str, str | bool] = {}
    if platform == "gpu":
        wanted["xla_gpu_enable_command_buffer"] = _IN_GRAPHS
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in wanted.items() if f"--{name}" not in flags}


def compile_for(
    lowered: jax.stages.Lowered, devices: Sequence[jax.Device] | None = None
) -> jax.stages.Compiled:
    """A program for some devices, the local ones if not given, by their `compiler_options`."""
    platform = (devices or jax.local_devices())[0].platform
    return lowered.compile(compiler_options=compiler_options(platform) or None)


def forget(programs: Sequence[Any]) -> None:
    """Has JAX let go of what jitted functions were traced and compiled to; who holds a program keeps it."""
    for program in programs:
        program.clear_cache()


def make_room(programs: Sequence[Any]) -> None:
    """Has JAX let go of all that it holds where one of these jitted functions has been compiled often.

    JAX keeps what was traced and compiled for each shape, some 40 MB for a group of runs. A study that is
    played again finds its programs; a process that plays one new study after another would grow without end.
    Functions within a program have traces of their own, which only `jax.clear_caches` drops.
    """
    if max(program._cache_size() for program in programs) > _SHAPES_HELD:
        jax.clear_caches()


def padded(width: int, *, on_all: bool = False) -> int:
    """The next number of rows that fills up the devices that have some, or all the local ones."""
    return width + -width % (len(jax.local_devices()) if on_all else runs_mesh(width).size)


def put(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Arrays on the devices of a mesh."""
    return jax.device_put(tree, NamedSharding(mesh, spec))


def put_shares(rows: Any, mesh: Mesh) -> jax.Array:
    """The host's rows [N, ...] in equal shares, in turn, on the devices of a mesh; zeros fill up the last."""
    share = -(-len(rows) // mesh.size)

    def own(place: Any) -> np.ndarray:
        there = rows[place[0].start or 0 : place[0].stop]
        return np.pad(there, ((0, share - len(there)), *((0, 0),) * (rows.ndim - 1)))

    lengths = (share * mesh.size, *rows.shape[1:])
    return jax.make_array_from_callback(lengths, NamedSharding(mesh, SPLIT), own)


def shapes(tree: Any, mesh: Mesh, spec: PartitionSpec, rows: int | None = None) -> Any:
    """What `put` would give, as shapes alone; with another number of rows if given."""
    sharding = NamedSharding(mesh, spec)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        lengths = tuple(leaf.shape) if rows is None else (rows, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(lengths, leaf.dtype, sharding=sharding)

    return jax.tree.map(shape, tree)
