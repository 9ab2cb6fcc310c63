"""TFDS keeps what it could import where a warning stops it half-way: here it comes before any can."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow_datasets  # noqa: F401
