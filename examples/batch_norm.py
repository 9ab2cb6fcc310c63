"""A network in flax's linen with batch norm.

The key `batch_statistics` says how its running statistics are sent.
"""

import jax
from flax import linen as nn

import pausejax


class Network(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, images: jax.Array, training: bool) -> jax.Array:
        hidden = nn.Dense(32)(images.reshape(images.shape[0], -1))
        hidden = nn.relu(nn.BatchNorm(use_running_average=not training, momentum=0.9)(hidden))
        return nn.Dense(self.outputs)(hidden)


@pausejax.model
def batch_norm_mlp(*, num_outputs: int) -> nn.Module:
    """One hidden layer, normalized over the minibatch."""
    return Network(num_outputs)
