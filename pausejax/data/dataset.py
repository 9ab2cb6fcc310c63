"""What a data set is to the rest of the package: raw pixels, labels, and how to normalize them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Dataset(NamedTuple):
    """Images with labels, on the host. Pixels stay uint8 until they are gathered on the device."""

    name: str
    train_images: np.ndarray
    """uint8 [N, H, W, C]."""
    train_labels: np.ndarray
    """int32 [N], in [0, num_classes)."""
    test_images: np.ndarray
    """uint8 [N_test, H, W, C]."""
    test_labels: np.ndarray
    """int32 [N_test]."""
    num_classes: int
    pixel_mean: float
    """Subtracted from the raw pixel values, in their units (0 to 255, or 0 to 16 for `digits`)."""
    pixel_std: float
    """Divides the centred pixel values."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        return self.train_images.shape[1:]


def normalize(pixels: jax.Array, pixel_mean: float, pixel_std: float) -> jax.Array:
    """(pixels - mean) / std as float32, same shape: apply it on the device after the gather."""
    return (pixels.astype(jnp.float32) - pixel_mean) / pixel_std
