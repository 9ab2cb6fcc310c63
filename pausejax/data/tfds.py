"""Image data sets of TensorFlow Datasets (TFDS), read as random-access records without TensorFlow."""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pausejax.data import cache
from pausejax.data.dataset import Dataset
from pausejax.parts.files import digest_of_file

_READ_AT_ONCE = 1000
_SPLITS = ("train", "test")
_INFO = "dataset_info.json"

EXTRA = "pausejax[prepare]"
"""Extra of the package that installs TensorFlow, which only the preparation of a copy needs."""


class Source(NamedTuple):
    """Content that a prepared copy of a data set must have. The version fixes the records and their order."""

    version: str
    train_counts: tuple[int, ...]
    """Number of training images of each class, which distinguishes data sets of the same shape."""
    test_size: int


SOURCES: dict[str, Source] = {
    "mnist": Source("3.0.1", (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949), 10_000),
    "fashion_mnist": Source("3.0.1", (6000,) * 10, 10_000),
    "cifar10": Source("3.0.2", (5000,) * 10, 10_000),
}


def read(name: str, data_dir: str | os.PathLike | None) -> Dataset:
    """Reads one of `SOURCES`: from the cache, else from a prepared copy, else downloads and prepares a copy.

    Args:
      name: a key of `SOURCES`.
      data_dir: the folder of prepared copies; default `$PAUSEJAX_DATA_DIR`, or else TFDS's own default.

    Raises:
      FileNotFoundError: there is no prepared copy and none can be made here; the message says what to run.
      ValueError: the content of the prepared copy is not that of the named data set.
    """
    source = SOURCES[name]

    def make() -> dict[str, np.ndarray]:
        arrays = _records(name, source.version, data_dir)
        _check(name, source, arrays)
        return arrays

    return _dataset(cache.cached(f"{name}-{source.version}", make), len(source.train_counts))


def read_any(name: str, version: str, data_dir: str | os.PathLike | None) -> Dataset:
    """Reads any data set of TFDS with splits train and test of labelled images of one size.

    The decoded images are cached for the content of the prepared copy, because a data set of one's own may be
    prepared again with other content and the same version.

    Args:
      name: the name in TFDS, followed by "/config" if the data set has configurations.
      version: the version, such as "3.0.1".
      data_dir: the folder of prepared copies; default `$PAUSEJAX_DATA_DIR`, or else TFDS's own default.

    Raises:
      FileNotFoundError: there is no prepared copy and none can be made here; the message says what to run.
      ValueError: the data set has other splits or features.
    """
    prepared = _folder(data_dir) / name / version
    if not (prepared / _INFO).is_file():
        with _quiet():
            _builder(name, version, data_dir)
    cached = f"{name.replace('/', '-')}-{version}-{_digest(prepared)[:16]}"
    return _dataset(cache.cached(cached, lambda: _records(name, version, data_dir)), 0)


def _dataset(arrays: dict[str, np.ndarray], num_classes: int) -> Dataset:
    fields = ("train_images", "train_labels", "test_images", "test_labels")
    train_inputs, train_targets, test_inputs, test_targets = (arrays[field] for field in fields)
    return Dataset(train_inputs, train_targets, test_inputs, test_targets, num_classes=num_classes)


def _digest(prepared: Path) -> str:
    """Returns the SHA-256 over the names and contents of all files of a prepared copy."""
    digest = hashlib.sha256()
    for path in sorted(path for path in prepared.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(prepared)} {digest_of_file(path)}\n".encode())
    return digest.hexdigest()


def _records(name: str, version: str, data_dir: str | os.PathLike | None) -> dict[str, np.ndarray]:
    with _quiet():
        builder = _builder(name, version, data_dir)
        features, splits = builder.info.features, builder.info.splits
        if missing := [split for split in _SPLITS if split not in splits]:
            raise ValueError(
                f"dataset: {name!r} must have the split {missing[0]!r}, but has only {', '.join(splits)}"
            )
        shape = features["image"].shape if "image" in features and "label" in features else None
        if shape is None or None in shape or len(shape) != 3:
            raise ValueError(f"dataset: {name!r} must hold labelled images that all have one fixed size")
        arrays: dict[str, np.ndarray] = {}
        for split in _SPLITS:
            records = builder.as_data_source(split=split)
            images = np.empty((len(records), *shape), np.uint8)
            labels = np.empty(len(records), np.int32)
            for start in range(0, len(records), _READ_AT_ONCE):
                some = range(start, min(start + _READ_AT_ONCE, len(records)))
                for i, record in zip(some, records.__getitems__(some), strict=True):
                    images[i], labels[i] = record["image"], record["label"]
            arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    return arrays


def _library() -> Any:
    """Imports TFDS and ignores its warnings.

    A warning that is raised as an error would leave a partial import.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds
    return tfds


def _folder(data_dir: str | os.PathLike | None) -> Path:
    """Returns the folder of prepared copies."""
    named = data_dir or os.environ.get("PAUSEJAX_DATA_DIR")
    return Path(named or _library().core.constants.DATA_DIR).expanduser()


def _builder(name: str, version: str, data_dir: str | os.PathLike | None) -> Any:
    """Returns a TFDS builder of a prepared copy; if there is no copy, tries to make a copy."""
    tfds, folder = _library(), _folder(data_dir)
    prepared = folder / name / version
    if (prepared / _INFO).is_file():
        builder = tfds.builder_from_directory(prepared)
        if builder.info.file_format is tfds.core.FileFormat.ARRAY_RECORD:
            return builder
        reason = (
            f"the copy in {prepared} must be stored as array_record, not {builder.info.file_format.value}"
        )
    else:
        try:
            # Without this check, TFDS would fail after the download.
            import tensorflow  # noqa: F401

            builder = tfds.builder(f"{name}:{version}", data_dir=folder, file_format="array_record")
            # MNIST and Fashion-MNIST have files of the same names, so they need separate folders.
            config = tfds.download.DownloadConfig(extract_dir=folder / "downloads" / "extracted" / name)
            builder.download_and_prepare(download_config=config)
            return builder
        except Exception as error:
            reason = f"there is no prepared copy in {prepared}, and making one failed ({_first_line(error)})"
    raise FileNotFoundError(
        f"dataset: {name!r} can't be read: {reason}. With network access on this machine, run `pip install"
        f' "{EXTRA}"`: pausejax then downloads the data set. Without it, run that command and `tfds build'
        f" {name}:{version} --file_format=array_record --data_dir=DIR` on another machine. Copy DIR to this"
        " machine, and name it by --data-dir or PAUSEJAX_DATA_DIR."
    )


def _check(name: str, source: Source, arrays: dict[str, np.ndarray]) -> None:
    counts = np.bincount(arrays["train_labels"], minlength=len(source.train_counts)).tolist()
    tests = len(arrays["test_labels"])
    if counts != list(source.train_counts) or tests != source.test_size:
        raise ValueError(
            f"dataset: the prepared copy of {name!r} is incomplete, or is another data set. It has"
            f" {counts} training images per class, not {list(source.train_counts)}, and {tests} test images,"
            f" not {source.test_size}. Prepare it again"
        )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides TFDS's log messages about optional packages within the `with` block; errors are still shown."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
