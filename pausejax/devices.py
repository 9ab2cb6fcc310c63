"""How rows lie on the local devices: side by side along one axis, each device with its own share."""

import collections
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SPLIT, SHARED = PartitionSpec("runs"), PartitionSpec()
"""Along the rows, which come first; and the same on every device."""


def local_devices() -> str:
    """This process's devices in words, such as "2 × NVIDIA H100"."""
    kinds = collections.Counter(device.device_kind for device in jax.local_devices())
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items())


def runs_mesh(rows: int) -> Mesh:
    """A mesh with one axis, "runs", over the local devices, or fewer if there are fewer rows."""
    return Mesh(np.array(jax.local_devices()[: max(rows, 1)]), ("runs",))


def padded(width: int) -> int:
    """The next number of rows that fills up the devices."""
    return width + -width % runs_mesh(width).size


def put(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Arrays on the devices of a mesh."""
    return jax.device_put(tree, NamedSharding(mesh, spec))


def shapes(tree: Any, mesh: Mesh, spec: PartitionSpec, rows: int | None = None) -> Any:
    """What `put` would give, as shapes alone; with another number of rows if given."""
    sharding = NamedSharding(mesh, spec)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        lengths = tuple(leaf.shape) if rows is None else (rows, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(lengths, leaf.dtype, sharding=sharding)

    return jax.tree.map(shape, tree)
