"""Local optimizers: optax transformations whose result is later multiplied by the learning rate."""

from collections.abc import Mapping
from typing import Annotated, Any

import jax
import optax

from pausejax import parts
from pausejax.parts import Bound, Parameter


@parts.optimizer
def adam() -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015)."""
    return optax.scale_by_adam()


@parts.optimizer
def sgd() -> optax.GradientTransformation:
    """Takes plain gradient steps."""
    return optax.identity()


@parts.optimizer
def momentum(
    *,
    momentum: Annotated[
        float, Parameter(help="momentum: weight of the sum of past gradients", low=0, high=1)
    ] = 0.9,
) -> optax.GradientTransformation:
    """Takes gradient steps with heavy-ball momentum."""
    return optax.trace(momentum)


def transformation(part: Bound, values: Mapping[str, jax.Array]) -> optax.GradientTransformation:
    """Builds a local or server optimizer with its traced values, under standard dtype promotion.

    Optax's bias correction raises a float to the power of an integer, which strict promotion forbids.
    """
    made = part.build(**values)

    def init(params: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return made.init(params)

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):
            return made.update(gradient, state, params)

    return optax.GradientTransformation(init, update)
