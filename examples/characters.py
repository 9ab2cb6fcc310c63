"""A language model over characters, on text that ships with Python: the reference of its `help()`."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import pausejax
from pausejax.data import Dataset


@pausejax.dataset
def characters(*, sequence_length: int = 32, num_sequences: int = 2000) -> Dataset:
    """Pieces of the text; the targets are shifted by one character. The last tenth is the test set."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet, codes = np.unique(np.array(list(text)), return_inverse=True)
    length = min(num_sequences, (len(codes) - 1) // sequence_length)
    ends = length * sequence_length
    inputs = codes[:ends].reshape(length, sequence_length)
    targets = codes[1 : ends + 1].reshape(length, sequence_length)
    test = length // 10
    return Dataset(
        inputs[:-test], targets[:-test], inputs[-test:], targets[-test:], num_classes=len(alphabet)
    )


class Network(nn.Module):
    tokens: int
    width: int

    @nn.compact
    def __call__(self, codes: jax.Array) -> jax.Array:
        embedded = nn.Embed(self.tokens, self.width)(codes)
        # The output at a position depends on this character and the two before it.
        before = [jnp.pad(embedded, ((0, 0), (lag, 0), (0, 0)))[:, : codes.shape[1]] for lag in range(3)]
        hidden = nn.relu(nn.Dense(self.width)(jnp.concatenate(before, axis=-1)))
        return nn.Dense(self.tokens)(hidden)


@pausejax.model
def trigrams(*, num_outputs: int, width: int = 32) -> nn.Module:
    """Predicts a character from the three before it."""
    return Network(num_outputs, width)
