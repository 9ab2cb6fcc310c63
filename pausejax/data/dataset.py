"""What a data set is to the rest of the package: inputs, targets, and how the device prepares inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_PIXELS = 127.5


class Dataset(NamedTuple):
    """Samples on the host. Inputs keep their type until they are gathered on the device."""

    train_inputs: np.ndarray
    """[N, ...], of any shape and dtype; uint8 [N, H, W, C] for images."""
    train_targets: np.ndarray
    """[N, ...]: classes, int [N] in [0, num_classes), or whatever the task compares outputs with."""
    test_inputs: np.ndarray
    """[N_test, ...], as `train_inputs`."""
    test_targets: np.ndarray
    """[N_test, ...], as `train_targets`."""
    num_classes: int = 0
    """Distinct values of integer targets; 0: one more than the largest there is."""
    mean: float | None = None
    """Subtracted from the raw inputs, in their units; None: 127.5 for uint8, and nothing for other types."""
    std: float | None = None
    """Divides the centred inputs; None as for `mean`."""
    preprocess: Callable[[jax.Array], jax.Array] | None = None
    """Pure and traceable: a gathered batch of raw inputs [B, ...] to what the network sees, in place of
    subtracting `mean` and dividing by `std`."""
    owner: np.ndarray | None = None
    """int [N] in [0, K): who owns which training sample by nature; None: nobody."""
    name: str = ""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one raw sample; (H, W, C) for images."""
        return self.train_inputs.shape[1:]

    @property
    def scale(self) -> tuple[float, float] | None:
        """What inputs are centred by and divided by; None: nothing of the kind."""
        if self.preprocess is not None:
            return None
        standard = _PIXELS if self.train_inputs.dtype == np.uint8 else None
        mean = standard if self.mean is None else self.mean
        std = standard if self.std is None else self.std
        if mean is None and std is None:
            return None
        return mean or 0.0, 1.0 if std is None else std

    @property
    def classes(self) -> int:
        """The number of classes.

        Raises:
          ValueError: the targets are no integers from 0, or not below the number that is given.
        """
        return self.count_values("targets", 0)

    def count_values(self, kind: str, lowest: int) -> int:
        """How many classes there are in "targets", or tokens in "inputs".

        Args:
          kind: of the arrays.
          lowest: -1 where this stands for none.

        Raises:
          ValueError: they are no integers from the lowest, or not below the number that is given.
        """
        train, test = getattr(self, f"train_{kind}"), getattr(self, f"test_{kind}")
        if train.dtype.kind not in "iu":
            raise ValueError(f"{kind} must be integers, not {train.dtype}")
        least, largest = min(int(train.min()), int(test.min())), max(int(train.max()), int(test.max()))
        if least < lowest or 0 < self.num_classes <= largest:
            below = f" and below {self.num_classes}" if self.num_classes else ""
            wrong = least if least < lowest else largest
            raise ValueError(f"{kind} must be integers from {lowest}{below}, not {wrong}")
        return self.num_classes or 1 + largest

    @property
    def is_images(self) -> bool:
        """Whether the samples are labelled images, which can be drawn."""
        return (
            self.train_inputs.dtype == np.uint8
            and self.train_inputs.ndim == 4
            and self.train_inputs.shape[-1] in (1, 3)
            and self.train_targets.ndim == 1
        )

    def first(self, samples: int) -> "Dataset":
        """The data set with its first training samples only; with all of them for 0."""
        count = samples or len(self.train_inputs)
        owner = None if self.owner is None else self.owner[:count]
        return self._replace(
            train_inputs=self.train_inputs[:count], train_targets=self.train_targets[:count], owner=owner
        )


def normalize(inputs: jax.Array, mean: jax.Array | float, std: jax.Array | float) -> jax.Array:
    """(inputs - mean) / std as float32, same shape: apply it on the device after the gather."""
    return (inputs.astype(jnp.float32) - mean) / std


def checked(dataset: Dataset, where: str, name: str) -> Dataset:
    """A data set in the types that devices compute with, under its name, its owners numbered from 0.

    Raises:
      ValueError: its arrays can't be one; a line that begins with `where`.
    """
    arrays: dict[str, Any] = {}
    for field in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        array = np.asarray(getattr(dataset, field))
        if array.dtype.kind not in "buif" or not array.ndim or not array.size:
            raise ValueError(
                f"{where}: {field} must be numbers [N, ...], N > 0, not {array.dtype} {array.shape}"
            )
        is_image = array.dtype == np.uint8 and "input" in field
        arrays[field] = array if is_image else _on_device(array, f"{where}: {field}")
    for kind in ("inputs", "targets"):
        train, test = arrays[f"train_{kind}"], arrays[f"test_{kind}"]
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            raise ValueError(
                f"{where}: test_{kind} must be like train_{kind}, {train.dtype} [N, "
                f"{', '.join(map(str, train.shape[1:]))}], not {test.dtype} {test.shape}"
            )
    for split in ("train", "test"):
        inputs, targets = len(arrays[f"{split}_inputs"]), len(arrays[f"{split}_targets"])
        if inputs != targets:
            raise ValueError(f"{where}: {split}: {inputs} inputs and {targets} targets")
    owner = dataset.owner
    if owner is not None:
        if np.shape(owner) != (len(arrays["train_inputs"]),):
            raise ValueError(f"{where}: owner must have one entry a training sample, not {np.shape(owner)}")
        owner = np.asarray(owner)
        if owner.dtype.kind not in "iuUS" or (owner.dtype.kind == "i" and owner.min() < 0):
            raise ValueError(f"{where}: owner must be integers from 0, or names, not {_brief(owner)}")
        owner = np.unique(owner, return_inverse=True)[1].astype(np.int32)
    for field in ("mean", "std"):
        value = getattr(dataset, field)
        if value is not None and not (np.isfinite(value) and (field == "mean" or value > 0)):
            raise ValueError(f"{where}: {field} = {value}: must be finite{' and above 0' * (field == 'std')}")
    return dataset._replace(**arrays, owner=owner, name=dataset.name or name)


def _on_device(array: np.ndarray, what: str) -> np.ndarray:
    """The same numbers in a type that devices compute with.

    Raises:
      ValueError: they are no such numbers any more; a line that begins with `what`.
    """
    if array.dtype.kind in "iu":
        low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
        if array.min() < low or array.max() > high:
            raise ValueError(f"{what} must be integers from {low} to {high}, int32, not {_brief(array)}")
        return array.astype(np.int32)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise ValueError(f"{what} must be finite, as float32")
    return array


def _brief(array: np.ndarray) -> str:
    """What an array holds, in a message."""
    return (
        f"{array.dtype} from {array.min()} to {array.max()}"
        if array.dtype.kind in "iufb"
        else str(array.dtype)
    )
