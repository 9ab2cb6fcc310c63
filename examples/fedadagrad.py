"""A server optimizer of one's own: FedAdagrad, the third of Reddi et al. (2021)."""

import optax

import pausejax


@pausejax.server_optimizer
def fedadagrad(
    *,
    server_learning_rate: float,
    squares_at_first: float = pausejax.Parameter(1e-6, "FedAdagrad: the accumulator's start", low=0),
) -> optax.GradientTransformation:
    """Divides the mean update by the root of all squares so far; its step is that of the others."""
    scale = optax.scale_by_rss(initial_accumulator_value=squares_at_first, eps=1e-12)
    return optax.chain(scale, optax.scale(-server_learning_rate))
