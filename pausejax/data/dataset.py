"""Data sets: inputs, targets, and the preparation of inputs on the device."""

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
    """[N, ...]: classes, int [N] in [0, num_classes), or other targets that the task's loss takes."""
    test_inputs: np.ndarray
    """[N_test, ...], as `train_inputs`."""
    test_targets: np.ndarray
    """[N_test, ...], as `train_targets`."""
    num_classes: int = 0
    """Number of classes of integer targets; 0 means one more than the largest target."""
    mean: float | None = None
    """Number that is subtracted from raw inputs; None means 127.5 for uint8, and 0 for other types."""
    std: float | None = None
    """Number by which centred inputs are divided; None means 127.5 for uint8, and 1 for other types."""
    preprocess: Callable[[jax.Array], jax.Array] | None = None
    """Function from a gathered batch of raw inputs [B, ...] to the inputs of the network, pure and traceable.
    It replaces the use of `mean` and `std`. It should treat each sample alone, because the other samples of a
    batch depend on the device and on how short batches are filled."""
    owner: np.ndarray | None = None
    """int [N] in [0, K), the natural owner of each training sample; None if samples have no owner."""
    name: str = ""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one raw sample; (H, W, C) for images."""
        return self.train_inputs.shape[1:]

    @property
    def scale(self) -> tuple[float, float] | None:
        """Mean and standard deviation by which inputs are standardized; None if they are not standardized."""
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
        """Number of classes.

        Raises:
          ValueError: the targets are not integers >= 0, or not below the given `num_classes`.
        """
        return self.count_values("targets", 0)

    def count_values(self, kind: str, lowest: int) -> int:
        """Returns the number of classes in "targets", or of tokens in "inputs".

        Args:
          kind: the kind of arrays, "targets" or "inputs".
          lowest: the smallest allowed value; -1 if targets may be -1, which means no class.

        Raises:
          ValueError: the values are not integers >= `lowest`, or not below the given `num_classes`.
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
        """Whether the samples are images with labels, which can be drawn."""
        return (
            self.train_inputs.dtype == np.uint8
            and self.train_inputs.ndim == 4
            and self.train_inputs.shape[-1] in (1, 3)
            and self.train_targets.ndim == 1
        )

    def first(self, samples: int) -> "Dataset":
        """Returns the data set with only the first `samples` training samples; 0 keeps all."""
        count = samples or len(self.train_inputs)
        owner = None if self.owner is None else self.owner[:count]
        return self._replace(
            train_inputs=self.train_inputs[:count], train_targets=self.train_targets[:count], owner=owner
        )


def normalize(inputs: jax.Array, mean: jax.Array | float, std: jax.Array | float) -> jax.Array:
    """Computes (inputs - mean) / std as float32, in the same shape, on the device after the gather."""
    return (inputs.astype(jnp.float32) - mean) / std


def checked(dataset: Dataset, where: str, name: str) -> Dataset:
    """Returns a data set with its name, with types that devices compute with, and owners numbered from 0.

    The arrays are read-only. A user's function that wrote into them would change the runs of other parts.

    Raises:
      ValueError: the arrays are not a valid data set; the message begins with `where`.
    """
    arrays: dict[str, Any] = {}
    for field in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        given = getattr(dataset, field)
        if np.ma.is_masked(given):
            raise ValueError(f"{where}: {field} must not have masked entries: leave them out, or fill them")
        array = np.asarray(given)
        if array.dtype.kind not in "buif" or not array.ndim or not array.size:
            raise ValueError(
                f"{where}: {field} must be numbers of shape [N, ...] with N > 0, not {array.dtype} "
                f"{array.shape}"
            )
        is_image = array.dtype == np.uint8 and "input" in field
        arrays[field] = array if is_image else _on_device(array, f"{where}: {field}")
    for kind in ("inputs", "targets"):
        train, test = arrays[f"train_{kind}"], arrays[f"test_{kind}"]
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            raise ValueError(
                f"{where}: test_{kind} must have the type and sample shape of train_{kind}, {train.dtype} "
                f"{train.shape[1:]}, not {test.dtype} {test.shape[1:]}"
            )
    for split in ("train", "test"):
        inputs, targets = len(arrays[f"{split}_inputs"]), len(arrays[f"{split}_targets"])
        if inputs != targets:
            raise ValueError(
                f"{where}: {split}: must have equally many inputs and targets, not {inputs} inputs and "
                f"{targets} targets"
            )
    owner = dataset.owner
    if owner is not None:
        if np.shape(owner) != (len(arrays["train_inputs"]),):
            raise ValueError(
                f"{where}: owner must have the shape [{len(arrays['train_inputs'])}], one entry for each "
                f"training sample, not {list(np.shape(owner))}"
            )
        owner = np.asarray(owner)
        if owner.dtype.kind not in "iuUS" or (owner.dtype.kind == "i" and owner.min() < 0):
            raise ValueError(f"{where}: owner must be integers >= 0, or names, not {_brief(owner)}")
        owner = np.unique(owner, return_inverse=True)[1].astype(np.int32)
    for field in ("mean", "std"):
        value = getattr(dataset, field)
        if value is not None and np.ndim(value):
            shape = list(np.shape(value))
            raise ValueError(
                f"{where}: {field} must be one number, not of shape {shape}. `preprocess` can scale features"
            )
        if value is not None and not (np.isfinite(value) and (field == "mean" or value > 0)):
            raise ValueError(f"{where}: {field} = {value}: must be finite{' and > 0' * (field == 'std')}")
    arrays = {field: _read_only(array) for field, array in arrays.items()}
    owner = None if owner is None else _read_only(owner)
    return dataset._replace(**arrays, owner=owner, name=dataset.name or name)


def _read_only(array: np.ndarray) -> np.ndarray:
    found = array.view()
    found.flags.writeable = False
    return found


def _on_device(array: np.ndarray, what: str) -> np.ndarray:
    """Converts an array to a type that devices compute with.

    Raises:
      ValueError: a number does not fit the type; the message begins with `what`.
    """
    if array.dtype.kind in "iu":
        low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
        if array.min() < low or array.max() > high:
            raise ValueError(f"{what} must be int32, integers from {low} to {high}, not {_brief(array)}")
        return array.astype(np.int32)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise ValueError(f"{what} must be finite in float32, but has infinite or NaN entries")
    return array


def _brief(array: np.ndarray) -> str:
    """Returns an array's type and range for a message."""
    return (
        f"{array.dtype} from {array.min()} to {array.max()}"
        if array.dtype.kind in "iufb"
        else str(array.dtype)
    )
