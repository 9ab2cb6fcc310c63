"""Data sets: what is loaded, how the cache protects itself, and what is said when there is none."""

import gzip
import json
import re
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax import data
from pausejax.data import cache, pictures, tfds

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def mnist(shared, tmp_path_factory):
    """The prepared copy, read once, and the folder where it was cached."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAUSEJAX_CACHE_DIR", str(folder))
        return data.load("mnist", shared / "tensorflow_datasets"), folder


def test_digits_are_split_once_stratified_and_standardized():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    digits = data.load("digits")
    assert digits.train_inputs.dtype == np.uint8 and digits.train_targets.dtype == np.int32
    assert digits.train_inputs.shape == (1437, 8, 8, 1) and digits.test_inputs.shape == (360, 8, 8, 1)
    assert digits.input_shape == (8, 8, 1) and digits.num_classes == 10

    def rows(images, labels):
        return sorted(map(tuple, np.c_[images.reshape(len(images), -1), labels].tolist()))

    together = np.concatenate([digits.train_inputs, digits.test_inputs])
    labels = np.concatenate([digits.train_targets, digits.test_targets])
    assert rows(together, labels) == rows(bunch.images.astype(int), bunch.target)
    share = np.bincount(digits.test_targets) / np.bincount(bunch.target)
    assert np.ptp(share) < 0.01
    normal = np.asarray(data.normalize(digits.train_inputs, *digits.scale), np.float64)
    assert abs(normal.mean()) < 1e-6 and abs(normal.std() - 1) < 1e-6
    np.testing.assert_array_equal(data.load("digits").train_inputs, digits.train_inputs)


def test_digits_are_asked_of_their_library_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    first = data.load("digits")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    again = data.load("digits")
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(other, one)
    (kept,) = (tmp_path / "data").iterdir()
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    monkeypatch.undo()
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    with pytest.warns(UserWarning, match="is damaged. It is built again"):
        np.testing.assert_array_equal(data.load("digits").train_inputs, first.train_inputs)


def test_unknown_name_lists_the_known_ones_and_the_nearest():
    with pytest.raises(ValueError, match=r"'minst'; did you mean 'mnist'\?; known: digits, mnist, .*cifar10"):
        data.load("minst")


@pytest.mark.slow
def test_mnist_equals_the_original_files(mnist, shared):
    loaded, _ = mnist
    order = np.load(shared / "data" / "tfds_original_order.npz")
    for split, stem in (("train", "train"), ("test", "t10k")):
        folder = shared / "data" / "mnist"
        pixels = gzip.decompress((folder / f"{stem}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / f"{stem}-labels-idx1-ubyte.gz").read_bytes())
        images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28, 1)
        np.testing.assert_array_equal(getattr(loaded, f"{split}_inputs"), images[order[split]])
        expected = np.frombuffer(labels, np.uint8, offset=8)[order[split]]
        np.testing.assert_array_equal(getattr(loaded, f"{split}_targets"), expected)
    assert "tensorflow" not in sys.modules
    normal = np.asarray(data.normalize(loaded.train_inputs[:9], *loaded.scale))
    np.testing.assert_allclose(normal, (loaded.train_inputs[:9] / 255.0 - 0.5) / 0.5, atol=1e-6)


@pytest.mark.slow
def test_second_start_reads_the_cache_alone(mnist, monkeypatch, tmp_path):
    loaded, folder = mnist
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(folder))
    again = data.load("mnist", tmp_path)
    assert loaded.num_classes == again.num_classes == 10
    for before, after in zip(loaded[:4], again[:4], strict=True):
        np.testing.assert_array_equal(before, after)


def test_data_set_under_a_wrong_name_is_refused(monkeypatch, cache_folder):
    real = tfds.SOURCES["mnist"]
    labels = (np.repeat(np.arange(10), real.train_counts), np.arange(real.test_size) % 10)
    arrays = dict(zip(ARRAYS, (labels[0] * 0, labels[0], labels[1] * 0, labels[1]), strict=True))
    monkeypatch.setattr(tfds, "_records", lambda *_: arrays)
    with pytest.raises(ValueError, match="'fashion_mnist' is incomplete, or is another data set"):
        data.load("fashion_mnist")
    assert not cache_folder.exists()


def test_images_are_cached_for_the_content_of_a_prepared_copy(monkeypatch, cache_folder, tmp_path):
    """A data set of one's own may be prepared again with other content, or have one version twice."""

    def prepare(folder, pixel):
        copy = folder / "own" / "1.0.0"
        copy.mkdir(parents=True, exist_ok=True)
        (copy / "dataset_info.json").write_text("{}")
        (copy / "records").write_bytes(bytes([pixel]))

    def records(name, version, folder):
        reads.append(folder)
        pixel = (folder / name / version / "records").read_bytes()[0]
        images, labels = np.full((2, 2, 2, 1), pixel, np.uint8), np.arange(2, dtype=np.int32)
        return dict(zip(ARRAYS, (images, labels, images, labels), strict=True))

    reads = []
    monkeypatch.setattr(tfds, "_records", records)
    for folder, pixel in (("a", 1), ("b", 2), ("a", 3)):
        prepare(tmp_path / folder, pixel)
        for _ in range(2):
            assert (tfds.read_any("own", "1.0.0", tmp_path / folder).train_inputs == pixel).all()
    assert len(reads) == 3


