"""Data sets of one's own: from a file and from a function, of any shape, and their mistakes."""

import warnings

import numpy as np
import pytest

from pausejax import data, kinds, parts
from pausejax.clients.build import dataset_of
from pausejax.data import cache, tfds
from pausejax.data.host import Sources
from pausejax.study.plan import make_plan

LABELS = np.array([0, 1, 2, 1, 0, 2])


def arrays(**changes):
    made = {
        "x_train": np.arange(24, dtype=np.uint8).reshape(6, 2, 2, 1),
        "y_train": LABELS,
        "x_test": np.zeros((2, 2, 2, 1), np.uint8),
        "y_test": np.array([3, 0]),
    } | changes
    return {name: array for name, array in made.items() if array is not None}


def test_npz_holds_images_and_their_owners(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays(owner_train=np.array(["b", "a", "b", "c", "c", "c"])))
    loaded = data.load("npz", data_file=str(tmp_path / "a.npz"))
    assert loaded.train_inputs.dtype == np.uint8 and loaded.train_targets.dtype == np.int32
    assert loaded.classes == 4 and loaded.scale == (127.5, 127.5) and loaded.is_images
    np.testing.assert_array_equal(loaded.owner, [1, 0, 1, 2, 2, 2])
    shares = data.partition.split(
        "natural", loaded.train_targets, 3, 0, batch_size=20, owner=loaded.first(0).owner
    )
    np.testing.assert_array_equal(shares.sizes, [1, 2, 3])
    cut = loaded.first(4)
    assert len(cut.train_inputs) == len(cut.train_targets) == len(cut.owner) == 4
    assert len(cut.test_inputs) == 2


def test_other_types_become_what_devices_compute_with(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        **arrays(
            x_train=np.ones((6, 3)), x_test=np.ones((2, 3)), y_train=LABELS / 2, y_test=np.array([0.5, 1])
        ),
    )
    loaded = data.load("npz", data_file=str(tmp_path / "a.npz"))
    assert loaded.train_inputs.dtype == loaded.train_targets.dtype == np.float32
    assert loaded.scale is None and not loaded.is_images
    with pytest.raises(ValueError, match="targets must be integers, not float32"):
        loaded.classes  # noqa: B018


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "has no array y_test"),
        ({"y_train": LABELS[:5]}, "train: 6 inputs and 5 targets"),
        ({"x_test": np.zeros((2, 3, 2, 1), np.uint8)}, "test_inputs must be like train_inputs, uint8"),
        ({"x_test": np.zeros((2, 2, 2, 1))}, "test_inputs must be like train_inputs, uint8"),
        ({"x_train": np.full((6, 2), np.nan), "x_test": np.zeros((2, 2))}, "train_inputs must be finite"),
        ({"x_train": np.zeros((0, 2, 2, 1), np.uint8)}, "train_inputs must be numbers [N, ...], N > 0"),
        ({"x_train": np.array(["a"] * 6)}, "train_inputs must be numbers"),
        ({"y_train": np.array([None] * 6)}, "can't be read: "),
        ({"owner_train": np.zeros(5, int)}, "owner must have one entry a training sample, not (5,)"),
    ],
)
def test_mistakes_in_a_file_are_one_line(tmp_path, changes, message):
    file = tmp_path / "a.npz"
    np.savez(file, **arrays(**changes))
    with pytest.raises(ValueError) as raised:
        data.load("npz", data_file=str(file))
    line = str(raised.value)
    assert line.startswith(f'data.data_file = "{file}": ') and message in line and "\n" not in line


@pytest.mark.parametrize("content", [None, b"", b"x,y\n1,2\n", b"PK\x03\x04" + b"\0" * 40])
def test_a_file_that_is_none_is_one_line(tmp_path, content):
    file = tmp_path / "a.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match="can't be read: ") as raised:
        data.load("npz", data_file=str(file))
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=r"needs data\.data_file"):
        data.load("npz")


def test_a_data_set_by_registration_has_its_name_and_its_preprocessing():
    def waves(*, length: int = 5):
        inputs = np.ones((3, length, 2))
        return data.Dataset(inputs, np.ones(3), inputs, np.ones(3), preprocess=lambda x: 2 * x)

    def nothing():
        return np.zeros(3)

    made = data.load(parts.read("dataset", waves), length=7)
    assert made.name == "waves" and made.input_shape == (7, 2) and made.scale is None
    with pytest.raises(
        parts.PartError, match=r"must return a pausejax\.data\.Dataset, not ndarray"
    ) as raised:
        data.load(parts.read("dataset", nothing))
    assert str(raised.value).startswith(f"{__file__}: dataset nothing: ")


def test_a_spec_gives_a_data_set_its_own_values(tmp_path):
    (tmp_path / "own.py").write_text("""
import numpy as np, pausejax
@pausejax.dataset
def steps(*, height: int = 1):
    \"\"\"Everything is as high as one says.\"\"\"
    inputs = np.full((8, 2), 1.0 * height)
    return pausejax.data.Dataset(inputs, np.arange(8) % 2, np.zeros((2, 2)), np.arange(2))
""")
    document = {
        "rounds": 1,
        "use": [str(tmp_path / "own.py")],
        "network": {"num_clients": 2, "clients_per_round": 1},
        "data": {"dataset": "steps", "height": 3, "train_samples": 6},
        "training": {"model": "linear"},
        "policy": [{"name": "random"}],
    }
    plan = make_plan(kinds.parse(document))
    found = dataset_of(plan.study, plan.groups[0].static, Sources())
    np.testing.assert_array_equal(found.train_inputs, np.full((6, 2), 3))


@pytest.mark.slow
def test_every_flipped_bit_of_an_archives_headers_is_an_older_copy_or_none(tmp_path):
    """Among them the bits that say: encrypted, compressed in another way, of another size."""
    file, stored = tmp_path / "a.npz", {"a": np.arange(3, dtype=np.int32)}
    cache.write(file, stored)
    whole = file.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for bit in range(8 * len(whole)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            found = cache.read(file)
            if found is not None:
                np.testing.assert_array_equal(found["a"], stored["a"])


@pytest.mark.slow
def test_any_image_set_is_read_by_name_and_version(shared, tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    folder = shared / "tensorflow_datasets"
    loaded = data.load("tfds_image", folder, tfds_name="mnist", tfds_version="3.0.1")
    assert loaded.train_inputs.shape == (60_000, 28, 28, 1) and loaded.classes == 10
    assert loaded.scale == (127.5, 127.5) and loaded.name == "tfds_image"
    again = data.load("mnist", tmp_path / "nowhere")  # the cache of one is that of the other
    np.testing.assert_array_equal(loaded.train_targets, again.train_targets)


def test_an_image_set_that_nobody_has_prepared_is_named_with_the_command_that_does(tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    with pytest.raises(FileNotFoundError) as raised:
        data.load("tfds_image", tmp_path, tfds_name="kmnist", tfds_version="3.0.1")
    message = str(raised.value)
    assert f'pip install "{tfds.EXTRA}"' in message and "tfds build kmnist:3.0.1" in message
    assert "\n" not in message
    with pytest.raises(ValueError, match=r"needs data\.tfds_name and data\.tfds_version"):
        data.load("tfds_image", tmp_path)
