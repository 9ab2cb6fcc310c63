"""A network in flax's nnx with dropout.

The network takes `rngs`, so each seed has its own initial weights.
"""

import jax
from flax import nnx

import pausejax


class Network(nnx.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int, rate: float, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(inputs, hidden, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.output = nnx.Linear(hidden, outputs, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        pixels = images.reshape(images.shape[0], -1)
        return self.output(self.dropout(nnx.relu(self.hidden(pixels))))


@pausejax.model
def dropout_mlp(
    *,
    input_shape: tuple[int, ...],
    num_outputs: int,
    rngs: nnx.Rngs,
    hidden_units: int = 32,
    dropout_rate: float = 0.2,
) -> nnx.Module:
    """One hidden layer with dropout."""
    inputs = input_shape[0] * input_shape[1] * input_shape[2]
    return Network(inputs, hidden_units, num_outputs, dropout_rate, rngs)
