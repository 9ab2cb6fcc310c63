"""The networks the clients train, by name. A new model is one function that returns a flax module.

Every parameter named `kernel`, and the `bias` of the same layer, starts uniform within ±1/√fan_in, whatever
its module says; the others start as their modules say.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pausejax import parts
from pausejax.federated.layers import Conv, GroupNorm, max_pool
from pausejax.federated.placement import ConvVariant
from pausejax.parts import Part

Params = Any

_CONV_GROUPS = 4
_DENSE_GROUPS = 1


class Model(NamedTuple):
    """A network as two pure functions; vmap `apply` over the parameters to run many clients."""

    init: Callable[[jax.Array], Params]
    """Maps a key to the initial parameters, float32."""
    apply: Callable[[Params, jax.Array], jax.Array]
    """Maps parameters and normalized images, float32 [B, H, W, C], to logits, [B, num_classes]."""
    convolutional: bool


@parts.model
def linear(*, num_outputs: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential([_flatten, nn.Dense(num_outputs)])


@parts.model
def mlp(*, num_outputs: int) -> nn.Module:
    """Two hidden layers of 32 and 16 units: the paper's network for MNIST, 784-32-16-10."""
    return nn.Sequential([_flatten, nn.Dense(32), nn.relu, nn.Dense(16), nn.relu, nn.Dense(num_outputs)])


@parts.model
def cnn_mnist(*, num_outputs: int, conv_variant: ConvVariant | None) -> nn.Module:
    """Three 5x5 convolutions, 16, 16, 32 channels, then 32 units: 29,370 parameters on MNIST.

    The paper's code has dropout before the last layer; here there is none.
    """
    return nn.Sequential(
        [
            Conv(16, 5, conv_variant),
            nn.relu,
            GroupNorm(_CONV_GROUPS),
            *_conv_block(16, 5, conv_variant),
            *_conv_block(32, 5, conv_variant),
            _flatten,
            nn.Dense(32),
            nn.relu,
            nn.Dense(num_outputs),
        ]
    )


@parts.model
def cnn_cifar(*, num_outputs: int, conv_variant: ConvVariant | None) -> nn.Module:
    """Three 3x3 convolutions, 32, 64, 128 channels, then 128, 64, 32 units: 170,474 parameters on CIFAR."""
    return nn.Sequential(
        [
            *_conv_block(32, 3, conv_variant),
            *_conv_block(64, 3, conv_variant),
            *_conv_block(128, 3, conv_variant),
            _flatten,
            *_dense_block(128),
            *_dense_block(64),
            *_dense_block(32),
            nn.Dense(num_outputs),
        ]
    )


def build(
    part: str | Part,
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    conv_variant: ConvVariant | None = None,
    **values: Any,
) -> Model:
    """Builds a model for images of one shape.

    Args:
      part: a model or the name of a registered one.
      input_shape: (H, W, C).
      num_outputs: the number of logits.
      conv_variant: how the built-in ones do convolutions; None takes what `placement.choose` says.
      **values: of its own parameters; more is no mistake.

    Raises:
      ValueError: no model has this name, or the images are too small for it.
    """
    part = parts.find("model", part)
    given = {"input_shape": input_shape, "num_outputs": num_outputs, "conv_variant": conv_variant}
    module = part.build(**values, **given)

    def init(key: jax.Array) -> Params:
        params = module.init(key, jnp.zeros((1, *input_shape), jnp.float32))["params"]
        return _draw_layers(key, params)

    def apply(params: Params, images: jax.Array) -> jax.Array:
        logits: jax.Array = module.apply({"params": params}, images)  # type: ignore[assignment]
        return logits

    try:
        shapes = jax.eval_shape(init, jax.random.key(0))
    except ValueError as error:
        raise ValueError(
            f"model: {part.name!r} does not fit images of shape {tuple(input_shape)}: {error}"
        ) from error
    return Model(init, apply, convolutional=any(leaf.ndim > 2 for leaf in jax.tree.leaves(shapes)))


def _draw_layers(key: jax.Array, params: Params) -> Params:
    """Draws every `kernel`, and the `bias` beside it, uniformly within ±1/√fan_in, as the paper's framework.

    The biases matter: in a network as narrow as `mlp`, units that are off for all images at the start stay
    off, and with biases of 0 more of them are. All numbers come from one draw: one for each leaf takes
    several times as long to compile.
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


def _conv_block(
    features: int, size: int, variant: ConvVariant | None
) -> list[Callable[[jax.Array], jax.Array]]:
    """Convolution, ReLU, 2x2 maximum, norm: the order of the paper's code, with group norm for batch norm."""
    return [Conv(features, size, variant), nn.relu, max_pool, GroupNorm(_CONV_GROUPS)]


def _dense_block(units: int) -> list[Callable[[jax.Array], jax.Array]]:
    return [nn.Dense(units), nn.relu, GroupNorm(_DENSE_GROUPS)]


def _flatten(images: jax.Array) -> jax.Array:
    return images.reshape(images.shape[0], -1)
