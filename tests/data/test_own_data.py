"""Data sets of one's own: from a file and from a function, of any shape, and their mistakes."""

import warnings

import numpy as np
import pytest

import pausejax
from pausejax import data, kinds, parts
from pausejax.clients.build import dataset_of
from pausejax.data import cache, tfds
from pausejax.data.host import DataCache
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
        ({"y_test": None}, "must hold the array y_test"),
        ({"y_train": LABELS[:5]}, "train: must have equally many inputs and targets, not 6 inputs and 5"),
        (
            {"x_test": np.zeros((2, 3, 2, 1), np.uint8)},
            "test_inputs must have the type and sample shape of train_inputs, uint8",
        ),
        (
            {"x_test": np.zeros((2, 2, 2, 1))},
            "test_inputs must have the type and sample shape of train_inputs, uint8",
        ),
        ({"x_train": np.full((6, 2), np.nan), "x_test": np.zeros((2, 2))}, "train_inputs must be finite"),
        (
            {"x_train": np.zeros((0, 2, 2, 1), np.uint8)},
            "train_inputs must be numbers of shape [N, ...] with N > 0",
        ),
        ({"x_train": np.array(["a"] * 6)}, "train_inputs must be numbers"),
        ({"y_train": np.array([None] * 6)}, "can't be read: "),
        ({"owner_train": np.zeros(5, int)}, "one entry for each training sample, not [5]"),
        ({"owner_train": np.full(6, 0.5)}, "owner must be integers >= 0, or names, not float64 from 0.5"),
        ({"owner_train": np.full(6, np.nan)}, "owner must be integers >= 0, or names, not float64"),
        ({"owner_train": np.arange(6) - 1}, "must be integers >= 0, or names, not int64 from -1 to 4"),
        ({"owner_train": np.ones(6, bool)}, "owner must be integers >= 0, or names, not bool"),
        ({"y_train": LABELS + 2**40}, "train_targets must be int32, integers from -2147483648 to 2147483647"),
        (
            {"y_test": np.array([0, 2**63], np.uint64)},
            "test_targets must be int32, integers from -2147483648",
        ),
        ({"x_train": np.full((6, 2), -(2**31) - 1), "x_test": np.zeros((2, 2), int)}, "inputs must be int"),
        ({"x_train": np.full((6, 2), 1e39), "x_test": np.zeros((2, 2))}, "inputs must be finite in float32"),
        ({"x_train": np.full((6, 2), np.inf), "x_test": np.zeros((2, 2))}, "train_inputs must be finite"),
        ({"x_train": np.ones((6, 2), complex), "x_test": np.ones((2, 2), complex)}, "inputs must be numbers"),
        ({"y_train": LABELS.astype("M8[s]")}, "train_targets must be numbers"),
        (
            {"x_train": np.ones((6, 0)), "x_test": np.ones((2, 0))},
            "inputs must be numbers of shape [N, ...] with N > 0",
        ),
        (
            {"y_train": np.array(3)},
            "train_targets must be numbers of shape [N, ...] with N > 0, not int64 ()",
        ),
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


@pytest.mark.parametrize("field", ["mean", "std"])
def test_inputs_are_scaled_by_one_number(field):
    inputs = np.ones((3, 2))

    def features():
        return data.Dataset(inputs, np.ones(3), inputs, np.ones(3), **{field: np.ones(2)})

    with pytest.raises(ValueError, match=rf"{field} must be one number, not of shape \[2\]"):
        data.load(parts.read("dataset", features))


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
    found = dataset_of(plan.study, plan.groups[0].static, DataCache())
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
    again = data.load("mnist", folder)
    np.testing.assert_array_equal(loaded.train_targets, again.train_targets)
    # The two caches are apart, because the copy that `tfds_image` reads is not checked to be MNIST.
    assert len(list((tmp_path / "data").iterdir())) == 2


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


