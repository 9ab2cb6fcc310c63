"""The networks the clients train, by name. A new model is one function that returns a flax module."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

Params = Any


class Model(NamedTuple):
    """A network as two pure functions; vmap `apply` over the parameters to run many clients."""

    init: Callable[[jax.Array], Params]
    """Maps a key to the initial parameters, float32."""
    apply: Callable[[Params, jax.Array], jax.Array]
    """Maps parameters and normalized images, float32 [B, H, W, C], to logits, [B, num_classes]."""


def linear(num_classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential([_flatten, _dense(num_classes)])


def mlp(num_classes: int) -> nn.Module:
    """Two hidden layers of 32 and 16 units: the paper's network for MNIST, 784-32-16-10."""
    return nn.Sequential([_flatten, _dense(32), nn.relu, _dense(16), nn.relu, _dense(num_classes)])


MODELS: dict[str, Callable[[int], nn.Module]] = {"linear": linear, "mlp": mlp}


def build(name: str, input_shape: tuple[int, int, int], num_classes: int) -> Model:
    """Builds a model for images of one shape.

    Args:
      name: one of `MODELS`.
      input_shape: (H, W, C).
      num_classes: the number of logits.

    Raises:
      ValueError: no model has this name.
    """
    if name not in MODELS:
        near = difflib.get_close_matches(str(name), MODELS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"model: unknown model {name!r}{hint}; known: {', '.join(MODELS)}")
    module = MODELS[name](num_classes)

    def init(key: jax.Array) -> Params:
        return module.init(key, jnp.zeros((1, *input_shape), jnp.float32))["params"]

    def apply(params: Params, images: jax.Array) -> jax.Array:
        return module.apply({"params": params}, images)

    return Model(init, apply)


# Uniform within ±1/√fan_in, as the framework of the paper's experiments draws weights.
_init_weights = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def _dense(units: int) -> nn.Module:
    return nn.Dense(units, kernel_init=_init_weights)


def _flatten(images: jax.Array) -> jax.Array:
    return images.reshape(images.shape[0], -1)
