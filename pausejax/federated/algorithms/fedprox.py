"""FedProx (Li et al. 2020)."""

import jax

from pausejax import parts
from pausejax.federated.algorithms.base import Algorithm, Local, Number
from pausejax.federated.modules import Params


@parts.algorithm
def fedprox(*, proximal_weight: Number) -> Algorithm:
    """Adds the gradient of ½ μ ‖w - w_t‖² to every local step of FedAvg (Li et al. 2020).

    A spec with `proximal_weight` but without `federated_algorithm` also uses FedProx.
    """

    def gradient(gradient: Params, local: Local) -> Params:
        return jax.tree.map(
            lambda g, w, start: g + proximal_weight * (w - start), gradient, local.params, local.start
        )

    return Algorithm(gradient=gradient)