@pytest.mark.parametrize(
    ("targets", "num_classes", "said"),
    [
        ([0, -1, 2], 0, "targets must be integers from 0, not -1"),
        ([0, 1, 5], 3, "targets must be integers from 0 and below 3, not 5"),
        ([0.0, 1.0, 2.0], 0, "targets must be integers, not float32"),
        ([False, True, True], 0, "targets must be integers, not bool"),
    ],
)
def test_what_is_no_class_is_refused(targets, num_classes, said):
    inputs = np.ones((3, 2), np.float32)
    made = data.Dataset(inputs, np.array(targets), inputs, np.zeros(3, np.array(targets).dtype), num_classes)
    with pytest.raises(ValueError, match=said):
        data.checked(made, "here", "own").classes  # noqa: B018


def test_a_label_below_zero_has_no_owner_by_label():
    for part in ("dirichlet_label", "dirichlet_quantity", "shards"):
        with pytest.raises(ValueError, match="partitions by label need targets >= 0, not -1"):
            data.partition.split(part, np.array([0, 1, -1, 1]), 2, 0, batch_size=1)


@pytest.mark.parametrize(
    ("field", "value"), [("mean", np.nan), ("mean", np.inf), ("std", 0.0), ("std", -1.0), ("std", np.nan)]
)
def test_inputs_are_scaled_by_ordinary_numbers(field, value):
    inputs = np.ones((3, 2))
    made = data.Dataset(inputs, np.ones(3), inputs, np.ones(3), **{field: value})
    with pytest.raises(ValueError, match=f"here: {field} = .*: must be finite"):
        data.checked(made, "here", "own")


@pytest.mark.parametrize("field", ["train_inputs", "test_targets"])
def test_masked_entries_are_no_samples(field):
    """The numbers under a mask are often fill values such as 1e20 or -999."""
    made = data.Dataset(np.ones((3, 2)), np.zeros(3), np.ones((3, 2)), np.zeros(3))
    masked = np.ma.masked_less(getattr(made, field), 2)
    with pytest.raises(ValueError, match=f"^here: {field} must not have masked entries"):
        data.checked(made._replace(**{field: masked}), "here", "own")
    unmasked = np.ma.array(getattr(made, field))
    assert data.checked(made._replace(**{field: unmasked}), "here", "own").name == "own"


def test_the_order_of_memory_is_no_order_of_samples():
    made = arrays(x_train=np.arange(24.0).reshape(6, 4), x_test=np.zeros((2, 4)))
    fields = [made[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    plain = data.checked(data.Dataset(*fields), "here", "own")
    turned = data.checked(data.Dataset(*map(np.asfortranarray, fields)), "here", "own")
    np.testing.assert_array_equal(plain.train_inputs, turned.train_inputs)


def test_no_part_can_write_into_a_data_set():
    made = arrays()
    fields = [made[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    dataset = data.checked(data.Dataset(*fields, owner=np.arange(len(made["y_train"]))), "here", "own").first(
        2
    )
    for array in (*dataset[:4], dataset.owner):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("order", "sizes"), [([0.0, 1.0, 2.0], [1, 2]), ([0, 1, 2], [1.5, 1.5]), ([[0], [1], [2]], [1, 2])]
)
def test_a_partition_is_of_whole_numbers(order, sizes):
    def own(labels, num_clients, seed):
        return data.partition.Partition(np.array(order), np.array(sizes))

    with pytest.raises(parts.PartError, match="must be integers in one row"):
        data.partition.split(parts.read("partition", own), np.zeros(3, int), 2, 0)


def test_more_samples_than_the_data_set_has_are_refused():
    """They would be a setting of their own, with the numbers of another one."""
    wanted = "data.train_samples = 1438: must be at most 1437, the number of training samples of digits"
    with pytest.raises(pausejax.SpecError, match=wanted):
        pausejax.simulate("random", rounds=1, train_samples=[1437, 1438], model="linear")
