"""Built-in networks that clients train. A model part is a function that returns a flax module.

In these networks, every `kernel` and the `bias` of the same layer are drawn uniformly within ±1/√fan_in, in
place of the module's own initial values. All other parameters start as their modules say.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pausejax import parts
from pausejax.federated.layers import BatchNorm, Conv, GroupNorm, max_pool
from pausejax.federated.modules import Model, Params, Redrawn, adapt
from pausejax.federated.placement import ConvVariant
from pausejax.parts import Parameter, Part

_CONV_GROUPS = 4
_DENSE_GROUPS = 1

Norm = Annotated[
    Literal["group", "batch"],
    Parameter(help="built-in convolutional networks: group or batch normalization of the layers"),
]


class Layers(nn.Module):
    """Layers in sequence; batch norm layers also take whether the network trains."""

    layers: Sequence[Callable[..., jax.Array]]

    @nn.compact
    def __call__(self, inputs: jax.Array, training: bool) -> jax.Array:
        for layer in self.layers:
            inputs = layer(inputs, training) if isinstance(layer, BatchNorm) else layer(inputs)
        return inputs


@parts.model
def linear(*, num_outputs: int) -> Redrawn:
    """Multinomial logistic regression."""
    return _redrawn([_flatten, nn.Dense(num_outputs)])


@parts.model
def mlp(*, num_outputs: int) -> Redrawn:
    """Two hidden layers of 32 and 16 units: the paper's network for MNIST, 784-32-16-10."""
    return _redrawn([_flatten, nn.Dense(32), nn.relu, nn.Dense(16), nn.relu, nn.Dense(num_outputs)])


@parts.model
def cnn_mnist(*, num_outputs: int, conv_variant: ConvVariant | None, norm: Norm = "group") -> Redrawn:
    """Three 5x5 convolutions, 16, 16, 32 channels, then 32 units: 29,370 parameters on MNIST.

    The paper's code has dropout before the last layer. This network has no dropout.
    """
    return _redrawn(
        [
            Conv(16, 5, conv_variant),
            nn.relu,
            _norm(norm, _CONV_GROUPS),
            *_conv_block(16, 5, conv_variant, norm),
            *_conv_block(32, 5, conv_variant, norm),
            _flatten,
            nn.Dense(32),
            nn.relu,
            nn.Dense(num_outputs),
        ]
    )


@parts.model
def cnn_cifar(*, num_outputs: int, conv_variant: ConvVariant | None, norm: Norm = "group") -> Redrawn:
    """Three 3x3 convolutions, 32, 64, 128 channels, then 128, 64, 32 units: 170,474 parameters on CIFAR."""
    return _redrawn(
        [
            *_conv_block(32, 3, conv_variant, norm),
            *_conv_block(64, 3, conv_variant, norm),
            *_conv_block(128, 3, conv_variant, norm),
            _flatten,
            *_dense_block(128, norm),
            *_dense_block(64, norm),
            *_dense_block(32, norm),
            nn.Dense(num_outputs),
        ]
    )


def build(
    part: str | Part,
    input_shape: tuple[int, ...],
    num_outputs: int | tuple[int, ...],
    *,
    dtype: Any = jnp.float32,
    conv_variant: ConvVariant | None = None,
    **values: Any,
) -> Model:
    """Builds a model for inputs of one shape.

    Args:
      part: a model part or the name of a registered model part.
      input_shape: the shape of one prepared sample, (H, W, C) for images.
      num_outputs: the number of outputs for a sample, or their shape.
      dtype: the type of the inputs.
      conv_variant: the implementation of convolutions in built-in networks; None uses `placement.choose`.
      **values: values of the part's parameters; other values are ignored.

    Raises:
      ValueError: no model has this name.
      PartError: the model does not fit the inputs, or the part returns no valid model.
    """
    shape = num_outputs if isinstance(num_outputs, tuple) else (num_outputs,)
    example = jax.ShapeDtypeStruct((2, *input_shape), dtype)
    return adapt(parts.find("model", part), example, shape, {**values, "conv_variant": conv_variant})


def _draw_layers(key: jax.Array, params: Params) -> Params:
    """Draws every `kernel` and the `bias` of its layer uniformly within ±1/√fan_in, as PyTorch does.

    The biases matter in a network as narrow as `mlp`. A unit that is 0 for all images at the start stays 0.
    Biases of 0 make such units more frequent. All numbers come from one draw, because one draw for each leaf
    takes several times as long to compile.
    """
    leaves, structure = jax.tree.flatten_with_path(params)
    values = [leaf for _, leaf in leaves]
    place = {tuple(entry.key for entry in path): position for position, (path, _) in enumerate(leaves)}
    kernels = [path for path in place if path[-1] == "kernel"]
    drawn = kernels + [bias for path in kernels if (bias := (*path[:-1], "bias")) in place]
    if not drawn:
        return params
    ends = np.cumsum([values[place[path]].size for path in drawn])
    numbers = jax.random.uniform(key, (int(ends[-1]),), minval=-1.0, maxval=1.0)
    for path, piece in zip(drawn, jnp.split(numbers, ends[:-1]), strict=True):
        fan_in = np.prod(values[place[(*path[:-1], "kernel")]].shape[:-1])
        values[place[path]] = piece.reshape(values[place[path]].shape) * float(fan_in) ** -0.5
    return jax.tree.unflatten(structure, values)


def _redrawn(layers: Sequence[Callable[..., jax.Array]]) -> Redrawn:
    return Redrawn(Layers(layers), _draw_layers)


def _norm(kind: str, groups: int) -> nn.Module:
    return BatchNorm() if kind == "batch" else GroupNorm(groups)


def _conv_block(
    features: int, size: int, variant: ConvVariant | None, norm: str
) -> list[Callable[..., jax.Array]]:
    """Returns the layers convolution, ReLU, 2x2 maximum, norm, in the order of the paper's code."""
    return [Conv(features, size, variant), nn.relu, max_pool, _norm(norm, _CONV_GROUPS)]


def _dense_block(units: int, norm: str) -> list[Callable[..., jax.Array]]:
    return [nn.Dense(units), nn.relu, _norm(norm, _DENSE_GROUPS)]


def _flatten(images: jax.Array) -> jax.Array:
    return images.reshape(images.shape[0], -1)
