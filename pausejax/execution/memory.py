"""Computes how many runs fit in parallel, from the memory of the devices and of the compiled programs."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

from pausejax.study.simulation import DeviceBytes, Simulation
from pausejax.study.spec import SpecError

# Share of the memory that programs may use. The rest is for fragmentation, arrays of the host loop, and other
# libraries on the device.
_MARGIN = 0.85

DATA_PLACEMENTS = ("replicated", "sharded")
"""The placements of training inputs: each device holds all of them, or an equal share of them."""

S = TypeVar("S", bound=Simulation)


def device_memory() -> int:
    """Returns the number of bytes that programs may use on each local device."""
    device = jax.local_devices()[0]
    statistics = device.memory_stats() or {}
    if "bytes_limit" in statistics:
        return int(_MARGIN * statistics["bytes_limit"])
    # Devices without memory of their own share the part of the host's memory that this process may use.
    return int(_MARGIN * _host_memory() / len(jax.local_devices()))


def _host_memory(root: Path = Path("/")) -> int:
    """Returns the bytes that this process may use: the host's, or its control groups' least limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limits(root):
        if file.is_file() and (text := file.read_text().strip()).isdecimal():
            total = min(total, int(text))
    return total


def _limits(root: Path) -> Iterator[Path]:
    """Yields the files with memory limits of this process's control group and of all groups above it."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            folder, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
            inside = Path(group.lstrip("/"))
            for above in (inside, *inside.parents):
                yield root / "sys/fs/cgroup" / folder / above / name
    yield root / "sys/fs/cgroup/memory.max"
    yield root / "sys/fs/cgroup/memory/memory.limit_in_bytes"


def program_memory(compiled: jax.stages.Compiled) -> int:
    """Returns the bytes that a program needs on each device: arguments (data included), outputs and
    temporary arrays."""
    used: Any = compiled.memory_analysis()
    return (
        used.argument_size_in_bytes
        + used.output_size_in_bytes
        + used.temp_size_in_bytes
        - used.alias_size_in_bytes  # donated arguments are their own outputs
    )


def near_mapping_limit() -> bool:
    """Returns whether this process has over a quarter of the memory mappings that Linux allows a process.

    Linux allows 65,530 by default. On a CPU, XLA makes mappings for every kernel of a program. A process that
    needs more mappings crashes.
    """
    try:
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
        return Path("/proc/self/maps").read_bytes().count(b"\n") > allowed / 4
    except (OSError, ValueError):
        return False


def runs_that_fit(resident: DeviceBytes, limit: int) -> int:
    """Returns how many runs fit on a device in addition to the data that all runs share.

    Temporary arrays are not counted.

    Args:
      resident: the bytes that stay on the device: those that all runs share, and those of each run.
      limit: the bytes that a program may use on the device.
    """
    free = limit - sum(resident.shared.values())
    return max(free // max(sum(resident.per_run.values()), 1), 0)


def check_data_placement(wanted: str | None) -> None:
    """Checks that `wanted` is a data placement or None.

    Raises:
      SpecError: `wanted` is neither.
    """
    if wanted not in (None, *DATA_PLACEMENTS):
        raise SpecError([f"data_placement = {wanted!r}: must be one of {', '.join(DATA_PLACEMENTS)}"])


def place_data(simulation: S, limit: int, wanted: str | None) -> S:
    """Returns a group's simulation with its training inputs placed as `wanted`: "replicated" or "sharded".

    If `wanted` is None, inputs are sharded only if a device has no room for all inputs and one run.
    """
    if wanted == "replicated":
        return simulation
    sharded = simulation.sharded()
    if wanted == "sharded":
        return sharded
    if sharded is simulation or runs_that_fit(simulation.device_bytes(), limit):
        return simulation
    return sharded if runs_that_fit(sharded.device_bytes(), limit) else simulation


def why_sharded(wanted: str | None, *, before: bool) -> str:
    """Returns the reason why a group's training inputs are sharded.

    Args:
      wanted: the requested placement.
      before: whether the inputs were sharded when the study began.
    """
    if wanted:
        return "as requested"
    return "as at the start of the study" if before else "no device has room for all of the data and a run"


def check(policy: str, simulation: Simulation, limit: int) -> None:
    """Checks that a device has room for at least one run of a group.

    Raises:
      SpecError: a device has no room; the message states the sizes in GB.
    """
    resident = simulation.device_bytes()
    if runs_that_fit(resident, limit):
        return

    def told(part: Mapping[str, int]) -> str:
        listed = ", ".join(f"{name} {size / 1e9:,.4g}" for name, size in part.items() if size)
        return f"{sum(part.values()) / 1e9:,.4g} GB ({listed})"

    shared, per_run = told(resident.shared), told(resident.per_run)
    instead, other = "", simulation.sharded()
    if other.input_shards > simulation.input_shards:
        instead = (
            f". With data_placement = sharded it would hold {told(other.device_bytes().shared)} for all runs"
        )
    raise SpecError(
        [
            f"policy {policy}: does not fit into memory: every device holds {shared} for all runs and "
            f"{per_run} for each of its runs, but has room for {limit / 1e9:,.4g} GB{instead}"
        ]
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether the error says that a device ran out of memory, while compiling or running."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
