"""Your own mechanism: every coordinate is sent as its sign, and signs are flipped at random."""

import jax
import jax.numpy as jnp
import numpy as np

import pausejax
from pausejax.privacy import Leakage, Mechanism


@pausejax.mechanism
def random_sign(
    *,
    sign_epsilon: float = pausejax.Parameter(1.0, "ε of one coordinate of one release", low=0, low_open=True),
    sign_step: float = pausejax.Parameter(
        1e-3, "size of the step that a sign stands for", low=0, low_open=True
    ),
) -> Mechanism:
    """Randomized response: each sign is sent unchanged with probability e^ε / (1 + e^ε)."""

    def release(key: jax.Array, upload: jax.Array, number: jax.Array) -> jax.Array:
        true = jax.random.bernoulli(key, jax.nn.sigmoid(sign_epsilon), upload.shape)
        sign = jnp.where(upload >= 0, sign_step, -sign_step)
        return jnp.where(true, sign, -sign)

    def leakage(releases: np.ndarray, num_parameters: int) -> Leakage:
        spent = releases * np.asarray(sign_epsilon)
        return Leakage(spent, num_parameters * spent)

    return Mechanism(release, leakage, protects="per coordinate")
