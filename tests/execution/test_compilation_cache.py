"""Compiled programs that are kept: what comes back is what was put, or nothing."""

import warnings

import jax
import pytest
from jax._src import compilation_cache
from jax._src.lru_cache import LRUCache

from pausejax.execution import runtime
from pausejax.execution.compilation_cache import CheckedCache

PROGRAM = bytes(range(64))


@pytest.fixture
def cache(tmp_path):
    return CheckedCache(LRUCache(str(tmp_path), max_size=-1))


def test_a_program_comes_back_as_it_was_put(cache):
    assert cache.get("jit_f-1") is None
    cache.put("jit_f-1", PROGRAM)
    cache.put("jit_f-2", b"")
    assert (cache.get("jit_f-1"), cache.get("jit_f-2")) == (PROGRAM, b"")


def test_a_damaged_program_is_gone_and_may_be_put_again(cache, tmp_path):
    """Every byte of the file changed in one bit, the file cut at each, lengthened, or another's."""
    cache.put("jit_f-1", PROGRAM)
    path = tmp_path / "jit_f-1-cache"
    good = path.read_bytes()
    flipped = [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    cut = [good[:i] for i in range(len(good))]
    cache.put("jit_g-1", PROGRAM)
    others = (tmp_path / "jit_g-1-cache").read_bytes()
    for damaged in (*flipped, *cut, good + b"\0", others, PROGRAM):
        path.write_bytes(damaged)
        assert cache.get("jit_f-1") is None
        assert not path.exists()
        cache.put("jit_f-1", PROGRAM)
        assert path.read_bytes() == good
    assert cache.get("jit_f-1") == PROGRAM


@pytest.fixture
def users_cache(tmp_path, monkeypatch):
    """The folder of compiled programs, as `pausejax run` sets it up."""
    before = jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilation_cache, "get_file_cache", compilation_cache.get_file_cache)
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    runtime.set_up_jax()
    yield tmp_path / "compiled"
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def test_users_programs_are_checked_and_a_damaged_one_is_replaced(users_cache):
    def double():
        jax.clear_caches()
        compilation_cache.reset_cache()
        return jax.jit(lambda x: 2 * x)(jax.numpy.float32(3))

    double()
    (path,) = users_cache.glob("jit__lambda-*-cache")
    good = path.read_bytes()
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    path.write_bytes(damaged)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert double() == 6
    assert path.read_bytes() != damaged
    assert CheckedCache(LRUCache(str(users_cache), max_size=-1)).get(path.name.removesuffix("-cache"))


def test_another_folder_is_left_to_jax(users_cache, tmp_path):
    cache, path = compilation_cache.get_file_cache(str(tmp_path / "elsewhere"))
    assert isinstance(cache, LRUCache) and path == str(tmp_path / "elsewhere")
    cache, path = compilation_cache.get_file_cache(str(users_cache))
    assert isinstance(cache, CheckedCache) and path == str(users_cache)
