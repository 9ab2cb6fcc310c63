"""Sets JAX up in a process that simulates, before any array is put on a device."""

import contextlib
import os

import jax

from pausejax.data.cache import cache_dir
from pausejax.study.document import SpecError

_SETTINGS = {
    "jax_threefry_partitionable": True,
    "jax_default_prng_impl": "threefry2x32",
    "jax_random_seed_offset": 0,
    "jax_enable_x64": False,
}
"""Default values of JAX's settings on which random numbers or the precision depend, by name."""


_FOR_DEBUGGING = {
    "jax_debug_nans": "results have NaN where there is no value",
    "jax_debug_infs": "the confidence bound of a client that was never selected is infinite",
    "jax_disable_jit": "rounds are one compiled program",
}
"""Settings of JAX that would end every study, each with the reason."""


def check_jax_settings() -> None:
    """Checks that JAX's settings for random numbers, the precision and debugging have their defaults.

    Raises:
      SpecError: a setting has another value, which would change the numbers of equal runs or end the study.
    """
    for name, reason in _FOR_DEBUGGING.items():
        if getattr(jax.config, name, False):
            raise SpecError(
                [f"{name} = True: must be False, because {reason}. Unset {name.upper()} in the environment"]
            )
    for name, needed in _SETTINGS.items():
        if (value := getattr(jax.config, name, needed)) != needed:
            raise SpecError(
                [
                    f"{name} = {value!r}: must be {needed!r}, because it would change the numbers of equal "
                    f"runs. Unset {name.upper()} in the environment, or call "
                    f"jax.config.update({name!r}, {needed!r})"
                ]
            )


def set_up_jax(cores: int | None = None) -> None:
    """Gives JAX one CPU device per core, and a folder in which it keeps compiled programs.

    The folder is in the user's cache folder. A folder that JAX's own setting names is used instead.

    Args:
      cores: the number of CPU devices. By default there is one for each core that this process may use.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # the devices are in use already: keep them
            jax.config.update("jax_num_cpu_devices", cores or _cores())
    if jax.config.values["jax_compilation_cache_dir"] is None:
        folder = str(cache_dir() / "compiled")
        # Other versions of JAX may store compiled programs in another way.
        with contextlib.suppress(ImportError, AttributeError):
            from pausejax.execution.compilation_cache import check_programs

            check_programs(folder)
        jax.config.update("jax_compilation_cache_dir", folder)
        # Small programs are cached too, so that a second start of a study compiles nothing.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _cores() -> int:
    """Returns how many cores this process may use: all cores if the system does not limit them (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
