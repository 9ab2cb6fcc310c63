"""Defines a pool of experts (models), with their predictions on the stream and the costs to send them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Pool(NamedTuple):
    """Pool of experts (models), with the stream on which they are evaluated. All runs share the pool."""

    names: tuple[str, ...]
    parameters: np.ndarray
    """int32 [K], the number of parameters of each model."""
    predictions: np.ndarray
    """float32 [n, K], the predictions of each model, in [0, 1]."""
    targets: np.ndarray
    """float32 [n], the targets, in [0, 1]."""

    @property
    def costs(self) -> np.ndarray:
        """float64 [K], c_k: the model's parameters over the parameters of the largest model."""
        return self.parameters / self.parameters.max()


def make_pool(
    predictions: np.ndarray,
    targets: np.ndarray,
    parameters: Sequence[int],
    names: Sequence[str] | None = None,
) -> Pool:
    """Checks the arrays of a pool and returns the pool.

    Args:
      predictions: [n, K], the predictions of each model, in [0, 1].
      targets: [n], the targets, in [0, 1].
      parameters: [K], the number of parameters of each model, positive integers.
      names: the K names of the models; "model 0", "model 1", ... if not given.

    Raises:
      ValueError: the shapes do not fit, `parameters` are not positive integers, or a prediction or target is
        outside [0, 1].
    """
    predictions, targets = np.asarray(predictions, np.float32), np.asarray(targets, np.float32)
    counts = np.asarray(parameters)
    if (
        predictions.ndim != 2
        or targets.shape != predictions.shape[:1]
        or counts.shape != predictions.shape[1:]
    ):
        raise ValueError(
            "predictions, targets, parameters: must have the shapes [n, K], [n], [K], not "
            f"{predictions.shape}, {targets.shape}, {counts.shape}"
        )
    if not predictions.size:
        raise ValueError(f"predictions: must have entries, but the shape is {predictions.shape}")
    if not (np.issubdtype(counts.dtype, np.integer) and counts.min() > 0 and sum(counts.tolist()) < 2**31):
        raise ValueError(
            "parameters: must be integers > 0 with a sum < 2^31. If the sum is larger, give all numbers in a "
            "larger unit, such as thousands of parameters"
        )
    for name, values in (("predictions", predictions), ("targets", targets)):
        outside = values[~((values >= 0) & (values <= 1))]
        if outside.size:
            raise ValueError(
                f"{name}: must be from 0 to 1, not {outside[0]}. Rescale them: otherwise losses leave [0, 1]"
            )
    names = tuple(names) if names is not None else tuple(f"model {k}" for k in range(len(counts)))
    if len(names) != len(counts):
        raise ValueError(f"names: must have {len(counts)} entries, one for each model, not {len(names)}")
    return Pool(names, counts.astype(np.int32), predictions, targets)
