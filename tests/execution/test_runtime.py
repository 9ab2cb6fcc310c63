"""How JAX is set up, how fast devices are, what is kept of a measurement: on a made-up machine."""

import os
from types import SimpleNamespace

import pytest

from pausejax.execution import runtime


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Three cores, of which this process may use two; what JAX is told."""
    told, values = {}, {"jax_compilation_cache_dir": None}
    config = SimpleNamespace(update=told.__setitem__, values=values)
    monkeypatch.setattr(runtime, "jax", SimpleNamespace(config=config))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2} if process == 0 else {0, 1, 2})
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=somewhere")
    return SimpleNamespace(told=told, values=values)


def test_runs_spread_over_the_cores_and_every_program_is_kept(machine, tmp_path):
    runtime.set_up_jax()
    assert machine.told == {
        "jax_num_cpu_devices": 2,
        "jax_compilation_cache_dir": str(tmp_path / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    runtime.set_up_jax(5)
    assert machine.told["jax_num_cpu_devices"] == 5


def test_a_system_that_does_not_say_which_cores_may_be_used_has_them_all(machine, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    for count, devices in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        runtime.set_up_jax()
        assert machine.told["jax_num_cpu_devices"] == devices


def test_what_a_user_has_set_up_stays(machine, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    machine.values["jax_compilation_cache_dir"] = "/elsewhere"
    runtime.set_up_jax(5)
    assert machine.told == {}
    monkeypatch.delenv("XLA_FLAGS")
    runtime.set_up_jax(5)
    assert machine.told == {"jax_num_cpu_devices": 5}
