"""A checkpoint is used if it is whole, of the same runs and the same program; else the chunk begins anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.results.checkpoint import Checkpoint
from pausejax.results.folder import Folder
from pausejax.study.simulation import Segment

RUNS = ("aaaa", "bbbb", "cccc")
STATE = {
    "weights": jnp.asarray(np.random.default_rng(0).normal(size=(3, 50)), jnp.float32),
    "counts": jnp.arange(12, dtype=jnp.int32).reshape(3, 4),
}
ALL = np.arange(3)


def shapes(state):
    return lambda rows: jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), state
    )


def segment(first, last, value=1.0):
    return Segment(first, last, ALL, {"reward": np.full((3, last + 1 - first), value, np.float32)})


def open_(folder, runs=RUNS):
    return Checkpoint(Folder(folder), runs, 0.0)


def restore(folder, state=STATE, runs=RUNS):
    checkpoints = open_(folder, runs)
    return checkpoints.restore(shapes(state)), checkpoints.damaged


def assert_same_state(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert bits(a) == bits(b)


def bits(leaf):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf).tobytes()
    return np.asarray(leaf).tobytes()


@pytest.fixture
def kept(tmp_path):
    open_(tmp_path).save(STATE, [segment(1, 5)])
    return tmp_path


def place(folder, runs=RUNS):
    checkpoints = open_(folder, runs)
    checkpoints.close()
    return folder / checkpoints.place


def test_a_whole_one_is_restored(kept):
    (state, segments), damaged = restore(kept)
    assert_same_state(state, STATE)
    assert [part.last_round for part in segments] == [5] and not damaged
    np.testing.assert_array_equal(segments[0].positions, ALL)


def test_a_flipped_bit_anywhere_is_noticed(kept):
    files = sorted(place(kept).iterdir())
    assert [file.name for file in files] == ["records-1-5.npz", "state-5.npz"]
    rng = np.random.default_rng(1)
    contents = {file: file.read_bytes() for file in files}
    for path in files:
        for position in rng.integers(0, len(contents[path]), 40):
            altered = bytearray(contents[path])
            altered[position] ^= 1 << int(rng.integers(8))
            for file, content in contents.items():  # what is damaged is cleared away
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(bytes(altered) if file == path else content)
            assert restore(kept) == (None, True)


@pytest.mark.parametrize("other", [("aaaa", "bbbb"), ("bbbb", "aaaa", "cccc"), ("aaaa", "bbbb", "dddd")])
def test_a_checkpoint_of_other_runs_is_not_used_whatever_its_name(kept, other):
    place(kept).rename(place(kept, other))
    found, damaged = restore(kept, runs=other)
    assert found is None and not damaged


def test_a_checkpoint_of_another_program_is_neither_used_nor_damaged(kept):
    others = (
        {**STATE, "more": STATE["counts"]},
        {"weights": STATE["weights"], "cohorts": STATE["counts"]},
        {**STATE, "counts": STATE["counts"].astype(jnp.uint32)},
        {**STATE, "counts": STATE["counts"][:, :2]},
    )
    for other in others:
        assert restore(kept, other) == (None, False)
    assert restore(kept)[0]


KINDS = {
    "": ["bool_", "bfloat16", "complex64"],
    "int": [2, 4, 8, 16, 32],
    "uint": [2, 4, 8, 16, 32],
    "float": [16, 32, "4_e2m1fn"],
    "float8_": ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"],
}
TYPES = [f"{kind}{which}" for kind, several in KINDS.items() for which in several]


@pytest.mark.parametrize("name", TYPES)
def test_an_array_of_any_type_is_restored_bit_for_bit(tmp_path, name):
    dtype = np.dtype(getattr(jnp, name))
    content = np.random.default_rng(0).integers(0, 2, (3, 2, 16)).astype(np.float32).astype(dtype)
    state = (jnp.asarray(content), [jnp.zeros((3, 0), dtype), None])
    open_(tmp_path).save(state, [segment(1, 5)])
    (found, _), _ = restore(tmp_path, state)
    assert_same_state(found, state)


@pytest.mark.parametrize("name", ["int64", "uint64", "float64", "complex128"])
def test_so_is_one_of_64_bits(tmp_path, name):
    with jax.enable_x64(True):
        state = {"x": jnp.arange(3).astype(name) * 3}
        open_(tmp_path).save(state, [segment(1, 5)])
        (found, _), _ = restore(tmp_path, state)
        assert_same_state(found, state)
        assert found["x"].dtype == name


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_so_are_typed_keys(tmp_path, impl):
    state = {"key": jax.random.split(jax.random.key(7, impl=impl), (3, 2))}
    open_(tmp_path).save(state, [segment(1, 5)])
    (found, _), _ = restore(tmp_path, state)
    assert_same_state(found, state)
    draws = [jax.random.uniform(keys[2, 1]) for keys in (found["key"], state["key"])]
    assert draws[0] == draws[1]


def test_values_that_are_no_numbers_keep_their_bits(tmp_path):
    payload = np.array([0x7FC12345, 0xFFC00001, 0x80000000], np.uint32).view(np.float32)
    open_(tmp_path).save({"x": payload}, [segment(1, 5)])
    (found, _), _ = restore(tmp_path, {"x": payload})
    assert found["x"].tobytes() == payload.tobytes()


def test_of_two_processes_that_play_a_chunk_one_writes(kept):
    first, second = open_(kept), open_(kept)
    assert first.due() and not second.due()
    assert second.restore(shapes(STATE)) is None and not second.damaged
    second.save(STATE, [])
    second.remove()
    first.close()
    assert restore(kept)[0]
    open_(kept).remove()
    assert not any((kept / "checkpoints").iterdir())


def test_only_new_records_are_written_and_one_state_stays(kept):
    again = open_(kept)
    _, segments = again.restore(shapes(STATE))
    (place(kept) / "records-1-5.npz").chmod(0o400)
    before = (place(kept) / "records-1-5.npz").stat().st_ino
    again.save(STATE, [*segments, segment(6, 10), segment(11, 12)])
    names = sorted(path.name for path in place(kept).iterdir())
    assert names == ["records-1-5.npz", "records-11-12.npz", "records-6-10.npz", "state-12.npz"]
    assert (place(kept) / "records-1-5.npz").stat().st_ino == before
    again.close()
    (_, found), _ = restore(kept)
    assert [part[:2] for part in found] == [(1, 5), (6, 10), (11, 12)]


def test_a_damaged_one_is_left_for_the_one_before(kept, monkeypatch):
    again = open_(kept)
    again.restore(shapes(STATE))
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove", lambda self, name: None)  # killed before the older one goes
        again.save(jax.tree.map(lambda leaf: leaf + 1, STATE), [segment(1, 5), segment(6, 10, 2.0)])
    again.close()
    newer = place(kept) / "records-6-10.npz"
    newer.write_bytes(newer.read_bytes()[:-1])
    (state, segments), damaged = restore(kept)
    assert damaged and [part.last_round for part in segments] == [5]
    assert_same_state(state, STATE)


@pytest.mark.parametrize("name", ["state-5.npz", "records-1-5.npz"])
@pytest.mark.parametrize("kind", ["folder", "link", "gone"])
def test_what_is_no_file_is_damaged_and_in_nobodys_way(kept, name, kind):
    path = place(kept) / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/nonexistent/file")
    checkpoints = open_(kept)
    assert checkpoints.restore(shapes(STATE)) is None
    assert checkpoints.damaged == ((name, kind) != ("state-5.npz", "gone"))
    checkpoints.save(STATE, [segment(1, 5)])
    checkpoints.close()
    assert restore(kept)[0]


def test_what_a_killed_process_left_half_written_goes(kept):
    partial = place(kept) / "state-9.npz.0123.partial"
    partial.write_bytes(b"half")
    assert restore(kept)[0] and not partial.exists()


def test_a_full_disk_is_one_line_and_keeps_what_was_there(kept, monkeypatch):
    again, write = open_(kept), Folder.write

    def full(self, name, content):
        if "state-10" in name:
            raise OSError(28, "No space left on device")
        write(self, name, content)

    monkeypatch.setattr(Folder, "write", full)
    again.restore(shapes(STATE))
    with pytest.raises(OSError, match=r"^checkpoints/\w+: the checkpoint can't be written: No space left on"):
        again.save(STATE, [segment(1, 5), segment(6, 10)])
    again.close()
    (_, segments), damaged = restore(kept)
    assert [part.last_round for part in segments] == [5] and not damaged


def test_files_of_an_older_release_are_not_read_and_go_with_the_chunk(tmp_path):
    old = place(tmp_path) / "state-60"
    old.mkdir(parents=True)
    (old / "_METADATA").write_text("{}")
    (place(tmp_path) / "rounds-1-60.npz").write_bytes(b"rows of a group")
    (place(tmp_path) / "digest-60.npz").write_bytes(b"digest")
    assert restore(tmp_path) == (None, False)
    open_(tmp_path).remove()
    assert not any((tmp_path / "checkpoints").iterdir())


def test_under_a_url_there_are_checkpoints_too():
    folder = Folder("memory://checkpoints/study")
    first = Checkpoint(folder, RUNS, 0.0)
    assert first.due()
    first.save(STATE, [segment(1, 5)])
    second = Checkpoint(folder, RUNS, 0.0)
    state, _ = second.restore(shapes(STATE))
    assert_same_state(state, STATE)
    second.remove()
    assert folder.names("checkpoints") == []


def test_a_lock_follows_no_link_and_empties_no_file(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), Folder(tmp_path / "study").lock(".lock"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("name", ["state-5.npz", "records-1-5.npz"])
def test_a_file_of_another_chunk_is_not_used(kept, name):
    others = ("dddd", "eeee", "ffff")
    open_(kept, others).save(jax.tree.map(lambda leaf: leaf + 1, STATE), [segment(1, 5, 2.0)])
    (place(kept, others) / name).rename(place(kept) / name)
    assert restore(kept) == (None, False)


@pytest.mark.parametrize("exchanged", [True, False])
def test_records_of_other_rounds_are_damaged(kept, exchanged):
    again = open_(kept)
    _, segments = again.restore(shapes(STATE))
    again.save(STATE, [*segments, segment(6, 10, 2.0)])
    again.close()
    first, second = (place(kept) / f"records-{name}.npz" for name in ("1-5", "6-10"))
    content = second.read_bytes()
    if exchanged:
        second.write_bytes(first.read_bytes())
    first.write_bytes(content)
    assert restore(kept) == (None, True)


def test_a_state_of_another_round_is_damaged(kept):
    (place(kept) / "state-5.npz").rename(place(kept) / "state-10.npz")
    assert restore(kept) == (None, True)
