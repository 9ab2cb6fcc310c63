"""Server optimizers: optax transformations of the pseudo-gradient, which is minus the mean update.

The server adds the result of the transformation to the global model (Reddi et al. 2021, Algorithm 2).
"""

from typing import Annotated

import optax

from pausejax import parts
from pausejax.parts import Parameter

LEARNING_RATE = 0.1

ServerLearningRate = Annotated[
    float,
    Parameter(help="server optimizers except fedavg: learning rate of the server", low=0, low_open=True),
]
ServerMomentum = Annotated[
    float,
    Parameter(
        help="server optimizers except fedavg: β₁, weight of past updates", low=0, high=1, high_open=True
    ),
]
ServerSecondMoment = Annotated[
    float,
    Parameter(help="fedadam, fedyogi: β₂, weight of past squared updates", low=0, high=1, high_open=True),
]
ServerAdaptivity = Annotated[
    float,
    Parameter(
        help="fedadam, fedyogi: constant that is added to the root of the mean squared update",
        low=0,
        low_open=True,
    ),
]


@parts.server_optimizer
def fedavg() -> optax.GradientTransformation:
    """Adds the mean update (McMahan et al. 2017), (2)."""
    return optax.scale(-1.0)


@parts.server_optimizer
def fedavgm(
    *, server_learning_rate: ServerLearningRate = LEARNING_RATE, server_momentum: ServerMomentum = 0.9
) -> optax.GradientTransformation:
    """Applies momentum to the mean update (Hsu, Qi, Brown 2019).

    With the defaults, the weights of one update in this and all later steps sum to 1, as in FedAvg.
    """
    return optax.chain(optax.trace(server_momentum), optax.scale(-server_learning_rate))


@parts.server_optimizer
def fedadam(
    *,
    server_learning_rate: ServerLearningRate = LEARNING_RATE,
    server_momentum: ServerMomentum = 0.9,
    server_second_moment: ServerSecondMoment = 0.99,
    server_adaptivity: ServerAdaptivity = 1e-3,
) -> optax.GradientTransformation:
    """Applies Adam to the mean update (Reddi et al. 2021), with Adam's bias correction."""
    scale = optax.scale_by_adam(server_momentum, server_second_moment, server_adaptivity)
    return optax.chain(scale, optax.scale(-server_learning_rate))


@parts.server_optimizer
def fedyogi(
    *,
    server_learning_rate: ServerLearningRate = LEARNING_RATE,
    server_momentum: ServerMomentum = 0.9,
    server_second_moment: ServerSecondMoment = 0.99,
    server_adaptivity: ServerAdaptivity = 1e-3,
) -> optax.GradientTransformation:
    """Applies Yogi to the mean update (Reddi et al. 2021), with Adam's bias correction.

    The estimate of the second moment decreases slowly. Both moments start at 0.
    """
    # Optax starts both moments at 1e-6 by default. Then the model would move without any update.
    scale = optax.scale_by_yogi(
        server_momentum, server_second_moment, server_adaptivity, initial_accumulator_value=0.0
    )
    return optax.chain(scale, optax.scale(-server_learning_rate))
