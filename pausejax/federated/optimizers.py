"""Local optimizers: optax transformations without a learning rate, which multiplies what they return."""

from typing import Annotated

import optax

from pausejax import parts
from pausejax.parts import Parameter


@parts.optimizer
def adam() -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015)."""
    return optax.scale_by_adam()


@parts.optimizer
def sgd() -> optax.GradientTransformation:
    """Plain gradient steps."""
    return optax.identity()


@parts.optimizer
def momentum(
    *, momentum: Annotated[float, Parameter(help="of the optimizer momentum", low=0, high=1)] = 0.9
) -> optax.GradientTransformation:
    """Gradient steps with heavy-ball momentum."""
    return optax.trace(momentum)
