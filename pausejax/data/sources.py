"""The data sets by name: one function loads any of them into memory."""

import difflib
import os
from collections.abc import Callable

import numpy as np

from pausejax.data import tfds
from pausejax.data.dataset import Dataset

_DIGITS_TEST_SIZE = 360
_DIGITS_SPLIT_SEED = 0


def load(name: str, data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads a data set.

    Args:
      name: one of `DATASETS`.
      data_dir: folder of prepared TFDS copies, default `$PAUSEJAX_DATA_DIR` or else TFDS's own; unused by
        `digits`, which is bundled with scikit-learn.

    Raises:
      ValueError: no data set has this name, or the copy in `data_dir` is another one.
      FileNotFoundError: the data set is not on this machine and cannot be fetched; says what to run where.
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(str(name), DATASETS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"dataset: unknown data set {name!r}{hint}; known: {', '.join(DATASETS)}")
    return DATASETS[name](name, data_dir)


def _digits(name: str, data_dir: str | os.PathLike | None) -> Dataset:
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
        name,
        images[train],
        labels[train],
        images[test],
        labels[test],
        num_classes=10,
        pixel_mean=float(images[train].mean()),
        pixel_std=float(images[train].std()),
    )


DATASETS: dict[str, Callable[[str, str | os.PathLike | None], Dataset]] = {
    "digits": _digits,
    **dict.fromkeys(tfds.SOURCES, tfds.read),
}
