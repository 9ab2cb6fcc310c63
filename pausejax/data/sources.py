"""The data sets by name: one function loads any of them into memory."""

import os
from typing import Any

import numpy as np

from pausejax import parts
from pausejax.data import tfds
from pausejax.data.dataset import Dataset
from pausejax.parts import Part

_DIGITS_TEST_SIZE = 360
_DIGITS_SPLIT_SEED = 0


def load(part: str | Part, data_dir: str | os.PathLike | None = None, **values: Any) -> Dataset:
    """Loads a data set.

    Args:
      part: a data set or the name of a registered one.
      data_dir: folder of prepared TFDS copies, default `$PAUSEJAX_DATA_DIR` or else TFDS's own; unused by
        `digits`, which is bundled with scikit-learn.
      **values: of its own parameters; more is no mistake.

    Raises:
      ValueError: no data set has this name, or the copy in `data_dir` is another one.
      FileNotFoundError: the data set is not on this machine and cannot be fetched; says what to run where.
    """
    return parts.find("dataset", part).build(**values, data_dir=data_dir)


@parts.dataset
def digits() -> Dataset:
    """The 1,797 handwritten 8x8 digits of scikit-learn (UCI, Alpaydin and Kaynak 1998), pixels 0 to 16.

    The split is fixed and stratified: every class is in the test set in proportion.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = bunch.images.astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int32)
    train, test = train_test_split(
        np.arange(labels.size), test_size=_DIGITS_TEST_SIZE, stratify=labels, random_state=_DIGITS_SPLIT_SEED
    )
    return Dataset(
        "digits",
        images[train],
        labels[train],
        images[test],
        labels[test],
        num_classes=10,
        pixel_mean=float(images[train].mean()),
        pixel_std=float(images[train].std()),
    )


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