@pytest.mark.slow
def test_cifar10_is_read_from_a_prepared_copy(shared, cache_folder):
    cifar = data.load("cifar10", shared / "tensorflow_datasets")
    assert cifar.train_inputs.shape == (50_000, 32, 32, 3) and cifar.test_inputs.shape == (10_000, 32, 32, 3)
    np.testing.assert_array_equal(np.bincount(cifar.test_targets), [1000] * 10)
    # the channel means that are published for this data set
    np.testing.assert_allclose(cifar.train_inputs.mean((0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=5e-5)


@pytest.fixture
def tiny(monkeypatch, cache_folder):
    """A source of three images and a count of how often it was read from its records."""
    arrays = {
        "train_images": np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1),
        "train_labels": np.array([0, 1, 0], np.int32),
        "test_images": np.zeros((1, 2, 2, 1), np.uint8),
        "test_labels": np.array([1], np.int32),
    }
    reads = []
    monkeypatch.setitem(tfds.SOURCES, "mnist", tfds.Source("9.9.9", (2, 1), 1))
    monkeypatch.setattr(tfds, "_records", lambda *args: (reads.append(args), arrays)[1])
    return cache_folder / "data" / "mnist-9.9.9.npz", reads


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "other"])
def test_damaged_cache_is_noticed_and_rebuilt(tiny, damage):
    file, reads = tiny
    data.load("mnist")
    data.load("mnist")
    assert len(reads) == 1
    whole = file.read_bytes()
    at = whole.index(bytes(range(12)))
    broken = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "flipped": whole[:at] + b"\xff" + whole[at + 1 :],
        "other": b"not an array file at all",
    }[damage]
    file.write_bytes(broken)
    with pytest.warns(UserWarning, match=r"mnist-9.9.9.npz is damaged. It is built again"):
        rebuilt = data.load("mnist")
    assert len(reads) == 2
    assert rebuilt.train_inputs.ravel().tolist() == list(range(12))
    assert set(cache.read(file)) == set(ARRAYS)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_cached_file_that_claims_to_be_encrypted_is_built_again(tiny):
    """Bit 0 of the flags of each entry, in its own header and in the directory at the end."""
    file, reads = tiny
    data.load("mnist")
    whole = file.read_bytes()
    flags = [
        match.start() + offset
        for signature, offset in ((rb"PK\x03\x04", 6), (rb"PK\x01\x02", 8))
        for match in re.finditer(signature, whole)
    ]
    assert len(flags) == 2 * (len(ARRAYS) + 1)
    for place in flags:
        file.write_bytes(whole[:place] + bytes([whole[place] | 1]) + whole[place + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert data.load("mnist").train_inputs.ravel().tolist() == list(range(12))
        assert cache.read(file) is not None
    assert len(reads) > 1


def test_whole_file_with_other_arrays_is_damaged_too(tiny):
    file, _ = tiny
    data.load("mnist")
    with np.load(file) as stored:
        arrays = dict(stored)
    arrays["train_labels"] = np.array([1, 0, 0], np.int32)
    with file.open("wb") as changed:
        np.savez(changed, **arrays)
    with pytest.warns(UserWarning, match="is damaged"):
        assert data.load("mnist").train_targets.tolist() == [0, 1, 0]


def test_a_whole_file_under_the_name_of_another_data_set_is_damaged_too(tiny):
    file, _ = tiny
    others = dict.fromkeys(ARRAYS, np.zeros(1, np.int32))
    cache.write(file.with_name("fashion_mnist-9.9.9.npz"), others)
    file.with_name("fashion_mnist-9.9.9.npz").rename(file)
    with pytest.warns(UserWarning, match=r"mnist-9.9.9.npz is damaged"):
        assert data.load("mnist").train_targets.tolist() == [0, 1, 0]


def test_interrupted_write_leaves_the_old_file(tiny, monkeypatch):
    file, _ = tiny
    data.load("mnist")
    before = file.read_bytes()

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.write(file, {"x": np.zeros(3)})
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]


def test_folder_that_cannot_be_written_costs_a_warning_only(tiny, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="can't be written") as caught:
        assert len(data.load("mnist").train_targets) == 3
    assert len(caught) == 1


@settings(max_examples=60, deadline=None)
@given(position=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_no_changed_byte_passes_for_the_data(tmp_path_factory, position, flip):
    file = tmp_path_factory.mktemp("flip") / "a.npz"
    arrays = {"a": np.arange(40, dtype=np.int32), "b": np.ones((2, 3), np.uint8)}
    cache.write(file, arrays)
    content = bytearray(file.read_bytes())
    content[int(position * len(content))] ^= flip
    file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = cache.read(file)
    # a byte of the container that means nothing may change
    if read is not None:
        for name in arrays:
            np.testing.assert_array_equal(read[name], arrays[name])
            assert read[name].dtype == arrays[name].dtype


def test_no_copy_and_no_way_to_make_one_says_what_to_run(monkeypatch, cache_folder, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(FileNotFoundError) as raised:
        data.load("cifar10", tmp_path)
    message = str(raised.value)
    assert "\n" not in message
    assert f"no prepared copy in {tmp_path}/cifar10/3.0.2" in message
    assert "tfds build cifar10:3.0.2 --file_format=array_record" in message and "PAUSEJAX_DATA_DIR" in message


def test_copy_in_another_file_format_is_named(shared, cache_folder, tmp_path):
    folder = tmp_path / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    source = shared / "tensorflow_datasets" / "mnist" / "3.0.1"
    info = json.loads((source / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "tfrecord"}))
    (folder / "features.json").write_text((source / "features.json").read_text())
    with pytest.raises(FileNotFoundError, match="must be stored as array_record, not tfrecord"):
        data.load("mnist", tmp_path)


def test_pictures_are_drawn(tmp_path):
    digits = data.load("digits")
    shared_out = data.partition.dirichlet_label(digits.train_targets, 7, 0, batch_size=1)
    for name, figure in (
        ("sheet", pictures.sample_sheet(digits)),
        ("shares", pictures.partition_picture(shared_out, digits.train_targets, "seven clients")),
    ):
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    bars = figure.axes[0].patches
    heights = np.array([bar.get_height() for bar in bars]).reshape(10, 7)
    np.testing.assert_array_equal(heights.T, shared_out.label_counts(digits.train_targets))
