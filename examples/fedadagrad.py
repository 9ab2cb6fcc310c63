"""Your own server optimizer: FedAdagrad (Reddi et al. 2021)."""

import optax

import pausejax


@pausejax.server_optimizer
def fedadagrad(
    *,
    server_learning_rate: float,
    squares_at_first: float = pausejax.Parameter(
        1e-6, "FedAdagrad: initial value of the sum of squares", low=0
    ),
) -> optax.GradientTransformation:
    """Divides the mean update by the root of the sum of its squares so far."""
    scale = optax.scale_by_rss(initial_accumulator_value=squares_at_first, eps=1e-12)
    return optax.chain(scale, optax.scale(-server_learning_rate))
