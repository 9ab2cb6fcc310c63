"""Defines the GPUs for which programs are compiled, by their makers' figures, and their assumed launch costs.

Launch costs are not calibrated on any device. `scripts/bench/gpu.py` takes the measurements that this needs.
"""

from typing import NamedTuple

_CONFIG = """
gpu_device_info {{
  name: "{name}"
  device_vendor: "NVIDIA Corporation"
  cuda_compute_capability {{ major: {major} minor: {minor} {features}}}
  core_count: {cores}
  fpus_per_core: {fpus}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: {threads}
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {shared_optin}
  shared_memory_per_core: {shared}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: {l2}
  memory_bandwidth: {bandwidth}
  device_memory_size: {memory}
  clock_rate_ghz: {clock}
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{name}"
"""


class Costs(NamedTuple):
    """Overheads of launches in seconds."""

    alone: float
    """Launch of a kernel by the host."""
    node: float
    """Launch of a kernel in a CUDA graph."""
    graph: float
    """Launch of a CUDA graph."""
    sync: float
    """Synchronisation, in which the host waits for the device and reads a number."""


LOW = Costs(2.0e-6, 1.0e-6, 4e-6, 6e-6)
MIDDLE = Costs(2.5e-6, 1.4e-6, 6e-6, 10e-6)
HIGH = Costs(4.0e-6, 2.0e-6, 10e-6, 20e-6)


class Target(NamedTuple):
    """Kind of GPU, with the figures of its maker."""

    name: str
    major: int
    minor: int
    features: str
    cores: int
    fpus: int
    threads: int
    shared: int
    shared_optin: int
    l2: int
    bandwidth: int
    """Memory bandwidth, bytes per second."""
    memory: int
    """Size of the device's memory, bytes."""
    clock: float
    """Clock rate, GHz."""
    peak: dict[str, float]
    """Dense FLOP/s of matrix products, by precision."""

    @property
    def config(self) -> str:
        """Returns the target in the form that XLA reads."""
        return _CONFIG.format(**self._asdict())


_ACCELERATED = "feature_extension: ACCELERATED_FEATURES "
TARGETS = {
    "h100": Target(
        "NVIDIA H100 80GB HBM3", 9, 0, _ACCELERATED, 132, 128, 2048, 233472, 232448, 52428800,
        3352320000000, 84942979072, 1.98, {"highest": 67e12, "tf32": 494e12, "bf16": 989e12},
    ),
    "a100": Target(
        "NVIDIA A100-SXM4-80GB", 8, 0, "", 108, 64, 2048, 167936, 166912, 41943040,
        2039040000000, 85100068864, 1.41, {"highest": 19.5e12, "tf32": 156e12, "bf16": 312e12},
    ),
    "l4": Target(
        "NVIDIA L4", 8, 9, "", 58, 128, 1536, 102400, 101376, 50331648,
        300096000000, 24146608128, 2.04, {"highest": 30.3e12, "tf32": 60e12, "bf16": 121e12},
    ),
}  # fmt: skip

REACHED = {"bandwidth": 0.8, "highest": 0.7, "tf32": 0.5, "bf16": 0.5}
"""Shares of bandwidth and peaks that kernels are assumed to reach."""
