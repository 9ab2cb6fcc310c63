"""Data sets by name, and the function that loads a data set into memory."""

import os
import zipfile
from importlib import metadata
from typing import Annotated, Any

import numpy as np

from pausejax import parts
from pausejax.data import cache, tfds
from pausejax.data.dataset import Dataset, checked
from pausejax.parts import File, Parameter, Part
from pausejax.parts.check import expect_type

_DIGITS_TEST_SIZE = 360
_DIGITS_SPLIT_SEED = 0
_NO_FILE = File("")

DataFile = Annotated[
    File,
    Parameter(
        help="data set npz: file with the arrays x_train, y_train, x_test, y_test and optionally owner_train"
    ),
]
TfdsName = Annotated[
    str, Parameter(help="data set tfds_image: name of the data set in TFDS, with /config if it has any")
]
TfdsVersion = Annotated[str, Parameter(help="data set tfds_image: version of the data set, such as 3.0.1")]


def load(part: str | Part, data_dir: str | os.PathLike | None = None, **values: Any) -> Dataset:
    """Loads a data set.

    Args:
      part: a data set part or the name of a registered data set.
      data_dir: the folder of prepared TFDS copies, default `$PAUSEJAX_DATA_DIR` or else TFDS's own; not used
        by `digits`, which is bundled with scikit-learn.
      **values: values of the part's parameters; other values are ignored.

    Raises:
      ValueError: no data set has this name, `data_dir` holds another data set, or the part does not return a
        data set.
      FileNotFoundError: the data set is not on this machine and can't be fetched; the message says what to
        run.
    """
    part = parts.find("dataset", part)
    made = part.build(**values, data_dir=data_dir)
    expect_type(part, made, Dataset, "pausejax.data.Dataset")
    return checked(made, part.where, part.name)


@parts.dataset
def digits() -> Dataset:
    """The 1,797 handwritten 8x8 digits of scikit-learn (UCI, Alpaydin and Kaynak 1998), pixels 0 to 16.

    The split is fixed and stratified: the training and test sets have the same class shares.
    """
    # Loading scikit-learn takes longer than planning a small study. So the arrays are cached.
    made = f"{metadata.version('scikit-learn')}-{_DIGITS_TEST_SIZE}-{_DIGITS_SPLIT_SEED}"
    arrays = cache.cached(f"digits-{made}", _split_digits)
    images = arrays["train_images"]
    return Dataset(
        images,
        arrays["train_labels"],
        arrays["test_images"],
        arrays["test_labels"],
        num_classes=10,
        mean=float(images.mean()),
        std=float(images.std()),
    )


def _split_digits() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = bunch.images.astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int32)
    train, test = train_test_split(
        np.arange(labels.size), test_size=_DIGITS_TEST_SIZE, stratify=labels, random_state=_DIGITS_SPLIT_SEED
    )
    return {
        "train_images": images[train],
        "train_labels": labels[train],
        "test_images": images[test],
        "test_labels": labels[test],
    }


@parts.dataset
def mnist(*, data_dir: str | os.PathLike | None) -> Dataset:
    """70,000 handwritten digits, 28x28 (LeCun et al. 1998)."""
    return tfds.read("mnist", data_dir)


@parts.dataset
def fashion_mnist(*, data_dir: str | os.PathLike | None) -> Dataset:
    """70,000 pictures of clothes, 28x28 (Xiao, Rasul, Vollgraf 2017)."""
    return tfds.read("fashion_mnist", data_dir)


@parts.dataset
def cifar10(*, data_dir: str | os.PathLike | None) -> Dataset:
    """60,000 colour photographs of ten classes, 32x32 (Krizhevsky 2009)."""
    return tfds.read("cifar10", data_dir)


@parts.dataset
def tfds_image(
    *, data_dir: str | os.PathLike | None, tfds_name: TfdsName = "", tfds_version: TfdsVersion = ""
) -> Dataset:
    """Any image-classification set of TensorFlow Datasets with images of one size and a test split.

    Raises:
      ValueError: `tfds_name` or `tfds_version` is empty, or the set has other splits or features.
      FileNotFoundError: there is no prepared copy and none can be made here.
    """
    if not tfds_name or not tfds_version:
        raise ValueError('data.dataset = "tfds_image": needs data.tfds_name and data.tfds_version')
    return tfds.read_any(tfds_name, tfds_version, data_dir)


@parts.dataset
def npz(*, data_file: DataFile = _NO_FILE) -> Dataset:
    """Your own arrays in an .npz file: x_train, y_train, x_test, y_test, and optionally owner_train [N].

    Raises:
      ValueError: no file is given, the file can't be read, or its arrays are not a valid data set.
    """
    if not data_file:
        raise ValueError('data.dataset = "npz": needs data.data_file, the path of an .npz file')
    names = ("x_train", "y_train", "x_test", "y_test")
    try:
        # Opened here, because NumPy does not close a file that it can't read.
        with open(data_file, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: file[name] for name in (*names, "owner_train") if name in file.files}
    except (OSError, EOFError, ValueError, TypeError, RuntimeError, MemoryError, zipfile.BadZipFile) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f'data.data_file = "{data_file}": can\'t be read: {reason}') from error
    if missing := [name for name in names if name not in found]:
        raise ValueError(f'data.data_file = "{data_file}": must hold the array {missing[0]}, but lacks it')
    x_train, y_train, x_test, y_test = (found[name] for name in names)
    made = Dataset(x_train, y_train, x_test, y_test, owner=found.get("owner_train"))
    return checked(made, f'data.data_file = "{data_file}"', "npz")
