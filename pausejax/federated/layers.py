"""Layers that stay fast when every client has its own weights.

`vmap` over the clients' kernels turns a convolution into a grouped convolution, whose gradient inside a loop
is slow on CPU. Slices, concatenation and a matrix product are fast. Max-pooling by reshape has a fast
gradient. This gradient also compiles if deterministic operations are required.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from pausejax.federated import placement
from pausejax.federated.placement import ConvVariant


def conv(images: jax.Array, kernel: jax.Array, variant: ConvVariant | None = None) -> jax.Array:
    """Computes a convolution without padding, stride 1.

    Args:
      images: [B, H, W, C].
      kernel: [h, w, C, D].
      variant: the implementation; None uses `placement.choose`. The results agree up to rounding.

    Returns:
      [B, H - h + 1, W - w + 1, D].

    Raises:
      ValueError: the kernel is larger than the images.
    """
    if images.shape[1] < kernel.shape[0] or images.shape[2] < kernel.shape[1]:
        raise ValueError(
            f"images: must have {kernel.shape[0]}x{kernel.shape[1]} pixels or more, the size of the "
            f"convolution's kernel, not {images.shape[1]}x{images.shape[2]}"
        )
    if not variant:
        backend = jax.default_backend()
        variant = placement.choose(backend, convolutional=True, num_parameters=kernel.size).conv
    if variant == "lax":
        return lax.conv_general_dilated(
            images, kernel, window_strides=(1, 1), padding="VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    kernel_height, kernel_width, channels, features = kernel.shape
    batch, height, width = (
        images.shape[0],
        images.shape[1] - kernel_height + 1,
        images.shape[2] - kernel_width + 1,
    )
    patches = jnp.concatenate(
        [
            images[:, row : row + height, column : column + width]
            for row in range(kernel_height)
            for column in range(kernel_width)
        ],
        axis=-1,
    )
    flat = patches.reshape(batch * height * width, kernel_height * kernel_width * channels)
    product = flat @ kernel.reshape(kernel_height * kernel_width * channels, features)
    return product.reshape(batch, height, width, features)


def max_pool(images: jax.Array, window: int = 2) -> jax.Array:
    """Computes maxima over disjoint windows, [B, H, W, C] -> [B, H // window, W // window, C].

    Rows and columns that do not fill a window are cropped.

    Raises:
      ValueError: the window is larger than the images.
    """
    batch, height, width, channels = images.shape
    if min(height, width) < window:
        raise ValueError(
            f"images: must have {window}x{window} pixels or more, the size of the pooling window, not "
            f"{height}x{width}"
        )
    rows, columns = height // window, width // window
    cropped = images[:, : rows * window, : columns * window]
    return cropped.reshape(batch, rows, window, columns, window, channels).max(axis=(2, 4))


class Conv(nn.Module):
    """Convolution with bias, [B, H, W, C] -> [B, H - size + 1, W - size + 1, features]."""

    features: int
    size: int
    variant: ConvVariant | None = None

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        shape = (self.size, self.size, images.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.zeros, shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return conv(images, kernel, self.variant) + bias.reshape(1, 1, 1, -1)


class GroupNorm(nn.Module):
    """Normalization of each image's groups of channels (Wu and He 2018), [B, ..., C] -> same shape.

    The layer has no statistics over images, so clients have none to send. The variance is computed in one
    pass as E[x²] - E[x]².
    """

    groups: int
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, values: jax.Array) -> jax.Array:
        channels = values.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (channels,))
        bias = self.param("bias", nn.initializers.zeros, (channels,))
        grouped = values.reshape(values.shape[0], -1, self.groups, channels // self.groups)
        mean = jnp.mean(grouped, axis=(1, 3), keepdims=True)
        mean_square = jnp.mean(jnp.square(grouped), axis=(1, 3), keepdims=True)
        deviation = lax.rsqrt(jnp.maximum(mean_square - jnp.square(mean), 0) + self.epsilon)
        normal = ((grouped - mean) * deviation).reshape(values.shape)
        per_channel = (1,) * (values.ndim - 1) + (channels,)
        return normal * scale.reshape(per_channel) + bias.reshape(per_channel)


class BatchNorm(nn.Module):
    """Normalization of every channel: by minibatch statistics in training, else by running statistics.

    The shape [B, ..., C] stays the same. A minibatch has weight 0.1 in the running statistics (Ioffe and
    Szegedy 2015).
    """

    @nn.compact
    def __call__(self, values: jax.Array, training: bool) -> jax.Array:
        return nn.BatchNorm(use_running_average=not training, momentum=0.9, name="norm")(values)
