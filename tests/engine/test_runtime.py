"""How JAX is set up, how fast devices are, what is kept of a measurement: on a made-up machine."""

import os
from types import SimpleNamespace

import pytest

from pausejax.engine import kept, runtime, speed


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


def test_what_a_user_has_set_up_stays(machine, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    machine.values["jax_compilation_cache_dir"] = "/elsewhere"
    runtime.set_up_jax(5)
    assert machine.told == {}
    monkeypatch.delenv("XLA_FLAGS")
    runtime.set_up_jax(5)
    assert machine.told == {"jax_num_cpu_devices": 5}


def test_a_rate_is_that_of_the_fastest_of_five_products(monkeypatch):
    """2 n³ operations each; the fifth took an eighth of a second."""
    taken = [1.0, 0.5, 2.0, 0.25, 0.125]
    ticks = iter([tick for i, seconds in enumerate(taken) for tick in (10.0 * i, 10.0 * i + seconds)])
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert speed.matrix_product_rate(3) == 2 * 27 / 0.125


def test_answers_are_kept_side_by_side_in_a_folder_that_was_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "not" / "yet"))
    assert kept.read("one") is None
    kept.write("one", {"lanes": 4})
    kept.write("other", {"lanes": 8, "conv": "direct"})
    assert kept.read("one") == {"lanes": 4} and kept.read("other") == {"lanes": 8, "conv": "direct"}
    kept.write("one", {"lanes": 2})
    assert kept.read("one") == {"lanes": 2} and kept.read("third") is None
    assert len(list((tmp_path / "not" / "yet" / "placement").iterdir())) == 2
