"""A checkpoint that has been damaged is never believed: it is whole, or the chunk starts over."""

import jax
import numpy as np
import pytest

from pausejax.results.checkpoint import Checkpoints, digest_of
from pausejax.results.folder import Folder
from pausejax.study.simulation import Segment


@pytest.fixture
def kept(tmp_path):
    state = {
        "weights": jax.numpy.asarray(np.random.default_rng(0).normal(size=(3, 50)), jax.numpy.float32),
        "counts": jax.numpy.arange(12, dtype=jax.numpy.int32).reshape(3, 4),
    }
    segments = [Segment(1, 5, np.arange(3), {"reward": np.ones((3, 5), np.float32)})]
    Checkpoints(Folder(tmp_path), "c", 0.0).save(state, segments)
    return tmp_path, state


def restore(folder, state):
    checkpoints = Checkpoints(Folder(folder), "c", 0.0)
    found = checkpoints.restore(
        lambda rows: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    )
    return found, checkpoints.damaged


def test_a_whole_one_is_restored(kept):
    folder, state = kept
    (found, segments), damaged = restore(folder, state)
    assert digest_of(found) == digest_of(state) and segments[-1].last_round == 5 and not damaged


# The library that reads states leaves tasks behind when it meets damage.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")
def test_a_flipped_bit_anywhere_is_found(kept):
    folder, state = kept
    files = [path for path in sorted((folder / "checkpoints" / "c").rglob("*")) if path.is_file()]
    rng, believed, refused = np.random.default_rng(1), 0, 0
    for path in files:
        content = path.read_bytes()
        for place in rng.integers(0, max(len(content), 1), 3 if content else 0):
            altered = bytearray(content)
            altered[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(altered))
            found, damaged = restore(folder, state)
            if found is None:
                refused += damaged
            else:
                # A bit of a time stamp, say, means nothing.
                believed += digest_of(found[0]) != digest_of(state)
                np.testing.assert_array_equal(found[1][0].records["reward"], 1.0)
            path.write_bytes(content)
    assert believed == 0 and refused >= 5


def test_the_digest_sees_values_shapes_and_types():
    ones = np.ones((2, 3), np.float32)
    others = [ones * 2, ones.reshape(3, 2), ones.astype(np.float64)]
    assert len({digest_of({"x": array}) for array in (ones, *others)}) == 4


def test_of_two_processes_that_play_a_chunk_one_keeps_it(kept):
    folder, state = kept
    first, second = (Checkpoints(Folder(folder), "c", 0.0) for _ in range(2))
    assert first.due() and not second.due()
    assert second.restore(lambda rows: state) is None and not second.damaged
    second.save(state, [])
    second.remove()
    assert (folder / "checkpoints" / "c" / "state-5").is_dir()
    first.remove()
    assert not any((folder / "checkpoints").iterdir())


def test_a_lock_follows_no_link_and_empties_no_file(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), Folder(tmp_path / "study").lock(".lock"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
