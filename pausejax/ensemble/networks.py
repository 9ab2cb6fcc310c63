"""Fits small ReLU networks for regression (flax) by full-batch Adam (optax)."""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

_LEARNING_RATE = 0.01
_STEPS = 1000


class FittedNetwork(NamedTuple):
    predictions: np.ndarray
    """float64 [n], the predictions on the stream."""
    num_parameters: int


class Network(nn.Module):
    """A feed-forward regressor with ReLU hidden layers and one linear output."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        for width in self.hidden:
            features = nn.relu(nn.Dense(width)(features))
        return nn.Dense(1)(features)[..., 0]


def fit_network(
    features: np.ndarray, targets: np.ndarray, stream: np.ndarray, *, hidden: tuple[int, ...], seed: int
) -> FittedNetwork:
    """Fits a network to (features [m, d], targets [m]) by least squares and predicts `stream` [n, d]."""
    parameters, predictions = _fit(
        Network(hidden),
        jax.random.key(seed),
        *(jnp.asarray(a, jnp.float32) for a in (features, targets, stream)),
    )
    return FittedNetwork(
        np.asarray(predictions, np.float64), sum(leaf.size for leaf in jax.tree.leaves(parameters))
    )


@partial(jax.jit, static_argnums=0)
def _fit(
    network: Network, key: jax.Array, features: jax.Array, targets: jax.Array, stream: jax.Array
) -> tuple[optax.Params, jax.Array]:
    optimizer = optax.adam(_LEARNING_RATE)

    def predict(parameters: Any, inputs: jax.Array) -> jax.Array:
        outputs: Any = network.apply(parameters, inputs)
        return outputs

    def loss(parameters: optax.Params) -> jax.Array:
        return jnp.mean(jnp.square(predict(parameters, features) - targets))

    def step(_: int, carry: tuple) -> tuple:
        parameters, state = carry
        gradient = jax.grad(loss)(parameters)
        with jax.numpy_dtype_promotion("standard"):  # optax counts its steps in integers
            updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state

    parameters = network.init(key, features)
    parameters, _ = jax.lax.fori_loop(0, _STEPS, step, (parameters, optimizer.init(parameters)))
    return parameters, predict(parameters, stream)
